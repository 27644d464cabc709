"""The folders of kdsl on this machine: downloads that can be repeated (cache), and running brokers (state)."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock

from kdsl.errors import KdslError

_lock = Lock()
_folders: dict[tuple[int, str], Path] = {}


class FolderError(KdslError):
    """A folder for kdsl's files that other users could write to."""


def cache_dir() -> Path:
    """The folder for downloads that can be repeated.

    ``$KDSL_CACHE``, else ``$XDG_CACHE_HOME/kdsl``, else ``~/.cache/kdsl``; for a user without a home, or with one that
    every user can write to, ``kdsl-UID`` in the folder of temporary files. Only this last one is created here.
    """
    return _own() or _user_folder("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """The folder that remembers running brokers.

    ``$KDSL_CACHE/state``, else ``$XDG_STATE_HOME/kdsl``, else ``~/.local/state/kdsl``; for a user without a home as
    `cache_dir`.
    """
    own = _own()
    return own / "state" if own else _user_folder("XDG_STATE_HOME", ".local/state")


def state_cache_dir() -> Path:
    """The folder for copies of files of states in object stores, which only this user can read; it is created.

    ``$KDSL_STATE_CACHE``, else ``state`` in the folder ``kdsl-UID`` among the temporary files. A FolderError is
    raised if another user owns it or can write to it.
    """
    named = os.environ.get("KDSL_STATE_CACHE")
    if named:
        path = Path(named).expanduser().absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        return _create_own_folder(path, "KDSL_STATE_CACHE")
    path = Path(tempfile.gettempdir()) / f"kdsl-{os.getuid()}"
    return _create_own_folder(_create_own_folder(path, "KDSL_STATE_CACHE") / "state", "KDSL_STATE_CACHE")


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Wait for a lock that only one process of this machine can have, and hold it while the body runs.

    Where the operating system does not support it (Windows), or the file cannot be written, the body runs without a
    lock. The file and its folder are created if they do not exist.

    Args:
        path: The lock file.
    """
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(path.open("w")), fcntl.LOCK_EX)
        yield


@contextmanager
def try_exclusive_lock(path: Path) -> Iterator[bool]:
    """Take a lock that only one process of this machine can have, and say whether it was free; hold it for the body.

    Where the operating system does not support it (Windows), it counts as free. The folder of the file must exist.

    Args:
        path: The lock file, which is created if it does not exist.
    """
    with path.open("w") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            yield True
        except BlockingIOError:
            yield False
        else:
            yield True


def process_folder(purpose: str) -> Path:
    """The folder of this process for a purpose, which only the user can read; a fork has its own.

    It is created at the first use, and deleted when the process ends.

    Args:
        purpose: A part of the folder's name: ``kdsl-PURPOSE-…``.
    """
    key = (os.getpid(), purpose)
    with _lock:
        if key not in _folders:
            _folders[key] = Path(tempfile.mkdtemp(prefix=f"kdsl-{purpose}-"))
            atexit.register(_remove, key)
        return _folders[key]


def _remove(key: tuple[int, str]) -> None:
    """Delete and forget a folder of `process_folder`; a failure to delete it is ignored.

    Nothing happens in a fork of the process that created it.
    """
    if key[0] == os.getpid() and key in _folders:
        shutil.rmtree(_folders.pop(key), ignore_errors=True)


def _own() -> Path | None:
    """Return the absolute path that the environment variable KDSL_CACHE names; None if it is not set, or is empty."""
    named = os.environ.get("KDSL_CACHE")
    return Path(named).expanduser().absolute() if named else None


def _user_folder(variable: str, folder: str) -> Path:
    """Return the folder ``kdsl`` in the one that a variable names, or else in a folder of the user's home.

    Without a home, or with one that every user can write to, it is that of `_create_temporary_folder`, with its
    errors. The others are not created.
    """
    named = os.environ.get(variable)
    if named:
        return Path(named).expanduser().absolute() / "kdsl"
    try:
        home = Path.home()
        shared = bool(home.stat().st_mode & stat.S_IWOTH)  # as /tmp, where another user may have created the folder
    except (RuntimeError, FileNotFoundError):  # a container user without a home
        return _create_temporary_folder()
    return _create_temporary_folder() if shared else home / folder / "kdsl"


def _create_temporary_folder() -> Path:
    """Create kdsl's folder among the temporary files if it does not exist, and return it.

    kdsl runs files from it (jars, scripts of brokers), so it must not be a folder that another user could write to.
    """
    return _create_own_folder(Path(tempfile.gettempdir()) / f"kdsl-{os.getuid()}", "KDSL_CACHE")


def _create_own_folder(path: Path, variable: str) -> Path:
    """Create a folder that only this user can read, if it does not exist; another user may have created one before.

    Args:
        path: The folder.
        variable: The environment variable that names another one, for messages.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        reason = "it is not a folder"
    elif status.st_uid != os.getuid():
        reason = f"it belongs to another user (uid {status.st_uid})"
    elif status.st_mode & 0o022:
        reason = f"other users can write to it (mode {stat.S_IMODE(status.st_mode):o})"
    else:
        return path
    home = ", or give this user a home (HOME)" if variable == "KDSL_CACHE" else ""
    raise FolderError(
        f"{path} cannot be used for files of kdsl: {reason}; set the environment variable {variable} to a folder of "
        f"your own{home}"
    )
