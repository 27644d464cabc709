"""Chunks bring rows through Spark as they were, and in the order in which they were."""

from __future__ import annotations

import attrs
import pyarrow as pa
import pytest

from kdsl import Col, Json, PrimaryKey, UpsertTable, Virtual, virtual
from kdsl.errors import KdslError, RecordError
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.run.upsert import chunks
from kdsl.run.upsert.changes import KeyedRows
from kdsl.run.upsert.chunks import Chunk, ChunkOutput, read_chunks
from kdsl.run.upsert.shard_changes import ShardOfBatch, chunks_of
from kdsl.run.upsert.steps import ShardStep
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema

SHARDS = 8


class Users(UpsertTable, topic="users", key=Json(), value=Json(), value_fields="EXCEPT_KEY"):
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
    packer = ChunkOutput(RecordDecoder(plan()), plan().upserts, SHARDS)  # type: ignore[arg-type]
    return [*(item for batch in batches for item in packer.add(batch)), *packer.finish()]


def rows_by_shard(batches: list[pa.RecordBatch]) -> dict[int, KeyedRows]:
    schema = arrow_schema(t.Row(plan().columns.fields[1:], nullable=False))
    by_shard: dict[int, list[Chunk]] = {}
    for batch in reversed(batches):  # in any order
        for shard, chunk in chunks_of(batch):
            by_shard.setdefault(shard, []).append(chunk)
    results = {shard: read_chunks(of, schema) for shard, of in by_shard.items()}
    return {shard: rows for shard, rows in results.items() if rows is not None}


def test_rows_and_deletes_of_a_shard_come_out_in_the_order_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_ROWS", 5)
    records = [
        (n % 2, n // 2, b'{"user_id":%d}' % (n % 7), None if n % 5 == 4 else b'{"name":"n%d"}' % n) for n in range(40)
    ]

    actual = pack(*(raw(*records[at : at + 3]) for at in range(0, 40, 3)))

    assert len(actual) > 5
    result = rows_by_shard(actual)
    seen = [
        (shard, row["user_id"], row["name"], bool(delete), int(time) - 1000, row["place"], int(part))
        for shard, of in result.items()
        for row, delete, time, part in zip(of.rows.to_pylist(), of.deletes, of.times, of.partitions, strict=True)
    ]
    assert len({(shard, key) for shard, key, *_ in seen}) == 7, "a key has one shard"
    assert sorted((key, name or "", place) for _, key, name, _, _, place, _ in seen) == sorted(
        (n % 7, "" if n % 5 == 4 else f"n{n}", n // 2) for n in range(40)
    )
    assert all(delete == (name is None) for _, _, name, delete, *_ in seen)
    for shard in result:
        for part in (0, 1):
            places = [place for b, _, _, _, _, place, p in seen if (b, p) == (shard, part)]
            assert places == sorted(places)


def test_the_ranges_of_a_task_may_surround_those_of_another_task() -> None:
    key, names = b'{"user_id":1}', [b'{"name":"n%d"}' % n for n in range(6)]
    first, second, third = (
        raw(*((0, n, key, names[n]) for n in some), (1, some[0], b'{"user_id":2}', b'{"name":"other"}'))
        for some in ((0, 1), (2, 3), (4, 5))
    )

    for task in ([first, third], [third, first]):
        result = rows_by_shard([*pack(second), *pack(*task)])
        rows = [row for of in result.values() for row in of.rows.to_pylist() if row["user_id"] == 1]
        assert [row["place"] for row in rows] == [0, 1, 2, 3, 4, 5]
        assert [row["name"] for row in rows] == [f"n{n}" for n in range(6)]


def test_one_task_of_a_batch_says_to_every_shard_what_it_does() -> None:
    step = ShardStep("id", SHARDS, 7, 8, 9, (("id/partition-0", 5),), "old")
    some = raw((0, 0, b'{"user_id":1}', b'{"name":"a"}'))
    decoder, upserts = RecordDecoder(plan()), plan().upserts
    assert upserts is not None
    batches = []
    for task in (step, attrs.evolve(step, tells=False)):
        output = ChunkOutput(decoder, upserts, SHARDS, task)
        batches += [*output.add(some), *output.finish()]

    by_shard: dict[int, list[Chunk]] = {}
    for batch in batches:
        for shard, chunk in chunks_of(batch):
            by_shard.setdefault(shard, []).append(chunk)

    assert sorted(by_shard) == list(range(SHARDS))
    of = {shard: ShardOfBatch.of("Users", shard, chunks) for shard, chunks in by_shard.items()}
    assert {one.step for one in of.values()} == {step}
    assert sorted(len(one.chunks) for one in of.values()) == [*[0] * (SHARDS - 1), 2]


def test_rows_of_a_shard_without_its_version_or_with_two_are_an_error() -> None:
    """As when rows are filtered between the source and the changes, or those of two batches come together."""
    rows = Chunk("users", 0, 0, b"rows")
    steps = [Chunk("", 0, 0, b"", ShardStep("id", SHARDS, None, end).to_text()) for end in (1, 2)]
    assert ShardOfBatch.of("Users", 3, [steps[0], rows, steps[0]]).chunks == (rows,)

    with pytest.raises(KdslError, match="the rows of shard 3 came without a version of their state"):
        ShardOfBatch.of("Users", 3, [rows])
    with pytest.raises(KdslError, match="the rows of shard 3 came with several versions of their state"):
        ShardOfBatch.of("Users", 3, steps)


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
