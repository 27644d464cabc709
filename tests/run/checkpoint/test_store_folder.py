"""Documents on file systems of pyarrow: what readers see while one is replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from kdsl.run.checkpoint.store_folder import StoreFolder
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.stores import Store

NAME = "offsets/1"


class Hdfs:
    """A local file system in which no rename replaces a file, as on HDFS, which is not here to try.

    Attributes:
        before_change: Called before each change.
    """

    def __init__(self) -> None:
        self._files = pyarrow.fs.LocalFileSystem()
        self.before_change: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_output_stream(self, path: str, **options: Any) -> Any:
        self.before_change()
        return self._files.open_output_stream(path, **options)

    def delete_file(self, path: str) -> None:
        self.before_change()
        self._files.delete_file(path)

    def move(self, source: str, target: str) -> None:
        self.before_change()
        if Path(target).exists():
            raise FileExistsError(target)
        self._files.move(source, target)


@pytest.fixture
def hdfs() -> Hdfs:
    return Hdfs()


@pytest.fixture
def folder(hdfs: Hdfs, tmp_path: Path) -> StoreFolder:
    (tmp_path / "offsets").mkdir()
    return StoreFolder(Store(Location.parse(str(tmp_path)), hdfs, renames=True))


def test_a_reader_finds_the_old_or_the_new_text_at_any_time(hdfs: Hdfs, folder: StoreFolder) -> None:
    folder.write(NAME, "old")
    seen: list[str | None] = []
    hdfs.before_change = lambda: seen.append(folder.read(NAME))
    folder.write(NAME, "new")

    assert len(seen) == 4
    assert set(seen) == {"old", "new"}
    assert folder.read(NAME) == "new"


@pytest.mark.parametrize("changes", range(4))
def test_a_write_that_was_interrupted_is_completed_by_the_next_one(
    hdfs: Hdfs, folder: StoreFolder, changes: int
) -> None:
    folder.write(NAME, "old")
    left = iter(range(changes))

    def die() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    hdfs.before_change = die
    with pytest.raises(KeyboardInterrupt):
        folder.write(NAME, "new")
    hdfs.before_change = lambda: None

    assert folder.read(NAME) == ("new" if changes == 3 else "old")
    assert folder.names("offsets") == ["1"]
    folder.write(NAME, "newer")
    assert folder.read(NAME) == "newer"
    folder.remove(NAME)
    assert folder.read(NAME) is None
    assert folder.names("offsets") == []
