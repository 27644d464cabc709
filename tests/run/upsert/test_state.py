"""The rows that a checkpoint keeps, in the form that the table has now, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kdsl.errors import KdslError
from kdsl.run.upsert.state import UpsertProcessor, fitted
from tests.run.upsert.states import Store, packet

ROWS = pa.schema([pa.field("k", pa.int64(), False), ("name", pa.string()), ("visits", pa.int32())])
GIVEN = [{"k": 1, "name": "ann", "visits": 3}, {"k": 2, "name": None, "visits": None}]


def processor(schema: pa.Schema, keys: tuple[str, ...], store: Store, buckets: int = 8) -> UpsertProcessor:
    made = UpsertProcessor("Users", schema.serialize().to_pybytes(), keys, buckets)
    made.init(store)  # type: ignore[arg-type]
    return made


def run(of: UpsertProcessor, rows: pa.RecordBatch, deletes: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """What one batch of a bucket gives."""
    frames = of.handleInputRows((5,), iter([packet(rows, deletes)]), None)
    return [row for frame in frames for row in frame.to_dict("records")]


def kept(schema: pa.Schema = ROWS, keys: tuple[str, ...] = ("k",)) -> Store:
    """A bucket's state with two rows."""
    store = Store()
    run(processor(schema, keys, store), pa.RecordBatch.from_pylist(GIVEN, schema))
    return store


class TestSize:
    def test_a_bucket_tells_how_many_keys_and_bytes_it_keeps(self) -> None:
        store = Store()
        of = processor(ROWS, ("k",), store)
        (told,) = run(of, pa.RecordBatch.from_pylist(GIVEN, ROWS))

        assert (told["bucket"], told["keys"], told["bytes"]) == (5, 2, len(store.value[0]))

    def test_a_bucket_without_keys_keeps_nothing(self) -> None:
        store = kept()
        (told,) = run(processor(ROWS, ("k",), store), pa.RecordBatch.from_pylist(GIVEN, ROWS), deletes=(0, 1))

        assert (told["keys"], told["bytes"], store.value) == (0, 0, None)


class TestColumns:
    def changed(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows kept by a table of other columns."""
        store = kept()
        of = processor(schema, ("k",), store)
        run(of, pa.RecordBatch.from_pylist([{"k": 9}], schema.remove(0).insert(0, schema.field("k"))))
        with pa.ipc.open_stream(pa.py_buffer(store.value[0])) as stream:
            return stream.read_next_batch()

    def test_a_column_that_came_is_null_and_one_that_is_gone_is_dropped(self) -> None:
        found = self.changed(pa.schema([ROWS.field("k"), ("region", pa.string()), ROWS.field("name")]))

        assert found.to_pylist() == [
            {"k": 1, "region": None, "name": "ann"},
            {"k": 2, "region": None, "name": None},
            {"k": 9, "region": None, "name": None},
        ]

    def test_a_wider_type_takes_the_values(self) -> None:
        found = self.changed(pa.schema([ROWS.field("k"), ROWS.field("name"), ("visits", pa.int64())]))

        assert found.column("visits").to_pylist() == [3, None, None]

    @pytest.mark.parametrize(
        ("old", "new", "value", "shown"),
        [
            (pa.float32(), pa.float64(), 1.5, 1.5),
            (pa.decimal128(5, 2), pa.decimal128(10, 4), Decimal("1.50"), Decimal("1.5000")),
            (pa.int8(), pa.int64(), -3, -3),
        ],
        ids=["float", "decimal", "integer"],
    )
    def test_numbers_may_become_wider(self, old: pa.DataType, new: pa.DataType, value: Any, shown: Any) -> None:
        rows = pa.record_batch([pa.array([1]), pa.array([value], old)], names=["k", "v"])

        found = fitted(rows, pa.schema([("k", pa.int64()), ("v", new)]), "T")

        assert found.column("v").to_pylist() == [shown]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (pa.int64(), pa.int32()),
            (pa.float64(), pa.float32()),
            (pa.decimal128(10, 2), pa.decimal128(10, 4)),
            (pa.string(), pa.int64()),
            (pa.int64(), pa.string()),
            (pa.timestamp("us"), pa.timestamp("us", "UTC")),
            (pa.list_(pa.int32()), pa.list_(pa.int64())),
        ],
        ids=str,
    )
    def test_another_type_is_an_error_that_names_both(self, old: pa.DataType, new: pa.DataType) -> None:
        rows = pa.record_batch([pa.array([1]), pa.nulls(1, old)], names=["k", "v"])

        with pytest.raises(KdslError, match="the column 'v' as") as told:
            fitted(rows, pa.schema([("k", pa.int64()), ("v", new)]), "T")
        assert f"keeps the column 'v' as {old}," in str(told.value)
        assert f"declares it as {new}," in str(told.value)

    @pytest.mark.parametrize("field", [pa.field("region", pa.string(), False), pa.field("name", pa.string(), False)])
    def test_a_column_that_must_have_a_value_and_has_none_is_an_error(self, field: pa.Field) -> None:
        schema = pa.schema([ROWS.field("k"), field])
        rows = pa.RecordBatch.from_pylist([{"k": 9, field.name: "x"}], schema)

        with pytest.raises(KdslError, match=f"the column '{field.name}' is declared NOT NULL"):
            run(processor(schema, ("k",), kept()), rows)
