"""Processes that stand for brokers: they carry the mark, and would run for minutes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from kdsl.testing.watchdog import Watchdog

OWNER = """
import subprocess, sys, time
from contextlib import suppress
from pathlib import Path
from kdsl.testing.watchdog import Watchdog

watchdog = Watchdog()
watchdog.start(remove=Path(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", watchdog.mark], start_new_session=True)
print(child.pid, flush=True)
sys.stdin.readline()  # whoever reads the number looks at the process before it is ended
{then}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result = tmp_path / "data"
    result.mkdir()
    (result / "log").touch()
    return result


@pytest.fixture
def processes() -> Iterator[list[psutil.Process]]:
    """The processes that a test may leave behind."""
    processes: list[psutil.Process] = []
    yield processes
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _owner(folder: Path, then: str, processes: list[psutil.Process]) -> subprocess.Popen[str]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(then=then), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    processes.append(psutil.Process(int(owner.stdout.readline())))
    owner.stdin.write("\n")
    owner.stdin.flush()
    return owner


def _child(mark: str) -> subprocess.Popen[bytes]:
    """A process with a mark, which is under way."""
    program = "import time; print('here', flush=True); time.sleep(300)"
    child = subprocess.Popen([sys.executable, "-c", program, mark], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def _has_ended(process: psutil.Process) -> bool:
    for _ in range(2400):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:  # whose parent has not noticed yet
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def _wait_until_removed(folder: Path) -> bool:
    for _ in range(2400):
        if not folder.exists():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_what_was_started_ends_with_an_owner_that_is_killed(
    folder: Path, processes: list[psutil.Process], death: signal.Signals
) -> None:
    # A signal that comes just before a sleep does not end it.
    with _owner(folder, "while True: time.sleep(0.1)", processes) as owner:
        owner.send_signal(death)
        owner.wait(60)

    assert _has_ended(processes[0])
    assert _wait_until_removed(folder)


def test_what_was_started_ends_with_an_owner_that_just_ends(folder: Path, processes: list[psutil.Process]) -> None:
    with _owner(folder, "", processes):
        pass

    assert _has_ended(processes[0])
    assert _wait_until_removed(folder)


def test_a_longer_lived_forked_child_does_not_keep_it_alive(folder: Path, processes: list[psutil.Process]) -> None:
    fork = "import os\npid = os.fork()\nprint(pid, flush=True) if pid else None\ntime.sleep(300)"
    with _owner(folder, fork, processes) as owner:
        assert owner.stdout is not None
        processes.append(psutil.Process(int(owner.stdout.readline())))
        owner.kill()
        owner.wait(60)

    assert _has_ended(processes[0])
    assert processes[1].is_running()


def test_a_detached_process_continues(folder: Path, processes: list[psutil.Process]) -> None:
    with _owner(folder, "watchdog.detach()", processes):
        pass

    assert processes[0].is_running()
    assert folder.exists()


def test_stop_ends_what_is_left_at_once(folder: Path, processes: list[psutil.Process]) -> None:
    watchdog = Watchdog()
    watchdog.start(remove=folder)
    with _child(watchdog.mark) as child:
        watchdog.stop()

        assert child.wait(60) == -signal.SIGKILL
    assert not folder.exists()


def test_others_are_not_touched(folder: Path) -> None:
    ours, theirs = Watchdog(), Watchdog()
    ours.start(remove=None)
    with _child(theirs.mark) as child:
        ours.stop()

        assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
