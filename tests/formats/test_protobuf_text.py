"""Descriptors as the text of ``.proto`` files: compiled again they are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from kdsl_formats.protobuf.proto_text import proto_text
from kdsl_formats.protobuf.sources import compile_files, compile_text
from tests.formats.protobuf_messages import HEADS, everything

DATA = Path(__file__).parent / "data" / "protobuf"
ODD = r"""
syntax = "proto2";
package odd.names;
import public "google/protobuf/duration.proto";
option java_package = "com.\"odd\"";
option optimize_for = CODE_SIZE;
message Odd {
  option deprecated = true;
  reserved 5, 7 to 9, 1000 to max;
  reserved "gone", "away";
  optional string text = 1 [default = "a\"\\\n\303\251", deprecated = true];
  optional bytes data = 2 [default = "\001\377\"\\"];
  optional double big = 3 [default = inf];
  optional float small = 4 [default = -1.5];
  optional .odd.names.Odd.Kind kind = 6 [default = TWO, json_name = "sort"];
  repeated int32 packed_numbers = 10 [packed = true];
  required group Item = 11 { optional int32 x = 1; message Deep { optional Odd odd = 1; } }
  oneof either { int32 a = 12; group Both = 13 { optional int32 y = 1; } }
  map<int32, Odd> others = 14;
  enum Kind {
    option allow_alias = true;
    ONE = 1; TWO = 2; ZWEI = 2 [deprecated = true]; reserved 4 to max; reserved "X";
  }
  extensions 100 to 199;
}
extend Odd { optional int32 more = 100; }
"""


def bare(file: FileDescriptorProto) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    proto.CopyFrom(file)
    proto.ClearField("source_code_info")
    proto.name = ""
    return proto


def files() -> dict[str, FileDescriptorProto]:
    results = {path.stem: compile_files([path]).file[-1] for path in sorted(DATA.glob("*.proto"))}
    results |= {syntax: FileDescriptorSet.FromString(everything(syntax).files).file[-1] for syntax in HEADS}
    return {**results, "odd": compile_text(ODD).file[-1]}


@pytest.mark.parametrize("name", ["three", "two", *HEADS, "odd"])
def test_the_source_compiles_to_the_same_descriptor(name: str) -> None:
    file = files()[name]

    assert bare(compile_text(proto_text(file)).file[-1]) == bare(file)
