"""Downloads of jars into kdsl's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kdsl.folders import cache_dir
from kdsl.ivy import Coordinate, IvyError, fetch_jars
from kdsl.testing.errors import DownloadError
from kdsl.testing.folders import make_folder


def download(
    coordinates: Sequence[str], into: Path, *, java: Path, alternative: str, on_progress: Callable[[str], None]
) -> None:
    """Fetch artifacts and their dependencies from Maven Central, or from the configured repository.

    The caller must hold the lock ``ivy.lock`` of kdsl's cache, because processes share Ivy's folder there.

    Args:
        coordinates: What to fetch, as ``group:artifact:version``, ``…@jar`` or ``…:classifier@extension``.
        into: The folder for the jars; it is created.
        java: The ``java`` program that runs Ivy.
        alternative: What to do where no repository can be reached, for the error.
        on_progress: Called with a line about each jar that is downloaded.

    Raises:
        DownloadError: The artifacts cannot be fetched, or a coordinate cannot be read.
        LocalKafkaError: A folder cannot be created.
        FolderError: As for `cache_dir`.
        OSError: The ``java`` program cannot be started.
    """
    try:
        fetch_jars(
            [Coordinate.parse(coordinate) for coordinate in coordinates],
            make_folder(into),
            java=java,
            ivy=make_folder(cache_dir() / "ivy"),
            alternative=alternative,
            on_progress=on_progress,
        )
    except IvyError as error:
        raise DownloadError(str(error)) from None
