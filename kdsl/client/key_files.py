"""Where key files are on this machine: stores, certificates, keytabs, and what is fetched or shipped.

A path is looked for as it stands, then among the files that Spark ships (``spark.files``, ``--files``). An address
(``oss://…``, ``obs://…``, ``s3://…``) is fetched by a plug-in of the group ``kdsl.files``, once a process, into a
folder that only this user may open and that goes with the process.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from kdsl.errors import KdslError, listing

GROUP = "kdsl.files"

Fetcher = Callable[[str], bytes]
"""Gives the content of the file at an address."""

_SCHEME = re.compile(r"([A-Za-z][\w+.-]+)://")
_lock = threading.Lock()
_folder: tuple[int, Path] | None = None


class KeyFileError(KdslError):
    """A key file that cannot be had on this machine."""


@cache
def fetchers() -> Mapping[str, EntryPoint]:
    """The entry points of the installed fetchers by scheme; none is loaded."""
    return {point.name: point for point in entry_points(group=GROUP)}


def scheme(location: str) -> str | None:
    """The scheme of an address, in lower case; None for a path."""
    found = _SCHEME.match(location)
    return found[1].lower() if found else None


def unreachable(location: str) -> str | None:
    """Why the file at a location cannot be had on any machine; None where it may be there."""
    kind = scheme(location)
    if kind is None or kind == "file" or kind in fetchers():
        return None
    known = f"there are fetchers for {listing(fetchers())}" if fetchers() else "no package registers a fetcher"
    return (
        f"it is no file of this machine ({kind}://), and {known} (entry points of the group {GROUP!r}, named after "
        "the scheme)"
    )


def local_path(location: str) -> str:
    """The path of a key file on this machine.

    Args:
        location: A path, or an address.

    Raises:
        KeyFileError: There is no such file here, nobody can fetch it, or the fetcher failed.
    """
    kind = scheme(location)
    if kind not in (None, "file"):
        return str(_fetched(location, str(kind)))
    path = Path(unquote(urlsplit(location).path)) if kind else Path(location)
    for candidate in (path, *_shipped(path.name)):
        if candidate.is_file():
            return str(candidate)
    raise KeyFileError(
        f"{location} is no file on {socket.gethostname()}; put it there on the driver and on every executor, or ship "
        "it with Spark (spark.files, --files) and write its name"
    )


def private_file(name: str, content: bytes) -> Path:
    """A file of this process that only this user may read; the same content is written once."""
    path = _private_folder() / f"{hashlib.sha256(content).hexdigest()[:24]}-{name}"
    with _lock:
        if not path.exists():
            draft = path.with_suffix(".draft")
            draft.touch(mode=0o600)
            draft.write_bytes(content)
            draft.replace(path)
    return path


def _shipped(name: str) -> list[Path]:
    """Where Spark puts files that it ships."""
    files = sys.modules.get("pyspark.core.files") or sys.modules.get("pyspark.files")
    root = getattr(getattr(files, "SparkFiles", None), "_root_directory", None)
    found = [Path(root, name)] if root else []
    return [*found, Path.cwd() / name]


def _private_folder() -> Path:
    global _folder
    with _lock:
        if _folder is None or _folder[0] != os.getpid() or not _folder[1].is_dir():  # a fork has a folder of its own
            _folder = (os.getpid(), Path(tempfile.mkdtemp(prefix="kdsl-keys-")))  # mode 0700
            atexit.register(_remove, *_folder)
        return _folder[1]


def _remove(owner: int, folder: Path) -> None:
    if owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _fetched(location: str, kind: str) -> Path:
    point = fetchers().get(kind)
    if point is None:
        raise KeyFileError(f"{location} cannot be had: {unreachable(location)}")
    try:
        fetch: Fetcher = point.load()
        content = fetch(location)
    except Exception as e:  # noqa: BLE001  # it is somebody else's; its text may hold credentials
        raise KeyFileError(
            f"{location} cannot be fetched on {socket.gethostname()}: the fetcher {kind!r} of the group {GROUP!r} "
            f"failed with {type(e).__name__}; call it alone to see why"
        ) from None
    return private_file(PurePosixPath(urlsplit(location).path).name or "file", content)
