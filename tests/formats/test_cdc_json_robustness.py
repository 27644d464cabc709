"""Change data that is large, broken, deep or strange: an answer for each message, and none that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.formats import ROW_KINDS, Decoded, Use
from kdsl.types import model as t
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.formats import ChangeJson
from tests.strategies import examples

ROW = t.row(id=t.BigInt(), name=t.STRING, amount=t.Decimal(10, 2), at=t.Timestamp(3))
IMAGE = '{"id":7,"name":"x","amount":1.25,"at":"2024-05-01 12:00:00.5"}'
OTHER = '{"id":8,"name":"y","amount":2.5,"at":"2024-05-01 12:00:00"}'
FORMATS: tuple[ChangeJson, ...] = (DebeziumJson(), OggJson(), MaxwellJson(), CanalJson())
UPDATES = {
    "debezium-json": '{"before":%s,"after":%s,"op":"u"}',
    "ogg-json": '{"before":%s,"after":%s,"op_type":"U"}',
    "maxwell-json": '{"old":%s,"data":%s,"type":"update"}',
    "canal-json": '{"old":[%s],"data":[%s],"type":"UPDATE"}',
}
MANY = 60  # more than are read one by one


def update(value: ChangeJson, old: str = OTHER, new: str = IMAGE) -> str:
    return UPDATES[value.identifier] % (old, new)


def read(value: ChangeJson, messages: list[bytes], row: t.Row = ROW) -> Decoded:
    return value.decoder(row, Use(metadata=tuple(value.metadata))).decode(pa.array(messages, pa.binary()))


def kinds_and_rows(decoded: Decoded) -> list[tuple[str, Any]]:
    assert decoded.kinds is not None
    return [(ROW_KINDS[k], row) for k, row in zip(decoded.kinds.to_pylist(), decoded.rows.to_pylist(), strict=True)]


DEEP = "[" * 2_000 + "]" * 2_000
REPLACED = {
    "wrong type": ('"id":7', '"id":"seven"'),
    "overflow": ('"id":7', '"id":9223372036854775808'),
    "leading zero": ('"id":7', '"id":07'),
    "NaN": ('"id":7', '"id":NaN'),
    "infinity": ('"amount":1.25', '"amount":Infinity'),
    "a number of 1,001 digits": ('"id":7', f'"id":{"7" * 1_001}'),
    "an object for a number": ('"id":7', '"id":{}'),
    "a wrong day": ("2024-05-01 12:00:00.5", "2024-13-01 12:00:00"),
    "the other form of time": ("2024-05-01 12", "2024-05-01T12"),
    "a comma too many": ('"name":"x",', '"name":"x",,'),
    "no colon": ('"name":"x"', '"name" "x"'),
    "single quotes": ('"name":"x"', "'name':'x'"),
    "an open text": ('"name":"x"', '"name":"x'),
    "a bad escape": ('"name":"x"', '"name":"\\x"'),
    "too deep": ('"name":"x"', f'"name":{DEEP}'),
}
BYTES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda m: m[:-9],
    "an array of changes": lambda m: b"[" + m + b"," + m + b"]",
    "a text": lambda m: b'"' + m.replace(b'"', b"'") + b'"',
    "a number": lambda _: b"123",
    "null": lambda _: b"null",
    "blanks": lambda _: b" \n ",
    "an empty object": lambda _: b"{}",
    "no UTF-8": lambda m: m.replace(b'"x"', b'"\xff"'),
    "an overlong byte": lambda m: m.replace(b'"x"', b'"\xc0\xaf"'),
    "half a character": lambda m: m.replace(b'"x"', b'"\xe2\x82"'),
    "a byte before": lambda m: b"\0" + m,
    "no JSON": lambda _: b"Obj\x01\x04\x14avro.codec",
}


@pytest.mark.parametrize("value", FORMATS, ids=lambda value: value.identifier)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "among many"])
@pytest.mark.parametrize("name", [*REPLACED, *BYTES])
def test_bad_input_is_reported_and_does_not_affect_other_messages(value: ChangeJson, name: str, alone: bool) -> None:
    good = update(value).encode()
    bad = good.decode().replace(*REPLACED[name]).encode() if name in REPLACED else BYTES[name](good)
    around = [] if alone else [good] * MANY
    decoded = read(value, [*around, bad, *around])

    assert [b.index for b in decoded.bad] == [len(around)], name
    assert decoded.bad[0].reason
    assert kinds_and_rows(decoded) == kinds_and_rows(read(value, [good])) * (2 * len(around))
    ignoring = type(value)(ignore_parse_errors=True)
    lenient = read(ignoring, [*around, bad, *around])
    assert lenient.bad == ()
    assert len(lenient.rows) in (4 * len(around), 4 * len(around) + 2)  # a bad value is NULL, a bad message no row


@pytest.mark.parametrize("value", FORMATS, ids=lambda value: value.identifier)
@pytest.mark.parametrize("min_batch", [1, MANY])
def test_unusual_but_valid_messages_are_read(value: ChangeJson, min_batch: int) -> None:
    plain = update(value)
    strange = [
        f" {plain}\n",
        plain.replace(",", " ,\t").replace(":", " : ").replace("12 : 00 : 00", "12:00:00"),
        plain.replace('"name"', '"\\u006eame"').replace('"x"', '"\\u0078"'),
        plain[:-1] + f',"more":{{"op":"d","type":"DELETE","a":[{",".join("1" * 50)}]}}}}',
        plain.replace('"id":7', '"id":"7"').replace('"id":8', '"id":" 8 "'),
        plain.replace('"id":7', '"id":99,"id":7'),  # of equal names the last one counts
        plain + " what follows is not looked at",
        "\ufeff" + plain,
    ]
    for message in strange:
        decoded = read(value, [message.encode()] * min_batch)

        assert decoded.bad == (), message
        assert kinds_and_rows(decoded) == kinds_and_rows(read(value, [plain.encode()])) * min_batch, message


@pytest.mark.parametrize("value", FORMATS, ids=lambda value: value.identifier)
def test_a_message_of_ten_megabytes_is_read(value: ChangeJson) -> None:
    text = "é" * 5_000_000
    decoded = read(value, [update(value, new=IMAGE.replace('"x"', f'"{text}"')).encode()])

    assert decoded.rows.field("name").to_pylist() == ["y", text]


@pytest.mark.parametrize("value", FORMATS, ids=lambda value: value.identifier)
@pytest.mark.parametrize(
    ("operation", "error_text"), [("zz", "unknown"), ("", "unknown"), (None, "there is no member")]
)
def test_what_happened_must_be_known(value: ChangeJson, operation: str | None, error_text: str) -> None:
    name = value.dialect.operation
    message = f'{{"{name}":"{operation}"}}' if operation is not None else '{"before":null}'
    reason = read(value, [message.encode()]).bad[0].reason

    assert error_text in reason
    assert repr(name) in reason


def test_a_missing_before_image_explains_what_to_do_in_postgres() -> None:
    state = (
        ", or declare the primary key and the table option cdc-events-duplicate (cdc_events_duplicate=True), which "
        "takes the before-image from state"
    )
    for operation, word, more in (("u", "an UPDATE", state), ("d", "a DELETE", "")):
        message = f'{{"before":null,"after":{IMAGE},"op":"{operation}"}}'.encode()
        (bad,) = read(DebeziumJson(), [message]).bad

        assert bad.reason == (
            f"the member 'before' of {word} message is null; if a Debezium connector for Postgres wrote it, set the "
            f"table's REPLICA IDENTITY to FULL{more}"
        )


def test_an_unexpected_or_missing_schema_is_reported_with_the_option() -> None:
    plain = update(DebeziumJson())
    framed = f'{{"schema":{{}},"payload":{plain}}}'
    (without,) = read(DebeziumJson(), [framed.encode()]).bad
    (missing,) = read(DebeziumJson(schema_include=True), [plain.encode()]).bad

    assert "a message with its schema needs the option 'schema-include'" in without.reason
    assert "remove 'schema-include'" in missing.reason


def test_bad_values_are_reported_with_their_location() -> None:
    messages = [update(item, new=IMAGE.replace('"id":7', '"id":"x"')).encode() for item in FORMATS]
    reasons = [read(item, [message]).bad[0].reason for item, message in zip(FORMATS, messages, strict=True)]

    assert [reason.split(":")[0] for reason in reasons] == [
        "field 'after.id'",
        "field 'after.id'",
        "field 'data.id'",
        "field 'data[0].id'",
    ]


@pytest.mark.parametrize("value", FORMATS, ids=lambda value: value.identifier)
@settings(deadline=None, max_examples=examples(60))
@given(noise=st.lists(st.binary(max_size=60), max_size=4), at=st.integers(0, 200), what=st.binary(max_size=6))
def test_noise_returns_an_error_or_a_row_and_never_crashes(
    value: ChangeJson, noise: list[bytes], at: int, what: bytes
) -> None:
    good = update(value).encode()
    messages = [*noise, good[:at] + what + good[at:], good]
    for repeated in (1, MANY):
        decoded = read(value, messages * repeated)
        decoded.rows.validate(full=True)

        assert {b.index % len(messages) for b in decoded.bad} <= set(range(len(messages) - 1))
        assert kinds_and_rows(decoded)[-2:] == kinds_and_rows(read(value, [good]))
