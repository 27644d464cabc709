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
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.folders import locked, make_folder
from kdsl.testing.maven import Coordinate, fetch_jars

KAFKA_VERSION = "4.1.2"

COORDINATES = (
    "org.apache.kafka:kafka_2.13:{version}",
    "org.apache.kafka:kafka-tools:{version}@jar",  # the performance tools; the broker has what they depend on
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",  # without it a broker logs nothing
)

_BROKER = re.compile(r"kafka_2\.\d+-\d[^/]*\.jar$")
_CLIENTS = re.compile(r"kafka-clients-(\d[^/]*)\.jar$")


@attrs.frozen
class KafkaJars:
    """An Apache Kafka that can be run.

    Attributes:
        version: Its version, as ``4.1.2``; ``"unknown"`` where the jars do not say.
        jars: All jars of its class path.
        folder: A folder of kdsl's own for what is made from these jars.
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
    """Kafka's jars: of a folder, of the cache, or fetched from Maven Central (about 45 MB, once).

    Args:
        java: The ``java`` program that fetches.
        version: Kafka's version; ``$KDSL_KAFKA_VERSION``, else 4.1.2. Releases from 4.0 on can be had this way.
        coordinates: What to fetch instead of ``COORDINATES``, as ``group:artifact:version`` (``@jar`` behind it:
            without dependencies); ``$KDSL_KAFKA_COORDINATES``, separated by commas.
        jars: A folder of jars to take as they are, without a network, as ``libs/`` of Kafka's release;
            ``$KDSL_KAFKA_JARS``.
        on_progress: Told what is going on, a line at a time.

    Raises:
        DownloadError: The jars cannot be fetched.
        LocalKafkaError: The folder of jars holds no Kafka.
    """
    jars = jars or os.environ.get("KDSL_KAFKA_JARS")
    if jars:
        return _given(Path(jars).expanduser().absolute())
    named = os.environ.get("KDSL_KAFKA_COORDINATES")
    version = version or os.environ.get("KDSL_KAFKA_VERSION") or KAFKA_VERSION
    wanted = coordinates or (named.split(",") if named else [text.format(version=version) for text in COORDINATES])
    parsed = [Coordinate.parse(text) for text in wanted]
    digest = hashlib.sha256("\n".join(map(str, parsed)).encode()).hexdigest()[:12]
    folder = cache_dir() / "kafka" / digest
    found = _cached(folder)
    if found is None:
        on_progress(f"fetching {parsed[0]} (once)")
        with locked(cache_dir() / "ivy.lock"):  # two versions share Ivy's folder, too
            found = _cached(folder) or _fetch(parsed, folder, java=java, on_progress=on_progress)
    return found


def _fetch(
    coordinates: Sequence[Coordinate], folder: Path, *, java: Path, on_progress: Callable[[str], None]
) -> KafkaJars:
    shutil.rmtree(folder, ignore_errors=True)  # an attempt that was cut off
    fetch_jars(coordinates, folder / "jars", java=java, ivy=cache_dir() / "ivy", on_progress=on_progress)
    jars = _check(folder / "jars")
    stamp = {"coordinates": [str(c) for c in coordinates], "jars": {jar.name: jar.stat().st_size for jar in jars}}
    (folder / "stamp.json").write_text(json.dumps(stamp, indent=2), encoding="utf-8")
    return KafkaJars(version=_version(jars), jars=jars, folder=folder)


def _cached(folder: Path) -> KafkaJars | None:
    try:
        stamp: dict[str, dict[str, int]] = json.loads((folder / "stamp.json").read_text(encoding="utf-8"))
        jars = tuple(folder / "jars" / name for name in stamp["jars"])
        if any(jar.stat().st_size != size for jar, size in zip(jars, stamp["jars"].values(), strict=True)):
            return None
    except (OSError, ValueError, KeyError):
        return None
    return KafkaJars(version=_version(jars), jars=jars, folder=folder)


def _given(folder: Path) -> KafkaJars:
    jars = _check(folder)
    sizes = "\n".join(f"{jar} {jar.stat().st_size}" for jar in jars)
    digest = hashlib.sha256(sizes.encode()).hexdigest()[:12]
    return KafkaJars(version=_version(jars), jars=jars, folder=make_folder(cache_dir() / "kafka" / digest))


def _check(folder: Path) -> tuple[Path, ...]:
    jars = tuple(sorted(folder.glob("*.jar")))
    names = [jar.name for jar in jars]
    if not all(any(part.search(name) for name in names) for part in (_BROKER, _CLIENTS)):
        raise LocalKafkaError(
            f"{folder} holds no Apache Kafka: a kafka_2.13 and a kafka-clients jar are needed, with all that they "
            "depend on; give the libs folder of a Kafka release"
        )
    return jars


def _version(jars: Sequence[Path]) -> str:
    versions = [found[1] for jar in jars if (found := _CLIENTS.search(jar.name))]
    return versions[0] if versions else "unknown"
