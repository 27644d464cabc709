"""Upserts that are rows of single records, as AUTO CDC reads them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kdsl.ddl.load import sql
from kdsl.errors import RecordError
from kdsl.plan.change_columns import add_commit_columns, read_by_record
from kdsl.run.records.decode import RecordDecoder

CHANGES = """CREATE TABLE c (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'format' = 'canal-json',
  'cdc-events-duplicate' = 'true', 'scan.changelog.mode' = 'upsert')"""
DEBEZIUM = CHANGES.replace("canal-json", "debezium-json")


def decode(ddl: str, *values: str) -> list[tuple[object, ...]]:
    decoder = RecordDecoder(read_by_record(add_commit_columns(sql(ddl).read_plan())))
    fields = {
        "key": pa.nulls(len(values), pa.binary()),
        "value": pa.array([v.encode() for v in values], pa.binary()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "timestamp": pa.array([1000] * len(values), pa.int64()),
        "topic": pa.repeat("t", len(values)),
        "partition": pa.array([0] * len(values), pa.int32()),
    }
    rows = decoder.decode(pa.RecordBatch.from_pydict(fields))
    return [tuple(row.values())[:4] for row in rows.to_pylist()]


def test_an_update_that_changes_the_key_deletes_the_old_row() -> None:
    update = '{"type":"UPDATE","data":[{"id":2,"name":"b"}],"old":[{"id":1,"name":"a"}]}'
    same = '{"type":"UPDATE","data":[{"id":2,"name":"c"}],"old":[{"name":"b"}]}'

    assert decode(CHANGES, update, same) == [("-D", 1, "a", 0), ("+U", 2, "b", 0), ("+U", 2, "c", 1)]


def test_a_delete_needs_no_row_before() -> None:
    delete = '{"before":{"id":1,"name":null},"after":null,"op":"d"}'

    assert decode(DEBEZIUM, delete) == [("-D", 1, None, 0)]


def test_a_value_that_the_message_does_not_contain_is_an_error_without_state() -> None:
    update = '{"before":null,"after":{"id":1,"name":"__debezium_unavailable_value"},"op":"u"}'

    with pytest.raises(RecordError, match="'name' has no value"):
        decode(DEBEZIUM, update)
