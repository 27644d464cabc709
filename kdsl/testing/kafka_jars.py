"""The jars of Apache Kafka, fetched once per machine and kept in kdsl's cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from kdsl.folders import cache_dir
from kdsl.testing.downloads import download
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.folders import lock_file, make_folder

KAFKA_VERSION = "4.1.2"

COORDINATES = (
    "org.apache.kafka:kafka_2.13:{version}",
    "org.apache.kafka:kafka-tools:{version}@jar",  # the performance tools; the broker has their dependencies
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",  # without it a broker logs nothing
)

_ALTERNATIVE = "name a folder of Kafka's jars in KDSL_KAFKA_JARS"
_BROKER = re.compile(r"kafka_2\.\d+-\d[^/]*\.jar$")
_CLIENTS = re.compile(r"kafka-clients-(\d[^/]*)\.jar$")


@attrs.frozen
class KafkaJars:
    """An Apache Kafka that can be run.

    Attributes:
        version: Its version, as ``4.1.2``; ``"unknown"`` where no jar is named after it.
        jars: All jars of its class path.
        folder: A folder in kdsl's cache for files that are derived from these jars.
    """

    version: str
    jars: tuple[Path, ...]
    folder: Path

    @property
    def classpath(self) -> str:
        """The class path for ``java -cp``."""
        return os.pathsep.join(map(str, self.jars))


def find_kafka(
    *,
    java: Path,
    version: str | None = None,
    coordinates: Sequence[str] | None = None,
    jars: str | Path | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> KafkaJars:
    """Find Kafka's jars in a folder or in the cache, or fetch them from Maven Central (about 45 MB, once).

    Args:
        java: The ``java`` program that runs Ivy.
        version: Kafka's version, 4.0 or later; ``$KDSL_KAFKA_VERSION``, else 4.1.2.
        coordinates: What to fetch instead of ``COORDINATES``, as ``group:artifact:version`` (followed by ``@jar``:
            without dependencies); ``$KDSL_KAFKA_COORDINATES``, separated by commas.
        jars: A folder of jars to use without a network, such as ``libs/`` of a Kafka release; ``$KDSL_KAFKA_JARS``.
            The version and the coordinates do not matter then.
        on_progress: Called with a line about each step.

    Raises:
        DownloadError: The jars cannot be fetched.
        LocalKafkaError: The folder of jars, or what was fetched, does not contain Kafka, or a folder of kdsl's cache
            cannot be created.
        FolderError: As for `cache_dir`.
        OSError: The ``java`` program cannot be started, or a file cannot be written.
    """
    jars = jars or os.environ.get("KDSL_KAFKA_JARS")
    if jars:
        return _read_folder(Path(jars).expanduser().absolute())
    named = os.environ.get("KDSL_KAFKA_COORDINATES")
    version = version or os.environ.get("KDSL_KAFKA_VERSION") or KAFKA_VERSION
    wanted = coordinates or (named.split(",") if named else [each.format(version=version) for each in COORDINATES])
    wanted = [coordinate.strip() for coordinate in wanted]
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
    folder = cache_dir() / "kafka" / digest
    kafka = _read_cache(folder)
    if kafka is None:
        on_progress(f"fetching {wanted[0]} (once)")
        with lock_file(cache_dir() / "ivy.lock"):  # two versions share Ivy's folder
            kafka = _read_cache(folder) or _fetch(wanted, folder, java=java, on_progress=on_progress)
    return kafka


def _fetch(coordinates: Sequence[str], folder: Path, *, java: Path, on_progress: Callable[[str], None]) -> KafkaJars:
    """Fetch Kafka's jars into a folder, emptied first, and stamp it as complete."""
    shutil.rmtree(folder, ignore_errors=True)  # the rest of an interrupted attempt
    download(coordinates, folder / "jars", java=java, alternative=_ALTERNATIVE, on_progress=on_progress)
    jars = _list_jars(folder / "jars")
    stamp = {"coordinates": list(coordinates), "jars": {jar.name: jar.stat().st_size for jar in jars}}
    (folder / "stamp.json").write_text(json.dumps(stamp, indent=2), encoding="utf-8")
    return KafkaJars(version=_version(jars), jars=jars, folder=folder)


def _read_cache(folder: Path) -> KafkaJars | None:
    """Return the jars that were fetched into a folder; None if they are not complete."""
    try:
        stamp: dict[str, dict[str, int]] = json.loads((folder / "stamp.json").read_text(encoding="utf-8"))
        jars = tuple(folder / "jars" / name for name in stamp["jars"])
        if any(jar.stat().st_size != size for jar, size in zip(jars, stamp["jars"].values(), strict=True)):
            return None
    except (OSError, ValueError, KeyError):
        return None
    return KafkaJars(version=_version(jars), jars=jars, folder=folder)


def _read_folder(folder: Path) -> KafkaJars:
    """Return the jars of a user's folder, and create a folder in kdsl's cache for files derived from them."""
    jars = _list_jars(folder)
    sizes = "\n".join(f"{jar} {jar.stat().st_size}" for jar in jars)
    digest = hashlib.sha256(sizes.encode()).hexdigest()[:12]
    return KafkaJars(version=_version(jars), jars=jars, folder=make_folder(cache_dir() / "kafka" / digest))


def _list_jars(folder: Path) -> tuple[Path, ...]:
    """Return the jars in a folder, sorted, after checking that a broker's and a client's are among them."""
    jars = tuple(sorted(folder.glob("*.jar")))
    names = [jar.name for jar in jars]
    if not all(any(part.search(name) for name in names) for part in (_BROKER, _CLIENTS)):
        raise LocalKafkaError(
            f"{folder} does not contain Apache Kafka: a kafka_2.13 and a kafka-clients jar are needed, with all their "
            "dependencies; name the libs folder of a Kafka release"
        )
    return jars


def _version(jars: Sequence[Path]) -> str:
    """Return Kafka's version, which is in the name of its clients' jar; ``unknown`` without such a jar."""
    versions = [match[1] for jar in jars if (match := _CLIENTS.search(jar.name))]
    return versions[0] if versions else "unknown"
