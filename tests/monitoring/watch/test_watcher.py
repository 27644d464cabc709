"""What is known of queries that run, restart, end, fail, vanish or do not answer, and what is in trouble."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kdsl.monitoring.watch import watcher as module
from kdsl.monitoring.watch.endpoint import parse_endpoint
from kdsl.monitoring.watch.troubles import write_duration
from kdsl.monitoring.watch.watcher import COUNTS, PLOTS, Watcher
from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics, metrics_of
from kdsl.testing.ports import free_port
from tests.monitoring.watch.jobs import Job, lines, run_job


class Watched:
    """A watcher of one job, with a clock that stands still between two answers."""

    def __init__(self, job: Job) -> None:
        self.job, self.now = job, 1_800_000_000.0
        self.watcher = Watcher([job.endpoint], 2, clock=lambda: self.now)

    def after(self, seconds: float, *texts: str) -> dict[str, Any]:
        """Ask the job, which says something, after some seconds, and return the document of five minutes."""
        self.now += seconds
        self.job.says(*texts)
        self.watcher.poll_all()
        return self.watcher.describe(300)


@pytest.fixture
def watched() -> Iterator[Watched]:
    with run_job() as job:
        yield Watched(job)


def copy(uptime: float, **values: Any) -> str:
    """The query ``copy`` after some seconds."""
    return lines("copy", running=1, uptime=uptime * 1000) + lines("copy", "Orders", num_records_in_total=5, **values)


def only(document: dict[str, Any]) -> dict[str, Any]:
    (query,) = document["queries"]
    return dict(query)


def plot(query: dict[str, Any], metric: str) -> dict[str, Any]:
    (the_plot,) = [one for table in query["tables"] for one in table["plots"] if one["metric"] == metric]
    return dict(the_plot)


def test_every_metric_of_the_page_is_declared() -> None:
    declared = {m.name for kind in (QueryMetrics, SourceMetrics, SinkMetrics) for m in metrics_of(kind)}

    assert {*PLOTS, *COUNTS} <= declared


def test_a_query_that_runs_has_its_values_in_time(watched: Watched) -> None:
    watched.after(0, copy(60, pending_records=7))
    query = only(watched.after(2, copy(62, pending_records=9)))

    assert (query["name"], query["state"], query["since"]) == ("copy", "running", watched.now - 62)
    assert (query["restarts"], query["troubles"]) == (0, [])
    assert query["times"] == [watched.now - 2, watched.now]
    lag = plot(query, "pendingRecords")
    assert (lag["table"], lag["value"], lag["values"], lag["unit"]) == ("Orders", 9, [7, 9], "records")


def test_a_query_that_is_started_again_is_noticed_and_its_plot_goes_on(watched: Watched) -> None:
    watched.after(0, copy(60, num_records_in_per_second=5, records_lost_total=3))
    watched.now += 700
    watched.after(0, copy(760, num_records_in_per_second=5, records_lost_total=3))
    query = only(watched.after(30, copy(4, num_records_in_per_second=6, records_lost_total=1)))

    assert (query["restarts"], query["since"]) == (1, watched.now - 4)
    assert plot(query, "numRecordsInPerSecond")["values"] == [5, 6]
    assert [one["text"] for one in query["troubles"]] == ["1 records were deleted before they were read"]
    assert only(watched.after(30, copy(34)))["restarts"] == 1


def test_a_query_that_ends_says_so_and_shows_its_last_values(watched: Watched) -> None:
    watched.after(0, copy(60, pending_records=7, pending_seconds=900))
    query = only(watched.after(2, lines("copy", running=0)))

    assert (query["state"], query["since"]) == ("ended", watched.now)
    assert plot(query, "pendingRecords")["value"] == 7
    assert plot(query, "pendingRecords")["values"] == [7, None]
    assert query["troubles"] == []
    assert only(watched.after(2, lines("copy", running=0)))["since"] == watched.now - 2
    assert only(watched.after(2, copy(1)))["restarts"] == 1
    assert only(watched.after(2, copy(3)))["restarts"] == 1


def test_a_query_that_fails_says_why_in_the_words_of_the_alert(watched: Watched) -> None:
    watched.after(0, copy(60))
    failed = lines("copy", running=0, failed={(("error", "Orders: no rights"),): 1})
    query = only(watched.after(2, failed))

    assert query["state"] == "failed"
    (trouble,) = query["troubles"]
    assert (trouble["severity"], trouble["text"]) == ("critical", "the query has failed: Orders: no rights")
    assert trouble["since"] == watched.now


def test_a_query_whose_process_forgot_it_is_gone(watched: Watched) -> None:
    watched.after(0, copy(60, pending_records=7))
    query = only(watched.after(2))

    assert (query["state"], query["since"]) == ("gone", watched.now)
    assert plot(query, "pendingRecords")["value"] == 7
    again = only(watched.after(2, copy(64, pending_records=8)))
    assert (again["state"], again["restarts"], again["since"]) == ("running", 0, watched.now - 64)


def test_an_endpoint_that_does_not_answer_is_shown_with_since_when(watched: Watched) -> None:
    document = watched.after(0, copy(60, pending_seconds=900, pending_records=1))
    assert document["endpoints"] == [{"url": watched.job.endpoint.url, "error": None, "since": watched.now}]
    assert only(document)["troubles"] != []

    watched.job.status = 500
    watched.after(2)
    document = watched.after(2)
    (endpoint,) = document["endpoints"]
    assert (endpoint["error"], endpoint["since"]) == ("it answers with HTTP 500 Internal Server Error", watched.now - 2)
    query = only(document)
    assert (query["state"], query["since"], query["troubles"]) == ("silent", watched.now - 2, [])
    assert plot(query, "pendingRecords")["values"] == [1, None, None]

    watched.job.status = 200
    document = watched.after(2, copy(66))
    assert document["endpoints"][0]["since"] == watched.now
    assert (only(document)["state"], only(document)["restarts"]) == ("running", 0)


def test_an_endpoint_that_was_not_asked_yet_is_neither() -> None:
    watcher = Watcher([parse_endpoint("1")], 2)

    assert watcher.describe(None)["endpoints"] == [{"url": "http://127.0.0.1:1/metrics", "error": None, "since": None}]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"pending_seconds": 301}, ("pending", "the query is 5 min 1 s behind (an alert after 10m)")),
        ({"pending_seconds": 300}, None),
        ({"leases_lost": 1}, ("critical", "another query uses the same consumer group or transactional ids")),
        ({"records_lost_total": 2_000}, ("critical", "2,000 records were deleted before they were read")),
        (
            {"num_records_dropped_total": {(("reason", "dead-letter"),): 4, (("reason", "tombstone"),): 5}},
            ("warning", "records that cannot be read were left out (reason dead-letter, 4)"),
        ),
    ],
)
def test_a_value_is_in_trouble_as_the_alert_rules_say(
    values: dict[str, Any], expected: tuple[str, str] | None, watched: Watched
) -> None:
    troubles = only(watched.after(0, copy(60, **values)))["troubles"]

    assert [(one["severity"], one["text"]) for one in troubles] == ([] if expected is None else [expected])


def test_a_gauge_is_in_trouble_when_it_has_lasted_and_a_counter_no_longer_than_ten_minutes(watched: Watched) -> None:
    start = watched.now
    for _ in range(32):
        document = watched.after(20, copy(60 + watched.now - start, pending_seconds=400, records_lost_total=2))
    (lag,) = only(document)["troubles"]

    assert (lag["severity"], lag["text"]) == ("warning", "the query is 6 min 40 s behind")
    assert lag["since"] == start + 20


def test_operators_are_added_up_and_late_rows_are_those_of_each(watched: Watched) -> None:
    by = {(("operator", "dedupe"),): 5.0, (("operator", "join"),): 6.0}
    query = only(
        watched.after(
            0,
            copy(60),
            lines("copy", num_rows_in_state=by, num_late_records_dropped_total={(("operator", "dedupe"),): 3}),
        )
    )

    assert plot(query, "numRowsInState")["values"] == [11]
    assert plot(query, "numRowsInState")["value"] == 11
    assert [(one["title"], one["value"]) for one in query["tables"][-1]["counts"]] == [("late: dedupe", 3)]


def test_tables_that_are_read_come_before_those_that_are_written(watched: Watched) -> None:
    out = lines("copy", "Archive", num_records_out_total=1) + lines("copy", "Orders", num_records_out_total=1)
    query = only(watched.after(0, copy(60), out))

    roles = [(table["name"], table["role"]) for table in query["tables"]]
    assert roles == [("Orders", "reads and writes"), ("Archive", "writes"), ("", "")]


def test_partitions_with_the_largest_lag_come_first_and_not_all_of_them(watched: Watched) -> None:
    lags = {(("topic", "t"), ("partition", str(p))): float(p % 30) for p in range(100)}
    (table, _) = only(watched.after(0, copy(60, records_lag=lags, current_offsets={**lags})))["tables"]

    assert table["partitionCount"] == 100
    assert len(table["partitions"]) == 20
    assert table["partitions"][0] == ["t", "29", 29, 29, None]
    assert [row[1] for row in table["partitions"][:3]] == ["29", "59", "89"]


def test_two_endpoints_may_have_queries_of_one_name() -> None:
    with run_job() as one, run_job() as other:
        one.says(copy(60))
        other.says(copy(61))
        watcher = Watcher([one.endpoint, other.endpoint, parse_endpoint(str(free_port()))], 2)
        watcher.poll_all()
        document = watcher.describe(None)

    assert [query["name"] for query in document["queries"]] == ["copy", "copy"]
    assert {query["endpoint"] for query in document["queries"]} == {one.endpoint.url, other.endpoint.url}
    assert [endpoint["error"] is None for endpoint in document["endpoints"]] == [True, True, False]


def test_queries_that_were_not_seen_for_longest_are_forgotten(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_QUERIES", 3)
    for number in range(5):
        document = watched.after(2, lines("stays", running=1), lines(f"query {number}", running=1))

    assert sorted(query["name"] for query in document["queries"]) == ["query 3", "query 4", "stays"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59, "59 s"), (60, "1 min"), (7_505, "2 h 5 min"), (90_000, "1 d 1 h")]
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text
