"""Rejected records are read again, with the fields that a letter needs."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError
from kdsl.run.librdkafka import letter_writer
from kdsl.run.librdkafka.letter_writer import RecordReader
from tests.run.read_plans import read_plan


def records(*offsets: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.repeat("orders", len(offsets)),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), len(offsets)),
            "offset": pa.array(offsets, pa.int64()),
        }
    )


def read_again(monkeypatch: pytest.MonkeyPatch, wanted: pa.RecordBatch, topic: Sequence[pa.RecordBatch]) -> list[int]:
    """The offsets of the records that are read again from a topic with some batches."""
    monkeypatch.setattr(letter_writer, "borrow_consumer", MagicMock())
    monkeypatch.setattr(letter_writer, "Fetcher", lambda *_: MagicMock(**{"read.return_value": iter(topic)}))
    again = RecordReader(read_plan("orders"), Cluster("h:1"), "key", {}, 1.0)(wanted)
    offsets: list[int] = again.column("offset").to_pylist()
    return offsets


def test_records_are_returned_in_the_order_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = [records(1, 2, 3), records(4, 5, 6)]

    assert read_again(monkeypatch, records(5, 2, 6), topic) == [5, 2, 6]


@pytest.mark.parametrize("topic", [[], [records()], [records(4, 6)]], ids=["none", "empty", "others"])
def test_a_record_that_is_gone_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, topic: list[pa.RecordBatch]
) -> None:
    with pytest.raises(KafkaReadError, match="topic orders, partition 0, offset 5 cannot be read, and was deleted"):
        read_again(monkeypatch, records(5), topic)
