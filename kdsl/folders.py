"""Where kdsl keeps what can be fetched again (cache) and what it has running (state) on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


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


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process of this machine at a time go on, as far as the operating system can (Windows cannot).

    Args:
        path: The file that they agree on; where its folder cannot be written to, nobody waits.
    """
    with ExitStack() as held:
        with suppress(ImportError, OSError):
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(path.open("w")), fcntl.LOCK_EX)
        yield


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
