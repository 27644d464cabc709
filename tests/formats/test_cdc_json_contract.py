from __future__ import annotations

from abc import abstractmethod
from decimal import Decimal
from typing import Any, ClassVar

from hypothesis import given, settings, strategies as st

from kdsl.types import model as t
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.formats import ChangeJson
from tests import strategies
from tests.formats.contract import SUPPRESSED, FormatContract, check_round_trip
from tests.formats.test_json_contract import ROW_TYPES, readable


def row_of(number: int) -> tuple[str, dict[str, Any]]:
    """A row as JSON, and its values."""
    text = (
        f'{{"id":{number},"name":"name \\"{number}\\", é","amount":{number}.5,'
        f'"at":"2024-03-01 10:11:12.{number % 9 + 1}","tags":["a{number}",null],"pair":{{"x":null,"y":"y"}}}}'
    )
    values = {
        "id": number,
        "name": f'name "{number}", é',
        "amount": Decimal(f"{number}.50"),
        "at": 1_709_287_872_000_000 + (number % 9 + 1) * 100_000,
        "tags": [f"a{number}", None],
        "pair": {"x": None, "y": "y"},
    }
    return text, values


class ChangeContract(FormatContract):
    """What the four formats of change data promise; `frame` is what is around the JSON of rows."""

    kind: ClassVar[type[ChangeJson]]
    row = t.row(
        id=t.BigInt(),
        name=t.STRING,
        amount=t.Decimal(10, 2),
        at=t.Timestamp(3),
        tags=t.Array(t.STRING),
        pair=t.row(x=t.Int(), y=t.STRING),
    )

    @abstractmethod
    def frame(self, operation: str, row: str, old: str | None = None) -> str:
        """A message: of an ``insert``, ``update`` or ``delete``."""

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        text, values = row_of(number)
        return self.frame("insert", text).encode(), values

    def change(self, number: int) -> tuple[bytes, list[tuple[str, dict[str, Any]]]]:
        text, values = row_of(number)
        match number % 4:
            case 0 | 1:
                old, was = row_of(number + 1_000_000)
                if self.kind in (CanalJson, MaxwellJson) and number % 4 == 1:
                    old, was = '{"amount":null,"name":"old"}', {**values, "amount": None, "name": "old"}
                return self.frame("update", text, old).encode(), [("-U", was), ("+U", values)]
            case 2:
                return self.frame("delete", text).encode(), [("-D", values)]
            case _:
                return self.frame("insert", text).encode(), [("+I", values)]

    def bad_messages(self) -> list[bytes]:
        good, text = self.message(7)[0], row_of(7)[0]
        return [
            b" ",
            b"null",
            b"1",
            b"[]",
            b"{}",
            b"not json",
            good[:-1],
            b"{" + good,
            good.replace(b'"id":7', b'"id":7.x'),
            good.replace(b'"id":7', b'"id":"x"'),
            good.replace(b"2024-03-01 ", b"2024-03-01T"),
            good.replace(b'["a7",null]', b'{"a":1}'),
            good.replace(text.encode(), b"null"),
            self.frame("update", text, "null").encode(),
            self.frame("truncate", text).encode(),
        ]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        return ROW_TYPES

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return strategies.values(row.as_nullable(False), _readable)

    @given(st.data())
    @settings(deadline=None, max_examples=40, suppress_health_check=SUPPRESSED)
    def test_rows_of_any_type_read_back(self, data: st.DataObject) -> None:
        check_round_trip(self, data)  # fewer times: the values are those of the format json


def _readable(kind: t.DataType) -> st.SearchStrategy[Any] | None:
    """What the tree reader reads back: it has no -0.0 in rows with decimals."""
    if isinstance(kind, t.Float | t.Double):
        return st.floats(width=32 if isinstance(kind, t.Float) else 64).map(lambda value: value + 0.0)
    return readable(kind)


def variants(kind: type[ChangeJson], **more: Any) -> tuple[ChangeJson, ...]:
    return (
        kind(timestamp_format="ISO-8601", map_null_key_mode="DROP", **more),
        kind(map_null_key_mode="LITERAL", map_null_key_literal="none", decimal_as_plain_number=True),
        kind(ignore_null_fields=True),
        kind(inferred_columns=True, infer_primitive_as_string=True, infer_fixed_types="id BIGINT"),
    )


class TestDebeziumJson(ChangeContract):
    kind = DebeziumJson
    format = DebeziumJson()
    lenient = DebeziumJson(ignore_parse_errors=True)
    variants = (
        *variants(DebeziumJson, schema_include=True),
        DebeziumJson(decimal_handling_mode="precise", time_precision_mode="adaptive", binary_handling_mode="hex"),
        DebeziumJson(unavailable="keep", unavailable_value_placeholder="?", truncate="skip"),
    )

    def frame(self, operation: str, row: str, old: str | None = None) -> str:
        match operation:
            case "insert":
                return f'{{"before":null,"after":{row},"op":"c"}}'
            case "delete":
                return f'{{"before":{row},"after":null,"op":"d"}}'
        return f'{{"before":{old},"after":{row},"op":"{operation[0]}"}}'


class TestOggJson(ChangeContract):
    kind = OggJson
    format = OggJson()
    lenient = OggJson(ignore_parse_errors=True)
    variants = variants(OggJson)

    def frame(self, operation: str, row: str, old: str | None = None) -> str:
        match operation:
            case "insert":
                return f'{{"before":null,"after":{row},"op_type":"I"}}'
            case "delete":
                return f'{{"before":{row},"after":null,"op_type":"D"}}'
        return f'{{"before":{old},"after":{row},"op_type":"{operation[0].upper()}"}}'


class TestMaxwellJson(ChangeContract):
    kind = MaxwellJson
    format = MaxwellJson()
    lenient = MaxwellJson(ignore_parse_errors=True)
    variants = variants(MaxwellJson)

    def frame(self, operation: str, row: str, old: str | None = None) -> str:
        before = f',"old":{old}' if old else ""
        return f'{{"data":{row}{before},"type":"{operation}"}}'


class TestCanalJson(ChangeContract):
    kind = CanalJson
    format = CanalJson()
    lenient = CanalJson(ignore_parse_errors=True)
    variants = (
        *variants(CanalJson, database_include="a|b", table_include=".*"),
        CanalJson(infer_strategy="MYSQL_TYPE", mysql_timestamp_as_datetime=False, mysql_tinyint1_as_boolean=False),
    )

    def frame(self, operation: str, row: str, old: str | None = None) -> str:
        before = f',"old":[{old}]' if old else ""
        return f'{{"data":[{row}]{before},"type":"{operation.upper()}"}}'
