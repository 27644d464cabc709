"""Files that run a job when a command imports them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kdsl import load
from kdsl.loading import warn_of_job
from tests.pages import code_of

TABLE = """
from contextlib import suppress

from kdsl import Col, Json, KafkaTable
from kdsl.run.session import check_runtime

class Orders(KafkaTable, topic="orders", value=Json()):
    n: Col[int]

{guard}with suppress(Exception):  # there is no session here
    check_runtime(None, "Orders")
"""


@pytest.mark.parametrize(("guard", "jobs"), [("", 1), ("if __name__ == '__main__':\n  ", 0)])
def test_a_job_that_starts_while_its_file_is_imported_is_logged(
    guard: str, jobs: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    file = tmp_path / "orders.py"
    head, job = TABLE.split("{guard}")
    file.write_text(head + guard + (job.replace("\n", "\n  ") if guard else job))

    assert load.table(str(file)).name == "Orders"
    warn_of_job("Orders")  # the file is loaded

    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == jobs
    for message in messages:
        assert message.startswith(f"loading {file} starts a job: it reads or writes Orders")
        assert "if __name__ == '__main__':" in message


def test_the_first_program_runs_no_job_when_it_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "first_read.py"
    file.write_text(code_of(Path("docs/install.md")))

    assert load.table(str(file)).name == "Orders"
    assert "__main__" in file.read_text()
