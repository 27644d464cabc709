"""Where kdsl keeps what it fetched (cache) and what it has running (state) on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kdsl.testing.errors import LocalKafkaError


def cache_dir() -> Path:
    """The folder of things that can be fetched again.

    ``$KDSL_CACHE``, else ``$XDG_CACHE_HOME/kdsl``, else ``~/.cache/kdsl``.
    """
    return _own() or _under("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """The folder that remembers running brokers.

    ``$KDSL_CACHE/state``, else ``$XDG_STATE_HOME/kdsl``, else ``~/.local/state/kdsl``.
    """
    own = _own()
    return own / "state" if own else _under("XDG_STATE_HOME", ".local/state")


def make_folder(path: Path) -> Path:
    """Make a folder and its parents, or say which one cannot be made.

    Raises:
        LocalKafkaError: The folder cannot be written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalKafkaError(
            f"The folder {path} cannot be made ({error.strerror}); set KDSL_CACHE to a folder that can be written to"
        ) from error
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; it ends with the process that holds it.

    Raises:
        LocalKafkaError: This operating system has no such locks (Windows).
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
    """Whether another process, of any language, holds a lock on a file."""
    import fcntl

    try:
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _own() -> Path | None:
    named = os.environ.get("KDSL_CACHE")
    return Path(named).expanduser().absolute() if named else None


def _under(variable: str, folder: str) -> Path:
    named = os.environ.get(variable)
    if named:
        return Path(named).expanduser().absolute() / "kdsl"
    try:
        return Path.home() / folder / "kdsl"
    except RuntimeError:  # a container user without a home
        return Path(tempfile.gettempdir()) / f"kdsl-{os.getuid()}"
