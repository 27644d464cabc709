from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.csv import Csv
from kdsl_formats.csv.reference_encoder import ReferenceEncoder
from tests import strategies
from tests.formats import csv_messages
from tests.formats.conformance import Case, answer, cases, python_rows
from tests.strategies import examples

TEXTS = st.text(st.sampled_from(list("aZ1 ~};,|\"'\\\n\t#é€þ\uffff😀*\0")), max_size=27)


@pytest.mark.parametrize("case", [c for c in cases("csv") if c.kind == "encode"], ids=lambda c: c.id)
def test_a_row_is_written_as_the_reference_writes_it(case: Case) -> None:
    assert answer(case) == case.answer


def write(csv: Csv, row: t.Row, *rows: dict[str, Any]) -> list[bytes]:
    encoded = csv.encoder(row).encode(pa.array(rows, arrow_type(row)))
    assert encoded.bad == ()
    return list(encoded.messages.to_pylist())


def _string_strategy(kind: t.DataType) -> st.SearchStrategy[Any] | None:
    return TEXTS if isinstance(kind, t.VarChar) else None


@given(st.data())
@settings(
    deadline=None, max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_the_fast_encoder_equals_the_reference(data: st.DataObject) -> None:
    csv, row = data.draw(csv_messages.dialects()), data.draw(csv_messages.rows())
    values = strategies.values(row.as_nullable(False), _string_strategy)
    rows = pa.array(data.draw(st.lists(values, max_size=10)), arrow_type(row))
    reference = ReferenceEncoder(row, csv.dialect(), scientific=csv.write_bigdecimal_in_scientific_notation)
    encoded = csv.encoder(row).encode(pa.concat_arrays([rows, rows])[len(rows) :])
    encoded.messages.validate(full=True)

    assert encoded.messages.to_pylist() == [reference.message(list(r.values())) for r in python_rows(rows)]


def test_a_quoted_value_is_decided_value_by_value() -> None:
    row = t.row(a=t.STRING, b=t.STRING)

    assert write(Csv(), row, {"a": "x", "b": "x y"}, {"a": "x y", "b": "x"}, {"a": None, "b": ""}) == [
        b'x,"x y"',
        b'"x y",x',
        b",",
    ]


@pytest.mark.parametrize("delimiter", [",", "€", "\uff0c"])
def test_a_string_of_more_than_24_utf16_units_is_quoted(delimiter: str) -> None:
    row = t.row(a=t.STRING, b=t.Int())
    csv = Csv(field_delimiter=delimiter)
    short, long = ("\uffff" * 24, "\uffff" * 25) if delimiter == "\uff0c" else ("😀" * 12, "😀" * 13)

    assert write(csv, row, {"a": short, "b": 1}, {"a": long, "b": 1}) == [
        f"{short}{delimiter}1".encode(),
        f'"{long}"{delimiter}1'.encode(),
    ]


def test_a_delimiter_above_the_surrogates_makes_every_wide_character_special() -> None:
    assert write(Csv(field_delimiter="\uff0c"), t.row(a=t.STRING, b=t.Int()), {"a": "😀", "b": 1}) == [
        '"😀"\uff0c1'.encode()
    ]


def test_a_line_break_is_protected_whatever_the_other_characters_are() -> None:
    csv = Csv(field_delimiter="\\t", quote_character="\x05")

    assert write(csv, t.row(a=t.STRING, b=t.Int()), {"a": "a\nb", "b": 1}) == [b"\x05a\nb\x05\t1"]
