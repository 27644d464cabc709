"""The format ``protobuf-confluent``, against a real registry."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Registry
from kdsl.errors import KdslError
from kdsl.formats import ALONE, Decoder, Direction, Encoder, Use
from kdsl.registry import IncompatibleSchemaError, RegistryClient, registry_client
from kdsl.registry.model import RegisteredSchema, SchemaReference
from kdsl.testing import LocalRegistry
from kdsl.testing.contracts.formats import option_keys
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.protobuf import ProtobufConfluent
from kdsl_formats.protobuf.confluent_frame import encode_path, message_paths, message_paths_in_text, split_indexes
from kdsl_formats.protobuf.sources import compile_files
from tests.formats import test_protobuf_contract as plain
from tests.formats.contract import SUPPRESSED, FormatContract, check_round_trip
from tests.registry.front import Front, Request, forward

DATA = Path(__file__).parent / "data" / "protobuf"
BODIES = plain.TestProtobuf()
TOPICS = (f"protobuf-{number}" for number in itertools.count())
PARTS = 'syntax = "proto3"; package p; message Pair { int32 x = 1; }'
MAIN = """
syntax = "proto3";
package p;
import "parts.proto";
// message Gone { string x = 1; }
option java_package = "message {";
message First { string a = 1; }
enum Kind { NONE = 0; }
message Second {
  oneof either { int32 message = 2; string text = 3; }
  map<string, int32> counts = 4;
  message Inner { message Deep { int64 id = 1; } }
  message Third { int64 id = 1; Pair pair = 2; }
}
"""
THIRD = t.row(id=t.BigInt(), pair=t.row(x=t.Int()))


@pytest.fixture
def registry(kdsl_registry: LocalRegistry) -> Registry:
    return Registry(kdsl_registry.url)


def make_format(name: str, **options: Any) -> ProtobufConfluent:
    return ProtobufConfluent(message_class_name=name, proto_text=MAIN, proto_path=options.pop("folder"), **options)


@pytest.fixture
def folder(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "parts.proto").write_text(PARTS)
    return (str(tmp_path),)


def use(registry: Registry, topic: str | None = None) -> Use:
    return Use(topics=(topic or next(TOPICS),), registry=registry)


def rows(row: t.Row, *values: Any) -> pa.StructArray:
    return pa.array(values, arrow_type(row))


# The contract's messages in proto3, since the registry knows no editions.
RECORD = ProtobufConfluent(
    message_class_name="contract.Record",
    proto_text=re.sub(r"(?<![\w.])(?<!repeated )([\w.]+ \w+ = \d+;)", r"optional \1", plain.PROTO).replace(
        'edition = "2023"', 'syntax = "proto3"'
    ),
).portable()


class TestProtobufConfluent(FormatContract):
    format = RECORD
    lenient = ProtobufConfluent(
        message_class_name="contract.Record", descriptor_set=RECORD.descriptor_set, ignore_parse_errors=True
    )
    row = BODIES.row
    url = ""
    head: bytes | None = None

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def registry_url(cls, kdsl_registry: LocalRegistry) -> None:
        cls.url = kdsl_registry.url

    def use(self, use: Use = ALONE) -> Use:
        return Use(use.side, use.metadata, (next(TOPICS),), Registry(self.url))

    def decoder(self, row: t.Row | None = None, use: Use = ALONE) -> Decoder:
        return self.format.decoder(row or self.row, self.use(use))

    def encoder(self, row: t.Row | None = None) -> Encoder:
        return self.format.encoder(row or self.row, self.use())

    def frame(self) -> bytes:
        kind = type(self)
        if kind.head is None:
            written = self.encoder().encode(rows(self.row, BODIES.message(0)[1])).messages[0].as_py()
            kind.head = written[:6]
        assert kind.head is not None
        return kind.head

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        body, values = BODIES.message(number)
        return self.frame() + body, values

    def bad_messages(self) -> list[bytes]:
        frame, good = self.frame(), BODIES.message(7)[0]
        broken = [frame + body for body in BODIES.bad_messages()]
        unframed = [b"", b"\0", b"\1" + frame[1:] + good, b"\0\x7f\xff\xff\xff\0" + good]
        return [*unframed, frame[:5], frame[:5] + b"\x02", frame[:5] + b"\x02\x0c" + good, *broken]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        return BODIES.row_types()

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return BODIES.values(row)

    @given(st.data())
    @settings(deadline=None, max_examples=25, suppress_health_check=SUPPRESSED)  # each registers a schema
    def test_rows_of_any_type_read_back(self, data: st.DataObject) -> None:
        check_round_trip(self, data)

    def test_ignored_errors_are_not_reported(self) -> None:
        assert self.lenient is not None
        messages = [self.message(0)[0], *self.bad_messages(), self.message(1)[0]]
        decoded = self.check(self.lenient.decoder(self.row, self.use()).decode(pa.array(messages, pa.binary())))

        assert (decoded.bad, self.owners(decoded)) == ((), [0, len(messages) - 1])

    def test_the_variants_have_no_problems_and_set_every_option(self) -> None:
        variants = [
            ProtobufConfluent(url="http://r", subject="s", message_class_name="M", descriptor_file="d"),
            ProtobufConfluent(subject_name_strategy="record", auto_register=False, normalize=True, proto_file="p"),
            ProtobufConfluent(use_latest_version=True, proto_path=("a",), read_default_values=True),
            ProtobufConfluent(proto_text="x", write_null_string_literal="n", write_unknown_enum="fail"),
            ProtobufConfluent(schema_id_location="header"),
            ProtobufConfluent(
                ssl_keystore_location="/k",
                ssl_keystore_password="${env:K}",
                ssl_truststore_location="/t",
                ssl_truststore_password="${env:T}",
                basic_auth_credentials_source="USER_INFO",
                basic_auth_user_info="${env:U}",
                bearer_auth_credentials_source="STATIC_TOKEN",
                bearer_auth_token="${env:B}",
                properties={"max.retries": 1},
            ),
        ]
        changed = {key for variant in [*self.all_variants(), *variants] for key in variant.to_strings()}

        assert [problem for variant in variants for problem in variant.problems()] == []
        assert {key.replace("properties.max.retries", "properties.*") for key in changed} == option_keys(
            ProtobufConfluent
        )


class TestIndexes:
    @pytest.mark.parametrize("path", [(0,), (1,), (63,), (64,), (0, 0), (2, 300, 1)])
    def test_indexes_read_back(self, path: tuple[int, ...]) -> None:
        bodies = pa.array([encode_path(path) + b"a", encode_path(path), encode_path((5,)) + b"b"], pa.binary())
        result, bad = split_indexes(bodies)

        assert bad == ()
        assert {one.path: (one.indexes.tolist(), one.messages.to_pylist()) for one in result} == {
            path: ([0, 1], [b"a", b""]),
            (5,): ([2], [b"b"]),
        }

    @pytest.mark.parametrize("body", [b"", b"\x80", b"\x01", b"\x02", b"\x04\x02", b"\xff" * 12, b"\x02\x01", b"\x7e"])
    def test_invalid_indexes_are_reported(self, body: bytes) -> None:
        result, bad = split_indexes(pa.array([b"\0x", body, b"\x02\x02y"], pa.binary()))

        assert [one.index for one in bad] == [1]
        assert sorted(one.path for one in result) == [(0,), (1,)]

    def test_messages_of_a_source_are_found_without_a_compiler(self, folder: tuple[str, ...]) -> None:
        for path in sorted(DATA.glob("*.proto")):
            text = path.read_text()
            expected = {indices: name for name, indices in message_paths(compile_files([path]).file[-1])}
            assert message_paths_in_text(text) == expected
        assert message_paths_in_text(MAIN) == {
            (0,): "p.First",
            (1,): "p.Second",
            (1, 0): "p.Second.Inner",
            (1, 0, 0): "p.Second.Inner.Deep",
            (1, 1): "p.Second.Third",
        }


class TestWithARegistry:
    def test_what_is_written_is_registered_with_what_it_imports(
        self, registry: Registry, folder: tuple[str, ...]
    ) -> None:
        topic = next(TOPICS)
        value = {"id": 5, "pair": {"x": 1}}
        written = make_format("p.Second.Third", folder=folder).portable().encoder(THIRD, use(registry, topic))
        message = written.encode(rows(THIRD, value)).messages[0].as_py()
        latest = registry_client(registry).latest(f"{topic}-value")

        assert (latest.schema.kind, [one.name for one in latest.schema.references]) == ("PROTOBUF", ["parts.proto"])
        assert message == b"\0" + latest.id.to_bytes(4, "big") + b"\x04\x02\x02" + b"\x08\x05\x12\x02\x08\x01"

        by_id = ProtobufConfluent().decoder(THIRD, use(registry, topic))
        assert by_id.decode(pa.array([message, None], pa.binary())).rows.to_pylist() == [value]

    def test_schemas_registered_as_source_are_read_and_written(
        self, registry: Registry, folder: tuple[str, ...]
    ) -> None:
        client, topic = registry_client(registry), next(TOPICS)
        client.register(f"{topic}-parts", RegisteredSchema(PARTS, "PROTOBUF"))
        reference = SchemaReference("parts.proto", f"{topic}-parts", 1)
        number = client.register(f"{topic}-value", RegisteredSchema(MAIN, "PROTOBUF", (reference,)))
        format_ = ProtobufConfluent(message_class_name="Third", use_latest_version=True)
        value = {"id": 5, "pair": {"x": None}}
        encoded = format_.encoder(THIRD, use(registry, topic)).encode(rows(THIRD, value))

        assert encoded.messages[0].as_py()[:8] == b"\0" + number.to_bytes(4, "big") + b"\x04\x02\x02"
        for reader in (format_, ProtobufConfluent(), make_format("Third", folder=folder)):
            decoded = reader.decoder(THIRD, use(registry, topic)).decode(encoded.messages)
            assert decoded.rows.to_pylist() == [{"id": 5, "pair": {"x": 0}}]

    @pytest.mark.parametrize("ignoring", [False, True])
    def test_the_id_of_each_message_s_schema_is_returned(
        self, registry: Registry, folder: tuple[str, ...], ignoring: bool
    ) -> None:
        first = make_format("p.First", folder=folder, ignore_parse_errors=ignoring)
        row, ids = t.row(a=t.STRING), []
        messages: list[bytes | None] = []
        for text in ("x", "y"):
            other = f'syntax = "proto3"; package p; message First {{ string a = 1; int32 {text} = 2; }}'
            ids.append(registry_client(registry).register(f"{next(TOPICS)}-value", RegisteredSchema(other, "PROTOBUF")))
            messages.append(b"\0" + ids[-1].to_bytes(4, "big") + b"\0\x0a\x01" + text.encode())
        wanted = Use(metadata=("schema-id",), topics=(next(TOPICS),), registry=registry)
        for some, expected in (
            (messages, ids),
            ([*messages[:1] * 3], ids[:1] * 3),
            ([b"", None, messages[1]], ids[1:]),
        ):
            decoded = first.decoder(row, wanted).decode(pa.array(some, pa.binary()))
            assert decoded.metadata["schema-id"].to_pylist() == expected
            assert decoded.metadata["schema-id"].type == pa.int32()
            assert len(decoded.rows) == len(expected)

    def test_an_imported_file_keeps_its_version_although_newer_ones_exist(
        self, kdsl_registry: LocalRegistry, folder: tuple[str, ...]
    ) -> None:
        topic = next(TOPICS)
        (Path(folder[0]) / f"{topic}.proto").write_text(PARTS)
        text = MAIN.replace("parts.proto", f"{topic}.proto")
        client = registry_client(Registry(kdsl_registry.url))
        written = ProtobufConfluent(message_class_name="p.Second.Third", proto_text=text, proto_path=folder)
        encode = rows(THIRD, {"id": 5, "pair": {"x": 1}})
        first = written.encoder(THIRD, use(Registry(kdsl_registry.url), topic)).encode(encode)
        newer = PARTS.replace("x = 1;", "x = 1; int32 y = 2;")
        client.register(f"{topic}.proto", RegisteredSchema(newer, "PROTOBUF"))
        with Front(forward(kdsl_registry.url)) as front:
            again = written.encoder(THIRD, use(Registry(front.url), topic)).encode(encode)
            asked = [(r.method, r.path.partition("?")[0]) for r in front.requests]

        assert again.messages == first.messages
        assert [(one.name, one.version) for one in client.latest(f"{topic}-value").schema.references] == [
            (f"{topic}.proto", 1)
        ]
        assert asked == [
            ("POST", f"/subjects/{topic}.proto/versions"),
            ("POST", f"/subjects/{topic}.proto"),
            ("POST", f"/subjects/{topic}-value/versions"),
        ]

    def test_what_cannot_be_read_is_asked_for_once(
        self, kdsl_registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RegistryClient, "unknown_for", 3600.0)
        plain = registry_client(Registry(kdsl_registry.url)).register(f"{next(TOPICS)}-v", RegisteredSchema('"string"'))
        messages = [b"\0" + number.to_bytes(4, "big") + b"\0x" for number in (plain, 987_654)]
        with Front(forward(kdsl_registry.url)) as front:
            for item, bad in ((ProtobufConfluent(), [0, 1]), (AvroConfluent(), [1])):  # Avro reads a single string
                decoder = item.decoder(t.row(b=t.STRING), Use(registry=Registry(front.url, {"max.retries": 1})))
                for _ in range(3):
                    decoded = decoder.decode(pa.array(messages, pa.binary()))
                    assert [one.index for one in decoded.bad] == bad
            assert front.count(f"/schemas/ids/{plain}") == 1
            assert front.count("/schemas/ids/987654") == 1

    def test_another_message_is_reported_and_does_not_affect_others(
        self, registry: Registry, folder: tuple[str, ...]
    ) -> None:
        topic = next(TOPICS)
        third = make_format("p.Second.Third", folder=folder)
        first = make_format("p.First", folder=folder)
        good = third.encoder(THIRD, use(registry, topic)).encode(rows(THIRD, {"id": 1, "pair": None})).messages[0]
        row = t.row(a=t.STRING)
        other = first.encoder(row, use(registry, topic)).encode(rows(row, {"a": "x"})).messages[0]
        decoded = third.decoder(THIRD, use(registry)).decode(pa.array([good.as_py(), other.as_py()], pa.binary()))

        assert decoded.rows.to_pylist() == [{"id": 1, "pair": None}]
        assert [bad.index for bad in decoded.bad] == [1]
        assert "it is a message p.First" in decoded.bad[0].reason

    def test_a_registered_message_without_any_of_the_columns_is_reported(
        self, registry: Registry, folder: tuple[str, ...]
    ) -> None:
        topic = next(TOPICS)
        first, row = make_format("p.First", folder=folder), t.row(a=t.STRING)
        message = first.encoder(row, use(registry, topic)).encode(rows(row, {"a": "x"})).messages
        decoded = ProtobufConfluent().decoder(t.row(b=t.STRING), use(registry)).decode(message)

        assert "the message p.First has no field 'b'" in decoded.bad[0].reason

    def test_a_schema_of_another_kind_is_reported(self, registry: Registry) -> None:
        number = registry_client(registry).register(f"{next(TOPICS)}-value", RegisteredSchema('"string"'))
        message = b"\0" + number.to_bytes(4, "big") + b"\0x"
        decoded = ProtobufConfluent().decoder(t.row(b=t.STRING), use(registry)).decode(pa.array([message], pa.binary()))

        assert "of the kind AVRO, not a Protobuf schema" in decoded.bad[0].reason

    def test_the_latest_schema_needs_a_name_where_it_has_several_messages(
        self, registry: Registry, folder: tuple[str, ...]
    ) -> None:
        topic = next(TOPICS)
        make_format("p.First", folder=folder).encoder(t.row(a=t.STRING), use(registry, topic)).encode(
            rows(t.row(a=t.STRING), {"a": "x"})
        )
        latest = ProtobufConfluent(use_latest_version=True).encoder(t.row(a=t.STRING), use(registry, topic))
        with pytest.raises(KdslError, match=r"has several messages; set 'message-class-name' to one of p\.First"):
            latest.encode(rows(t.row(a=t.STRING), {"a": "x"}))

    def test_a_schema_without_messages_is_reported_with_what_to_do(self, registry: Registry) -> None:
        row, topic = t.row(a=t.STRING), next(TOPICS)
        client = registry_client(registry)
        schema = RegisteredSchema('syntax = "proto3"; package p; enum Kind { NONE = 0; }', "PROTOBUF")
        client.register(f"{topic}-value", schema)
        for name, message in ((None, "a message"), ("p.First", "the message p.First")):
            chosen = ProtobufConfluent(use_latest_version=True, message_class_name=name)
            advice = f"register a schema that defines {message}, or set 'subject' to the subject of one"
            assert chosen.schema_misfit(row, schema, client, "write") == f"it has no message; {advice}"
            error = rf"latest schema of the subject '{topic}-value' in the registry .* has no message; {advice}$"
            with pytest.raises(KdslError, match=error):
                chosen.encoder(row, use(registry, topic)).encode(rows(row, {"a": "x"}))

    def test_a_missing_schema_is_not_registered_without_auto_register(
        self, registry: Registry, folder: tuple[str, ...]
    ) -> None:
        strict = make_format("p.First", folder=folder, auto_register=False)
        with pytest.raises(KdslError, match="auto-register"):
            strict.encoder(t.row(a=t.STRING), use(registry)).encode(rows(t.row(a=t.STRING), {"a": "x"}))

    def test_a_registry_without_editions_is_reported(self, registry: Registry) -> None:
        confluent = ProtobufConfluent(message_class_name="contract.Record", proto_text=plain.PROTO)
        row = t.row(id=t.BigInt())
        with pytest.raises(IncompatibleSchemaError, match="uses an edition, which this registry may not support"):
            confluent.encoder(row, use(registry)).encode(rows(row, {"id": 1}))

    def test_a_schema_that_does_not_go_with_those_before_is_refused(self, registry: Registry) -> None:
        topic = next(TOPICS)
        for number, kind in ((1, "int64"), (2, "string")):
            text = f'syntax = "proto3"; message M {{ {kind} a = 1; }}'
            row = t.row(a=t.BigInt() if number == 1 else t.STRING)
            confluent = ProtobufConfluent(message_class_name="M", proto_text=text, subject=f"{topic}-s")
            encoder = confluent.encoder(row, use(registry, topic))
            if number == 1:
                encoder.encode(rows(row, {"a": 1}))
                set_compatibility(registry, f"{topic}-s")
            else:
                with pytest.raises(IncompatibleSchemaError):
                    encoder.encode(rows(row, {"a": "x"}))


def set_compatibility(registry: Registry, subject: str) -> None:
    import httpx

    answer = httpx.put(f"{registry.url}/config/{subject}", json={"compatibility": "BACKWARD"})
    assert answer.status_code == httpx.codes.OK, answer.text


VERSIONS = {
    1: "int64 id = 1;",
    2: "int64 id = 1; string name = 2;",
    3: "int32 id = 1;",
    4: "int64 id = 1; A a = 3; message A { string city = 1; }",
    5: "int64 id = 1; repeated A list = 4; map<string, A> map = 5; message A { sint32 n = 1; }",
    6: "uint32 id = 1; float ratio = 6; repeated int32 numbers = 7;",
    7: "string other = 9;",
}
NESTED = t.row(city=t.STRING, zip=t.STRING)
WIDE = t.row(n=t.BigInt(), more=t.STRING)


@pytest.fixture
def versions() -> Iterator[Front]:
    """Versions of a schema by their ids."""

    def answers(request: Request) -> tuple[int, Any]:
        number = int(request.path.partition("?")[0].rpartition("/")[2])
        return 200, {
            "schema": f'syntax = "proto3"; package p; message O {{ {VERSIONS[number]} }}',
            "schemaType": "PROTOBUF",
        }

    with Front(answers) as front:
        yield front


@pytest.mark.parametrize("copies", [1, 64])
@pytest.mark.parametrize(
    ("row", "version", "body", "result"),
    [
        (t.row(id=t.BigInt(), name=t.STRING), 1, b"\x08\x05", {"id": 5, "name": None}),
        (t.row(id=t.BigInt(), name=t.STRING), 2, b"\x08\x05\x12\x01a", {"id": 5, "name": "a"}),
        (t.row(id=t.BigInt()), 3, b"\x08" + b"\xff" * 9 + b"\x01", {"id": -1}),
        (t.row(id=t.BigInt(), a=NESTED), 4, b"\x08\5\x1a\3\x0a\1x", {"id": 5, "a": {"city": "x", "zip": None}}),
        (t.row(id=t.BigInt(), a=NESTED), 4, b"\x08\5", {"id": 5, "a": None}),
        (t.row(id=t.BigInt(), a=t.row(zip=t.STRING)), 4, b"\x08\5\x1a\3\x0a\1x", {"id": 5, "a": {"zip": None}}),
        (
            t.row(id=t.BigInt(), list=t.Array(WIDE)),
            5,
            b"\x08\5\x22\2\x08\1\x22\0\x22\2\x08\4",
            {"id": 5, "list": [{"n": n, "more": None} for n in (-1, 0, 2)]},
        ),
        (
            t.row(id=t.BigInt(), map=t.Map(t.STRING, WIDE)),
            5,
            b"\x08\5\x2a\x07\x0a\1k\x12\2\x08\3",
            {"id": 5, "map": [("k", {"n": -2, "more": None})]},
        ),
        (
            t.row(id=t.BigInt(), ratio=t.Double(), numbers=t.Array(t.BigInt())),
            6,
            b"\x08\xff\xff\xff\xff\x0f\x35\0\0\0\x3f\x3a\2\1\2",
            {"id": 4294967295, "ratio": 0.5, "numbers": [1, 2]},
        ),
        (t.row(id=t.Decimal(20, 0)), 6, b"\x08\xff\xff\xff\xff\x0f", {"id": Decimal(4294967295)}),
    ],
)
def test_messages_of_older_versions_are_read(
    row: t.Row, version: int, body: bytes, result: dict[str, Any], copies: int, versions: Front
) -> None:
    """Columns that a version lacks are NULL, and numbers are widened; one by one and as columns."""
    decoder = ProtobufConfluent().decoder(row, Use(registry=Registry(versions.url)))
    messages = [b"\0" + version.to_bytes(4, "big") + b"\0" + body] * copies

    decoded = decoder.decode(pa.array(messages, pa.binary()))

    assert decoded.bad == ()
    assert decoded.rows.type == arrow_type(row)
    assert decoded.rows.to_pylist() == [result] * copies


def test_versions_are_read_together(versions: Front) -> None:
    row = t.row(id=t.BigInt(), name=t.STRING)
    bodies = {1: b"\x08\x05", 2: b"\x08\x06\x12\x01a", 3: b"\x08\x07"}
    numbers = [1, 2, 3, 2, 1]
    messages = [b"\0" + n.to_bytes(4, "big") + b"\0" + bodies[n] for n in numbers]

    decoded = (
        ProtobufConfluent().decoder(row, Use(registry=Registry(versions.url))).decode(pa.array(messages, pa.binary()))
    )

    by_version = {1: {"id": 5, "name": None}, 2: {"id": 6, "name": "a"}, 3: {"id": 7, "name": None}}
    assert decoded.rows.to_pylist() == [by_version[n] for n in numbers]


@pytest.mark.parametrize(
    ("options", "row", "reason"),
    [
        ({}, t.row(id=t.BigInt(), name=t.VarChar(nullable=False)), "the message p.O has no field 'name'"),
        ({}, t.row(id=t.STRING), "the field p.O.id is int64, which STRING cannot hold"),
        ({}, t.row(name=t.STRING, more=t.STRING), "the message p.O has no field 'name'"),
        ({"message_class_name": "p.O"}, t.row(name=t.STRING), ""),  # the only column that is selected
    ],
)
def test_columns_that_a_version_cannot_give_are_errors(
    options: dict[str, Any], row: t.Row, reason: str, versions: Front
) -> None:
    chosen, registry = ProtobufConfluent(**options), Registry(versions.url)
    decoded = chosen.decoder(row, Use(registry=registry)).decode(pa.array([b"\0\0\0\0\1\0\x08\x05"], pa.binary()))

    assert [reason in bad.reason for bad in decoded.bad] == [True] * bool(reason)
    assert decoded.rows.to_pylist() == ([] if reason else [{"name": None}])
    schema = registry_client(registry).schema(1)
    assert reason in chosen.schema_misfit(row, schema, registry_client(registry), "read")
    assert chosen.prunable() == bool(options)


class TestPlanTimeRules:
    def problems(self, direction: Direction, **options: Any) -> list[str]:
        format_ = ProtobufConfluent(**options)
        return [p.code for p in (*format_.problems(), *format_.check(t.row(a=t.STRING), direction))]

    def test_a_sink_knows_what_it_writes(self) -> None:
        text = 'syntax = "proto3"; message M { string a = 1; }'

        assert self.problems("read") == []
        assert self.problems("write") == ["protobuf-message"]
        assert self.problems("write", message_class_name="p.First") == ["protobuf-message"]
        assert self.problems("write", use_latest_version=True) == []
        assert self.problems("write", message_class_name="M", proto_text=text) == []
        assert self.problems("write", message_class_name="M", proto_text=text, subject_name_strategy="record") == []
        assert self.problems("write", message_class_name="M", proto_text=text, use_latest_version=True) == [
            "registry-latest"
        ]
        assert self.problems("read", message_class_name="M", proto_text=text.replace("a = 1", "b = 1")) == [
            "protobuf-field"
        ]

    def test_the_descriptors_travel_and_are_shown_by_their_digest(self) -> None:
        format_ = ProtobufConfluent(message_class_name="M", proto_text='syntax = "proto3"; message M {}').portable()

        assert format_.proto_text is None
        assert base64.b64decode(str(format_.descriptor_set))
        assert format_.display_options()["descriptor-set"].startswith("sha256:")
        assert ProtobufConfluent().portable() == ProtobufConfluent()
