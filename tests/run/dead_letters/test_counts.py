"""The driver's count of letters: a batch that runs again replaces its count, and files stay few."""

from __future__ import annotations

from threading import Event, Timer
from typing import Any

import attrs
import pytest

from kdsl.errors import CheckpointError, DeadLetterError
from kdsl.run import dead_letter_counts as counts
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.dead_letter_counts import COUNTS, LetterCounts, _QueryCounts, _read_counts
from kdsl.run.dead_letters import report
from kdsl.run.dead_letters.report import BatchId, Committed, LetterReport, check_refusal, refusals, too_many
from kdsl.run.listeners.events import Query

QUERY, READ = "11111111-1111-1111-1111-111111111111", "orders-1"


class MemoryFolder(Folder):
    """A folder of a checkpoint in memory."""

    def __init__(self) -> None:
        self.location = "memory"
        self.files: dict[str, str] = {}

    def read(self, name: str) -> str | None:
        return self.files.get(name)

    def write(self, name: str, text: str) -> None:
        self.files[name] = text

    def create(self, name: str, text: str) -> bool:
        return self.files.setdefault(name, text) is text

    def names(self, name: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self.files if path.startswith(f"{name}/")]

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def path(self, name: str) -> str:
        return f"memory/{name}"


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What tasks of the query would see."""
    seen: dict[str, str] = {}
    monkeypatch.setattr(
        counts, "set_in_query_session", lambda _session, _query, name, value: seen.update({name: value})
    )
    return seen


def start(folder: MemoryFolder, done: int = -1) -> LetterCounts:
    """The counts of a query that starts."""
    letters = LetterCounts()
    session: Any = None
    letters._queries[QUERY] = _QueryCounts(session, QUERY, "second run", folder, *_read_counts(folder, done))
    return letters


def of_task(batch: int, count: int, task: str = "a", limit: int = 19) -> LetterReport:
    reasons = tuple(f"reason {i} of {task}" for i in range(min(count, 5)))
    return LetterReport(BatchId(QUERY, batch), READ, "orders", limit, task, count, reasons)


def finish(letters: LetterCounts) -> None:
    letters._wait(QUERY)


def test_a_task_or_a_batch_that_runs_again_replaces_its_count(settings: dict[str, str]) -> None:
    folder = MemoryFolder()
    letters = start(folder)
    letters.extend(map(attrs.asdict, [of_task(0, 10), of_task(0, 4, "b")]))
    letters.extend(map(attrs.asdict, [of_task(0, 10)]))
    letters.extend(map(attrs.asdict, [of_task(2, 1)]))
    finish(letters)

    assert _read_counts(folder, 2)[0] == {READ: {0: 14, 2: 1}}
    again = start(folder, done=1)
    again.extend(map(attrs.asdict, [of_task(2, 3)]))
    finish(again)

    assert _read_counts(folder, 2)[0] == {READ: {0: 14, 2: 3}}
    so_far = Committed.from_text(settings[f"{report.PROPERTY}{READ}"])
    assert (so_far.before(0), so_far.before(1), so_far.before(2), so_far.before(3)) == (0, 14, 14, 17)


def test_the_sum_of_all_tasks_and_batches_is_refused_above_the_limit(settings: dict[str, str]) -> None:
    letters = start(MemoryFolder())
    letters.extend(map(attrs.asdict, [of_task(0, 10), of_task(1, 9)]))
    check_refusal(refusals(), BatchId(QUERY, 1))

    letters.extend(map(attrs.asdict, [of_task(1, 1, "b")]))

    with pytest.raises(
        DeadLetterError, match="20 records could not be read, and the limit of dead letters is 19"
    ) as raised:
        check_refusal(refusals(), BatchId(QUERY, 1))
    assert "\n  reason 0 of a\n" in str(raised.value)
    assert "\n  and 15 more" in str(raised.value)
    assert Committed.from_text(settings[f"{report.PROPERTY}{READ}"]).reasons[0] == "reason 0 of a"
    check_refusal(refusals(), BatchId(QUERY, 0))
    check_refusal(None, BatchId(QUERY, 1))
    report.allow_all(QUERY)
    check_refusal(refusals(), BatchId(QUERY, 1))


def test_a_commit_waits_until_the_letters_are_stored(settings: dict[str, str]) -> None:
    waiting, written = Event(), Event()

    class SlowFolder(MemoryFolder):
        def write(self, name: str, text: str) -> None:
            assert waiting.wait(60)
            super().write(name, text)
            written.set()

    folder = SlowFolder()
    letters = start(folder)
    letters.extend(map(attrs.asdict, [of_task(0, 1), of_task(0, 2, "b")]))

    Timer(0.2, waiting.set).start()
    check_refusal(refusals(), BatchId(QUERY, 0))

    assert written.is_set()
    assert _read_counts(folder, 0)[0] == {READ: {0: 3}}


def test_letters_that_cannot_be_stored_refuse_their_batch(settings: dict[str, str]) -> None:
    class FullFolder(MemoryFolder):
        def write(self, name: str, text: str) -> None:
            raise CheckpointError(f"{self.path(name)} cannot be written: no space left")

    letters = start(FullFolder())
    letters.extend(map(attrs.asdict, [of_task(0, 1)]))

    with pytest.raises(DeadLetterError, match=rf"cannot be stored: .*{COUNTS}/0.json cannot be written: no space left"):
        check_refusal(refusals(), BatchId(QUERY, 0))
    report.allow_all(QUERY)


def test_a_query_whose_letters_cannot_be_stored_is_forgotten_at_its_end(settings: dict[str, str]) -> None:
    class FullFolder(MemoryFolder):
        def write(self, name: str, text: str) -> None:
            raise OSError("no space left")

    letters = start(FullFolder())
    letters.extend(map(attrs.asdict, [of_task(0, 1)]))

    with pytest.raises(OSError, match="no space left"):
        letters.on_end(Query(QUERY, "second run"))

    assert letters._queries == {}
    report.allow_all(QUERY)


def test_a_late_report_of_the_end_of_an_earlier_run_changes_nothing(settings: dict[str, str]) -> None:
    folder = MemoryFolder()
    letters = start(folder)

    letters.on_end(Query(QUERY, "first run"))
    letters.extend(map(attrs.asdict, [of_task(0, 20)]))
    finish(letters)

    assert _read_counts(folder, 0)[0] == {READ: {0: 20}}
    with pytest.raises(DeadLetterError, match="20 records"):
        check_refusal(refusals(), BatchId(QUERY, 0))
    letters.on_end(Query(QUERY, "second run"))
    assert letters._queries == {}
    report.allow_all(QUERY)


def test_old_files_are_removed_and_their_letters_still_count(settings: dict[str, str]) -> None:
    folder = MemoryFolder()
    letters = start(folder)
    for batch in range(250):
        letters.extend(map(attrs.asdict, [of_task(batch, 2, limit=-1)]))
        finish(letters)

    assert len(folder.names(COUNTS)) == 101
    restored = _read_counts(folder, 249)[0][READ]
    assert sum(restored.values()) == 500
    assert Committed.from_text(settings[f"{report.PROPERTY}{READ}"]).before(250) == 500
    assert start(folder, done=249)._queries[QUERY].counts(READ) == restored


def test_the_letters_of_old_batches_count_when_the_next_batch_with_letters_runs_again(settings: dict[str, str]) -> None:
    folder = MemoryFolder()
    letters = start(folder)
    letters.extend(map(attrs.asdict, [of_task(10, 15), of_task(200, 5)]))
    finish(letters)
    report.allow_all(QUERY)

    again = start(folder, done=199)
    again.extend(map(attrs.asdict, [of_task(200, 5)]))
    finish(again)

    with pytest.raises(DeadLetterError, match="20 records could not be read"):
        check_refusal(refusals(), BatchId(QUERY, 200))
    report.allow_all(QUERY)


def test_batches_with_letters_are_refused_if_those_of_earlier_batches_cannot_be_read(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CheckpointError("the disk is gone")

    monkeypatch.setattr(counts, "RunningQuery", fail)
    letters = start(MemoryFolder())
    query = Query(QUERY, "third run", session="a session")
    with pytest.raises(CheckpointError, match="the disk is gone"):
        letters.on_start(query)
    letters.extend(map(attrs.asdict, [of_task(3, 1)]))

    with pytest.raises(DeadLetterError, match="of earlier batches cannot be counted: the disk is gone"):
        check_refusal(refusals(), BatchId(QUERY, 3))
    report.allow_all(QUERY)


def test_actions_count_by_themselves(settings: dict[str, str]) -> None:
    letters = start(MemoryFolder())
    actions = [BatchId("", 7), BatchId("", 8)]
    reports = [LetterReport(action, READ, "orders", 3, "a", 2, ("r",)) for action in actions]
    letters.extend(map(attrs.asdict, reports))
    assert [letters._actions[action.number, READ].count for action in actions] == [2, 2]

    letters.extend(map(attrs.asdict, [LetterReport(actions[0], READ, "orders", 3, "b", 2, ("r",))]))

    with pytest.raises(DeadLetterError, match="4 records"):
        check_refusal(refusals(), actions[0])
    check_refusal(refusals(), actions[1])
    report.allow(actions[0])
    assert settings == {}


@pytest.mark.parametrize("text", ["", "{", '{"version":1}', '{"version":2,"counts":{},"earlier":{},"reasons":{}}'])
def test_a_file_that_cannot_be_read_is_an_error_with_its_path(text: str) -> None:
    folder = MemoryFolder()
    folder.files[f"{COUNTS}/3.json"] = text

    with pytest.raises(DeadLetterError, match=f"memory/{COUNTS}/3.json"):
        _read_counts(folder, 3)
    assert _read_counts(folder, 2) == ({}, {})


def test_an_error_without_reasons_is_a_sentence() -> None:
    assert str(too_many("t", 1, 0, ())).endswith("start again")
    assert str(too_many("t", 1, 0, ("why",))).endswith("the first reason is:\n  why")
