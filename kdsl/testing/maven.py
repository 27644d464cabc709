"""Fetches jars from Maven Central with the Ivy that comes inside pyspark: no Maven, no Spark session.

Ivy runs in a JVM of its own that ends with the download. It has its own folder and one repository, so neither a
half-filled ``~/.m2`` nor the second repository of Spark's resolver can get in the way.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

import attrs

from kdsl.testing.errors import DownloadError
from kdsl.testing.folders import make_folder

_JAR_TYPES = ("jar", "bundle", "orbit", "hk2-jar", "maven-plugin", "eclipse-plugin")  # packagings whose file is a jar
_DOWNLOADING = re.compile(r"^downloading \S*/([^/\s]+\.jar)")
_UNREACHABLE = re.compile(r"Host (?P<host>\S+) not found|Server access error at url (?P<url>\S+) \((?P<why>.*)\)")
_MISSING = re.compile(r":: (\S+#\S+;\S+): (.*)")
_FAILED_FILE = re.compile(r"\[(?:NOT FOUND|FAILED)\s*\] (\S+)")
_REFUSED = re.compile(r"HTTP response status: (\d+) url=(\S+)")


@attrs.frozen
class Coordinate:
    """One artifact in a Maven repository.

    Attributes:
        group: The organisation, as ``org.apache.kafka``.
        artifact: The name, as ``kafka_2.13``.
        version: The version, as ``4.1.2``.
        alone: Only this jar, without what it depends on (written ``@jar``).
        archive: Only this file, as ``all@tar.gz``: its classifier and its ending (written ``:all@tar.gz``).
    """

    group: str
    artifact: str
    version: str
    alone: bool = False
    archive: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read ``group:artifact:version``, or the same with ``@jar`` or ``:classifier@ending`` behind it.

        Raises:
            DownloadError: The text has another form.
        """
        name, _, kind = text.strip().partition("@")
        parts = name.split(":")
        if len(parts) == 4 and all(parts) and kind not in ("", "jar"):
            return cls(group=parts[0], artifact=parts[1], version=parts[2], archive=f"{parts[3]}@{kind}")
        if len(parts) != 3 or not all(parts) or kind not in ("", "jar"):
            raise DownloadError(f"{text!r} is no Maven coordinate; write group:artifact:version, or …@jar for one jar")
        return cls(group=parts[0], artifact=parts[1], version=parts[2], alone=bool(kind))

    def __str__(self) -> str:
        name = f"{self.group}:{self.artifact}:{self.version}"
        return f"{name}:{self.archive}" if self.archive else f"{name}{'@jar' if self.alone else ''}"


def repository() -> str | None:
    """The repository that jars come from; None is Ivy's own, which is Maven Central.

    ``$KDSL_MAVEN_REPOSITORY``, else ``$DEFAULT_ARTIFACT_REPOSITORY`` (which Spark obeys, too).
    """
    named = os.environ.get("KDSL_MAVEN_REPOSITORY") or os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    return named.rstrip("/") + "/" if named else None


def fetch_jars(
    coordinates: Sequence[Coordinate], into: Path, *, java: Path, ivy: Path, on_progress: Callable[[str], None]
) -> None:
    """Fetch artifacts and what they depend on.

    Args:
        coordinates: What to fetch.
        into: The folder that gets the jars, named ``group_artifact-version.jar``.
        java: The ``java`` program.
        ivy: Ivy's folder; what it holds is not fetched again.
        on_progress: Told a line about each jar on its way.

    Raises:
        DownloadError: The network, the repository or one of the files is missing.
    """
    make_folder(into)
    make_folder(ivy)
    with tempfile.TemporaryDirectory(prefix="kdsl-ivy-") as folder:
        settings, module = Path(folder, "settings.xml"), Path(folder, "ivy.xml")
        poms = not all(c.archive for c in coordinates)  # a file by itself depends on nothing
        settings.write_text(_settings(ivy, repository(), poms=poms), encoding="utf-8")
        module.write_text(_module(coordinates), encoding="utf-8")
        command = [
            str(java),
            *_proxy(),
            "-Divy.maven.lookup.sources=false",
            "-Divy.maven.lookup.javadoc=false",
            "-cp",
            os.pathsep.join(map(str, _ivy_jars())),
            "org.apache.ivy.Main",
            *("-settings", str(settings), "-ivy", str(module), "-confs", "default"),
            *("-types", *_JAR_TYPES, *(c.archive.partition("@")[2] for c in coordinates if c.archive)),
            *("-retrieve", f"{into}/[organisation]_[artifact]-[revision](-[classifier]).[ext]"),
        ]
        code, lines = _run(command, on_progress)
    if code != 0 or not any(into.iterdir()):
        raise DownloadError(_reason(lines, coordinates, ivy))


def _run(command: list[str], on_progress: Callable[[str], None]) -> tuple[int, list[str]]:
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


def _reason(lines: Iterable[str], coordinates: Sequence[Coordinate], ivy: Path) -> str:
    text = "\n".join(lines)
    what = f"{coordinates[0]} cannot be fetched from {_shown(repository())}"
    unreachable = _UNREACHABLE.search(text)
    if unreachable:
        host = unreachable["host"] or urlsplit(unreachable["url"]).hostname
        why = unreachable["why"] or "host not found"
        return (
            f"{what}: {host} cannot be reached ({why}); check the network and HTTPS_PROXY, name a mirror in "
            "KDSL_MAVEN_REPOSITORY, or name a folder of Kafka's jars in KDSL_KAFKA_JARS"
        )
    refused = [found for found in _REFUSED.finditer(text) if found[1] != "404"]
    if refused:
        return (
            f"{what}: it answers HTTP {refused[0][1]}; name a repository that may be read in KDSL_MAVEN_REPOSITORY, "
            "or a folder of Kafka's jars in KDSL_KAFKA_JARS"
        )
    failed = sorted(set(_FAILED_FILE.findall(text)))
    if failed:
        return (
            f"{what}: the download of {', '.join(failed)} failed; the repository, or {ivy}, has the descriptions but "
            "not the jars (a half-filled ~/.m2/repository named as repository does that): use Maven Central, or remove "
            f"{ivy} and try again"
        )
    missing = [f"{name.replace('#', ':').replace(';', ':')} ({why})" for name, why in _MISSING.findall(text)]
    if missing:
        return f"{what}: {', '.join(missing)}; check the version and the repository"
    tail = " | ".join([line.strip() for line in lines if line.strip()][-3:])
    return f"{what}: {tail or 'Ivy says nothing'}"


def _ivy_jars() -> list[Path]:
    found = importlib.util.find_spec("pyspark")  # finds it without importing it
    folders = [Path(place, "jars") for place in (found.submodule_search_locations or () if found else ())]
    if os.environ.get("SPARK_HOME"):
        folders.append(Path(os.environ["SPARK_HOME"], "jars"))
    for folder in folders:
        jars = [*sorted(folder.glob("ivy-*.jar")), *sorted(folder.glob("commons-cli-*.jar"))]
        if len(jars) >= 2:
            return jars
    raise DownloadError(
        "Kafka's jars are fetched with the Ivy inside pyspark's jars, and none was found; install pyspark, or name a "
        "folder of Kafka's jars in KDSL_KAFKA_JARS"
    )


def _settings(ivy: Path, named: str | None, *, poms: bool = True) -> str:
    root = f" root={quoteattr(named)}" if named else ""
    return f"""<ivysettings>
  <settings defaultResolver="repository"/>
  <caches defaultCacheDir={quoteattr(str(ivy))}/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="repository" m2compatible="true" usepoms="{str(poms).lower()}"{root} timeoutConstraint="patient"/>
  </resolvers>
</ivysettings>
"""


def _module(coordinates: Sequence[Coordinate]) -> str:
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
    """The one file that is wanted of an artifact; nothing where it is the artifact's own."""
    if not coordinate.archive:
        return ""
    classifier, _, ending = coordinate.archive.partition("@")
    return (
        f"<artifact name={quoteattr(coordinate.artifact)} type={quoteattr(ending)} ext={quoteattr(ending)} "
        f"m:classifier={quoteattr(classifier)}/>"
    )


def _proxy() -> list[str]:
    """Java's spelling of the proxy that pip and curl take from the environment."""
    flags = []
    for scheme in ("https", "http"):
        named = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY")
        proxy = urlsplit(named if "//" in named else f"//{named}") if named else None
        if proxy and proxy.hostname:
            flags += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    skipped = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    if flags and skipped:
        hosts = "|".join(f"*{name}" if name.startswith(".") else name for name in re.split(r"[,\s]+", skipped) if name)
        flags.append(f"-Dhttp.nonProxyHosts={hosts}")
    return flags


def _shown(url: str | None) -> str:
    return "Maven Central" if url is None else re.sub(r"//[^/@]*@", "//", url)  # a password may stand before the host
