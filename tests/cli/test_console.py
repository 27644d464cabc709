"""What commands print of the log."""

from __future__ import annotations

import io
import logging
import re

import pytest
from rich.console import Console

from kdsl.cli import console
from kdsl.retry import PROGRESS, announce_wait


def test_the_progress_of_an_ingestion_is_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("kdsl.test")
    for is_terminal in (True, False):
        screen = io.StringIO()
        monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=is_terminal, width=80))
        with console.log_lines() as lines, lines.show_progress("waiting"):
            log.info("batch 0: 5 records", extra={PROGRESS: True})
            log.warning("something is wrong")
        shown = screen.getvalue()

        assert "warning: something is wrong" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
        assert ("batch 0: 5 records\r" in shown) is is_terminal  # overwritten
        assert shown.startswith("batch 0: 5 records\n") is not is_terminal


def test_a_wait_is_logged_only_if_it_is_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = logging.getLogger("kdsl.test")
    with announce_wait(log, "it waits for a lock", 60):
        pass
    with announce_wait(log, "it waits for another lock", 0):
        while not caplog.records:
            pass

    assert [record.getMessage() for record in caplog.records] == ["it waits for another lock"]
