"""Ends the brokers with the process that started them, also when that process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

from kdsl.testing import _watchdog

_watching: set[Watchdog] = set()


class Watchdog:
    """Ends processes when this process ends, however it ends.

    Attributes:
        mark: A unique argument, which must be on the command line of each of these processes.
    """

    def __init__(self) -> None:
        self.mark = f"-Dkdsl.mark={uuid.uuid4().hex}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, remove: Path | None) -> None:
        """Start the process that kills the service's processes when this one ends, and removes a folder.

        Args:
            remove: The folder; None removes nothing.
        """
        # It has its own session, so that neither Ctrl-C nor a signal to the owner's process group ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(_watchdog.__file__)), self.mark, *([str(remove)] if remove else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _watching.add(self)  # otherwise the garbage collection of this object would look like the end of the owner

    def stop(self) -> None:
        """Let the watchdog kill all processes that still run and remove the folder, and wait for that."""
        self._finish(b"")

    def detach(self) -> None:
        """End the watchdog; the service's processes outlive this one."""
        self._finish(b"live\n")

    def _finish(self, word: bytes) -> None:
        """Send the last word to the watchdog's process, and wait for its end; without a word it kills the processes."""
        _watching.discard(self)
        process, self._process = self._process, None
        if process is not None:
            process.communicate(word)

    def _forget_in_child(self) -> None:
        """Close the pipe in a forked child, which would otherwise keep it open after the owner's end."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.returncode = 0  # it is not a child of this process, so Python does not wait for it
            self._process = None


def _after_fork() -> None:
    """Close the pipes to the watchdogs of the parent in a forked process, and forget them."""
    for watchdog in list(_watching):
        watchdog._forget_in_child()  # noqa: SLF001
    _watching.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
