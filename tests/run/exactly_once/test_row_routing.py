"""Whether the rows of a batch go to the same writers when it is written again; and what is staged of it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import attrs
import pytest
from pyspark.sql import types as s

from kdsl.errors import CheckpointError, ExactlyOnceError, KdslError
from kdsl.run.checkpoint.manifest import RowRouting
from kdsl.run.exactly_once.acquire import TokenRefresh
from kdsl.run.exactly_once.row_routing import _routing_columns, explain_difference, same_writers
from kdsl.run.exactly_once.staged import marker_text, read_marker
from kdsl.run.exactly_once.write_log import log_topic, read_done_write, replicas_of_log
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.librdkafka.transactions.token import Writer
from kdsl.run.offsets.stored import Packing
from tests.run.write_plans import write_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EIGHT = Packing("balanced", 8, 1_000, 20_000)


def by_tasks(tasks: int, writers: int | None = None) -> RowRouting:
    return RowRouting("p", writers or tasks, "tasks", (str(tasks), "1000", "20000"))


class TestSameWriters:
    @pytest.mark.parametrize(
        ("before", "now"),
        [
            (by_tasks(8), by_tasks(8)),
            (by_tasks(8), by_tasks(12)),  # more cores: the open batch has its eight tasks all the same
            (by_tasks(12), by_tasks(8)),
            (by_tasks(8), by_tasks(4, 8)),  # fewer cores, and as many writers as the open batch needs
            (by_tasks(8, 3), by_tasks(12, 3)),
            (by_tasks(8, 1), RowRouting("p", 1, "one")),
        ],
    )
    def test_tasks_follow_the_plan_whatever_the_number_of_cores(self, before: RowRouting, now: RowRouting) -> None:
        assert same_writers(before, now, EIGHT)

    @pytest.mark.parametrize(
        ("before", "now"),
        [
            (by_tasks(8), by_tasks(8, 3)),
            (by_tasks(8, 3), by_tasks(8)),
            (by_tasks(8), RowRouting("p", 8, "columns", ("id",))),
        ],
    )
    def test_fewer_writers_than_tasks_take_other_rows(self, before: RowRouting, now: RowRouting) -> None:
        assert not same_writers(before, now, EIGHT)

    def test_a_batch_without_recorded_packing_needs_the_same_number_of_tasks(self) -> None:
        assert same_writers(by_tasks(8), by_tasks(8), None)
        assert not same_writers(by_tasks(8), by_tasks(12), None)

    def test_columns_must_be_computed_equally(self) -> None:
        before = RowRouting("p", 4, "columns", ("id",), "recipe 1")

        assert same_writers(before, before, None)
        changed = attrs.evolve(before, digest="recipe 2")
        assert not same_writers(before, changed, None)
        assert "the columns id are computed differently" in explain_difference(before, changed)

    def test_other_columns_are_named(self) -> None:
        before, now = (RowRouting("p", 4, "columns", (name,)) for name in ("id", "name"))

        assert explain_difference(before, now).startswith(
            "rows were routed to writers by the columns id, and are now routed by the columns n"
        )
        assert "by the tasks of the source, and" in explain_difference(by_tasks(4), now)


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        ({}, ("id", "at")),
        ({"id": "BIGINT"}, ("id",)),
        ({"id": "BIGINT", "x": "DOUBLE"}, ("id",)),
        ({"x": "DOUBLE"}, ()),  # and not the columns of the value: rows of a key would be spread over writers
    ],
)
def test_rows_are_routed_by_the_exact_columns_of_their_key(key: dict[str, str], columns: tuple[str, ...]) -> None:
    types = s.StructType([s.StructField(n, t) for n, t in (("id", s.LongType()), ("x", s.DoubleType()))])
    types = types.add("at", s.TimestampType()).add("m", s.MapType(s.StringType(), s.LongType()))
    rows = SimpleNamespace(schema=types, columns=types.names)

    assert _routing_columns(cast("DataFrame", rows), write_plan({"at": "TIMESTAMP_LTZ(3)"}, key=key)) == columns


class TestStaged:
    WORK = TransactionSpec(Writer("q1", table="Orders"), "p", 2, "out", "abc", 60_000, 7, "digest")

    def test_a_batch_that_is_staged_is_found_by_what_it_is(self) -> None:
        text = marker_text(self.WORK, "7-abc")

        assert read_marker(text, self.WORK, "7.complete") == "7-abc"
        assert read_marker(None, self.WORK, "7.complete") is None

    @pytest.mark.parametrize(
        "other",
        [
            attrs.evolve(WORK, offsets="of another plan"),
            attrs.evolve(WORK, writer=Writer("q2", table="Orders")),
        ],
    )
    def test_another_batch_of_its_number_is_not_sent(self, other: TransactionSpec) -> None:
        with pytest.raises(CheckpointError, match=r"7\.complete cannot be read \(it is that of another batch\)"):
            read_marker(marker_text(other, "7-abc"), self.WORK, "7.complete")

    def test_one_of_a_newer_version_is_refused(self) -> None:
        with pytest.raises(CheckpointError, match=r"batch 7 has version 9, and this kdsl reads version 1"):
            read_marker('{"version": 9}', self.WORK, "7.complete")


class TestTokenRefresh:
    @pytest.fixture
    def ages(self) -> list[float]:
        return []

    @pytest.mark.parametrize(("busy", "after"), [(lambda: False, 250), (lambda: True, 375)])
    def test_it_is_postponed_while_a_batch_runs_but_not_forever(
        self, ages: list[float], busy: Callable[[], bool], after: int
    ) -> None:
        tokens = TokenRefresh(1000, "Orders", busy, ages.append)

        for _ in range(after - 1):
            tokens.tick(1)
        assert ages == []
        tokens.tick(1)
        assert ages == [125]

    def test_brokers_that_cannot_be_reached_are_tried_again(self, ages: list[float]) -> None:
        def fails_once(age: float) -> None:
            ages.append(age)
            if len(ages) == 1:
                raise KdslError("no broker answered")

        tokens = TokenRefresh(1000, "Orders", lambda: False, fails_once)
        for _ in range(500):
            tokens.tick(1)

        assert len(ages) == 2


def test_the_topic_that_records_writes_has_a_legal_name_of_its_own() -> None:
    assert log_topic("totals-1") == "totals-1.kdsl-writes"
    assert log_topic("totals/1") != log_topic("totals 1")
    assert all(len(log_topic(prefix)) <= 249 for prefix in ("x" * 500, "x" * 249, "x" * 237))
    assert log_topic("x" * 500) != log_topic("x" * 501)


def test_a_completed_write_record_is_read_and_names_deleted_topics() -> None:
    spec = TransactionSpec(Writer("", "monday", "Orders"), "p", 1, "a", "1:abc", 60_000, topic_ids={"a": "1", "b": "2"})
    now = read_done_write(spec.done_record()[1], "p.kdsl-writes")

    assert (now.table, now.plan) == ("Orders", "1:abc")
    assert now.missing_topics({"a": "1", "b": "2", "c": "3"}) == []
    assert now.missing_topics({"a": "9"}) == ["a", "b"]
    with pytest.raises(ExactlyOnceError, match="has version 3, this kdsl reads version 1"):
        read_done_write(b'{"version":3}', "p.kdsl-writes")
    for damaged in (b"", b"[1]", b"\xff", b"{}", b'{"version":1,"table":"Orders"}'):
        with pytest.raises(ExactlyOnceError, match="cannot be read; only kdsl should write to this topic"):
            read_done_write(damaged, "p.kdsl-writes")


def test_the_topic_of_done_writes_has_at_least_as_many_replicas_as_the_one_that_is_written() -> None:
    assert replicas_of_log(target=3, default=1) == replicas_of_log(target=3, default=None) == 3
    assert replicas_of_log(target=2, default=3) == replicas_of_log(target=0, default=None) == -1
