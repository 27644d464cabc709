"""Progress reports folded into metrics, without Spark: what counts once, what starts anew, what is not known."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import attrs
import orjson
import pytest

from kdsl.run.listeners.commits import CommitCounts
from kdsl.run.listeners.events import Query
from kdsl.run.metrics import observer
from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics
from kdsl.run.metrics.on_rows import RowReporter
from kdsl.run.metrics.sink_reports import SinkCounts, Spool, add_up, append_report
from kdsl.run.metrics.source_reports import SINK_OBSERVATION, Reporter, new_name, read_of, read_reports
from kdsl.run.metrics.tracker import NamedRead, Tracker
from kdsl.run.offsets.stored import StateFolder
from kdsl.run.records.drops import Reason
from kdsl.types import model as t

READ = "Orders-abc"
NAME = new_name(READ)
TIME = "2026-01-01T00:00:{:02d}.000Z"
START = 1_767_225_600.0  # 2026-01-01
BY_PARTITION = StateFolder("p", "partition", 10, partitioner="murmur2")
BY_KEY = StateFolder("k", "key", 10, shards=2, version=1, former="p")


def report(task: str, run: str, records: int, **more: Any) -> str:
    return orjson.dumps({"task": task, "run": run, "records": records, "bytes": 10 * records, **more}).decode()


def offsets(at: int, **more: Any) -> dict[str, Any]:
    return {"version": 1, "topics": {"orders": {"id": "x", "offsets": {"0": at}}}, "read": READ, **more}


def document(batch: int, end: int, latest: int, *reports: str, run: str = "run-1", **more: Any) -> dict[str, Any]:
    source = {"endOffset": offsets(end), "latestOffset": offsets(latest), "numInputRows": 7, **more.pop("source", {})}
    return {
        "id": "q",
        "runId": run,
        "name": None,
        "batchId": batch,
        "timestamp": TIME.format(batch * 10),
        "durationMs": {"triggerExecution": 1000},
        "sources": [source],
        "observedMetrics": {NAME: {"metrics": {"reports": list(reports)}}} if reports else {},
        **more,
    }


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tracker(clock: Clock) -> Tracker:
    return Tracker("q", clock=clock)


def source_metrics(tracker: Tracker) -> SourceMetrics:
    return tracker.snapshot().source


class TestReports:
    def test_of_a_task_that_ran_twice_the_run_that_read_most_counts(self) -> None:
        whole, cut, other = report("a", "1", 5), report("a", "2", 3), report("b", "3", 2)

        result = read_reports([cut, whole, other, report("a", "2", 1)])

        assert (result.records, result.bytes) == (7, 70)

    def test_lags_are_of_the_last_record_and_the_event_of_the_slowest_task(self) -> None:
        fast = report("a", "1", 1, event=900, fetch_lag=100, emit_lag=110)
        slow = report("b", "2", 1, event=500, fetch_lag=20, emit_lag=30)

        result = read_reports([fast, slow])

        assert (result.event, result.fetch_lag, result.emit_lag) == (500, 100, 110)

    def test_nothing_is_nothing(self) -> None:
        assert read_reports([]).records == 0

    def test_the_name_of_an_observation_identifies_the_read(self) -> None:
        assert read_of(NAME) == READ
        assert read_of("mine") is None
        assert new_name(READ) != NAME

    def test_a_task_without_rows_returns_a_batch_of_the_tables_types(self) -> None:
        row = t.Row(
            (
                t.Field("n", t.BigInt(nullable=False)),
                t.Field("r", t.row(a=t.VarChar(nullable=False), m=t.Map(t.Int(nullable=False), t.Int()))),
                t.Field("s", attrs.evolve(t.row(a=t.VarChar(nullable=False)), nullable=False)),
                t.Field("d", t.Decimal(10, 2, nullable=False)),
                t.Field("z", t.TimestampLtz(3, nullable=False)),
            ),
            nullable=False,
        )
        reporter = Reporter("task")
        rows = RowReporter(reporter, row)
        assert list(rows.finish()) == []

        reporter.read(3, 30, None, 0.0, filtered=3)
        (batch,) = rows.finish()
        batch.validate(full=True)

        assert batch.num_rows == 1
        message = batch.column(batch.num_columns - 1)[0].as_py()
        assert read_reports([message]).filtered == 3
        assert list(rows.finish()) == []


def operators(*dropped: tuple[str, int], **more: Any) -> dict[str, Any]:
    names = [{"operatorName": name, "numRowsDroppedByWatermark": count} for name, count in dropped]
    return {"stateOperators": names, "eventTime": {"watermark": TIME.format(0)}, **more}


class TestLateRows:
    def test_each_batch_counts_once_by_operator_and_is_logged_if_it_drops_some(
        self, tracker: Tracker, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = document(0, 5, 5, **operators(("symmetricHashJoin", 0), ("dedupe", 0), ("dedupe", 0)))
        second = document(
            1, 5, 5, name="totals", **operators(("symmetricHashJoin", 1895), ("dedupe", 0), ("dedupe", 4))
        )
        third = document(2, 5, 5, **operators(("symmetricHashJoin", 1), ("dedupe", 0), ("dedupe", 0)))
        for one in (first, second, second, third, first):
            tracker.add_progress(one)

        assert tracker.snapshot().num_late_records_dropped == {"symmetricHashJoin": 1896, "dedupe": 0, "dedupe-2": 4}
        mark = "the watermark is 2026-01-01T00:00:00.000Z; "
        mark += "if such rows must count, declare a longer delay of the watermark"
        assert caplog.messages == [
            f"totals: of batch 1 1,899 late rows were dropped: symmetricHashJoin 1,895, dedupe-2 4; {mark}",
            f"totals: of batch 2 1 late row was dropped: symmetricHashJoin 1; {mark}",
        ]

    def test_another_run_counts_anew(self, tracker: Tracker) -> None:
        tracker.add_progress(document(0, 5, 5, **operators(("dedupe", 3))))
        tracker.add_progress(document(1, 5, 5, run="run-2", **operators(("dedupe", 2))))

        assert tracker.snapshot().num_late_records_dropped == {"dedupe": 2}

    @pytest.mark.parametrize("more", [{}, {"stateOperators": [{"operatorName": "custom"}]}, {"stateOperators": None}])
    def test_operators_that_do_not_count_them_have_no_metric(self, tracker: Tracker, more: dict[str, Any]) -> None:
        tracker.add_progress(document(0, 5, 5, **more))

        assert tracker.snapshot().num_late_records_dropped == {}

    @pytest.mark.parametrize(
        ("watermark", "days"),
        [
            ("2026-01-03T00:00:00.000Z", "2"),
            ("9999-12-31T00:00:00.000Z", "2,912,442"),
            ("58881-02-17T04:40:00.000Z", "20,765,910"),
        ],
    )
    def test_a_watermark_that_is_far_ahead_of_the_clock_is_logged_once(
        self, tracker: Tracker, caplog: pytest.LogCaptureFixture, watermark: str, days: str
    ) -> None:
        tracker.add_progress(document(0, 5, 5, eventTime={"watermark": "2026-01-01T12:00:00.000Z"}))
        assert caplog.messages == []
        for batch in (1, 2):
            tracker.add_progress(document(batch, 5, 5, eventTime={"watermark": watermark}))

        (line,) = caplog.messages
        assert line.startswith(f"q: the watermark is {days} days ahead of the clock, because a row had such a time")
        assert source_metrics(tracker).watermark_lag == 0


class TestTracker:
    def test_a_report_counts_once_however_often_it_comes(self, tracker: Tracker) -> None:
        one, two = document(0, 5, 9, report("a", "1", 5)), document(1, 9, 9, report("b", "2", 4))
        for message in (one, two, one, two):
            tracker.add_progress(message)

        assert (source_metrics(tracker).num_records_in, source_metrics(tracker).num_bytes_in) == (9, 90)

    def test_rates_are_over_the_time_since_the_batch_before_began(self, tracker: Tracker) -> None:
        tracker.add_progress(document(0, 5, 5, report("a", "1", 5)))
        first = source_metrics(tracker).num_records_in_per_second
        tracker.add_progress(document(1, 25, 25, report("b", "2", 20)))

        assert (first, source_metrics(tracker).num_records_in_per_second) == (5.0, 2.0)
        assert source_metrics(tracker).num_bytes_in_per_second == 20.0
        tracker.idle()
        assert source_metrics(tracker).num_records_in_per_second == 0.0

    def test_lag_in_records_bytes_and_seconds(self, tracker: Tracker, clock: Clock) -> None:
        event = int(START * 1000) - 60_000
        tracker.add_progress(document(0, 5, 9, report("a", "1", 5, event=event, fetch_lag=1, emit_lag=2)))
        clock.now = START + 10

        result = source_metrics(tracker)
        assert (result.pending_records, result.pending_bytes, result.pending_seconds) == (4, 40, 70.0)
        assert result.source_idle_time == 9_000.0
        tracker.add_progress(document(1, 9, 9, report("b", "2", 4)))
        assert (source_metrics(tracker).pending_records, source_metrics(tracker).pending_seconds) == (0, 0.0)

    def test_without_reports_rows_count_as_records_and_bytes_are_unknown(self, tracker: Tracker) -> None:
        message = document(0, 5, 6)
        message["sources"][0]["endOffset"] = {"orders": {"0": 5}}  # Spark's own source
        message["sources"][0]["latestOffset"] = {"orders": {"0": 6}}
        tracker.add_progress(message, {0: NamedRead(READ, "Orders")})

        result = source_metrics(tracker)
        assert (result.num_records_in, result.num_bytes_in, result.pending_records) == (7, None, 1)
        assert result.pending_bytes is None
        assert result.current_offsets == {("orders", 0): 5}

    def test_a_report_that_came_before_its_sources_were_known_counts_when_they_are(self, tracker: Tracker) -> None:
        messages = [document(0, 5, 6), document(1, 6, 6)]
        for one, at in zip(messages, (5, 6), strict=True):
            one["sources"][0] |= {"endOffset": {"orders": {"0": at}}, "latestOffset": {"orders": {"0": 6}}}
            tracker.add_progress(one)  # from recentProgress, which comes before the listener's names
        assert tracker.snapshot().sources == ()

        for one in (*messages, *messages):
            tracker.add_progress(one, {0: NamedRead(READ, "Orders")})

        result = source_metrics(tracker)
        assert (result.num_records_in, result.current_offsets, result.pending_records) == (14, {("orders", 0): 6}, 0)

    def test_a_report_that_comes_late_counts_and_changes_no_gauge(self, tracker: Tracker) -> None:
        tracker.add_progress(document(1, 9, 9, report("b", "2", 4), sink={"numOutputRows": 4}))
        before = source_metrics(tracker)
        tracker.add_progress(document(0, 5, 9, report("a", "1", 5), sink={"numOutputRows": 5}))

        assert source_metrics(tracker) == attrs.evolve(before, num_records_in=9, num_bytes_in=90)
        assert tracker.snapshot().batch == 1

    def test_reports_are_remembered_as_long_as_they_may_be_repeated(self, tracker: Tracker) -> None:
        many = [{**document(0, 5, 5, report("a", str(n), 1)), "batchId": n} for n in range(1_500)]
        for message in (*many, *many):
            tracker.add_progress(message)

        assert source_metrics(tracker).num_records_in == 1_500

    def test_a_source_that_is_not_kafka_is_ignored(self, tracker: Tracker) -> None:
        message = document(0, 5, 6)
        message["sources"][0] = {"endOffset": {"logOffset": 0}, "numInputRows": 3}
        tracker.add_progress(message)

        assert tracker.snapshot().sources == ()

    def test_a_new_run_starts_at_zero_and_ignores_reports_of_the_old_one(self, tracker: Tracker) -> None:
        tracker.add_progress(document(0, 5, 5, report("a", "1", 5)))
        tracker.begin("run-2")
        assert tracker.snapshot().sources == ()
        tracker.add_progress(document(1, 6, 6, report("b", "2", 1), run="run-1"))
        tracker.add_progress(document(2, 8, 8, report("c", "3", 2), run="run-2"))

        assert (tracker.snapshot().run, source_metrics(tracker).num_records_in) == ("run-2", 2)

    def test_lost_records_and_open_transactions_come_from_the_offsets(self, tracker: Tracker) -> None:
        message = document(0, 5, 5, report("a", "1", 5))
        message["sources"][0]["endOffset"] = offsets(5, lost={"orders": {"0": 3}})
        message["sources"][0]["latestOffset"] = offsets(5, high={"orders": {"0": 9}})
        tracker.add_progress(message)

        assert (source_metrics(tracker).records_lost, source_metrics(tracker).uncommitted_records) == (3, 4)

    def test_a_group_taken_by_another_consumer_is_reported_as_long_as_it_lasts(self, tracker: Tracker) -> None:
        message = document(0, 5, 5, report("a", "1", 5))
        message["sources"][0]["latestOffset"] |= {"lost_lease": "g is held by x"}
        tracker.add_progress(message)
        assert (source_metrics(tracker).leases_lost, source_metrics(tracker).lost_lease) == (1, "g is held by x")

        tracker.add_progress(document(1, 6, 6, report("b", "1", 1)))
        assert (source_metrics(tracker).leases_lost, source_metrics(tracker).lost_lease) == (0, None)

    def test_what_became_of_commits_is_asked_for(self, clock: Clock) -> None:
        tracker = Tracker("q", lambda read: CommitCounts(2, 1, {("orders", 0): 4}), clock)
        tracker.add_progress(document(0, 5, 5, report("a", "1", 5)))

        result = source_metrics(tracker)
        assert (result.commits_succeeded, result.commits_failed) == (2, 1)
        assert result.committed_offsets == {("orders", 0): 4}


class TestState:
    """The sizes of an upsert table's states, which the tasks of partitions or shards tell."""

    def state_progress(self, batch: int, *sizes: tuple[int, int, int], run: str = "run-1") -> dict[str, Any]:
        """A batch in which one task reads a record, and others store states; each is a partition, keys and bytes."""
        reports = [report(f"shard {size[0]}", str(batch), 0, state=[size]) for size in sizes]
        return document(batch, 5 + batch, 9, report("a", str(batch), 1), *reports, run=run)

    def sizes(self, tracker: Tracker) -> tuple[int | None, int | None]:
        return source_metrics(tracker).num_keys_in_state, source_metrics(tracker).state_bytes

    def test_states_add_up_and_each_has_its_last_size(self, tracker: Tracker) -> None:
        tracker.add_progress(document(0, 5, 9, report("a", "1", 1)))
        assert self.sizes(tracker) == (None, None), "no state is told of"
        tracker.add_progress(self.state_progress(1, (0, 10, 100), (7, 2, 30)))
        assert self.sizes(tracker) == (12, 130)
        tracker.add_progress(self.state_progress(2, (7, 0, 0), (9, 1, 5)))
        assert self.sizes(tracker) == (11, 105)

    def test_a_report_that_comes_again_or_late_changes_no_state_that_has_a_later_one(self, tracker: Tracker) -> None:
        one, two, three = (
            self.state_progress(1, (0, 1, 10), (1, 1, 10)),
            self.state_progress(2, (0, 2, 20), (2, 5, 50)),
            self.state_progress(3, (1, 3, 30)),
        )
        for message in (one, three, two, one):
            tracker.add_progress(message)

        assert self.sizes(tracker) == (10, 100)

    def test_a_task_that_has_several_partitions_tells_of_each(self, tracker: Tracker) -> None:
        task = report("t/0 t/1", "1", 5, state=[(0, 1, 10), (1, 2, 20)])
        tracker.add_progress(document(0, 5, 9, task, report("t/2", "1", 5, state=[(2, 3, 30)])))

        assert self.sizes(tracker) == (6, 60)

    def test_the_tasks_of_shards_read_no_records(self, tracker: Tracker) -> None:
        reporter = Reporter("shard 3")
        reporter.state([(3, 5, 50)])
        tracker.add_progress(document(0, 5, 9, report("a", "1", 4), reporter.report()))

        assert (source_metrics(tracker).num_records_in, source_metrics(tracker).num_bytes_in) == (4, 40)
        assert self.sizes(tracker) == (5, 50)

    def in_state(self, state: StateFolder, document: dict[str, Any]) -> dict[str, Any]:
        """A batch that ends in a state."""
        end = {**document["sources"][0]["endOffset"], "state": attrs.asdict(state)}
        return {**document, "sources": [{**document["sources"][0], "endOffset": end}]}

    def test_rows_that_are_taken_over_leave_no_sizes_of_partitions(self, tracker: Tracker) -> None:
        before = [
            self.in_state(BY_PARTITION, self.state_progress(1, (0, 1, 10), (1, 1, 10), (9, 1, 10))),
            self.in_state(BY_PARTITION, self.state_progress(2, (9, 2, 20))),
        ]
        after = [
            self.in_state(BY_KEY, self.state_progress(3, (0, 2, 30), (1, 2, 30))),
            self.in_state(attrs.evolve(BY_KEY, version=2, before=1), self.state_progress(4, (1, 3, 40))),
        ]
        tracker.add_progress(before[0])
        assert self.sizes(tracker) == (3, 30)
        assert source_metrics(tracker).state_routing == {"by partition (murmur2)": 1}

        for one in (*after, before[1], *before, *after):  # reports come late, and again
            tracker.add_progress(one)

        assert self.sizes(tracker) == (5, 70)
        assert source_metrics(tracker).state_routing == {"by key": 1}

    def test_without_a_state_there_is_no_routing(self, tracker: Tracker) -> None:
        tracker.add_progress(document(1, 1, 1, report("a", "1", 1)))

        assert source_metrics(tracker).state_routing == {}

    def test_a_new_run_does_not_report_states_of_the_old_one(self, tracker: Tracker) -> None:
        tracker.add_progress(self.state_progress(1, (0, 1, 10)))
        tracker.begin("run-2")
        tracker.add_progress(self.state_progress(2, (1, 2, 20), run="run-2"))

        assert self.sizes(tracker) == (2, 20)


class TestWritten:
    def test_lines_add_up_and_a_line_that_is_being_written_waits(self, tracker: Tracker) -> None:
        spool = Spool()
        tracker.writes("Out", spool, "run-1")
        tasks = [SinkCounts(3, 30, send_time=1.5), SinkCounts(2, 20, lost=1, send_time=4.0), SinkCounts(send_time=2.0)]
        append_report(str(spool.path), add_up(tasks))
        with spool.path.open("ab") as file:
            file.write(b'{"records": 1')

        tracker.add_progress(document(0, 5, 5, sink={"numOutputRows": 99}))

        sink = tracker.snapshot().sink
        assert (sink.num_records_out, sink.num_bytes_out, sink.records_lost, sink.current_send_time) == (5, 50, 1, 4.0)
        assert sink.num_records_out_per_second == 5.0
        spool.path.unlink()

    def test_rows_that_violate_rules_are_counted_by_rule_and_logged_once_for_each_batch(
        self, tracker: Tracker, caplog: pytest.LogCaptureFixture
    ) -> None:
        spool = Spool()
        tracker.writes("Out", spool, "run-1")
        for number in (0, 1):
            dropped = {"rule:drop:positive": 2, Reason.NOT_NULL: 1}
            two = [SinkCounts(1, 1, dropped=dropped), SinkCounts(1, 1, dropped={"rule:warn:big": 1})]
            append_report(str(spool.path), add_up(two))
            tracker.add_progress(document(number, 5, 5, sink={"numOutputRows": 99}))

        sink = tracker.snapshot().sink
        assert (sink.num_rule_violations, sink.num_rows_dropped) == ({"positive": 4, "big": 2}, 2)
        for number in (0, 1):
            line = f"Out: of batch {number} 2 rows violate the rule 'positive' and were left out"
            assert caplog.messages.count(line) == 1
        spool.path.unlink()

    def test_tasks_of_a_write_report_them_if_its_commits_report_nothing(self, tracker: Tracker) -> None:
        tracker.writes("Out", None, "run-1")
        reporter = Reporter("partition 0")
        reporter.read(3, None, None, 0.0, dropped={"rule:drop:positive": 2})
        reports = {SINK_OBSERVATION: {"metrics": {"reports": [reporter.report()]}}}
        tracker.add_progress({**document(0, 5, 5, sink={"numOutputRows": 3}), "observedMetrics": reports})

        assert tracker.snapshot().sink.num_rule_violations == {"positive": 2}

    def test_another_machine_leaves_sparks_count_of_rows(self, tracker: Tracker) -> None:
        append_report("/no/such/folder/1.jsonl", SinkCounts(1, 1))
        tracker.writes("Out", None, "run-1")
        tracker.add_progress(document(0, 5, 5, sink={"numOutputRows": 4}))

        assert (tracker.snapshot().sink.num_records_out, tracker.snapshot().sink.num_bytes_out) == (4, None)

    def test_the_file_is_the_users_alone(self) -> None:
        spool = Spool()

        assert spool.path.stat().st_mode & 0o077 == 0
        assert spool.path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("query", "side", "message"),
    [
        (
            QueryMetrics("id", "run", name="orders"),
            "source",
            "the query 'orders' has finished no batch yet, so its sources are not known; wait for its first batch, "
            "or use .sources, which is empty until then",
        ),
        (
            QueryMetrics("id", "run", batch=0),
            "source",
            "the query 'id' has no source that is a table of kdsl; .sources is ()",
        ),
        (QueryMetrics("id", "run"), "sink", "the query 'id' has no sink that is a table of kdsl; .sinks is ()"),
        (
            QueryMetrics("id", "run", sources=(SourceMetrics("A"), SourceMetrics("B"))),
            "source",
            "the query 'id' has 2 sources, of 'A' and 'B'; use .sources",
        ),
    ],
)
def test_a_single_missing_source_is_reported(query: QueryMetrics, side: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        getattr(query, side)


def test_the_one_source_and_the_one_sink() -> None:
    query = QueryMetrics("id", "run", sources=(SourceMetrics("A"),), sinks=(SinkMetrics("B"),))

    assert (query.source.table, query.sink.table) == ("A", "B")


def test_what_the_last_batch_says_of_the_query_is_there_until_the_next_run(tracker: Tracker, clock: Clock) -> None:
    state = {"operatorName": "dedupe", "numRowsTotal": 5, "memoryUsedBytes": 700}
    tracker.begin("run-1")
    clock.now += 4
    tracker.add_progress(document(0, 1, 1, stateOperators=[state, {**state, "numRowsTotal": 6}]))

    last = tracker.snapshot()
    assert (last.running, last.failed, last.uptime, last.batch_duration) == (1, {}, 4000, 1000)
    assert (last.num_rows_in_state, last.state_memory) == (
        {"dedupe": 5, "dedupe-2": 6},
        {"dedupe": 700, "dedupe-2": 700},
    )

    tracker.end("run-1", "Orders: no rights")
    ended = tracker.snapshot()
    assert (ended.running, ended.failed, ended.uptime) == (0, {"Orders: no rights": 1}, None)
    assert ended.batch_duration == 1000

    tracker.begin("run-2")
    again = tracker.snapshot()
    assert (again.running, again.failed, again.uptime, again.batch_duration) == (1, {}, 0, None)


def test_the_error_of_a_query_is_the_sentence_in_it_and_stays_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = 'org.apache.spark.SparkException: Job aborted\nTraceback (most recent call last):\n  File "a.py", line 1\n'
    trace += "kdsl.errors.DecodeError: Orders: no rights\n\n\tat org.apache.spark.Task.run(Task.scala:1)"
    monkeypatch.setattr(observer, "_trackers", OrderedDict())
    observer.METRICS.on_start(Query("q", "run-1", "copy"))
    observer.METRICS.on_end(Query("q", "run-1", "copy", trace))

    (ended,) = observer.all_metrics()
    assert (ended.running, ended.failed) == (0, {"Orders: no rights": 1})

    monkeypatch.setattr(observer, "_SHOWN_AFTER_END", 0.0)
    assert observer.all_metrics() == ()
