from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.errors import KdslError
from kdsl.run.state_files import find
from kdsl.run.state_files.cache import worker_cache
from kdsl.run.state_files.find import CHECKPOINT, find_files, locate_states
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.state_files.remote import StoreFiles


class Task:
    """A task's context with local properties."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def getLocalProperty(self, key: str) -> str | None:
        return self._properties.get(key)


def run_in_task(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    monkeypatch.setattr(find, "current_task", lambda: Task(properties))


@pytest.mark.parametrize("name", ["plain", "a b#c?d%20e", "ä+&="])
def test_states_are_in_the_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    checkpoint = tmp_path / name
    checkpoint.mkdir()
    (checkpoint / "metadata").touch()
    run_in_task(monkeypatch, {CHECKPOINT: f"file:{checkpoint}"})
    files = find_files("t", None, "id/3")
    assert isinstance(files, LocalFiles)
    assert files.place == f"{checkpoint}/kdsl/state/id/3"
    files.write(f"{1:020d}.json", b"{}")
    assert (checkpoint / "kdsl" / "state" / "id" / "3").is_dir()


def test_a_worker_that_does_not_see_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_in_task(monkeypatch, {CHECKPOINT: f"file:{tmp_path}/cp"})
    with pytest.raises(KdslError, match=rf"^t: .*this worker does not see the folder {tmp_path}/cp; use a folder that"):
        find_files("t", None, "id/3")
    with pytest.raises(KdslError, match=rf"does not see the folder {tmp_path}/states;"):
        find_files("t", f"{tmp_path}/states", "id/3")
    (tmp_path / "states").mkdir()
    files = find_files("t", f"file:{tmp_path}/states", "id/3")
    assert files.place.startswith(f"{tmp_path}/states/")
    assert files.place.endswith("/id/3")


def test_a_copied_checkpoint_has_other_files() -> None:
    places = [
        str(locate_states("t", "s3a://b/states", checkpoint).location)
        for checkpoint in ("file:/a", "file:///a", "file:/copy", None)
    ]
    assert places[0] == places[1] != places[2]
    assert places[3] == "s3a://b/states"
    assert all(place.startswith("s3a://b/states/") for place in places[:3])


def test_a_location_that_is_not_known() -> None:
    with pytest.raises(KdslError, match="whose location is not known here; start the query in a classic session"):
        find_files("t", None, "id/3")
    with pytest.raises(KdslError, match="'states', which is not an absolute path"):
        find_files("t", "states", "id/3")


def test_stores_take_the_settings_of_the_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    class Recording(Task):
        def getLocalProperty(self, key: str) -> str | None:
            asked.append(key)
            return super().getLocalProperty(key)

    monkeypatch.setenv("KDSL_STATE_CACHE", str(tmp_path / "cache"))
    worker_cache.cache_clear()
    properties = {
        CHECKPOINT: "s3a://bucket/cp",
        "spark.hadoop.fs.s3a.access.key": "AKID",
        "spark.hadoop.fs.s3a.secret.key": "verysecret",
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:1",
    }
    monkeypatch.setattr(find, "current_task", lambda: Recording(properties))
    files = find_files("t", None, "id/3")
    assert isinstance(files, StoreFiles)
    assert files.place == "s3a://bucket/cp/kdsl/state/id/3"
    assert files._store.root == "bucket/cp/kdsl/state/id/3"
    assert files._store.secrets == ("AKID", "verysecret")
    assert "verysecret" not in repr(files._store)
    assert "spark.hadoop.fs.s3a.bucket.bucket.access.key" in asked
    worker_cache.cache_clear()
