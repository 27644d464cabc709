"""Folders of kdsl's own, and who may work in them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kdsl.folders import FolderError, cache_dir, exclusive_lock, state_dir

WAITING = """
import sys
from pathlib import Path
from kdsl.folders import exclusive_lock
print("ready", flush=True)
with exclusive_lock(Path(sys.argv[1])):
    print("mine", flush=True)
"""


def is_waiting(process: int) -> bool:
    """Whether a process waits for a lock."""
    locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any("->" in line and str(process) in line.split() for line in locks)


def test_one_process_continues_when_the_other_has_finished(tmp_path: Path) -> None:
    lock = tmp_path / "some" / "lock"

    with exclusive_lock(lock):
        other = subprocess.Popen([sys.executable, "-c", WAITING, str(lock)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        until = time.monotonic() + 60
        while not is_waiting(other.pid):
            assert other.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)

    assert other.communicate(timeout=60)[0] == "mine\n"
    assert other.returncode == 0


def test_an_error_inside_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="inside"), exclusive_lock(tmp_path / "lock"):
        raise OSError("inside")


def test_no_process_waits_if_locks_are_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with exclusive_lock(tmp_path / "file" / "lock"):
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


def test_a_home_that_everybody_can_write_to_is_not_used(homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = homeless.parent / "shared"
    shared.mkdir()
    monkeypatch.setattr(Path, "home", lambda: shared)
    shared.chmod(0o1777)
    assert cache_dir() == state_dir() == homeless
    shared.chmod(0o755)
    assert (cache_dir(), state_dir()) == (shared / ".cache/kdsl", shared / ".local/state/kdsl")
    monkeypatch.setattr(Path, "home", lambda: shared / "missing")
    assert cache_dir() == homeless


def test_a_folder_of_another_user_is_refused(homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homeless.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: int(homeless.name.partition("-")[2]) + 1)
    homeless.rename(homeless.with_name(f"kdsl-{os.getuid()}"))

    with pytest.raises(
        FolderError,
        match=r"belongs to another user .*; set the environment variable KDSL_CACHE to a folder of your own",
    ):
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
