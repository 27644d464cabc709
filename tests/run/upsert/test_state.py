"""The rows that a checkpoint keeps, in the form that the table has now, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kdsl.errors import KdslError, RecordError
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.upsert.changes import KeyedRows, Unavailable
from kdsl.run.upsert.keyed_state import KeyedState
from kdsl.run.upsert.state import UnavailableRule, convert_stored_rows, report_unavailable
from kdsl.run.upsert.state_changes import StateChanges
from tests.arrow_rows import in_spark_layout

ROWS = pa.schema([pa.field("k", pa.int64(), False), ("name", pa.string()), ("visits", pa.int32())])
GIVEN = [{"k": 1, "name": "ann", "visits": 3}, {"k": 2, "name": None, "visits": None}]
RULE = UnavailableRule()


class Store:
    """A state in a folder, from one batch to the next."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.version = folder, 0
        self.state: KeyedState | None = None

    def run(
        self,
        rows: pa.RecordBatch,
        deletes: tuple[int, ...] = (),
        lacks: Unavailable | None = None,
        rule: UnavailableRule = RULE,
    ) -> StateChanges:
        """One batch of upserts; what it gives is in `changes`."""
        start = self.version or None
        state = KeyedState("Users", rows.schema, ("k",), LocalFiles(self.folder), start, self.version + 1)
        changes = StateChanges(state, ("k",), net=False, repeats=False)
        nowhere = np.zeros(rows.num_rows, dtype=np.int64)
        upserts = KeyedRows(rows, np.isin(np.arange(rows.num_rows), deletes), nowhere, nowhere, lacks)
        with report_unavailable("Users", rule) as applied:
            batches = [*changes.apply(upserts, applied), *changes.finish()]
        self.changes = [row for batch in batches for row in batch.to_pylist()]
        self.version, self.state = self.version + 1, state
        return changes

    def list_rows(self, schema: pa.Schema) -> list[dict[str, Any]]:
        """The rows that are stored, by key."""
        state = KeyedState("Users", schema, ("k",), LocalFiles(self.folder), self.version, self.version + 1)
        return sorted((row for of in state.list_rows() for row in of.rows.to_pylist()), key=lambda row: row["k"])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A state with two rows."""
    store = Store(tmp_path / "state")
    store.run(pa.RecordBatch.from_pylist(GIVEN, ROWS))
    return store


class TestUnavailable:
    """Values that messages do not have."""

    SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("note", pa.string())])

    def run(self, store: Store, *rows: tuple[int, str | None, int | None], nulls: bool) -> StateChanges:
        """Rows of a key, a note, and the offset of the record if this has no note."""
        keys, notes, offsets = zip(*rows, strict=True)
        batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(notes, pa.string())], schema=self.SCHEMA)
        records = {i: ("t", 0, at) for i, at in enumerate(offsets) if at is not None}
        lacks = Unavailable({"note": np.array([at is not None for at in offsets])}, records)
        return store.run(batch, lacks=lacks, rule=UnavailableRule(nulls, "THE OPTION"))

    def test_they_are_those_of_the_state(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        self.run(store, (1, "long", None), nulls=False)
        changes = self.run(store, (1, None, 17), (2, "x", None), nulls=False)

        assert store.changes == [{"_row_kind": "+I", "k": 2, "note": "x"}]
        assert changes.nulls == 0
        assert store.list_rows(self.SCHEMA) == [{"k": 1, "note": "long"}, {"k": 2, "note": "x"}]

    def test_without_one_they_are_an_error_with_the_record_the_column_and_the_option(self, tmp_path: Path) -> None:
        with pytest.raises(RecordError) as raised:
            self.run(Store(tmp_path), (2, "x", None), (1, None, 17), (3, None, 18), nulls=False)

        assert str(raised.value).startswith(
            "Users: cannot read the record at topic t, partition 0, offset 17: column 'note' has no value"
        )
        assert "1 more record of" in str(raised.value)
        assert "or write THE OPTION, which makes the value NULL" in str(raised.value)
        assert list(tmp_path.iterdir()) == []

    def test_or_null_and_counted(self, tmp_path: Path) -> None:
        changes = self.run(Store(tmp_path), (2, "x", None), (1, None, 17), (3, None, 18), nulls=True)

        assert (changes.state.count, changes.nulls) == (3, 2)


class TestSize:
    def test_a_state_has_the_number_of_keys_and_bytes(self, store: Store) -> None:
        assert store.state is not None
        assert store.state.count == 2
        assert 0 < store.state.bytes < 1000

    def test_a_state_without_keys_keeps_no_rows(self, store: Store) -> None:
        state = store.run(pa.RecordBatch.from_pylist(GIVEN, ROWS), deletes=(0, 1)).state

        assert (state.count, state.bytes, store.list_rows(ROWS)) == (0, 0, [])
        assert [row["_row_kind"] for row in store.changes] == ["-D", "-D"]


INNER = pa.struct([pa.field("x", pa.int32(), False)])
WITH_ROWS = pa.schema([pa.field("k", pa.int64(), False), ("inner", INNER), ("tags", pa.map_(pa.string(), INNER))])


class TestRowsInRows:
    """Nullable rows with NOT NULL members, some of them NULL, as Spark hands them over."""

    def change_type(self, folder: Path, inner: pa.DataType) -> list[dict[str, Any]]:
        """The rows kept by a table that has another type of the inner rows, and a column more."""
        rows: list[dict[str, Any]] = [{"k": 1, "inner": {"x": 1}, "tags": [("a", {"x": 2}), ("b", None)]}, {"k": 2}]
        columns = [in_spark_layout(pa.array([row.get(f.name) for row in rows], f.type)) for f in WITH_ROWS]
        store = Store(folder)
        store.run(pa.RecordBatch.from_arrays(columns, schema=WITH_ROWS))
        schema = pa.schema(
            [WITH_ROWS.field("k"), ("inner", inner), ("tags", pa.map_(pa.string(), inner)), ("more", pa.string())]
        )
        store.run(pa.RecordBatch.from_pylist([{"k": 9}], schema))
        return store.list_rows(schema)

    @pytest.mark.parametrize(
        "inner",
        [INNER, pa.struct([pa.field("x", pa.int64(), False)]), pa.struct([pa.field("x", pa.int64())])],
        ids=["as it was", "wider", "nullable"],
    )
    def test_they_are_kept_when_a_column_is_added(self, tmp_path: Path, inner: pa.DataType) -> None:
        assert self.change_type(tmp_path, inner) == [
            {"k": 1, "inner": {"x": 1}, "tags": [("a", {"x": 2}), ("b", None)], "more": None},
            {"k": 2, "inner": None, "tags": None, "more": None},
            {"k": 9, "inner": None, "tags": None, "more": None},
        ]

    @pytest.mark.parametrize(
        "inner",
        [pa.struct([pa.field("x", pa.int16(), False)]), pa.struct([("y", pa.int32())]), pa.int32()],
        ids=["narrower", "another name", "no row"],
    )
    def test_another_type_is_refused(self, tmp_path: Path, inner: pa.DataType) -> None:
        with pytest.raises(KdslError, match=r"stores the column 'inner' as struct<x: int32 not null>"):
            self.change_type(tmp_path, inner)

    def test_not_null_where_it_was_nullable_is_refused(self) -> None:
        old, new = (pa.schema([("row", pa.struct([pa.field("x", pa.int32(), n)]))]) for n in (True, False))

        with pytest.raises(KdslError, match="cannot represent every value"):
            convert_stored_rows(pa.RecordBatch.from_pylist([{"row": {"x": None}}], old), new, "T")


class TestColumns:
    def change_columns(self, store: Store, schema: pa.Schema) -> list[dict[str, Any]]:
        """The rows kept by a table of other columns."""
        store.run(pa.RecordBatch.from_pylist([{"k": 9}], schema))
        return store.list_rows(schema)

    def test_a_new_column_is_null_and_a_removed_one_is_dropped(self, store: Store) -> None:
        result = self.change_columns(store, pa.schema([ROWS.field("k"), ("region", pa.string()), ROWS.field("name")]))

        assert result == [
            {"k": 1, "region": None, "name": "ann"},
            {"k": 2, "region": None, "name": None},
            {"k": 9, "region": None, "name": None},
        ]

    def test_a_wider_type_takes_the_values(self, store: Store) -> None:
        result = self.change_columns(store, pa.schema([ROWS.field("k"), ROWS.field("name"), ("visits", pa.int64())]))

        assert [row["visits"] for row in result] == [3, None, None]

    def test_rows_before_are_those_of_the_present_columns(self, store: Store) -> None:
        schema = pa.schema([ROWS.field("k"), ("visits", pa.int64()), ("region", pa.string())])
        store.run(pa.RecordBatch.from_pylist([{"k": 1, "visits": 1 << 40, "region": "EU"}], schema))

        assert store.changes == [
            {"_row_kind": "-U", "k": 1, "visits": 3, "region": None},
            {"_row_kind": "+U", "k": 1, "visits": 1 << 40, "region": "EU"},
        ]

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
    def test_a_required_column_without_a_value_is_an_error(self, store: Store, field: pa.Field) -> None:
        schema = pa.schema([ROWS.field("k"), field])
        rows = pa.RecordBatch.from_pylist([{"k": 9, field.name: "x"}], schema)

        with pytest.raises(KdslError, match=f"the column '{field.name}' is declared NOT NULL"):
            store.run(rows)
