"""Imports that readers of Protobuf schemas bring along: Confluent's files, and Google's common types."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from kdsl.cluster import Registry
from kdsl.formats import Use
from kdsl.schemas.registry import registry_draft
from kdsl.types import model as t
from kdsl_formats.protobuf import Protobuf, ProtobufConfluent
from kdsl_formats.protobuf.known_files import COMMON, common_files
from kdsl_formats.protobuf.sources import SchemaError, compile_text, schema_of
from tests.registry.front import Front, Request

PROTO = """
syntax = "proto3";
package p;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/type/date.proto";
import "google/protobuf/timestamp.proto";
message R {
  int64 id = 1;
  confluent.type.Decimal amount = 2 [(confluent.field_meta) = { params: [ { key: "precision", value: "10" } ] }];
  google.type.Date d = 3;
  google.protobuf.Timestamp at = 4;
}
"""
# Prints the message of a schema that imports them, and the modules of their packages that this has imported.
COMPILE_ONE = """
import sys
from kdsl_formats.protobuf.sources import compile_text, schema_of

packages = ("confluent_kafka.schema_registry.confluent", "google.type")
print(schema_of("R", compile_text(sys.stdin.read())).name, [name for name in sys.modules if name.startswith(packages)])
"""
ROW = t.row(
    id=t.BigInt(),
    amount=t.row(value=t.BYTES, precision=t.Int(), scale=t.Int()),
    d=t.row(year=t.Int(), month=t.Int()),
    at=t.TimestampLtz(6),
)
BODY = b"\x08\5\x12\x08\x0a\2\x03\xb6\x10\x0a\x18\2\x1a\x07\x08\xe8\x0f\x10\1\x18\2"
RESULT: dict[str, Any] = {
    "id": 5,
    "amount": {"value": b"\x03\xb6", "precision": 10, "scale": 2},
    "d": {"year": 2024, "month": 1},
    "at": None,
}


def answers(request: Request) -> tuple[int, Any]:
    path = request.path.partition("?")[0]
    schema = {"schema": PROTO, "schemaType": "PROTOBUF"}
    return 200, schema if path.startswith("/schemas/ids/") else {"subject": "r-value", "version": 1, "id": 1, **schema}


def test_a_schema_of_a_registry_needs_no_references_for_them() -> None:
    with Front(answers) as front:
        registry = Registry(front.url)
        decoder = ProtobufConfluent().decoder(ROW, Use(registry=registry))
        decoded = decoder.decode(pa.array([b"\0\0\0\0\1\0" + BODY], pa.binary()))
        draft = registry_draft("r-value", registry)

    assert (decoded.bad, decoded.rows.to_pylist()) == ((), [RESULT])
    assert [c.name for c in draft.table.columns] == ["id", "amount", "d", "at"]


def test_files_of_the_user_may_import_them_as_well() -> None:
    format_ = Protobuf(message_class_name="R", proto_text=PROTO)

    decoded = format_.decoder(ROW).decode(pa.array([BODY], pa.binary()))

    assert (decoded.bad, decoded.rows.to_pylist()) == ((), [RESULT])


def test_descriptors_that_lack_them_are_completed() -> None:
    main = compile_text(PROTO).file[-1]

    schema = schema_of("R", FileDescriptorSet(file=[main]))

    assert schema.name == "p.R"
    assert {f.name for f in schema.message.fields} == {"id", "amount", "d", "at"}


def test_own_files_with_these_names_come_first(tmp_path: Any) -> None:
    folder = tmp_path / "google" / "type"
    folder.mkdir(parents=True)
    (folder / "date.proto").write_text('syntax = "proto3"; package google.type; message Date { string text = 1; }')
    text = 'syntax = "proto3"; import "google/type/date.proto"; message M { google.type.Date d = 1; }'

    message = schema_of("M", compile_text(text, [tmp_path])).message

    assert [f.name for f in message.fields_by_name["d"].message_type.fields] == ["text"]  # type: ignore[union-attr]


def test_a_file_that_no_package_has_is_named() -> None:
    with pytest.raises(SchemaError, match="install googleapis-common-protos, which has its imports"):
        compile_text('syntax = "proto3"; import "google/type/nothing.proto"; message M { }')


@pytest.mark.parametrize("name", sorted(common_files()))
def test_each_of_them_compiles_to_what_its_package_has(name: str) -> None:
    """They are written as .proto files for the compiler; custom options, which no reader needs, are lost."""
    files = compile_text(f'syntax = "proto3"; import "{name}"; message M {{ }}').file

    compiled = next(file for file in files if file.name == name)
    assert [m.name for m in compiled.message_type] == [m.name for m in common_files()[name].message_type]
    for ours, theirs in zip(compiled.message_type, common_files()[name].message_type, strict=True):
        assert [(f.name, f.number, f.type, f.label) for f in ours.field] == [
            (f.name, f.number, f.type, f.label) for f in theirs.field
        ]


def test_the_packages_are_not_imported() -> None:
    """Their modules would add files to the pool of descriptors of the process, where a user may have others."""
    assert {name.split("/")[0] + "/" for name in common_files()} == {"google/", "confluent/"}
    assert all(name.startswith(COMMON) for name in common_files())
    assert isinstance(common_files()["confluent/meta.proto"], FileDescriptorProto)
    done = subprocess.run(  # another process: tests of this one may have imported the packages
        [sys.executable, "-c", COMPILE_ONE], input=PROTO, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "p.R []\n"), done.stderr
