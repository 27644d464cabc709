from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from kdsl.types import model as t
from kdsl_formats.json import Json
from tests import strategies
from tests.formats.contract import FormatContract


class TestJson(FormatContract):
    format = Json()
    lenient = Json(ignore_parse_errors=True)
    variants = (
        Json(fail_on_missing_field=True, timestamp_format="ISO-8601", map_null_key_mode="DROP"),
        Json(map_null_key_mode="LITERAL", map_null_key_literal="none", decimal_as_plain_number=True),
        Json(ignore_null_fields=True, json_parser=False, null_is_tombstone=True),
        Json(unavailable="keep", unavailable_value_placeholder="?"),
        Json(schema_include=True, decimal_handling_mode="precise", time_precision_mode="microseconds"),
        Json(decimal_handling_mode="string", time_precision_mode="isostring", binary_handling_mode="hex"),
        Json(
            inferred_columns=True, infer_primitive_as_string=True, infer_fixed_types="id BIGINT, `a.b` DECIMAL(10, 2)"
        ),
        Json(infer_flatten=True, table_id_fields="app,event"),
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
        counts=t.Map(t.VarChar(nullable=False), t.Int()),
    )

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        text = (
            f'{{"id":{number},"name":"name \\"{number}\\", é","amount":{number}.5,"day":"2024-03-01",'
            f'"at":"2024-03-01 10:11:12.{number % 9 + 1}","seen":"1969-12-31 23:59:59.000001Z",'
            f'"clock":"00:00:{number % 60:02d}.25","ok":{"true" if number % 2 else "false"},"score":0.25,"data":"AQID",'
            f'"tags":["a{number}",null],"pair":{{"x":null,"y":"y"}},"counts":{{"k":{number},"n":null}}}}'
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
            "tags": [f"a{number}", None],
            "pair": {"x": None, "y": "y"},
            "counts": [("k", number), ("n", None)],
        }
        return text.encode(), values

    def bad_messages(self) -> list[bytes]:
        good = self.message(7)[0]
        return [
            b" ",
            b"null",
            b"1",
            b"not json",
            good[:-1],
            b"{" + good,
            good.replace(b'"id":7', b'"id":7.x'),
            good.replace(b'"id":7', b'"id":"x"'),
            good.replace(b"2024-03-01 ", b"2024-03-01T"),
            good.replace(b'["a7",null]', b'{"a":1}'),
            good.replace(b"AQID", b"A"),
            b"[" + good + b",5]",
        ]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        return ROW_TYPES

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return strategies.values(row.as_nullable(False), readable)


def json_types() -> st.SearchStrategy[t.DataType]:
    """Every type, with strings as the keys of maps and multisets."""
    keys = st.builds(t.VarChar, nullable=st.just(False)) | st.builds(t.Char, st.integers(1, 9), nullable=st.just(False))

    def nest(inner: st.SearchStrategy[t.DataType]) -> st.SearchStrategy[t.DataType]:
        return st.one_of(
            st.builds(t.Array, inner, nullable=st.booleans()),
            st.builds(t.Map, keys, inner, nullable=st.booleans()),
            st.builds(t.Multiset, keys, nullable=st.booleans()),
            st.builds(lambda row, null: row.as_nullable(null), strategies.row_types(inner), st.booleans()),
        )

    return st.recursive(strategies.scalar_types(), nest, max_leaves=6)


def readable(kind: t.DataType) -> st.SearchStrategy[Any] | None:
    """Times as fine as JSON reads them: milliseconds at least, microseconds at most."""
    if isinstance(kind, t.Time):
        unit = 10 ** (9 - max(3, min(kind.precision, 6)))
        return st.integers(0, 86_400_000_000_000 // unit - 1).map(lambda value: value * unit)
    return None


ROW_TYPES = strategies.row_types(json_types(), min_size=1)
