"""What source tasks of an ingestion return: packets of many records, divided at once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kdsl import Cluster
from kdsl.ingest import KafkaFeed
from kdsl.ingest.run.raw import raw_table
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.run.librdkafka import task_output
from kdsl.run.librdkafka.task_output import TaskOutput, create_task_output
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.packets import plan_packets, read_packets
from kdsl_formats.json import Json
from tests.ingest.test_records import records


@pytest.fixture
def output() -> TaskOutput:
    """The output of a task of an ingestion."""
    feed = KafkaFeed(Cluster("localhost:9092"), topic=("t",), value=Json())
    plan = plan_packets(read_plan(resolve(raw_table(feed).definition, "read")))
    return create_task_output(RecordDecoder(plan), plan)


def values(batches: list[pa.RecordBatch]) -> list[list[bytes]]:
    """The values of the records of each packet."""
    return [one.column("value").to_pylist() for batch in batches for one in read_packets(batch.column("records"))]


def test_records_wait_for_others_until_there_are_enough(output: TaskOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_output, "_GATHERED_RECORDS", 3)
    sent = [records(b"0", b"1"), records(b"2"), records(b"3")]

    returned = [values(list(output.add(batch))) for batch in sent]

    assert returned == [[], [[b"0", b"1", b"2"]], []]
    assert values(list(output.finish())) == [[b"3"]]
    assert list(output.finish()) == []


def test_records_do_not_wait_if_they_are_large(output: TaskOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_output, "_GATHERED_BYTES", 1000)

    assert values(list(output.add(records(b"0" * 1000)))) == [[b"0" * 1000]]
    assert list(output.add(records(b"1"))) == []
    assert values(list(output.finish())) == [[b"1"]]
