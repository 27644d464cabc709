"""Finds key files on this machine: stores, certificates, keytabs, also those that are fetched or shipped.

A path is looked up as it is, then among the files that Spark ships (``spark.files``, ``--files``). A URL
(``s3://…``) is fetched by a plug-in of the group ``kdsl.files``, once per process, and kept in memory.

What a library can read only from a file goes into a folder that only this user may open: a key for as long as the
library reads it (`load_key`), anything else until the process ends. Workers of PySpark are forks that end without
Python's exit handlers, and any process may be killed. So the name of a folder identifies its process, and the next
process that creates one removes the folders of processes that have ended.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from kdsl.errors import KdslError, listing
from kdsl.plugins import PluginError, PluginGroup

FETCHERS = PluginGroup("kdsl.files", "fetcher of files")

Fetcher = Callable[[str], bytes]
"""Returns the content of the file at a URL."""

_SCHEME = re.compile(r"([A-Za-z][\w+.-]+)://")
_PREFIX = "kdsl-keys"
_NAME = re.compile(rf"{_PREFIX}-(?P<machine>[0-9a-f]{{8}})-(?P<pid>[0-9]+)-(?P<start>[0-9]+)-.+")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADER = re.compile(r"\s*((?:[\w-]+:[^\r\n]*[\r\n]+)+)")
_folder: tuple[int, Path] | None = None


class KeyFileError(KdslError):
    """A key file that is not available on this machine."""


def scheme(location: str) -> str | None:
    """The scheme of a URL, in lower case; None for a path, also for one of Windows, as ``C:/keys``."""
    match = _SCHEME.match(location)
    return match[1].lower() if match else None


def explain_unreachable(location: str) -> str | None:
    """Say why no machine can read the file at a location, by its scheme alone; None if some machine may."""
    kind = scheme(location)
    schemes = FETCHERS.find_all()
    if kind is None or kind == "file" or kind in schemes:
        return None
    known = f"there are fetchers for {listing(schemes)}" if schemes else "no package registers a fetcher"
    return (
        f"it is not a local file ({kind}://), and {known} (an entry point of the group {FETCHERS.name!r} with the name "
        "of the scheme)"
    )


def find_file(location: str) -> str:
    """Find a key file on this machine, or fetch it into a file that only this user may read, and return its path.

    A fetched file is removed when the process ends.

    Args:
        location: A path or ``file:`` URL, which is also looked for by its name among the files that Spark ships and in
            the working directory; or another URL, fetched once per process.
    """
    kind = scheme(location)
    if kind not in (None, "file"):
        name = PurePosixPath(urlsplit(location).path).name or "file"
        return str(write_private_file(name, _fetch(location, str(kind))))
    path = Path(unquote(urlsplit(location).path)) if kind else Path(location)
    for candidate in (path, *_find_shipped(path.name)):
        if candidate.is_file():
            return str(candidate)
    raise KeyFileError(
        f"{location} is not a file on {socket.gethostname()}; copy it to the driver and to every executor, or ship it "
        "with Spark (spark.files, --files) and write its name"
    )


def read_file(location: str) -> bytes:
    """Read a key file; fetched content is not written to disk.

    Args:
        location: A path or a URL.
    """
    kind = scheme(location)
    return Path(find_file(location)).read_bytes() if kind in (None, "file") else _fetch(location, str(kind))


def write_private_file(name: str, content: bytes) -> Path:
    """Write a file that only this user may read, and return its path; OSError if that fails.

    It is in the folder of this process for fetched files. The same content with the same name is written once.
    """
    path = _private_folder() / f"{hashlib.sha256(content).hexdigest()[:24]}-{name}"
    if not path.exists():
        handle, draft = tempfile.mkstemp(dir=path.parent)  # mode 0600; threads may write the same content at once
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(draft).replace(path)
    return path


def load_key(context: ssl.SSLContext, pem: str, password: str | None = None) -> None:
    """Load a client's key and certificates into a TLS context.

    Python's ``ssl`` reads them only from a file, which is removed as soon as it has been read.

    Args:
        context: The context.
        pem: The key and its chain of certificates.
        password: The password of the key, where it has one.
    """
    folder = _create_folder()
    try:
        path = folder / "key.pem"
        path.touch(mode=0o600)
        path.write_text(pem, encoding="utf-8")
        context.load_cert_chain(path, password=lambda: password or "")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_shipped(name: str) -> list[Path]:
    """The paths where Spark may have put a shipped file; they need not exist."""
    files = sys.modules.get("pyspark.core.files") or sys.modules.get("pyspark.files")
    root = getattr(getattr(files, "SparkFiles", None), "_root_directory", None)
    folders = [Path(root, name)] if root else []
    return [*folders, Path.cwd() / name]


def _private_folder() -> Path:
    """Return the folder of this process for fetched files, created at the first call (OSError) and removed at exit."""
    global _folder
    if _folder is None or _folder[0] != os.getpid() or not _folder[1].is_dir():  # a fork has its own folder
        _folder = (os.getpid(), _create_folder())
        atexit.register(_remove, *_folder)
    return _folder[1]


def _create_folder() -> Path:
    """Create a folder for this process, mode 0700, and remove those of ended processes; OSError if it cannot."""
    _remove_stale_folders(Path(tempfile.gettempdir()))
    owner = f"{_PREFIX}-{_machine()}-{os.getpid()}-{_start_time(os.getpid()) or 0}-"
    return Path(tempfile.mkdtemp(prefix=owner))


def _remove_stale_folders(parent: Path) -> None:
    """Remove the folders that ended processes of this user and this machine have left; what fails is left again."""
    for path in parent.glob(f"{_PREFIX}-*"):
        named = _NAME.fullmatch(path.name)
        if named is None or named["machine"] != _machine():
            continue
        with suppress(OSError):
            owned = path.lstat().st_uid == os.getuid() and not path.is_symlink()
            if owned and not _is_running(int(named["pid"]), int(named["start"])):
                shutil.rmtree(path, ignore_errors=True)


def _is_running(pid: int, start: int) -> bool:
    """Return whether a process with this id and start time runs; True also for one of another user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return (_start_time(pid) or start) == start  # another process may have the same id by now


def _start_time(pid: int) -> int | None:
    """When a process was started, in kernel ticks; None if there is no such process, and always except on Linux."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(state[state.rindex(b")") :].split()[20])  # the name before it may contain anything


@cache
def _machine() -> str:
    """An identifier of this machine, or of this container: the scope of process ids."""
    try:
        numbers = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        numbers = ""
    return hashlib.sha256(f"{socket.gethostname()} {numbers}".encode()).hexdigest()[:8]


def _remove(owner: int, folder: Path) -> None:
    """Remove a folder if this is the process that created it, and not a fork; errors are ignored."""
    if owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _fetch(location: str, kind: str) -> bytes:
    """Fetch a file with the fetcher of its scheme, and return its content; each location once per process."""
    if kind not in FETCHERS.find_all():
        raise KeyFileError(
            f"{location} cannot be fetched: {explain_unreachable(location)}; copy the file to the driver and to every "
            "executor and write its path, or install a fetcher"
        )
    try:
        fetch: Fetcher = FETCHERS.load(kind)
        return fetch(location)
    except PluginError as e:
        raise KeyFileError(f"{location} cannot be fetched on {socket.gethostname()}: {e}") from None
    except Exception as e:  # noqa: BLE001  # another package's; its message may contain credentials
        failure = type(e).__name__
    raise KeyFileError(
        f"{location} cannot be fetched on {socket.gethostname()}: the fetcher {kind!r} of the group "
        f"{FETCHERS.name!r} failed with {failure}; call it alone to see why"
    )


def pem_blocks(text: str, ending: str) -> str:
    """Extract the PEM blocks of one kind, with lines of 64 characters, as OpenSSL needs them.

    Args:
        text: PEM; anything around its blocks is left out, and what is in them is not checked.
        ending: How the label of the blocks ends: ``CERTIFICATE`` or ``PRIVATE KEY``.

    Returns:
        The blocks, or an empty string if there are none of that kind.
    """
    return "".join(_format_pem(label, body) for label, body in _BLOCK.findall(text) if label.endswith(ending))


def _format_pem(label: str, body: str) -> str:
    """Write a PEM block with lines of 64 characters; the headers of an old encrypted key stay."""
    header = _HEADER.match(body)  # Proc-Type and DEK-Info of an old encrypted key
    data = "".join(body[header.end() if header else 0 :].split())
    lines = [data[at : at + 64] for at in range(0, len(data), 64)]
    head = f"{header[1].strip()}\n\n" if header else ""
    return f"-----BEGIN {label}-----\n{head}{chr(10).join(lines)}\n-----END {label}-----\n"
