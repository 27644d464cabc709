"""The rows that a checkpoint keeps, in the form that the table has now, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest

from kdsl.errors import KdslError, RecordError
from kdsl.run.upsert.chunks import chunk_row_schema
from kdsl.run.upsert.processor import UpsertProcessor
from kdsl.run.upsert.state import UnavailableRule, add_row_kind_field, convert_stored_rows
from tests.arrow_rows import in_spark_layout
from tests.run.upsert.states import Store, chunk

ROWS = pa.schema([pa.field("k", pa.int64(), False), ("name", pa.string()), ("visits", pa.int32())])
GIVEN = [{"k": 1, "name": "ann", "visits": 3}, {"k": 2, "name": None, "visits": None}]


def processor(schema: pa.Schema, keys: tuple[str, ...], store: Store, buckets: int = 8) -> UpsertProcessor:
    actual = UpsertProcessor("Users", schema.serialize().to_pybytes(), keys, buckets)
    actual.init(store)  # type: ignore[arg-type]
    return actual


def run(of: UpsertProcessor, rows: pa.RecordBatch, deletes: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """What one batch of a bucket gives."""
    frames = of.handleInputRows((5,), iter([chunk(rows, deletes)]), None)
    return [row for frame in frames for row in frame.to_dict("records")]


def make_state(schema: pa.Schema = ROWS, keys: tuple[str, ...] = ("k",)) -> Store:
    """A bucket's state with two rows."""
    store = Store()
    run(processor(schema, keys, store), pa.RecordBatch.from_pylist(GIVEN, schema))
    return store


class TestUnavailable:
    """Values that messages do not have, as they come through chunks."""

    SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("note", pa.string())])

    def run(self, store: Store, *rows: tuple[int, str | None, list[int] | None], nulls: bool) -> list[dict[str, Any]]:
        of = UpsertProcessor(
            "Users", self.SCHEMA.serialize().to_pybytes(), ("k",), 8, UnavailableRule(nulls, "THE OPTION")
        )
        of.init(store)  # type: ignore[arg-type]
        keys, notes, lacks = zip(*rows, strict=True)
        schema = chunk_row_schema(self.SCHEMA, events=True)
        offsets = accumulate((one[0] if one else 0 for one in lacks), max)
        columns = [
            list(keys),
            list(notes),
            [False] * len(rows),
            [0] * len(rows),
            list(offsets),
            [one if one is None else one[1:] for one in lacks],
        ]
        arrays = [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)]
        packed = pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes()
        frame = chunk(pa.RecordBatch.from_pylist([{"k": 0}], self.SCHEMA)).assign(rows=[packed])
        return [row for item in of.handleInputRows((5,), iter([frame]), None) for row in item.to_dict("records")]

    def test_they_are_those_of_the_state(self) -> None:
        store = Store()
        self.run(store, (1, "long", None), nulls=False)
        (output,) = self.run(store, (1, None, [17, 1]), (2, "x", None), nulls=False)

        rows = pa.ipc.read_record_batch(pa.py_buffer(output["rows"]), add_row_kind_field(self.SCHEMA)).to_pylist()
        assert rows == [{"_row_kind": "+I", "k": 2, "note": "x"}]
        assert output["nulls"] == 0

    def test_without_one_they_are_an_error_with_the_record_the_column_and_the_option(self) -> None:
        with pytest.raises(RecordError) as raised:
            self.run(Store(), (2, "x", None), (1, None, [17, 1]), (3, None, [18, 1]), nulls=False)

        assert str(raised.value).startswith(
            "Users: cannot read the record at topic t, partition 0, offset 17: column 'note' has no value"
        )
        assert "1 more record of" in str(raised.value)
        assert "or write THE OPTION, which makes the value NULL" in str(raised.value)

    def test_or_null_and_counted(self) -> None:
        (output,) = self.run(Store(), (2, "x", None), (1, None, [17, 1]), (3, None, [18, 1]), nulls=True)

        assert (output["keys"], output["nulls"]) == (3, 2)


class TestSize:
    def test_a_bucket_reports_the_number_of_keys_and_bytes(self) -> None:
        store = Store()
        of = processor(ROWS, ("k",), store)
        (output,) = run(of, pa.RecordBatch.from_pylist(GIVEN, ROWS))

        assert (output["bucket"], output["keys"], output["bytes"]) == (5, 2, len(store.value[0]))

    def test_a_bucket_without_keys_keeps_nothing(self) -> None:
        store = make_state()
        (output,) = run(processor(ROWS, ("k",), store), pa.RecordBatch.from_pylist(GIVEN, ROWS), deletes=(0, 1))

        assert (output["keys"], output["bytes"], store.value) == (0, 0, None)


INNER = pa.struct([pa.field("x", pa.int32(), False)])
WITH_ROWS = pa.schema([pa.field("k", pa.int64(), False), ("inner", INNER), ("tags", pa.map_(pa.string(), INNER))])


class TestRowsInRows:
    """Nullable rows with NOT NULL members, some of them NULL, as Spark hands them over."""

    def change_type(self, inner: pa.DataType) -> list[dict[str, Any]]:
        """The rows kept by a table that has another type of the inner rows, and a column more."""
        rows: list[dict[str, Any]] = [{"k": 1, "inner": {"x": 1}, "tags": [("a", {"x": 2}), ("b", None)]}, {"k": 2}]
        columns = [in_spark_layout(pa.array([row.get(f.name) for row in rows], f.type)) for f in WITH_ROWS]
        store = Store()
        run(processor(WITH_ROWS, ("k",), store), pa.RecordBatch.from_arrays(columns, schema=WITH_ROWS))
        schema = pa.schema(
            [WITH_ROWS.field("k"), ("inner", inner), ("tags", pa.map_(pa.string(), inner)), ("more", pa.string())]
        )
        run(processor(schema, ("k",), store), pa.RecordBatch.from_pylist([{"k": 9}], schema))
        with pa.ipc.open_stream(pa.py_buffer(store.value[0])) as stream:
            return list(stream.read_next_batch().to_pylist())

    @pytest.mark.parametrize(
        "inner",
        [INNER, pa.struct([pa.field("x", pa.int64(), False)]), pa.struct([pa.field("x", pa.int64())])],
        ids=["as it was", "wider", "nullable"],
    )
    def test_they_are_kept_when_a_column_is_added(self, inner: pa.DataType) -> None:
        assert self.change_type(inner) == [
            {"k": 1, "inner": {"x": 1}, "tags": [("a", {"x": 2}), ("b", None)], "more": None},
            {"k": 2, "inner": None, "tags": None, "more": None},
            {"k": 9, "inner": None, "tags": None, "more": None},
        ]

    @pytest.mark.parametrize(
        "inner",
        [pa.struct([pa.field("x", pa.int16(), False)]), pa.struct([("y", pa.int32())]), pa.int32()],
        ids=["narrower", "another name", "no row"],
    )
    def test_another_type_is_refused(self, inner: pa.DataType) -> None:
        with pytest.raises(KdslError, match=r"stores the column 'inner' as struct<x: int32 not null>"):
            self.change_type(inner)

    def test_not_null_where_it_was_nullable_is_refused(self) -> None:
        old, new = (pa.schema([("row", pa.struct([pa.field("x", pa.int32(), n)]))]) for n in (True, False))

        with pytest.raises(KdslError, match="cannot represent every value"):
            convert_stored_rows(pa.RecordBatch.from_pylist([{"row": {"x": None}}], old), new, "T")


class TestColumns:
    def change_columns(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows kept by a table of other columns."""
        store = make_state()
        of = processor(schema, ("k",), store)
        run(of, pa.RecordBatch.from_pylist([{"k": 9}], schema.remove(0).insert(0, schema.field("k"))))
        with pa.ipc.open_stream(pa.py_buffer(store.value[0])) as stream:
            return stream.read_next_batch()

    def test_a_new_column_is_null_and_a_removed_one_is_dropped(self) -> None:
        result = self.change_columns(pa.schema([ROWS.field("k"), ("region", pa.string()), ROWS.field("name")]))

        assert result.to_pylist() == [
            {"k": 1, "region": None, "name": "ann"},
            {"k": 2, "region": None, "name": None},
            {"k": 9, "region": None, "name": None},
        ]

    def test_a_wider_type_takes_the_values(self) -> None:
        result = self.change_columns(pa.schema([ROWS.field("k"), ROWS.field("name"), ("visits", pa.int64())]))

        assert result.column("visits").to_pylist() == [3, None, None]

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

        result = convert_stored_rows(rows, pa.schema([("k", pa.int64()), ("v", new)]), "T")

        assert result.column("v").to_pylist() == [shown]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (pa.int64(), pa.int32()),
            (pa.float64(), pa.float32()),
            (pa.decimal128(10, 2), pa.decimal128(10, 4)),
            (pa.string(), pa.int64()),
            (pa.int64(), pa.string()),
            (pa.timestamp("us"), pa.timestamp("us", "UTC")),
            (pa.list_(pa.int64()), pa.list_(pa.int32())),
            (pa.list_(pa.int64()), pa.list_(pa.string())),
        ],
        ids=str,
    )
    def test_another_type_is_an_error_that_names_both(self, old: pa.DataType, new: pa.DataType) -> None:
        rows = pa.record_batch([pa.array([1]), pa.nulls(1, old)], names=["k", "v"])

        with pytest.raises(KdslError, match="the column 'v' as") as error:
            convert_stored_rows(rows, pa.schema([("k", pa.int64()), ("v", new)]), "T")
        assert f"stores the column 'v' as {old}," in str(error.value)
        assert f"declares it as {new}," in str(error.value)

    @pytest.mark.parametrize("field", [pa.field("region", pa.string(), False), pa.field("name", pa.string(), False)])
    def test_a_required_column_without_a_value_is_an_error(self, field: pa.Field) -> None:
        schema = pa.schema([ROWS.field("k"), field])
        rows = pa.RecordBatch.from_pylist([{"k": 9, field.name: "x"}], schema)

        with pytest.raises(KdslError, match=f"the column '{field.name}' is declared NOT NULL"):
            run(processor(schema, ("k",), make_state()), rows)
