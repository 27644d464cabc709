"""Apicurio Registry, fetched once per machine and kept in kdsl's cache."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from kdsl.folders import cache_dir
from kdsl.testing.errors import LocalRegistryError
from kdsl.testing.folders import locked
from kdsl.testing.maven import Coordinate, fetch_jars

REGISTRY_VERSION = "3.0.9"
"""The newest that runs on Java 17."""

_COORDINATE = "io.apicurio:apicurio-registry-app:{version}:all@tar.gz"
_RUNNER = "apicurio-registry-app-*-runner.jar"


def find_registry(
    *, java: Path, version: str | None = None, on_progress: Callable[[str], None] = lambda _: None
) -> Path:
    """The jar that runs the registry: of a folder, of the cache, or fetched from Maven Central (about 110 MB, once).

    Args:
        java: The ``java`` program that fetches.
        version: Apicurio's version; ``$KDSL_REGISTRY_VERSION``, else 3.0.9.
        on_progress: Told what is going on, a line at a time.

    Raises:
        DownloadError: It cannot be fetched.
        LocalRegistryError: The folder ``$KDSL_REGISTRY_APP``, which is taken as it is, holds no registry.
    """
    given = os.environ.get("KDSL_REGISTRY_APP")
    if given:
        return _runner(Path(given).expanduser().absolute())
    version = version or os.environ.get("KDSL_REGISTRY_VERSION") or REGISTRY_VERSION
    folder = cache_dir() / "registry" / version
    if not folder.is_dir():
        with locked(cache_dir() / "ivy.lock"):
            if not folder.is_dir():
                _fetch(version, folder, java=java, on_progress=on_progress)
    return _runner(folder)


def _fetch(version: str, folder: Path, *, java: Path, on_progress: Callable[[str], None]) -> None:
    coordinate = Coordinate.parse(_COORDINATE.format(version=version))
    on_progress(f"fetching {coordinate} (once)")
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # an attempt that was cut off
    fetch_jars([coordinate], draft / "archive", java=java, ivy=cache_dir() / "ivy", on_progress=on_progress)
    for archive in (draft / "archive").iterdir():
        with tarfile.open(archive) as packed:
            packed.extractall(draft / "app", filter="data")
    (draft / "app").rename(folder)
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(cache_dir() / "ivy" / coordinate.group / coordinate.artifact, ignore_errors=True)  # the archive again


def _runner(folder: Path) -> Path:
    found = sorted(folder.glob(_RUNNER))
    if not found:
        raise LocalRegistryError(
            f"{folder} holds no {_RUNNER}; unpack Apicurio's apicurio-registry-app-VERSION-all.tar.gz there"
        )
    return found[-1]
