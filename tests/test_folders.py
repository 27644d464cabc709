"""Folders of kdsl's own, and who may work in them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kdsl.folders import FolderError, cache_dir, one_at_a_time, state_dir

WAITING = """
import sys
from pathlib import Path
from kdsl.folders import one_at_a_time
print("ready", flush=True)
with one_at_a_time(Path(sys.argv[1])):
    print("mine", flush=True)
"""


def test_one_process_continues_when_the_other_has_finished(tmp_path: Path) -> None:
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


def test_an_error_inside_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="inside"), one_at_a_time(tmp_path / "lock"):
        raise OSError("inside")


def test_no_process_waits_if_locks_are_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with one_at_a_time(tmp_path / "file" / "lock"):
        pass


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folder of a user without a home is."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")  # what Path.home() says of such a user

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("KDSL_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / f"kdsl-{os.getuid()}"


def test_a_user_without_a_home_has_a_folder_of_its_own(homeless: Path) -> None:
    assert cache_dir() == state_dir() == homeless
    assert homeless.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_is_refused(homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homeless.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: int(homeless.name.partition("-")[2]) + 1)
    homeless.rename(homeless.with_name(f"kdsl-{os.getuid()}"))

    with pytest.raises(FolderError, match=r"belongs to another user .*; set KDSL_CACHE to a folder of your own"):
        cache_dir()


def test_a_folder_that_others_can_write_to_is_refused(homeless: Path) -> None:
    homeless.mkdir()
    homeless.chmod(0o777)

    with pytest.raises(FolderError, match=r"other users can write to it \(mode 777\)"):
        state_dir()


def test_a_link_instead_of_the_folder_is_refused(homeless: Path) -> None:
    (homeless.parent / "elsewhere").mkdir()
    homeless.symlink_to(homeless.parent / "elsewhere")

    with pytest.raises(FolderError, match="it is not a folder"):
        cache_dir()
