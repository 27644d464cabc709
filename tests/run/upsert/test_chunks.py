"""Chunks bring rows through Spark as they were, and in the order in which they were."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kdsl import Col, Json, PrimaryKey, UpsertTable, Virtual, virtual
from kdsl.errors import RecordError
from kdsl.formats import ROW_KIND
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan, Upserts as Upserting
from kdsl.resolve import resolve
from kdsl.run.records.decode import RecordDecoder, RowsOfRecords
from kdsl.run.records.metadata import RAW
from kdsl.run.upsert import chunks
from kdsl.run.upsert.changes import KeyedRows
from kdsl.run.upsert.chunks import Chunk, ChunkOutput, read_chunks
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from kdsl.types.parse import parse_type


class Users(UpsertTable, topic="users", key=Json(), value=Json(), value_fields="EXCEPT_KEY", changelog_buckets=8):
    """Users by their number."""

    user_id: PrimaryKey[int]
    name: Col[str]
    place: Virtual[int] = virtual("offset")


def plan() -> ReadPlan:
    return read_plan(resolve(Users.definition(), "read"))


def raw(*records: tuple[int, int, bytes | None, bytes | None]) -> pa.RecordBatch:
    """Records of partition, offset, key and value."""
    columns = {
        "topic": ["users"] * len(records),
        "partition": [partition for partition, *_ in records],
        "offset": [offset for _, offset, *_ in records],
        "timestamp": [1000 + offset for _, offset, *_ in records],
        "key": [key for *_, key, _ in records],
        "value": [value for *_, value in records],
    }
    return pa.RecordBatch.from_arrays([pa.array(v, RAW[n]) for n, v in columns.items()], list(columns))


def pack(*batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    packer = ChunkOutput(RecordDecoder(plan()), plan().upserts)  # type: ignore[arg-type]
    return [*(item for batch in batches for item in packer.add(batch)), *packer.finish()]


def rows_by_bucket(batches: list[pa.RecordBatch]) -> dict[int, KeyedRows]:
    schema = arrow_schema(t.Row(plan().columns.fields[1:], nullable=False))
    by_bucket: dict[int, list[Chunk]] = {}
    for batch in reversed(batches):  # in any order
        for row in batch.drop_columns(["time"]).to_pylist():
            by_bucket.setdefault(row.pop("bucket"), []).append(Chunk(**row))
    results = {bucket: read_chunks(of, schema) for bucket, of in by_bucket.items()}
    return {bucket: rows for bucket, rows in results.items() if rows is not None}


def test_rows_and_deletes_of_a_bucket_come_out_in_the_order_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_ROWS", 5)
    records = [
        (n % 2, n // 2, b'{"user_id":%d}' % (n % 7), None if n % 5 == 4 else b'{"name":"n%d"}' % n) for n in range(40)
    ]

    actual = pack(*(raw(*records[at : at + 3]) for at in range(0, 40, 3)))

    assert len(actual) > 5
    result = rows_by_bucket(actual)
    seen = [
        (bucket, row["user_id"], row["name"], bool(delete), int(time) - 1000, row["place"], int(part))
        for bucket, of in result.items()
        for row, delete, time, part in zip(of.rows.to_pylist(), of.deletes, of.times, of.partitions, strict=True)
    ]
    assert len({(bucket, key) for bucket, key, *_ in seen}) == 7, "a key has one bucket"
    assert sorted((key, name or "", place) for _, key, name, _, _, place, _ in seen) == sorted(
        (n % 7, "" if n % 5 == 4 else f"n{n}", n // 2) for n in range(40)
    )
    assert all(delete == (name is None) for _, _, name, delete, *_ in seen)
    for bucket in result:
        for part in (0, 1):
            places = [place for b, _, _, _, _, place, p in seen if (b, p) == (bucket, part)]
            assert places == sorted(places)


def test_the_ranges_of_a_task_may_surround_those_of_another_task() -> None:
    key, names = b'{"user_id":1}', [b'{"name":"n%d"}' % n for n in range(6)]
    first, second, third = (
        raw(*((0, n, key, names[n]) for n in some), (1, some[0], b'{"user_id":2}', b'{"name":"other"}'))
        for some in ((0, 1), (2, 3), (4, 5))
    )

    for task in ([first, third], [third, first]):
        result = rows_by_bucket([*pack(second), *pack(*task)])
        rows = [row for of in result.values() for row in of.rows.to_pylist() if row["user_id"] == 1]
        assert [row["place"] for row in rows] == [0, 1, 2, 3, 4, 5]
        assert [row["name"] for row in rows] == [f"n{n}" for n in range(6)]


@pytest.mark.parametrize("kind", ["timestamp_ltz(3)", "timestamp(6)"])
def test_a_chunk_has_the_latest_event_time_of_its_rows(kind: str) -> None:
    row = t.Row((t.Field(ROW_KIND, t.STRING), t.Field("k", t.Int()), t.Field("at", parse_type(kind))), nullable=False)
    schema = arrow_schema(row)
    times = pa.array([3000, 1000, 2000, None], pa.int64()).cast(pa.timestamp("ms")).cast(schema.field("at").type)
    rows = pa.RecordBatch.from_arrays([pa.array(["+U"] * 4), pa.array([1, 1, 2, 3], pa.int32()), times], schema=schema)
    records = raw(*((0, n, b"", b"") for n in range(4)))

    result = chunks.build_chunks([RowsOfRecords(rows, records, None)], Upserting(("k",), buckets=1 << 15), "at")

    values = result.column("time").view(pa.int64()).to_pylist()
    assert values[0] is None, "settings have no time"
    assert sorted(values[1:], key=str) == [2_000_000, 3_000_000, None]

    limited = chunks.build_chunks(
        [RowsOfRecords(rows, records, None)], Upserting(("k",), buckets=1 << 15), "at", 2_500_000
    )
    assert sorted(limited.column("time").view(pa.int64()).to_pylist()[1:], key=str) == [1_000_000, 2_000_000, None]


def test_a_record_without_a_key_is_an_error_that_names_it() -> None:
    with pytest.raises(
        RecordError, match=r"'user_id' is NULL, but it is declared NOT NULL, and the message has no key"
    ) as e:
        pack(raw((3, 17, None, b'{"name":"a"}')))
    assert "topic users, partition 3, offset 17" in str(e.value)
    assert "read the topic with a KafkaTable" in str(e.value)


def test_a_null_in_a_required_column_is_an_error_except_in_a_delete() -> None:
    assert len(pack(raw((0, 0, b'{"user_id":1}', None)))) == 1
    with pytest.raises(RecordError, match="column 'name' is NULL, but it is declared NOT NULL"):
        pack(raw((0, 0, b'{"user_id":1}', None), (0, 1, b'{"user_id":1}', b"{}")))


def test_a_key_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(RecordError, match="the key cannot be decoded"):
        pack(raw((0, 0, b"{", None)))
