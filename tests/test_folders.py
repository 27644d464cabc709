"""Folders of kdsl's own, and who may work in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.folders import one_at_a_time

WAITING = """
import sys
from pathlib import Path
from kdsl.folders import one_at_a_time
print("ready", flush=True)
with one_at_a_time(Path(sys.argv[1])):
    print("mine", flush=True)
"""


def test_one_process_goes_on_when_the_other_one_has_done(tmp_path: Path) -> None:
    lock, done = tmp_path / "some" / "lock", tmp_path / "done"

    with one_at_a_time(lock):
        other = subprocess.Popen([sys.executable, "-c", WAITING, str(lock)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.5)
        done.touch()

    assert other.communicate(timeout=60)[0] == "mine\n"
    assert other.returncode == 0


def test_an_error_inside_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="inside"), one_at_a_time(tmp_path / "lock"):
        raise OSError("inside")


def test_nobody_waits_where_there_can_be_no_lock(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with one_at_a_time(tmp_path / "file" / "lock"):
        pass
