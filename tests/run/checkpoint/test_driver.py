"""The driver that uses a checkpoint is the one that took it over last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.driver import FILE, CurrentDriver
from kdsl.run.checkpoint.folder import open_local_folder


def test_the_driver_that_took_over_last_goes_on_and_the_other_learns_who_that_is(tmp_path: Path) -> None:
    first, second = (CurrentDriver(open_local_folder(tmp_path)) for _ in range(2))
    first.take_over()
    first.require()
    second.take_over()
    second.require()

    with pytest.raises(CheckpointError, match=rf"{tmp_path} and continues it.*process {os.getpid()}, and took over at"):
        first.require()


def test_a_driver_takes_over_once(tmp_path: Path) -> None:
    """Otherwise two drivers would take the checkpoint from each other with every batch."""
    first, second = (CurrentDriver(open_local_folder(tmp_path)) for _ in range(2))
    first.take_over()
    second.take_over()
    first.take_over()

    second.require()
    with pytest.raises(CheckpointError):
        first.require()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "{}", '{"id": "another"}'])
def test_a_damaged_note_of_the_driver_is_an_error_of_the_checkpoint(tmp_path: Path, text: str) -> None:
    driver = CurrentDriver(open_local_folder(tmp_path))
    driver.take_over()
    (tmp_path / FILE).write_text(text, encoding="utf-8")

    with pytest.raises(CheckpointError, match=r"driver\.json, which names the driver .* cannot be read"):
        driver.require()
