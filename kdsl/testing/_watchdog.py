"""A process that outlives its owner for a moment, to end the processes that the owner left.

Run as a program: ``python _watchdog.py MARK [FOLDER]``. Standard input is a pipe from the owner. When it closes,
however the owner ended, every process with the argument MARK on its command line is killed and FOLDER is removed;
unless the owner wrote a line before, which lets the processes continue. A pipe works on every system, however the owner
ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

_STARTING = 100
"""How many times the command line of a starting process is read, 0.01 s apart."""


def main() -> None:
    """Wait for the end of the owner; then kill the processes with MARK, wait for their end, and remove FOLDER, if any.

    An owner that writes to standard input has detached its processes: nothing is killed or removed.
    """
    mark, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stdin.buffer.read():
        return
    me = os.getpid()
    left = [process for process in psutil.process_iter() if process.pid != me and mark in _arguments(process)]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_ended(left, 30)  # otherwise they would keep writing to the folder
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def wait_ended(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait for the end of processes; return those that have not ended in time."""
    end = time.monotonic() + seconds
    left = list(processes)
    while left and time.monotonic() < end:
        time.sleep(0.02)
        left = [process for process in left if not _has_ended(process)]
    return left


def _arguments(process: psutil.Process) -> list[str]:
    """Return the command line of a process that may just be starting; empty if it has ended."""
    try:
        for _ in range(_STARTING):
            if (command := process.cmdline()) or not process.exe():
                return command
            time.sleep(0.01)  # it has a program, but no command line yet
    except psutil.Error:
        pass
    return []


def _has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended; a zombie without running threads has."""
    try:
        # A zombie has ended, but its parent has not noticed; while its threads run, it keeps its ports and writes.
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


if __name__ == "__main__":
    main()
