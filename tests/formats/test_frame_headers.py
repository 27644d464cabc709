"""Schemas that are named in headers: read before the prefix of a message, written by an option."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import kdsl
from kdsl.cluster import Registry
from kdsl.errors import RecordError
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.encode import HEADERS as WRITTEN_HEADERS, RecordEncoder
from kdsl.run.records.frame_headers import FrameHeader, add_frame_headers, find_last_header
from kdsl.run.records.metadata import HEADERS, RAW
from kdsl_formats.protobuf.confluent_frame import encode_path
from tests.registry.front import Front, Request, add_guids, guid_of, serve_schemas

EVENT, ORDER, KEY = 7, 2, 11
SCHEMAS: dict[int, Any] = {
    EVENT: {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "note", "type": ["null", "string"]},
            *({"name": name, "type": "int"} for name in "abcd"),
            {"name": "qty", "type": "long"},
            {"name": "price", "type": "long"},
        ],
    },
    ORDER: {
        "type": "record",
        "name": "Old",
        "fields": [{"name": "price", "type": "long"}, {"name": "qty", "type": "long"}],
    },
    KEY: "string",
}
ZEROS = {"note": None, "a": 0, "b": 0, "c": 0, "d": 1}
PROTO = (
    'syntax = "proto3"; package p; message First { string a = 1; } message Second { int64 qty = 1; int64 price = 2; }'
)
AVRO = "CREATE TABLE t (qty BIGINT, price BIGINT{}) WITH ('connector' = 'kafka', 'topic' = 't', {})"
VALUE = "'format' = 'avro-confluent'"


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    texts = {number: json.dumps(schema) for number, schema in SCHEMAS.items()}

    def answers(request: Request) -> tuple[int, Any]:
        if request.path.startswith("/schemas/ids/20"):
            return 200, {"schema": PROTO, "schemaType": "PROTOBUF"}
        return serve_schemas(texts)(request)

    with Front(add_guids(answers)) as actual:
        yield actual


def write_avro(number: int, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS[number]), value)
    return out.getvalue()


def by_id(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def by_guid(number: int) -> bytes:
    return b"\1" + guid_of(number).bytes


def raw(records: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    usual = {"topic": "t", "partition": 0, "timestamp": 0, "timestamp_type": 0, "leader_epoch": 0, "headers": [],
             "key": None, "value": None}  # fmt: skip
    rows = [{**usual, "offset": i, **record} for i, record in enumerate(records)]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(RAW.items())))


def header(value: bytes | None, side: str = "value") -> dict[str, Any]:
    return {"key": f"__{side}_schema_id", "value": value}


def decoder(ddl: str, front: Front) -> RecordDecoder:
    return RecordDecoder(kdsl.sql(ddl).read_plan(), "UTC", Registry(front.url, {"max.retries": 0}))


def read(ddl: str, front: Front, *records: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = decoder(ddl, front).decode(raw(records)).to_pylist()
    return rows


def test_a_body_that_begins_like_a_frame_is_read_with_the_schema_in_the_header(front: Front) -> None:
    body = write_avro(EVENT, {**ZEROS, "qty": 3, "price": 100})
    assert body[:5] == by_id(ORDER)

    rows = read(AVRO.format("", VALUE), front, {"value": body, "headers": [header(by_id(EVENT))]})

    assert rows == [{"qty": 3, "price": 100}]


frames = st.one_of(
    st.builds(lambda name, number: name(number), st.sampled_from([by_id, by_guid]), st.sampled_from([EVENT, ORDER])),
    st.just(None),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.lists(frames, max_size=3),
            frames,
            st.integers(-(2**40), 2**40),
            st.sampled_from(["row", "null", "zeros"]),
        ),
        max_size=30,
    )
)
def test_the_last_header_counts_then_the_prefix(
    front: Front, records: list[tuple[list[bytes | None], bytes | None, int, str]]
) -> None:
    batch, expected = [], []
    for in_headers, prefix, qty, kind in records:
        last = in_headers[-1] if in_headers else None
        named = last or prefix or by_id(EVENT)
        number = named[-1]
        value = {**ZEROS, "note": None if kind == "zeros" else "x", "qty": qty, "price": 1}
        body = write_avro(number, {f["name"]: value[f["name"]] for f in SCHEMAS[number]["fields"]})
        message = body if last else named + body
        headers = [header(b"x", "other"), *map(header, in_headers), header(by_id(KEY), "key")]
        batch.append({"value": None if kind == "null" else message, "headers": headers})
        if kind != "null":
            expected.append({"qty": qty, "price": 1, "id": number})

    ddl = AVRO.format(", id INT METADATA FROM 'value.schema-id' VIRTUAL", VALUE)

    assert read(ddl, front, *batch) == expected


def test_keys_have_a_header_of_their_own(front: Front) -> None:
    ddl = AVRO.format(
        ", k STRING",
        "'key.format' = 'avro-confluent', 'key.fields' = 'k', 'value.format' = 'avro-confluent', "
        "'value.fields-include' = 'EXCEPT_KEY'",
    )
    key, value = write_avro(KEY, "k1"), write_avro(ORDER, {"price": 1, "qty": 2})

    rows = read(
        ddl,
        front,
        {"key": key, "value": value, "headers": [header(by_id(ORDER)), header(by_guid(KEY), "key")]},
        {"key": by_id(KEY) + key, "value": value, "headers": [header(by_guid(ORDER))]},
        {"key": key, "value": by_id(ORDER) + value, "headers": [header(by_id(KEY), "key")]},
        {"key": None, "value": by_guid(ORDER) + value, "headers": [header(by_id(KEY), "key")]},
    )

    assert rows == [{"qty": 2, "price": 1, "k": "k1"}] * 3 + [{"qty": 2, "price": 1, "k": None}]


@pytest.mark.parametrize("name", [by_id, by_guid])
@pytest.mark.parametrize("kind", ["json-schema-confluent", "protobuf-confluent"])
def test_other_schema_languages_name_schemas_in_headers_as_well(kind: str, name: Any, front: Front) -> None:
    path, body = (
        (encode_path((1,)), b"\x08\x03\x10\x64") if kind.startswith("proto") else (b"", b'{"qty":3,"price":100}')
    )
    records = [
        {"value": body, "headers": [header(name(20) + path)]},
        {"value": name(20) + path + body},
        {"value": None, "headers": [header(name(20) + path)]},
    ]

    ddl = AVRO.format(", id INT METADATA FROM 'value.schema-id' VIRTUAL", f"'format' = '{kind}'")

    assert read(ddl, front, *records) == [{"qty": 3, "price": 100, "id": 20}] * 2


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("avro-confluent", b"", "the header '__value_schema_id' does not name a schema: its 0 bytes are neither"),
        ("avro-confluent", by_id(ORDER)[:4], "its 4 bytes are neither a zero byte and a schema id of four bytes"),
        ("avro-confluent", by_guid(ORDER)[:16], "its 16 bytes are neither"),
        ("avro-confluent", b"\3" + bytes(17), "its 18 bytes are neither"),
        ("json-schema-confluent", b"\2\0\0\0\1", "its 5 bytes are neither"),
        ("protobuf-confluent", by_id(20), "the indexes after the schema, which name the message, cannot be read"),
        ("protobuf-confluent", by_id(20) + b"\4\0", "the indexes after the schema, which name the message"),
    ],
)
def test_a_header_that_names_no_schema_is_an_error_of_the_record(
    kind: str, value: bytes, reason: str, front: Front
) -> None:
    """The prefix is not tried: the body may begin like one by chance."""
    body = by_id(ORDER) + write_avro(ORDER, {"price": 1, "qty": 2})
    records: list[dict[str, Any]] = [
        {"value": None, "headers": [header(value)]},
        {"value": body, "headers": [header(value)]},
    ]

    with pytest.raises(RecordError) as error:
        read(AVRO.format("", f"'format' = '{kind}'"), front, *records)

    assert reason in str(error.value)
    assert "offset 1" in str(error.value)
    if kind != "avro-confluent":
        ignoring = decoder(AVRO.format("", f"'format' = '{kind}', '{kind}.ignore-parse-errors' = 'true'"), front)
        assert ignoring.decode(raw(records)).num_rows == 0
        assert ignoring.dropped["parse-error"] == 1


def test_bytes_after_the_schema_in_a_header_are_ignored(front: Front) -> None:
    body = write_avro(ORDER, {"price": 1, "qty": 2})

    rows = read(AVRO.format("", VALUE), front, {"value": body, "headers": [header(by_id(ORDER) + b"more")]})

    assert rows == [{"qty": 2, "price": 1}]


def test_a_guid_that_the_registry_does_not_know_is_an_error_of_the_record(front: Front) -> None:
    records = [{"value": b"x", "headers": [header(by_guid(99))]}]
    with (
        Front(lambda _: (404, b"<html>nothing here</html>"), headers={"Content-Type": "text/html"}) as other,
        pytest.raises(RecordError, match=f"has no schema with the GUID {guid_of(99)}.*only Confluent's registries"),
    ):
        read(AVRO.format("", VALUE), other, *records)
    with pytest.raises(RecordError, match=f"has no schema with the GUID {guid_of(99)}"):
        read(AVRO.format("", VALUE), front, *records)


def test_headers_are_read_only_for_formats_with_a_registry(front: Front) -> None:
    assert "headers" in decoder(AVRO.format("", VALUE), front).needs
    assert "headers" not in decoder(AVRO.format("", VALUE), front).requires
    assert "headers" not in decoder(AVRO.format("", "'format' = 'json'"), front).needs


def test_records_without_the_header_are_not_copied() -> None:
    headers = pa.array([[], [{"key": "other", "value": b"x"}], [{"key": "__value_schema_id2", "value": b"x"}]], HEADERS)

    assert find_last_header(headers, "__value_schema_id") is None
    assert find_last_header(headers.slice(0, 1), "__value_schema_id") is None


# -- writing


def encoder(ddl: str, front: Front) -> RecordEncoder:
    return RecordEncoder(kdsl.sql(ddl).write_plan(), Registry(front.url, {"max.retries": 0}))


def write(ddl: str, front: Front, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    columns = kdsl.sql(ddl).write_plan().columns
    from kdsl.types.arrow import arrow_schema

    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns))
    records: list[dict[str, Any]] = encoder(ddl, front).encode(batch).to_pylist()
    return records


IN_HEADER = (
    "'value.format' = 'avro-confluent', 'value.avro-confluent.schema-id-location' = 'header', "
    "'value.avro-confluent.schema' = '" + json.dumps(SCHEMAS[ORDER]) + "', 'value.fields-include' = 'EXCEPT_KEY', "
    "'key.format' = 'avro-confluent', 'key.fields' = 'k', 'key.avro-confluent.schema' = '\"string\"', "
    "'key.avro-confluent.schema-id-location' = 'HEADER'"
)
COPY = (
    "CREATE TABLE t (price BIGINT NOT NULL, qty BIGINT NOT NULL, k STRING NOT NULL{}) "
    "WITH ('connector' = 'kafka', 'topic' = 't', {})"
)


@pytest.mark.parametrize("guids", [True, False])
def test_the_option_writes_the_schema_into_the_header(guids: bool) -> None:
    """A registry without GUIDs has ids only, which Confluent's deserializers read in headers, too."""
    answers = serve_schemas({number: json.dumps(schema) for number, schema in SCHEMAS.items()})
    with Front(add_guids(answers) if guids else answers) as registry:
        records = write(COPY.format("", IN_HEADER), registry, [{"price": 1, "qty": 2, "k": "k1"}] * 2)

        name = by_guid if guids else by_id
        expected = {
            "key": write_avro(KEY, "k1"),
            "value": write_avro(ORDER, {"price": 1, "qty": 2}),
            "headers": [header(name(KEY), "key"), header(name(ORDER))],
        }
        assert records == [expected] * 2
        assert registry.count("/schemas/ids/") == 2
        assert read(COPY.format("", IN_HEADER), registry, expected) == [{"price": 1, "qty": 2, "k": "k1"}]


@pytest.mark.parametrize("location", ["prefix", "header"])
def test_copied_headers_do_not_name_the_schema_of_the_source(location: str, front: Front) -> None:
    """A reader would take the header of the source for that of the copy."""
    options = IN_HEADER.replace("= 'header'", f"= '{location}'").replace("= 'HEADER'", f"= '{location}'")
    ddl = COPY.format(", h ARRAY<ROW<`key` STRING, `value` BYTES>> METADATA FROM 'header-list'", options)
    copied = [
        header(by_id(EVENT)),
        {"key": "a", "value": b"1"},
        header(by_id(EVENT), "key"),
        {"key": "b", "value": None},
    ]

    (record,) = write(ddl, front, [{"price": 1, "qty": 2, "k": "k1", "h": copied}])

    own = [header(by_guid(KEY), "key"), header(by_guid(ORDER))] if location == "header" else []
    assert record["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, *own]
    assert read(COPY.format("", options), front, record) == [{"price": 1, "qty": 2, "k": "k1"}]


def test_a_copy_of_bytes_keeps_the_headers(front: Front) -> None:
    ddl = (
        "CREATE TABLE t (k BYTES METADATA FROM '__raw_key__', v BYTES METADATA FROM '__raw_value__', "
        "h ARRAY<ROW<`key` STRING, `value` BYTES>> METADATA FROM 'header-list') "
        "WITH ('connector' = 'kafka', 'topic' = 't')"
    )
    one: dict[str, Any] = {"k": b"1", "v": b"2", "h": [header(by_id(EVENT))]}

    assert write(ddl, front, [one]) == [{"key": b"1", "value": b"2", "headers": one["h"]}]


def test_tombstones_have_no_header_for_their_value(front: Front) -> None:
    ddl = (
        "CREATE TABLE t (k STRING NOT NULL, price BIGINT NOT NULL, qty BIGINT NOT NULL, PRIMARY KEY (k) NOT ENFORCED) "
        "WITH ('connector' = 'upsert-kafka', 'topic' = 't', " + IN_HEADER.replace("'key.fields' = 'k', ", "") + ")"
    )
    rows: list[dict[str, Any]] = [
        {"_row_kind": "+U", "k": "a", "price": 1, "qty": 2},
        {"_row_kind": "-D", "k": "b", "price": None, "qty": None},
    ]

    upserted, deleted = write(ddl, front, rows)

    assert [one["key"] for one in upserted["headers"]] == ["__key_schema_id", "__value_schema_id"]
    assert deleted["value"] is None
    assert [one["key"] for one in deleted["headers"]] == ["__key_schema_id"]


lists = st.lists(
    st.one_of(
        st.none(),
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "own"]), st.one_of(st.none(), st.binary(max_size=3))), max_size=4
        ),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(lists, st.lists(st.integers(0, 2**12 - 1), max_size=2), st.integers(0, 3))
def test_headers_are_added_after_those_of_a_record(
    given_lists: list[list[tuple[str, bytes | None]] | None], masks: list[int], skipped: int
) -> None:
    plain = [None if one is None else [{"key": k, "value": v} for k, v in one] for one in given_lists]
    headers = pa.array(plain, WRITTEN_HEADERS).slice(skipped)
    rest = plain[skipped:]
    added = [
        FrameHeader(f"own{n}", bytes([n]), pa.array([bool(mask >> i & 1) for i in range(len(rest))], pa.bool_()))
        for n, mask in enumerate(masks)
    ]

    result = add_frame_headers(headers, added, {"own"}, WRITTEN_HEADERS).to_pylist()

    assert [one or [] for one in result] == [
        [h for h in one or [] if h["key"] != "own"]
        + [{"key": a.name, "value": a.value} for a in added if a.records[i].as_py()]
        for i, one in enumerate(rest)
    ]


def test_the_header_is_an_option_of_all_formats_with_a_registry() -> None:
    from kdsl.formats import format_class, format_names

    for identifier in format_names():
        chosen = format_class(identifier)()
        if chosen.needs_registry:
            in_header = attrs.evolve(chosen, schema_id_location="header")  # type: ignore[misc]
            assert in_header.choose_frame_header("key") == "__key_schema_id"
            assert in_header.choose_frame_header("value") == "__value_schema_id"
        else:
            assert not chosen.frame_headers
        assert chosen.choose_frame_header("value") is None
