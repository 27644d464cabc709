"""Columns that are inferred from records read these records, or it is said which they do not read; without Kafka."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl import CanalJson, DebeziumJson, Json
from kdsl.catalog.inference import Sample, find_subject, infer_key, infer_value, read_back
from kdsl.cluster import Registry
from kdsl.errors import InferenceError
from kdsl.formats import Format
from kdsl_formats.raw import Raw
from tests.registry.front import Front
from tests.strategies import examples

NAMES = st.sampled_from(["id", "ID", "a b", "n"])
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3),
    st.sampled_from(["2024-05-01", "2024-05-01 12:00:00", "2024-05-01T12:00:00Z", "99999-01-01T00:00:00Z"]),
)  # fmt: skip
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=2) | st.dictionaries(NAMES, v, max_size=2), max_leaves=4)
ROWS = st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=3), min_size=1, max_size=5)


def sample(*values: Any) -> Sample:
    """Records with such values, which are their keys, too."""
    messages = pa.array([v if v is None or isinstance(v, bytes) else json.dumps(v).encode() for v in values])
    return Sample(messages.cast(pa.binary()), messages.cast(pa.binary()), 1)


def change(dialect: Format, row: dict[str, Any]) -> dict[str, Any]:
    if isinstance(dialect, CanalJson):
        return {"data": [row], "type": "INSERT", "database": "d", "table": "t"}
    return {"before": None, "after": row, "op": "c"}


@given(rows=ROWS, chosen=st.sampled_from([Json(), Json(fail_on_missing_field=True), DebeziumJson(), CanalJson()]))
@settings(max_examples=examples(60), deadline=None)
def test_the_columns_read_the_records_or_a_note_counts_the_others(rows: list[dict[str, Any]], chosen: Format) -> None:
    records = sample(*(row if chosen.insert_only else change(chosen, row) for row in rows))
    try:
        schema, notes = infer_value(records, chosen, "t")
    except InferenceError:  # more than half of them cannot be read, or they show no column
        return

    bad = read_back(schema, records.values, "value")
    assert [note.partition(" of their values cannot be read")[0] for note in notes] == ([str(len(bad))] if bad else [])


def test_records_that_the_options_of_the_format_refuse_are_noted() -> None:
    records = sample({"id": 1, "n": "x"}, {"id": 2, "n": "y"}, {"id": 3})
    schema, notes = infer_value(records, Json(fail_on_missing_field=True), "t")

    assert [field.name for field in schema.columns] == ["id", "n"]
    assert len(notes) == 1
    assert notes[0].startswith("1 of their values cannot be read: ")
    with pytest.raises(InferenceError, match="2 of 3 messages cannot be read as json"):
        infer_value(sample({"id": 1}, {"n": 2}, {"id": 1, "n": 2}), Json(fail_on_missing_field=True), "t")


def test_a_subject_of_several_record_types_does_not_become_a_table_of_one_of_them() -> None:
    """Its other records would be left out without a word."""
    schema = [{"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]} for name in ("A", "B")]
    version = {"subject": "t-value", "version": 1, "id": 1, "schema": json.dumps(schema)}
    with (
        Front(lambda _: (200, version)) as front,
        pytest.raises(InferenceError, match="several record types, such as A"),
    ):
        find_subject(Registry(front.url), "t", "value")


def test_notes_contain_no_values() -> None:
    _, (note,) = infer_value(sample({"id": 1}, {"id": 2}, b'{"id": secret}'), Json(), "t")

    assert "secret" not in note


def test_keys_that_are_not_read_with_their_columns_are_bytes() -> None:
    strict = Json(fail_on_missing_field=True)
    schema, notes = infer_key(sample({"id": 1}, {"n": 2}), strict, "message_key")

    assert schema is not None
    assert (schema.format, [field.name for field in schema.columns]) == (Raw(), ["message_key"])
    assert notes == ("2 of 2 keys are not json, so that one column has the bytes of the key",)
    schema, notes = infer_key(sample({"id": 1}, {"id": 2}), strict, "message_key")
    assert (schema is not None and schema.format.identifier, notes) == ("json", ())
