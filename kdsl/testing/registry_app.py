"""Apicurio Registry, fetched once per machine and kept in kdsl's cache."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from kdsl.folders import cache_dir
from kdsl.testing.downloads import download
from kdsl.testing.errors import LocalRegistryError
from kdsl.testing.folders import lock_file

REGISTRY_VERSION = "3.0.9"
"""The newest that runs on Java 17."""
API_PATH = "/apis/ccompat/v7"
"""The path of Confluent's API in its URL."""

_COORDINATE = "io.apicurio:apicurio-registry-app:{version}:all@tar.gz"
_ALTERNATIVE = "name a folder with Apicurio's runner jar in KDSL_REGISTRY_APP"
_RUNNER = "apicurio-registry-app-*-runner.jar"


def find_registry(
    *, java: Path, version: str | None = None, on_progress: Callable[[str], None] = lambda _: None
) -> Path:
    """Find the registry's jar in a folder or in the cache, or fetch it from Maven Central (about 110 MB, once).

    Args:
        java: The ``java`` program that runs Ivy.
        version: Apicurio's version; ``$KDSL_REGISTRY_VERSION``, else 3.0.9. It does not matter if
            ``$KDSL_REGISTRY_APP`` names a folder.
        on_progress: Called with a line about each step.

    Raises:
        DownloadError: It cannot be fetched.
        TarError: The archive is damaged.
        LocalRegistryError: The folder that ``$KDSL_REGISTRY_APP`` names, or the cache, does not contain the registry.
        LocalKafkaError: A folder of kdsl's cache cannot be created.
        FolderError: As for `cache_dir`.
        OSError: The ``java`` program cannot be started, or a file cannot be written.
    """
    named = os.environ.get("KDSL_REGISTRY_APP")
    if named:
        return _find_runner(Path(named).expanduser().absolute())
    version = version or os.environ.get("KDSL_REGISTRY_VERSION") or REGISTRY_VERSION
    folder = cache_dir() / "registry" / version
    if not folder.is_dir():
        with lock_file(cache_dir() / "ivy.lock"):
            if not folder.is_dir():
                _fetch(version, folder, java=java, on_progress=on_progress)
    return _find_runner(folder)


def _fetch(version: str, folder: Path, *, java: Path, on_progress: Callable[[str], None]) -> None:
    """Fetch the registry's archive, unpack it into a new folder, and delete the archive and Ivy's copy of it.

    The folder gets its name when it is complete; after an error, a draft of it stays until the next attempt.
    """
    coordinate = _COORDINATE.format(version=version)
    on_progress(f"fetching {coordinate} (once)")
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # of an attempt that was interrupted
    download([coordinate], draft / "archive", java=java, alternative=_ALTERNATIVE, on_progress=on_progress)
    for archive in (draft / "archive").iterdir():
        with tarfile.open(archive) as packed:
            packed.extractall(draft / "app", filter="data")
    (draft / "app").rename(folder)
    shutil.rmtree(draft, ignore_errors=True)
    group, artifact, *_ = coordinate.split(":")
    shutil.rmtree(cache_dir() / "ivy" / group / artifact, ignore_errors=True)  # Ivy's copy of the archive


def _find_runner(folder: Path) -> Path:
    """Return the jar that runs the registry; the last by name if there are several."""
    jars = sorted(folder.glob(_RUNNER))
    if not jars:
        raise LocalRegistryError(
            f"{folder} contains no {_RUNNER}; unpack Apicurio's apicurio-registry-app-VERSION-all.tar.gz there"
        )
    return jars[-1]
