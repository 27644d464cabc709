"""Kafka Connect, Debezium's connector and Apicurio's Avro converter, fetched once and kept in kdsl's cache."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from pathlib import Path

import attrs

from kdsl.folders import cache_dir
from kdsl.testing.downloads import download
from kdsl.testing.folders import lock_file
from kdsl.testing.kafka_jars import KAFKA_VERSION

DEBEZIUM_VERSION = "3.6.3.Final"
APICURIO_VERSION = "2.6.13.Final"
"""The newest converter that speaks to `kdsl.testing.LocalRegistry` by its API of version 2."""

_LIBS = (
    f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-json:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-transforms:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
_CONNECTOR = f"io.debezium:debezium-connector-postgres:{DEBEZIUM_VERSION}:plugin@tar.gz"
_CONVERTER = (f"io.apicurio:apicurio-registry-utils-converter:{APICURIO_VERSION}",)


@attrs.frozen
class ConnectJars:
    """A Kafka Connect that can be run.

    Attributes:
        libs: The folder with the jars of its class path.
        plugins: The folder with one folder for each plug-in.
    """

    libs: Path
    plugins: Path


def find_connect(java: Path) -> ConnectJars:
    """The jars from the cache, or fetched from Maven Central (about 110 MB, once).

    Args:
        java: The ``java`` program that fetches.

    Raises:
        DownloadError: They cannot be fetched.
    """
    digest = hashlib.sha256("\n".join((*_LIBS, _CONNECTOR, *_CONVERTER)).encode()).hexdigest()[:12]
    folder = cache_dir() / "connect" / digest
    with lock_file(cache_dir() / "ivy.lock"):
        if not folder.is_dir():
            draft = folder.with_name(f"{digest}.draft")
            shutil.rmtree(draft, ignore_errors=True)  # an attempt that was cut off
            _fetch(_LIBS, draft / "libs", java)
            _fetch(_CONVERTER, draft / "plugins" / "apicurio", java)
            for jar in (draft / "plugins" / "apicurio").glob("org.apache.kafka_*.jar"):
                jar.unlink()  # of an older Kafka; the worker has its own
            _fetch((_CONNECTOR,), draft / "archives", java)
            for archive in (draft / "archives").iterdir():
                with tarfile.open(archive) as packed:
                    packed.extractall(draft / "plugins", filter="data")
            shutil.rmtree(draft / "archives")
            draft.rename(folder)
    return ConnectJars(folder / "libs", folder / "plugins")


def _fetch(coordinates: tuple[str, ...], into: Path, java: Path) -> None:
    download(
        coordinates,
        into,
        java=java,
        alternative="name a repository in KDSL_MAVEN_REPOSITORY",
        on_progress=lambda _: None,
    )
