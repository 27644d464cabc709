"""Metrics as Prometheus text: names, labels, values, and a server that listens where it should."""

from __future__ import annotations

import socket
from urllib.request import urlopen

import attrs
import pytest
from prometheus_client.parser import text_string_to_metric_families

import kdsl
from kdsl.run.metrics import collector
from kdsl.run.metrics.model import Kind, QueryMetrics, SinkMetrics, SourceMetrics, metrics_of, prometheus_name
from kdsl.run.metrics.prometheus import serve_metrics
from kdsl.testing.ports import free_port

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]

SOURCE = SourceMetrics(
    "Orders",
    num_records_in=7,
    num_bytes_in=None,
    pending_records=3,
    current_offsets={("orders", 0): 5, ('we"ird\n', 1): 6},
    client={"kdsl-1": {"records-consumed-total": 9.0}},
)


def read_page(host: str = "127.0.0.1") -> Page:
    """What a server of the metrics shows; one on all addresses is asked on this machine's."""
    with serve_metrics(0, host) as server, urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    late = {"dedupe": 3}
    one = QueryMetrics("id-1", "run", "copy", 2, (SOURCE,), (SinkMetrics("Out", num_records_out=7),), late)
    two = QueryMetrics("id-2", "run", None, 2, (attrs.evolve(SOURCE, num_records_in=8),))
    monkeypatch.setattr(collector, "all_metrics", lambda: (one, two))
    return read_page()


def test_values_of_all_queries_are_labelled_by_query_and_table(page: Page) -> None:
    of_copy = {("query", "copy"), ("table", "Orders")}
    of_two = {("query", "id-2"), ("table", "Orders")}

    assert page["kdsl_num_records_in_total", frozenset(of_copy)] == 7
    assert page["kdsl_num_records_in_total", frozenset(of_two)] == 8
    assert page["kdsl_pending_records", frozenset(of_copy)] == 3
    assert page["kdsl_num_late_records_dropped_total", frozenset({("query", "copy"), ("operator", "dedupe")})] == 3
    assert page["kdsl_num_records_out_total", frozenset({("query", "copy"), ("table", "Out")})] == 7
    assert page["kdsl_current_offsets", frozenset({*of_copy, ("topic", "orders"), ("partition", "0")})] == 5
    assert page["kdsl_current_offsets", frozenset({*of_copy, ("topic", 'we"ird\n'), ("partition", "1")})] == 6
    assert page["kdsl_consumer_records_consumed_total", frozenset({*of_copy, ("client_id", "kdsl-1")})] == 9


def test_unknown_values_are_not_reported(page: Page) -> None:
    assert not any(name.startswith("kdsl_num_bytes_in") for name, _ in page)


@pytest.mark.parametrize(
    ("host", "error"),
    [("127.0.0.1", "Orders: no rights"), ("0.0.0.0", "its message is in the log of the process")],
)
def test_a_query_that_has_ended_is_there_as_such_with_its_error_on_this_machine_only(
    host: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = QueryMetrics("id-1", "run", "copy", 2, (SOURCE,), running=0, failed={"Orders: no rights\nvalue 1": 1})
    other = attrs.evolve(ended, query="id-2", name="merge", failed={})
    runs_again = attrs.evolve(other, query="id-3", running=1, sources=())
    monkeypatch.setattr(collector, "all_metrics", lambda: (ended, runs_again, other))

    assert read_page(host) == {
        ("kdsl_running", frozenset({("query", "copy")})): 0,
        ("kdsl_failed", frozenset({("query", "copy"), ("error", error)})): 1,
        ("kdsl_running", frozenset({("query", "merge")})): 1,
    }


def test_only_this_machine_reaches_it_by_default() -> None:
    port = free_port()  # not one that the system may give to a connection in between
    with kdsl.serve_metrics(port=port) as server:
        assert server.host == "127.0.0.1"
        assert server.url == f"http://127.0.0.1:{port}/metrics"
        with pytest.raises(OSError, match="in use"):
            serve_metrics(port)
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))


def test_names_follow_from_the_declared_ones_and_none_comes_twice() -> None:
    every = {
        m.name: m for kind in (QueryMetrics, SourceMetrics, SinkMetrics) for m in metrics_of(kind)
    }  # leasesLost is of both
    names = [prometheus_name(m.name, m.kind) for m in every.values()]

    assert prometheus_name("numRecordsInPerSecond") == "kdsl_num_records_in_per_second"
    assert prometheus_name("numRecordsIn", Kind.COUNTER) == "kdsl_num_records_in_total"
    assert len(set(names)) == len(names)


def test_each_metric_of_the_reference_is_declared() -> None:
    names = {m.name for kind in (SourceMetrics, SinkMetrics) for m in metrics_of(kind)}

    assert names >= {
        *("numRecordsIn", "numRecordsInPerSecond", "numBytesIn", "numBytesInPerSecond", "pendingRecords"),
        *("currentFetchEventTimeLag", "currentEmitEventTimeLag", "watermarkLag", "sourceIdleTime"),
        *("commitsSucceeded", "commitsFailed", "committedOffsets", "currentOffsets", "recordsLost"),
        *("numRecordsOut", "numRecordsOutPerSecond", "numBytesOut", "numBytesOutPerSecond", "currentSendTime"),
    }
