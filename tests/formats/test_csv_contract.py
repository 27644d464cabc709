from __future__ import annotations

from decimal import Decimal
from typing import Any

import attrs
from hypothesis import strategies as st

from kdsl.types import model as t
from kdsl_formats.csv import Csv
from tests import strategies
from tests.formats.contract import FormatContract

NULL = "NULL"
FIRST_DAY, LAST_JULIAN_DAY, FIRST_GREGORIAN_DAY, LAST_DAY = -719_162, -141_438, -141_427, 2_932_896


class TestCsv(FormatContract):
    format = Csv(null_literal=NULL)
    lenient = Csv(null_literal=NULL, ignore_parse_errors=True)
    variants = (
        Csv(field_delimiter="\\t", quote_character="'", array_element_delimiter=":", escape_character="\\"),
        Csv(disable_quote_character=True, allow_comments=True, trim_spaces=True, allow_trailing_comma=False),
        Csv(write_bigdecimal_in_scientific_notation=True, ignore_trailing_unmappable=True),
        Csv(fail_on_missing_columns=True, empty_string_as_null=True, null_literal=""),
    )
    row = t.row(
        id=t.BigInt(),
        name=t.STRING,
        amount=t.Decimal(10, 2),
        day=t.Date(),
        at=t.Timestamp(3),
        seen=t.TimestampLtz(6),
        clock=t.Time(3),
        ok=t.Boolean(),
        score=t.Double(),
        data=t.BYTES,
        tags=t.Array(t.STRING),
        pair=t.row(x=t.Int(), y=t.STRING),
    )

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        line = (
            f'{number},"name ""{number}"", é",{number}.50,2024-03-01,"2024-03-01 10:11:12.{number % 9 + 1}",'
            f'"1969-12-31 23:59:59.000001Z",00:00:{number % 60:02d}.25,{"true" if number % 2 else "false"},0.25,AQID,'
            f"a{number};b,{NULL};y"
        )
        values = {
            "id": number,
            "name": f'name "{number}", é',
            "amount": Decimal(f"{number}.50"),
            "day": 19_783,
            "at": 1_709_287_872_000_000 + (number % 9 + 1) * 100_000,
            "seen": -999_999,
            "clock": (number % 60) * 1_000_000_000 + 250_000_000,
            "ok": bool(number % 2),
            "score": 0.25,
            "data": b"\1\2\3",
            "tags": [f"a{number}", "b"],
            "pair": {"x": None, "y": "y"},
        }
        return line.encode(), values

    def bad_messages(self) -> list[bytes]:
        good = self.message(7)[0]
        return [
            b"",
            b"x",
            good + b",more",
            good.replace(b"7.50", b"7,50", 1),
            good.replace(b'"name', b'"name"x', 1),
            good.replace(b"AQID", b"A"),
            good.replace(b"2024-03-01,", b"2024-03-32,"),
            good[:-3] + b'"',
            b"\xff" + good,
        ]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        scalars = strategies.scalar_types().map(coarse)
        arrays = scalars.map(lambda element: t.Array(element, nullable=False))
        rows = strategies.row_types(scalars, min_size=1).map(lambda row: row.as_nullable(False))
        return strategies.row_types(scalars | arrays | rows, min_size=2)  # one empty value alone is an empty message

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries({f.name: strategies.values(f.type, outer) for f in row.fields})


def coarse(kind: t.DataType) -> t.DataType:
    """The type, with a time that CSV can read."""
    return attrs.evolve(kind, precision=kind.precision % 4) if isinstance(kind, t.Time) else kind


def outer(kind: t.DataType) -> st.SearchStrategy[Any] | None:
    """Values of columns that read back: no text like the null literal, no date that the two calendars name apart."""
    match kind:
        case t.Char() | t.VarChar():
            return strategies.TEXTS.filter(lambda text: text != NULL and not text.startswith("\ufeff"))
        case t.Date():
            return st.integers(FIRST_DAY, LAST_JULIAN_DAY) | st.integers(FIRST_GREGORIAN_DAY, LAST_DAY)
        case t.Array(element=element):
            return st.lists(strategies.values(element, inner), max_size=4)
        case t.Row(fields=fields):
            return st.fixed_dictionaries({f.name: strategies.values(f.type, inner) for f in fields})
    return None


def inner(kind: t.DataType) -> st.SearchStrategy[Any] | None:
    """Values inside an ARRAY or a ROW: strings are not blank and hold no delimiter of elements, bytes are not empty."""
    match kind:
        case t.Char() | t.VarChar():
            return strategies.TEXTS.map(lambda text: "v" + text.replace(";", ":"))
        case t.Binary() | t.VarBinary():
            return st.binary(min_size=1, max_size=20)
    return outer(kind)
