"""JSON as Debezium and Kafka Connect write it: columns against single messages, schemas in messages, the promises."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kdsl.formats import Decoded, Format
from kdsl.shown_values import reveal_values
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, plain_values
from kdsl_formats._connect.wires import NO_MODES, Modes, wire_of
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.dialects import DEBEZIUM
from kdsl_formats.cdc_json.reference_decoder import ChangeReadingRules, ReferenceChangeDecoder
from kdsl_formats.json import Json
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.reference_decoder import ReadingRules, ReferenceDecoder
from tests.formats import test_cdc_json_contract, test_json_contract
from tests.formats.contract import FormatContract
from tests.formats.test_json_decoder import outcome, unhurried

ROW = t.row(
    id=t.BigInt(),
    amount=t.Decimal(10, 2),
    wide=t.Decimal(38, 4),
    day=t.Date(),
    clock=t.Time(6),
    at=t.Timestamp(6),
    coarse=t.Timestamp(3),
    seen=t.TimestampLtz(6),
    data=t.BYTES,
    prices=t.Array(t.Decimal(10, 2)),
    visit=t.row(at=t.Timestamp(6), fee=t.Decimal(5, 1)),
    totals=t.Map(t.VarChar(nullable=False), t.Decimal(5, 1)),
)
MODES = st.builds(
    Modes,
    st.sampled_from([None, "precise", "string", "double"]),
    st.sampled_from(
        [None, "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
    ),
    st.sampled_from([None, "bytes", "base64-url-safe", "hex"]),
)
ODD = [
    '"infinity"', '"-infinity"', "9223372036825200000", "-9223372036832400", "-2147472692", '"NaN"', "12.5", '"12.5"',
    '{"scale":2,"value":"AegB"}', '{ "value" : "AegB" , "scale" : 1 }', '{"scale":"2","value":"AegB"}', "{}", "[]",
    '{"scale":2,"value":"!"}', '"2024-05-01T12:30:00+02:00"', '"2024-05-01T12:30:00Z"', '"2024-05-01Z"', "true", '""',
    '"\\u0041egB"', "1e3", '"12:30:00Z"', "-1", "86400000000", "01",
]  # fmt: skip


class Writer:
    """Writes values of columns as JSON, mostly as settings of a connector have them."""

    def __init__(self, random: Random, modes: Modes, dirt: float) -> None:
        self.random, self.modes, self.dirt = random, modes, dirt

    def value(self, kind: t.DataType) -> str:
        r = self.random
        if r.random() < self.dirt:
            return r.choice(ODD)
        if r.random() < 0.1:
            return "null"
        wire = wire_of(kind, self.modes)
        if wire is not None:
            text = wire.write(self._python(kind))
            return f'"{text}"' if wire.quoted else text
        match kind:
            case t.Array(element=element):
                return f"[{','.join(self.value(element) for _ in range(r.randrange(4)))}]"
            case t.Map(value=value):
                return self._object([(name, value) for name in "ab"[: r.randrange(3)]])
            case t.Row(fields=fields):
                return self._object([(f.name, f.type) for f in fields])
            case t.BigInt():
                return str(r.randrange(1000))
            case t.Decimal():
                return f"{r.randrange(1000)}.5"
            case t.Date():
                return '"2024-05-01"'
            case t.Time():
                return '"12:30:00.5"'
            case t.Timestamp():
                return '"2024-05-01 12:30:00.25"'
            case t.TimestampLtz():
                return '"2024-05-01 12:30:00.25Z"'
            case _:
                return '"AQID"'

    def _object(self, members: list[tuple[str, t.DataType]]) -> str:
        return "{" + ",".join(f'"{name}":{self.value(kind)}' for name, kind in members) + "}"

    def _python(self, kind: t.DataType) -> Any:
        r = self.random
        match kind:
            case t.Decimal(precision=precision, scale=scale):
                return Decimal(f"{r.randrange(-(10 ** min(precision, 20)) + 1, 10 ** min(precision, 20))}E-{scale}")
            case t.Date():
                return r.randrange(-10_000, 30_000)
            case t.Time():
                return r.randrange(86_400_000_000) * 1_000
            case t.Timestamp() | t.TimestampLtz():
                return r.randrange(-(10**15), 10**16 // 2)
            case _:
                return r.randbytes(r.randrange(5))

    def image(self) -> str:
        return self.value(ROW) if self.random.random() > self.dirt / 4 else "{}"


def rows_of(decoded: Decoded) -> list[Any]:
    return plain_values(decoded.rows)


@unhurried
@given(
    st.randoms(use_true_random=False),
    MODES,
    st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    st.integers(0, 20),
    st.sampled_from(["plain", "ignore"]),
    st.sampled_from(["none", "same", "several"]),
    st.booleans(),
)
def test_rows_by_columns_are_those_of_single_messages(
    random: Random, modes: Modes, dirt: float, count: int, errors: str, schemas: str, streaming: bool
) -> None:
    writer = Writer(random, modes, dirt)
    texts = [writer.image() for _ in range(count)]
    if schemas != "none":
        texts = [
            f'{{"schema":{{"version":{random.randrange(1 if schemas == "same" else 5)}}},"payload":'
            f"{text if random.random() > dirt / 4 else 'null'}}}"
            for text in texts
        ]
    messages: list[bytes | None] = [None if random.random() < 0.05 else text.encode() for text in texts]
    rules = ReadingRules(
        ignore_parse_errors=errors == "ignore", streaming=streaming, modes=modes, payload=schemas != "none"
    )
    reference = ReferenceDecoder(ROW, rules)
    expected, owner, bad = [], [], []
    for i, message in enumerate(messages):
        try:
            rows = reference.read_rows(message or b"")
        except ValueError as e:
            bad.append((i, reveal_values(str(e))))
        else:
            expected += rows
            owner += [i] * len(rows)
    decoder = JsonDecoder(ROW, rules, min_batch=2)
    for _ in range(2):  # the second time with the shapes that were learned
        decoded = decoder.decode(pa.array(messages, pa.binary()))
        owners = outcome(decoded, len(messages))[1]
        assert (owners, [(b.index, b.reason) for b in decoded.bad]) == (owner, bad)
        assert rows_of(decoded) == plain_values(pa.array(expected, arrow_type(ROW)))
        assert decoded.infinite == reference.infinite.count


@unhurried
@given(
    st.randoms(use_true_random=False),
    MODES,
    st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    st.integers(0, 16),
    st.booleans(),
    st.booleans(),
)
def test_changes_by_columns_are_those_of_single_messages(
    random: Random, modes: Modes, dirt: float, count: int, ignore: bool, payload: bool
) -> None:
    writer = Writer(random, modes, dirt)
    messages = []
    for _ in range(count):
        op = random.choice("crud")
        before = writer.image() if op in "ud" or random.random() < dirt / 4 else "null"
        after = writer.image() if op in "cru" or random.random() < dirt / 4 else "null"
        text = f'{{"before":{before},"after":{after},"op":"{op}"}}'
        messages.append((f'{{"schema":{{"a":1}},"payload":{text}}}' if payload else text).encode())
    rules = ChangeReadingRules(DEBEZIUM, ROW, ignore_parse_errors=ignore, payload=payload, modes=modes)
    reader = ReferenceChangeDecoder(rules)
    expected, kinds, owner, bad = [], [], [], []
    for i, message in enumerate(messages):
        try:
            changes = reader.read_changes(message)
        except ValueError as e:
            bad.append((i, reveal_values(str(e))))
        else:
            expected += changes.rows
            kinds += changes.kinds
            owner += [i] * len(changes.rows)
    decoder = ChangeDecoder(rules, min_batch=2)
    for _ in range(2):
        decoded = decoder.decode(pa.array(messages, pa.binary()))
        assert [(b.index, b.reason) for b in decoded.bad] == bad
        assert decoded.kinds is not None
        assert (decoded.kinds.to_pylist(), outcome(decoded, count)[1]) == (kinds, owner)
        assert rows_of(decoded) == plain_values(pa.array(expected, arrow_type(ROW)))
        assert decoded.infinite == reader.infinite.count


class _Typed(FormatContract):
    row = t.row(
        id=t.BigInt(),
        amount=t.Decimal(10, 2),
        day=t.Date(),
        clock=t.Time(6),
        at=t.Timestamp(6),
        seen=t.TimestampLtz(6),
        data=t.BYTES,
        prices=t.Array(t.Decimal(5, 1)),
    )

    def image(self, number: int) -> tuple[str, dict[str, Any]]:
        digits = base64.b64encode((100 * number + 7).to_bytes(4, "big").lstrip(b"\0") or b"\0").decode()
        if (100 * number + 7).to_bytes(4, "big").lstrip(b"\0")[0] > 127:
            digits = base64.b64encode(b"\0" + (100 * number + 7).to_bytes(4, "big").lstrip(b"\0")).decode()
        text = (
            f'{{"id":{number},"amount":"{digits}","day":{19_000 + number % 1000},"clock":{number * 1_000},'
            f'"at":{1_700_000_000_000_000 + number},"seen":"1970-01-01T00:00:{number % 60:02d}Z","data":"00ff",'
            '"prices":["Bw==",null]}'
        )
        values = {
            "id": number,
            "amount": Decimal(f"{number}.07"),
            "day": 19_000 + number % 1000,
            "clock": number * 1_000_000,
            "at": 1_700_000_000_000_000 + number,
            "seen": number % 60 * 1_000_000,
            "data": b"\0\xff",
            "prices": [Decimal("0.7"), None],
        }
        return text, values

    def broken(self, good: bytes) -> list[bytes]:
        return [
            b" ",
            b"not json",
            good[:-1],
            good.replace(b'"day":19007', b'"day":"2024-05-01"'),
            good.replace(b'"clock":7000', b'"clock":-1'),
            good.replace(b'"data":"00ff"', b'"data":"00f"'),
            good.replace(b'"prices":["Bw=="', b'"prices":["AAAAAAAAAAAAf/////8="'),
            good.replace(b'"seen":"1970-01-01T00:00:07Z"', b'"seen":"1970-01-01"'),
        ]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        return st.just(self.row)


class TestTypedJson(_Typed):
    """The format ``json`` with settings of a connector, and with schemas in messages."""

    format = Json(
        schema_include=True,
        decimal_handling_mode="precise",
        time_precision_mode="adaptive",
        binary_handling_mode="hex",
    )
    lenient = Json(
        schema_include=True,
        decimal_handling_mode="precise",
        time_precision_mode="adaptive",
        binary_handling_mode="hex",
        ignore_parse_errors=True,
    )
    variants = test_json_contract.TestJson.variants

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        text, values = self.image(number)
        return SCHEMA + text.encode() + b"}", values

    def bad_messages(self) -> list[bytes]:
        return [*self.broken(self.message(7)[0]), self.image(7)[0].encode()]


class TestTypedDebeziumJson(_Typed):
    """The format ``debezium-json`` with settings of a connector."""

    format = DebeziumJson(decimal_handling_mode="precise", time_precision_mode="adaptive", binary_handling_mode="hex")
    lenient = DebeziumJson(
        decimal_handling_mode="precise",
        time_precision_mode="adaptive",
        binary_handling_mode="hex",
        ignore_parse_errors=True,
    )
    variants = test_cdc_json_contract.TestDebeziumJson.variants

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        text, values = self.image(number)
        return f'{{"before":null,"after":{text},"op":"c"}}'.encode(), values

    def bad_messages(self) -> list[bytes]:
        return self.broken(self.message(7)[0])


SCHEMA = (
    Json(
        schema_include=True, decimal_handling_mode="precise", time_precision_mode="adaptive", binary_handling_mode="hex"
    )
    .encoder(_Typed.row)
    .encode(pa.array([dict.fromkeys(_Typed.row.names)], arrow_type(_Typed.row)))
    .messages[0]
    .as_py()
    .partition(b'"payload":')[0]
    + b'"payload":'
)


def decode(chosen: Format, row: t.Row, *messages: str) -> Decoded:
    return chosen.decoder(row).decode(pa.array([m.encode() for m in messages], pa.binary()))


def test_infinity_is_null_and_counted_where_the_column_is_nullable() -> None:
    chosen = Json(time_precision_mode="adaptive")
    row = t.row(at=t.Timestamp(6), seen=t.TimestampLtz(6))
    decoded = decode(chosen, row, '{"at":9223372036825200000,"seen":"-infinity"}', '{"at":0,"seen":null}')
    assert (decoded.rows.to_pylist()[0], decoded.infinite, decoded.bad) == ({"at": None, "seen": None}, 2, ())
    strict = t.row(at=t.Timestamp(6, nullable=False))
    decoded = decode(chosen, strict, '{"at":9223372036825200000}')
    assert "declare the column nullable" in decoded.bad[0].reason


INFINITE = '{"at":9223372036825200000,"n":1}'
BAD = '{"at":9223372036825200000,"n":"x"}'


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(
    ("chosen", "message", "infinite"),
    [
        (Json(), BAD, 0),
        (Json(), f"[{INFINITE},{BAD}]", 0),
        (Json(ignore_parse_errors=True), f"[{INFINITE},5,{BAD}]", 2),
        (Json(ignore_parse_errors=True), '{"inner":[{"at":9223372036825200000},5]}', 1),
        (Json(ignore_parse_errors=True, inferred_columns=True), '{"by_name":{"a":9223372036825200000,"\\ud800":1}}', 0),
        (DebeziumJson(), f'{{"before":null,"after":{BAD},"op":"c"}}', 0),
        (DebeziumJson(), f'{{"before":null,"after":{INFINITE},"op":"u"}}', 0),
        (DebeziumJson(), f'{{"before":{INFINITE},"after":{INFINITE},"op":"c"}}', 1),
        (DebeziumJson(), f'{{"before":{INFINITE},"after":{INFINITE},"op":"u"}}', 2),
        (DebeziumJson(schema_include=True), f'{{"payload":{{"before":{INFINITE},"after":{INFINITE},"op":"d"}}}}', 1),
    ],
)
def test_infinite_values_are_counted_in_returned_rows_only(
    chosen: Json | DebeziumJson, message: str, infinite: int, count: int
) -> None:
    at = t.Timestamp(6)
    row = t.row(at=at, n=t.Int(), inner=t.Array(t.row(at=at)), by_name=t.Map(t.VarChar(nullable=False), at))
    chosen = attrs.evolve(chosen, time_precision_mode="microseconds")  # type: ignore[misc]
    decoded = decode(chosen, row, *[message] * count)
    assert decoded.infinite == infinite * count


def test_errors_name_the_location_of_a_value_and_what_is_expected() -> None:
    chosen = Json(decimal_handling_mode="precise", time_precision_mode="adaptive")
    row = t.row(order=t.row(prices=t.Array(t.Decimal(4, 2))), at=t.Timestamp(3))
    decoded = decode(chosen, row, '{"order":{"prices":["AQ==","12.5"]}}', '{"at":"2024-05-01"}')
    assert [bad.reason for bad in decoded.bad] == [
        "field 'order.prices[1]': '12.5' is not a DECIMAL(4, 2) (expected its digits in base64, as "
        "decimal.handling.mode 'precise' writes them)",
        "field 'at': '2024-05-01' is not a TIMESTAMP(3) (expected a number of milliseconds since 1970-01-01)",
    ]


def test_an_object_with_too_many_digits_is_reported() -> None:
    row = t.row(price=t.Decimal(4, 2))
    decoded = decode(Json(decimal_handling_mode="precise"), row, '{"price":{"scale":0,"value":"fwAA"}}')
    assert decoded.bad[0].reason == "field 'price': an object is not a DECIMAL(4, 2) (it has too many digits)"


def test_schemas_are_those_of_kafka_connect() -> None:
    row = t.row(id=t.BigInt(nullable=False), amount=t.Decimal(10, 2), at=t.Timestamp(3), tags=t.Array(t.STRING))
    chosen = Json(schema_include=True, decimal_handling_mode="precise", time_precision_mode="connect")
    rows = pa.array([{"id": 1, "amount": Decimal("1.25"), "at": 1_000, "tags": ["a"]}], arrow_type(row))
    message = json.loads(chosen.encoder(row).encode(rows).messages[0].as_py())
    decimal = {"scale": "2", "connect.decimal.precision": "10"}
    assert message == {
        "schema": {
            "type": "struct",
            "optional": False,
            "fields": [
                {"type": "int64", "optional": False, "field": "id"},
                {
                    "type": "bytes",
                    "name": "org.apache.kafka.connect.data.Decimal",
                    "version": 1,
                    "parameters": decimal,
                    "optional": True,
                    "field": "amount",
                },
                {
                    "type": "int64",
                    "name": "org.apache.kafka.connect.data.Timestamp",
                    "version": 1,
                    "optional": True,
                    "field": "at",
                },
                {
                    "type": "array",
                    "items": {"type": "string", "optional": True},
                    "optional": True,
                    "field": "tags",
                },
            ],
        },
        "payload": {"id": 1, "amount": "fQ==", "at": 1, "tags": ["a"]},
    }


def test_a_message_without_its_schema_is_reported() -> None:
    decoded = decode(Json(schema_include=True), t.row(id=t.BigInt()), '{"id":1}')
    assert "remove 'schema-include'" in decoded.bad[0].reason


def test_messages_with_the_same_schema_need_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReferenceDecoder, "read_rows", lambda *_: pytest.fail("read one by one"))
    chosen, row = TestTypedJson.format, _Typed.row
    messages = [TestTypedJson().message(i)[0].decode() for i in range(200)]
    assert len(decode(chosen, row, *messages).rows) == 200


def test_settings_are_taken_in_any_letter_case() -> None:
    chosen = Json.from_strings({"decimal.handling.mode": "PRECISE", "time.precision.mode": "Connect"})
    assert not list(chosen.problems())
    assert chosen.modes == Modes("precise", "connect")


def test_canal_has_no_settings_of_debezium() -> None:
    from kdsl_formats.cdc_json import CanalJson

    assert [p.code for p in CanalJson.from_strings({"decimal.handling.mode": "precise"}).problems()] == [
        "option-unknown"
    ]


def test_a_timestamp_that_nanoseconds_do_not_reach_fails_its_row_alone() -> None:
    row = t.row(at=t.Timestamp(6))
    rows = pa.array([{"at": 10**15}, {"at": 10**17}] * 60, arrow_type(row))
    encoded = Json(time_precision_mode="nanoseconds").encoder(row).encode(rows)
    assert [bad.index for bad in encoded.bad] == list(range(1, 120, 2))
    assert encoded.messages[0].as_py() == b'{"at":1000000000000000000}'


def test_nothing_changes_without_settings() -> None:
    assert Json().modes == NO_MODES
    assert wire_of(t.Decimal(10, 2), NO_MODES) is None


def test_digits_that_would_be_lost_in_writing_are_reported() -> None:
    row = t.row(at=t.Timestamp(6), coarse=t.Timestamp(3), price=t.Array(t.Decimal(20, 2)), small=t.Decimal(10, 2))
    chosen = Json(decimal_handling_mode="double", time_precision_mode="connect")
    results = list(chosen.check(row, "write"))
    assert [(p.code, p.where.column, p.severity) for p in results] == [
        ("json-digits", "at", "warning"),
        ("json-digits", "price", "warning"),
    ]
    assert list(chosen.check(row, "read")) == []
    assert list(Json(decimal_handling_mode="precise", time_precision_mode="adaptive").check(row, "write")) == []
