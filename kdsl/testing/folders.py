"""Folders that several processes of this machine share, and locks between them (`kdsl.folders` says where they are)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kdsl.testing.errors import LocalKafkaError


def make_folder(path: Path) -> Path:
    """Create a folder and its parents if they do not exist, and return it.

    Raises:
        LocalKafkaError: It cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalKafkaError(
            f"The folder {path} cannot be created ({error.strerror}); name one that this user can write to: for data "
            "with data_dir=, for kdsl's cache in the environment variable KDSL_CACHE"
        ) from error
    return path


def read_tail(log: Path, lines: int = 25) -> str:
    """Read the last lines of a log, of its last 64 KiB at most; empty if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 65536))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Wait for a lock between processes, and hold it for the body, at most until this process ends.

    The file is created if it does not exist, and stays.

    Raises:
        LocalKafkaError: This operating system has no such locks (Windows), or the folder cannot be created.
    """
    try:
        import fcntl
    except ImportError:
        raise LocalKafkaError(
            "A local Kafka runs on Linux and macOS; on Windows, run it inside WSL, or name a broker that is elsewhere"
        ) from None
    make_folder(path.parent)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """Whether another process, of any language, holds a POSIX lock on a file, as Java does; not that of `lock_file`.

    False if there is no such file. A file that this user may not open counts as locked.
    """
    import fcntl

    try:
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
