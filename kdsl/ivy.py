"""Apache Ivy, which fetches jars from Maven repositories: kdsl uses the copy that comes inside pyspark.

`fetch_jars` runs Ivy in a JVM of its own, without a Spark session. It has its own folder and one repository, so neither
a half-filled ``~/.m2`` nor the second repository of Spark's resolver can get in the way. A Spark session resolves jars
with the same Ivy in the driver's JVM (`kdsl.run.java_clients.jars`). `explain_failure` reads what either of them
printed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

import attrs

from kdsl.errors import KdslError
from kdsl.secrets.hiding import redact_addresses

_JAR_TYPES = ("jar", "bundle", "orbit", "hk2-jar", "maven-plugin", "eclipse-plugin")  # packagings whose file is a jar
_DOWNLOADING = re.compile(r"^downloading \S*/([^/\s]+\.jar)")
_UNREACHABLE = re.compile(
    r"Host (?P<host>\S+) not found|Server access error at url (?P<url>\S+)(?: \((?P<reason>.*)\))?"
)
# Spark's resolver asks the repository of Spark packages as well, which is often out of reach and never needed.
_SPARK_PACKAGES = "repos.spark-packages.org"
_REFUSED = re.compile(r"HTTP response status: (\d+) url=(\S+)")
# The program prints a table of failures, and Spark's resolver joins them into the message of its exception.
_FAILED_DOWNLOAD = re.compile(r"\[(?:NOT FOUND|FAILED)\s*\] (\S+)|download failed: ([^\s,\]]+)")
_UNRESOLVED = re.compile(r":: (?P<a>\S+#\S+;\S+): (?P<b>.*)|unresolved dependency: (?P<c>[^:\s]+): (?P<d>[^\],]+)")


class IvyError(KdslError):
    """Jars cannot be fetched, or a coordinate cannot be read."""


@attrs.frozen
class Coordinate:
    """One artifact in a Maven repository.

    Attributes:
        group: The organisation, as ``org.apache.kafka``.
        artifact: The name, as ``kafka_2.13``.
        version: The version, as ``4.1.2``.
        alone: Whether to fetch only this jar, without its dependencies (written ``@jar``).
        archive: The classifier and extension of the one file to fetch, as ``all@tar.gz`` (written ``:all@tar.gz``).
    """

    group: str
    artifact: str
    version: str
    alone: bool = False
    archive: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Parse ``group:artifact:version``, optionally followed by ``@jar`` or ``:classifier@extension``."""
        name, _, kind = text.strip().partition("@")
        parts = name.split(":")
        if len(parts) == 4 and all(parts) and kind not in ("", "jar"):
            return cls(group=parts[0], artifact=parts[1], version=parts[2], archive=f"{parts[3]}@{kind}")
        if len(parts) != 3 or not all(parts) or kind not in ("", "jar"):
            raise IvyError(
                f"{text!r} is not a Maven coordinate; write group:artifact:version, or …@jar for the jar without its "
                "dependencies"
            )
        return cls(group=parts[0], artifact=parts[1], version=parts[2], alone=bool(kind))

    def __str__(self) -> str:
        name = f"{self.group}:{self.artifact}:{self.version}"
        return f"{name}:{self.archive}" if self.archive else f"{name}{'@jar' if self.alone else ''}"


def repository() -> str | None:
    """The URL of the repository that jars come from; None means Ivy's default, Maven Central.

    ``$KDSL_MAVEN_REPOSITORY``, else ``$DEFAULT_ARTIFACT_REPOSITORY``, which Spark uses too; with a slash at its end.
    """
    named = os.environ.get("KDSL_MAVEN_REPOSITORY") or os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    return named.rstrip("/") + "/" if named else None


def fetch_jars(
    coordinates: Sequence[Coordinate],
    into: Path,
    *,
    java: Path,
    ivy: Path,
    alternative: str,
    on_progress: Callable[[str], None],
) -> None:
    """Fetch artifacts into a folder, with the dependencies of those that are not `alone`.

    Args:
        coordinates: What to fetch; if each is an `archive`, no dependencies are fetched.
        into: The existing folder for the files, which are named ``group_artifact-version(-classifier).extension``.
        java: The ``java`` program.
        ivy: Ivy's folder, which exists; jars that it holds are not downloaded again.
        alternative: What to do where no repository can be reached, for the error.
        on_progress: Called with a line about each jar that is downloaded.
    """
    with tempfile.TemporaryDirectory(prefix="kdsl-ivy-") as folder:
        settings, module = Path(folder, "settings.xml"), Path(folder, "ivy.xml")
        poms = not all(c.archive for c in coordinates)  # a single file has no dependencies
        settings.write_text(_write_settings(ivy, repository(), poms=poms), encoding="utf-8")
        module.write_text(_module(coordinates), encoding="utf-8")
        command = [
            str(java),
            *_build_proxy_flags(),
            "-Divy.maven.lookup.sources=false",
            "-Divy.maven.lookup.javadoc=false",
            "-cp",
            os.pathsep.join(map(str, _find_ivy(alternative))),
            "org.apache.ivy.Main",
            *("-settings", str(settings), "-ivy", str(module), "-confs", "default"),
            *("-types", *_JAR_TYPES, *(c.archive.partition("@")[2] for c in coordinates if c.archive)),
            *("-retrieve", f"{into}/[organisation]_[artifact]-[revision](-[classifier]).[ext]"),
        ]
        code, lines = _run(command, on_progress)
    if code != 0 or not any(into.iterdir()):
        named = repository()
        source = "Maven Central" if named is None else re.sub(r"//.*@", "//", named)  # up to the last @
        raise IvyError(
            explain_failure(
                "\n".join(lines),
                subject=f"{coordinates[0]} cannot be fetched from {source}",
                folder=str(ivy),
                mirror="KDSL_MAVEN_REPOSITORY",
                alternative=alternative,
            )
        )


def explain_failure(output: str, error: str = "", *, subject: str, folder: str, mirror: str, alternative: str) -> str:
    """Write one sentence for an error: why Ivy could not fetch some jars, and what to do about it.

    If the cause is unknown, the first line of ``error`` is quoted, with ``alternative`` as advice; without ``error``
    the last lines of ``output``, without advice. Passwords in addresses of both are hidden.

    Args:
        output: What Ivy printed.
        error: The message of the exception; empty if Ivy ran as a program.
        subject: The beginning of the sentence: what could not be fetched.
        folder: Ivy's folder.
        mirror: The settings that name another repository.
        alternative: What to do without a repository.
    """
    output, error = redact_addresses(output), redact_addresses(error)  # Ivy quotes those of repositories
    unreachable = next(_ignore_spark_packages(_UNREACHABLE, f"{output}\n{error}"), None)
    if unreachable:
        host = unreachable["host"] or urlsplit(unreachable["url"]).hostname
        reason = unreachable["reason"] or "host not found"
        return (
            f"{subject}: {host} cannot be reached ({reason}); check the network and the proxy (HTTPS_PROXY), name a "
            f"mirror in {mirror}, or {alternative}"
        )
    refused = [match[1] for match in _ignore_spark_packages(_REFUSED, f"{output}\n{error}") if match[1] != "404"]
    if refused:
        return (
            f"{subject}: the repository answers HTTP {refused[0]}; name a repository that you may read in {mirror}, or "
            f"{alternative}"
        )
    details = error or output
    failed = sorted({_coordinate(match[1] or match[2]) for match in _FAILED_DOWNLOAD.finditer(details)})
    if failed:
        return (
            f"{subject}: the download of {', '.join(failed)} failed: a folder or repository that Ivy reads has the "
            "descriptions without the jars (a half-filled ~/.m2/repository, which any Maven run leaves behind, or "
            f"{folder}); remove them there, or {alternative}"
        )
    missing = [
        f"{_coordinate(match['a'] or match['c'])} ({(match['b'] or match['d']).strip()})"
        for match in _UNRESOLVED.finditer(details)
    ]
    if missing:
        return f"{subject}: {', '.join(dict.fromkeys(missing))}; check the version and the repository, or {alternative}"
    last = [line.strip() for line in output.splitlines() if line.strip()][-3:]
    reason = " | ".join(error.strip().splitlines()[:1] or last) or "Ivy gave no reason"
    return f"{subject}: {reason}; or {alternative}" if error else f"{subject}: {reason}"


def _ignore_spark_packages(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches that are not about the repository of Spark packages."""
    return (match for match in pattern.finditer(text) if _SPARK_PACKAGES not in match[0])


def _coordinate(name: str) -> str:
    """Ivy's ``group#artifact;version!file.jar`` as a Maven coordinate."""
    return name.split("!")[0].replace("#", ":").replace(";", ":")


def _run(command: list[str], on_progress: Callable[[str], None]) -> tuple[int, list[str]]:
    """Run a command, and return its exit code and the lines of its output and errors; each fetched jar is reported.

    The process is killed on an exception. OSError if it cannot be started.
    """
    lines: list[str] = []
    count = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                jar = _DOWNLOADING.match(line)
                if jar:
                    count += 1
                    on_progress(f"fetching jar {count}: {jar[1]}")
        except BaseException:
            process.kill()
            raise
    return process.returncode, lines


def _find_ivy(alternative: str) -> list[Path]:
    """Find the jars of Ivy and of the parser of its command line among those of pyspark, or else of ``$SPARK_HOME``."""
    pyspark = importlib.util.find_spec("pyspark")  # without importing it
    folders = [Path(path, "jars") for path in (pyspark.submodule_search_locations or () if pyspark else ())]
    if os.environ.get("SPARK_HOME"):
        folders.append(Path(os.environ["SPARK_HOME"], "jars"))
    for folder in folders:
        jars = [*sorted(folder.glob("ivy-*.jar")), *sorted(folder.glob("commons-cli-*.jar"))]
        if len(jars) >= 2:
            return jars
    raise IvyError(
        f"pyspark's jars, which contain the Ivy that fetches jars, were not found; install pyspark, or {alternative}"
    )


def _write_settings(ivy: Path, named: str | None, *, poms: bool = True) -> str:
    """Write Ivy's settings: its cache folder and the repository, which is Maven Central if None.

    Without ``poms`` the descriptions of artifacts are not read, and so no dependencies are fetched.
    """
    root = f" root={quoteattr(named)}" if named else ""
    return f"""<ivysettings>
  <settings defaultResolver="repository"/>
  <caches defaultCacheDir={quoteattr(str(ivy))}/>
  <timeout-constraints>
    <timeout-constraint name="long" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="repository" m2compatible="true" usepoms="{str(poms).lower()}"{root} timeoutConstraint="long"/>
  </resolvers>
</ivysettings>
"""


def _module(coordinates: Sequence[Coordinate]) -> str:
    """Return Ivy's description, as XML, of a module that depends on the artifacts: alone, or with what they need."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(c.group)} name={quoteattr(c.artifact)} rev={quoteattr(c.version)}"
        f' conf="default->{"master" if c.alone else "default"}">{_file(c)}</dependency>'
        for c in coordinates
    )
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kdsl" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def _file(coordinate: Coordinate) -> str:
    """The element for a single file of an artifact; empty if the artifact's jar is meant."""
    if not coordinate.archive:
        return ""
    classifier, _, ending = coordinate.archive.partition("@")
    return (
        f"<artifact name={quoteattr(coordinate.artifact)} type={quoteattr(ending)} ext={quoteattr(ending)} "
        f"m:classifier={quoteattr(classifier)}/>"
    )


def _build_proxy_flags() -> list[str]:
    """Build the JVM's flags ``-Dhttp(s).proxyHost=…`` from the proxies that pip and curl read from the environment.

    With a proxy there is also ``-Dhttp.nonProxyHosts=…`` from ``no_proxy``. Logins in the proxies are ignored.
    """
    flags = []
    for scheme in ("https", "http"):
        named = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY")
        try:
            proxy = urlsplit(named if "//" in named else f"//{named}") if named else None
            port = (proxy.port if proxy else None) or 80
        except ValueError:  # its message may quote a part of a password
            raise IvyError(f"the proxy in {scheme}_proxy is not an address; write http://HOST:PORT") from None
        if proxy and proxy.hostname:
            flags += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={port}"]
    skipped = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    if flags and skipped:
        hosts = "|".join(f"*{name}" if name.startswith(".") else name for name in re.split(r"[,\s]+", skipped) if name)
        flags.append(f"-Dhttp.nonProxyHosts={hosts}")
    return flags
