"""What a Delta target asks Delta, without Spark."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from kdsl.changelog import Batch, ChangelogError, delta, to_delta
from kdsl.changelog.delta_history import Commit
from kdsl.changelog.delta_session import _TXN, METADATA, DeltaName, DeltaSession
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.types import model as t


class Opened:
    """Delta in a session, with a table of five bytes and without type widening."""

    def __init__(self, _: object) -> None:
        """Any session will do."""

    def active(self) -> nullcontext[Opened]:
        return nullcontext(self)

    def detail(self, _: DeltaTarget) -> dict[str, Any]:
        return {"sizeInBytes": 5, "properties": {}}


@pytest.mark.parametrize(
    ("column", "size"),
    [(t.Field("id", t.BigInt()), 0), (t.Field("other", t.BigInt()), 0), (t.Field("id", t.STRING), 5)],
)
def test_a_change_of_no_type_rewrites_nothing(column: t.Field, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_delta, "DeltaSession", Opened)
    monkeypatch.setattr(DeltaTarget, "read_columns", lambda *_: (t.Field("id", t.BigInt()),))
    spark: Any = None

    assert delta("/lake/t").bytes_to_rewrite(spark, [column]) == size


@attrs.define
class Log:
    """The log of a Delta table: its commits, what Delta knows of transactions, and the rows."""

    commits: list[Commit] = attrs.field(factory=lambda: [Commit(0, 0, "CREATE TABLE")])
    transactions: dict[str, int] = attrs.field(factory=dict)
    rows: list[int] = attrs.field(factory=list)

    def commit(self, operation: str, metadata: str = "", **parameters: str) -> None:
        self.commits.append(Commit(self.commits[-1].version + 1, 0, operation, parameters, None, metadata))

    def toDF(self) -> Any:
        return SimpleNamespace(schema=lambda: SimpleNamespace(names=lambda: ["id"], json=lambda: "{}"))


class Session(DeltaSession):
    """Delta in a session, with one table; writes skip transactions that the table has, as Delta does."""

    def __init__(self, log: Log) -> None:
        self._log, self._settings = log, dict[str, str]()
        self._session = SimpleNamespace(conf=lambda: SimpleNamespace(get=lambda _, default: default))

    def active(self) -> nullcontext[Session]:  # type: ignore[override]
        return nullcontext(self)

    def open(self, _: DeltaName) -> Any:
        return self

    def toDF(self) -> Any:
        return self._log.toDF()

    def read_id(self, _: Any) -> str:
        return "id"

    def version(self, _: Any) -> int:
        return self._log.commits[-1].version

    def last_transaction(self, _: Any, writer: str) -> int | None:
        return self._log.transactions.get(writer)

    def read_history(self, _: Any, limit: int | None = None) -> list[Commit]:
        return self._log.commits[::-1][:limit]

    def with_settings(self, settings: Any) -> Any:
        own = Session(self._log)
        own._settings = dict(settings)
        return own

    def merge(self, row: int) -> None:
        writer, number = self._settings.get(f"{_TXN}.txnAppId"), int(self._settings.get(f"{_TXN}.txnVersion", 0))
        if writer is not None and self._log.transactions.get(writer, -1) >= number:
            return
        if writer is not None:
            self._log.transactions[writer] = number
        self._log.rows.append(row)
        self._log.commit("MERGE", self._settings[METADATA])


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(to_delta, "DeltaSession", lambda _: Session(log))
    monkeypatch.setattr(to_delta, "match_columns", lambda *_, **__: ["id"])
    merge = lambda session, row, *_, **__: SimpleNamespace(execute=lambda: session.merge(row.id))  # noqa: E731
    monkeypatch.setattr(to_delta, "_merge", merge)
    return log


def apply(number: int, *keys: str, row: int = 0, content: str = "", **more: Any) -> None:
    batch = Batch("job", number, f"job/{content or number}", number - 1 if number else None, **more)
    changes: Any = SimpleNamespace(id=row or number, sparkSession=None, schema=SimpleNamespace(json=lambda: "{}"))
    delta("/lake/t").apply(changes, keys, batch)


@pytest.mark.parametrize("keys", [(), ("id",)])
@pytest.mark.parametrize("cleaned", [False, True])
def test_a_batch_is_applied_once_whatever_the_history_still_has(log: Log, keys: tuple[str, ...], cleaned: bool) -> None:
    for number in (0, 1):
        apply(number, *keys)
        log.commit("OPTIMIZE")
        if cleaned:
            log.commits = log.commits[-1:]
        apply(number, *keys)
        with pytest.raises(ChangelogError, match=f"this is another batch with the number {number}"):
            apply(number, *keys, content="of a restored checkpoint")
    assert log.rows == [0, 1]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_rows_that_were_taken_back_stop_the_writer_until_they_are_accepted(log: Log, keys: tuple[str, ...]) -> None:
    apply(0, *keys)
    log.commit("WRITE", mode="Append")
    apply(1, *keys)
    log.commit("RESTORE", version="1")
    for number in (1, 2):
        with pytest.raises(ChangelogError, match=r"taken back by version 4 \(RESTORE, .*adopt=True"):
            apply(number, *keys)
    assert log.rows == [0, 1]

    apply(2, *keys, adopt=True)
    apply(3, *keys)
    assert log.rows == [0, 1, 2, 3]


@pytest.mark.parametrize(("keys", "rows"), [((), [0]), (("id",), [0, 0])])
def test_the_last_batch_is_applied_again_to_a_table_that_lost_it_and_is_accepted(
    log: Log, keys: tuple[str, ...], rows: list[int]
) -> None:
    """Of rows without a key it is not known which of them the table has."""
    apply(0, *keys)
    log.commit("RESTORE", version="0")
    apply(0, *keys, adopt=True)
    assert log.rows == rows


def test_a_commit_between_the_check_and_the_write_is_found_by_the_next_batch(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(0)
    real = Session.merge

    def restore_before(self: Session, row: int) -> None:
        log.commit("RESTORE", version="0")
        real(self, row)

    monkeypatch.setattr(Session, "merge", restore_before)
    apply(1)
    with pytest.raises(ChangelogError, match=r"taken back by version 2 \(RESTORE"):
        apply(2)
