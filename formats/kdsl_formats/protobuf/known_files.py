"""Files that schemas import without bringing them along: those of Confluent's serializers, and Google's common types.

They are taken from installed packages: ``confluent/`` from confluent-kafka, ``google/type/`` from
googleapis-common-protos. Their modules are not imported, which would register the files in Python's pool of descriptors
for the whole process, and for confluent-kafka needs packages that reading does not; their descriptors are read from the
source instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

GOOGLE = "google/protobuf/"
"""The folder of the files that each compiler of Protobuf brings along."""
COMMON = ("google/type/", "confluent/")
KNOWN = (GOOGLE, *COMMON)
"""The folders of files that registries do not have, because readers bring them along."""
# A package, the folder in it that names of files are relative to, and the folder of the files in that.
_PACKAGES = (("confluent_kafka", "schema_registry", "confluent"), ("google", "..", "google/type"))
_SUFFIX = "_pb2.py"


@cache
def common_files() -> Mapping[str, FileDescriptorProto]:
    """The files of the folders `COMMON` by name, of the packages that are installed."""
    return dict(_read_files())


def _read_files() -> Iterator[tuple[str, FileDescriptorProto]]:
    """Yield each file with its name; modules without a descriptor are left out."""
    for package, folder, inside in _PACKAGES:
        spec = find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec is not None else ():
            root = Path(location, folder)
            for path in sorted(Path(root, inside).rglob(f"*{_SUFFIX}")):
                file = _read_descriptor(path)
                if file is not None:
                    file.name = path.relative_to(root).as_posix().removesuffix(_SUFFIX) + ".proto"
                    yield file.name, file


def _read_descriptor(path: Path) -> FileDescriptorProto | None:
    """The descriptor in a module that protoc generated; None if it has another form."""
    with suppress(OSError, SyntaxError, ValueError, DecodeError):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "AddSerializedFile"
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, bytes)
            ):
                return FileDescriptorProto.FromString(node.args[0].value)
    return None
