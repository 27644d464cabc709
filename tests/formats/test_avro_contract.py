from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.avro import Avro
from kdsl_formats.json.reference_encoder import escape
from tests.formats import avro_bodies
from tests.formats.contract import SUPPRESSED, FormatContract
from tests.strategies import examples

ROW = t.row(
    id=t.BigInt(),
    name=t.STRING,
    amount=t.Decimal(10, 2),
    day=t.Date(),
    at=t.Timestamp(3),
    clock=t.Time(3),
    ok=t.Boolean(),
    score=t.Double(),
    data=t.BYTES,
    tags=t.Array(t.STRING),
    pair=t.row(x=t.Int(), y=t.STRING),
    counts=t.Map(t.VarChar(nullable=False), t.Int()),
)


def long(number: int) -> bytes:
    raw = number * 2 if number >= 0 else -number * 2 - 1
    result = b""
    while raw > 0x7F:
        result += bytes([raw & 0x7F | 0x80])
        raw >>= 7
    return result + bytes([raw])


def encode_string(value: str) -> bytes:
    return long(len(value.encode())) + value.encode()


class TestAvro(FormatContract):
    format = Avro()
    variants = (Avro(encoding="json", codec="deflate"), Avro(legacy_timestamps=False, micros=True))
    row = t.Row(tuple(attrs.evolve(f, type=f.type.as_nullable(False)) for f in ROW.fields))

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        unscaled = number * 100 + 50
        decimal = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        parts = [
            long(number),
            encode_string(f"name {number}, é"),
            long(len(decimal)) + decimal,
            long(19_783),
            long(1_709_287_872_000 + number),
            long(number % 60 * 1000 + 250),
            bytes([number % 2]),
            struct.pack("<d", 0.25),
            b"\x06\1\2\3",
            b"\x04\x02" + encode_string(f"a{number}") + b"\0\0",
            b"\0\x02\x02y",
            b"\x04\x02n\0\x02k\x02" + long(number) + b"\0",  # as Java's HashMap has them
        ]
        values = {
            "id": number,
            "name": f"name {number}, é",
            "amount": Decimal(f"{number}.50"),
            "day": 19_783,
            "at": 1_709_287_872_000_000 + number * 1000,
            "clock": (number % 60) * 1_000_000_000 + 250_000_000,
            "ok": bool(number % 2),
            "score": 0.25,
            "data": b"\1\2\3",
            "tags": [f"a{number}", None],
            "pair": {"x": None, "y": "y"},
            "counts": [("n", None), ("k", number)],
        }
        return b"".join(parts), values

    def bad_messages(self) -> list[bytes]:
        good = self.message(7)[0]
        return [
            b"",
            good[:-1],
            good[:20],
            b"\x80" * 11,
            good[:1] + b"\x01" + good[2:],
            good[:1] + long(2**40) + good[2:],
            good[:1] + b"\xff" * 10 + good[2:],
            good.replace(b"\x06\1\2\3", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f"),
            good.replace(b"\x04\x02" + encode_string("a7"), b"\x04\x04" + encode_string("a7")),
            good.replace(b"\x04\x02" + encode_string("a7"), b"\xfe\xff\xff\xff\x0f\x02" + encode_string("a7")),
        ]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        return avro_bodies.row_types()

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return avro_bodies.values(row)


class TestAvroJson(TestAvro):
    """The same rows as Avro's JSON."""

    format = Avro(encoding="json")

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        values = super().message(number)[1]
        unscaled = number * 100 + 50
        decimal = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        texts = (
            f'{{"id":{number},"name":"name {number}, é","amount":{escape(decimal.decode("iso-8859-1"))},"day":19783,'
            f'"at":{1_709_287_872_000 + number},"clock":{number % 60 * 1000 + 250},'
            f'"ok":{"true" if number % 2 else "false"},"score":0.25,"data":"\\u0001\\u0002\\u0003",'
            f'"tags":[{{"string":"a{number}"}},null],"pair":{{"x":null,"y":{{"string":"y"}}}},'
            f'"counts":{{"n":null,"k":{{"int":{number}}}}}}}'
        )
        return texts.encode(), values

    def bad_messages(self) -> list[bytes]:
        good = self.message(7)[0]
        return [
            b"",
            b" ",
            b"null",
            b"[]",
            b"{}",
            good[:-1],
            good.replace(b'"id":7', b'"id":7.5'),
            good.replace(b'"id":7', b'"id":"7"'),
            good.replace(b'"id":7', b'"id":9223372036854775808'),
            good.replace(b'"id":7', b'"id":1e999999999'),
            good.replace(b'"id":7', b'"id":NaN'),
            good.replace(b'"id":7', b'"more":1,"id":7'),
            good.replace(b'"day":19783', b'"day":2147483648'),
            good.replace(b'"score":0.25', b'"score":"0.25"'),
            good.replace(b'"ok":true', b'"ok":1'),
            good.replace(b'"data":"', '"data":"\u0100'.encode()),
            good.replace(b'"name":"', b'"name":"\xff'),
            good.replace(b'{"string":"a7"}', b'"a7"'),
            good.replace(b'{"string":"a7"}', b'{"long":7}'),
            good.replace(b'{"string":"a7"}', b'{"string":"a7","long":7}'),
            good.replace(b'"k":{"int":7}', b'"k":' + b'{"int":' * 5_000 + b"7" + b"}" * 5_000),
        ]


@pytest.mark.parametrize("value", [Avro(encoding="json"), Avro(legacy_timestamps=False)], ids=["json", "modern"])
@given(data=st.data())
@settings(deadline=None, max_examples=examples(60), suppress_health_check=SUPPRESSED)
def test_what_was_written_reads_back_with_other_options(value: Avro, data: st.DataObject) -> None:
    row = data.draw(avro_bodies.row_types(legacy=value.legacy_timestamps))
    rows = pa.array(data.draw(st.lists(avro_bodies.values(row), max_size=3)), arrow_type(row))
    encoded = value.encoder(row).encode(rows)
    decoded = value.decoder(row).decode(encoded.messages)

    assert (encoded.bad, decoded.bad) == ((), ())
    assert [sort_maps(v) for v in decoded.rows.to_pylist()] == [sort_maps(v) for v in rows.to_pylist()]


def sort_maps(value: Any) -> Any:
    """A value as a string in which the entries of maps are in the order of their keys, and NaN equals NaN."""
    if isinstance(value, dict):
        return {k: sort_maps(v) for k, v in value.items()}
    if isinstance(value, list):
        results = [sort_maps(v) for v in value]
        return sorted(results, key=repr) if value and isinstance(value[0], tuple) else results
    return repr(value) if not isinstance(value, tuple) else (value[0], sort_maps(value[1]))
