"""Finds message types in generated classes, descriptor sets, ``.proto`` files or their content.

All of them become a `Schema`: the message's name and the descriptors that it needs. A plan contains the schema, and
executors need neither the file nor the class.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kdsl.errors import KdslError, listing, nearest
from kdsl_formats.protobuf.known_files import COMMON, GOOGLE, KNOWN, common_files
from kdsl_formats.protobuf.naming import java_names, message_names
from kdsl_formats.protobuf.proto_text import proto_text

TEXT_NAME = "message.proto"
_WARNING = re.compile(r"(?i)^[IW]\d{4} |warning")
"""The lines of protoc's output that do not say what is wrong: those of its log, and warnings."""
_MAX_LISTED = 20


class SchemaError(KdslError):
    """A message type cannot be found, or its source cannot be read.

    Attributes:
        message: What is wrong.
        fix: What to do instead.
    """

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}; {fix}")
        self.message = message
        self.fix = fix


@attrs.frozen
class Schema:
    """A message type with everything that it depends on.

    Attributes:
        name: The message's full name, such as ``shop.Order``.
        files: A serialized FileDescriptorSet of the message's file and its imports, each after its own imports; equal
            for equal ``.proto`` files.
    """

    name: str
    files: bytes

    @cached_property
    def digest(self) -> str:
        """The first characters of the SHA-256 of the descriptors."""
        return sha256(self.files).hexdigest()[:12]

    @property
    def message(self) -> Descriptor:
        """The descriptor of the message."""
        return _descriptor(self.name, self.files)

    @property
    def text(self) -> str:
        """The descriptors as base64, the form of the option ``descriptor-set``."""
        return base64.b64encode(self.files).decode("ascii")


@lru_cache(maxsize=64)
def _descriptor(name: str, files: bytes) -> Descriptor:
    """The descriptor of a message in serialized files; 64 are cached, because each call builds a pool of them."""
    return pool_of(FileDescriptorSet.FromString(files)).FindMessageTypeByName(name)


def schema_of_class(kind: Any) -> Schema:
    """The schema of a generated message class."""
    descriptor = getattr(kind, "DESCRIPTOR", None)
    if not isinstance(descriptor, Descriptor):
        raise SchemaError(
            f"{kind!r} is not a class of Protobuf messages", "pass a class that protoc generated, or a message's name"
        )
    return schema_of(descriptor.full_name, _files_of(descriptor.file))


def schema_of(name: str, files: FileDescriptorSet) -> Schema:
    """The schema of a message in a set of files.

    Args:
        name: The full name (``shop.Order``), the Java name (``com.shop.Orders$Order``), or the bare name of a message
            if it is unique.
        files: The files; those that readers bring along (`known_files.KNOWN`) may be missing.
    """
    complete = _add_well_known(files)
    message_name = _find_name(name, complete.values())
    owner = next(f.name for f in complete.values() if message_name in set(message_names(f)))
    needed = FileDescriptorSet(file=[_strip_file(complete[n]) for n in _with_imports(owner, complete)])
    schema = Schema(message_name, needed.SerializeToString(deterministic=True))
    try:
        _ = schema.message
    except (TypeError, KeyError) as e:
        raise SchemaError(
            f"the descriptors of the message {message_name!r} do not fit together: {e}", "generate them again"
        ) from e
    return schema


def import_schema(name: str) -> Schema | None:
    """Import a generated class by its Python name, ``shop_pb2:Order`` or ``shop_pb2.Order``, and return its schema.

    The full name of a message that is imported already is found, too. None if there is no such class or message.
    Errors of a module that is imported are raised unchanged, unless they are ImportError, AttributeError, ValueError or
    TypeError.
    """
    module, colon, inside = name.partition(":")
    parts = name.split(".")
    candidates = (
        [(module, inside.split("."))]
        if colon
        else [(".".join(parts[:i]), parts[i:]) for i in range(len(parts) - 1, 0, -1)]
    )
    for module_name, names in candidates:
        try:
            value: Any = importlib.import_module(module_name)
            for part in names:
                value = getattr(value, part)
        except (ImportError, AttributeError, ValueError, TypeError) as e:
            if colon:
                raise SchemaError(f"{name!r} cannot be imported: {e}", "write the module and the class's name") from e
            continue
        if colon or isinstance(getattr(value, "DESCRIPTOR", None), Descriptor):
            return schema_of_class(value)
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError:
        return None
    return schema_of(name, _files_of(descriptor.file))


def read_set(data: bytes, where: str) -> FileDescriptorSet:
    """Parse a FileDescriptorSet, as ``protoc --descriptor_set_out`` writes it.

    Args:
        data: The bytes.
        where: A description of the bytes, for the message.
    """
    try:
        files = FileDescriptorSet.FromString(data)
    except DecodeError as e:
        raise SchemaError(
            f"{where} is not a descriptor set", "write one with protoc --include_imports --descriptor_set_out=FILE"
        ) from e
    if not any(file.name for file in files.file):
        raise SchemaError(
            f"{where} is an empty descriptor set", "write one with protoc --include_imports --descriptor_set_out=FILE"
        )
    return files


def read_set_text(text: str) -> FileDescriptorSet:
    """Parse a FileDescriptorSet in base64."""
    try:
        return read_set(base64.b64decode(text, validate=True), "descriptor-set")
    except (binascii.Error, ValueError) as e:
        raise SchemaError(f"descriptor-set is not base64: {e}", "write the base64 of a descriptor set") from e


def read_file(path: str) -> bytes:
    """Read the file that an option names."""
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise SchemaError(
            f"the file {path!r} cannot be read: {e.strerror or e}",
            f"write a path that exists; it is relative to {Path.cwd()}",
        ) from e


def compile_files(files: Sequence[str | Path], folders: Sequence[str | Path] = ()) -> FileDescriptorSet:
    """Compile ``.proto`` files with protoc, with comments and all imports.

    Args:
        files: The files.
        folders: The folders that are searched for imports; then the folder of each file is, and last the files that
            readers bring along (`known_files.common_files`).
    """
    for file in files:
        read_file(str(file))
    roots = list(dict.fromkeys([*map(Path, folders), *(Path(file).parent for file in files)]))
    with tempfile.TemporaryDirectory(prefix="kdsl-protoc-") as folder:
        target = Path(folder, "descriptors")
        common = Path(folder, "common")
        _write_common_files(common)
        command = [
            *_compiler(),
            *(f"--proto_path={root}" for root in (*roots, common)),
            "--include_imports",
            "--include_source_info",
            f"--descriptor_set_out={target}",
            *map(str, files),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if not _WARNING.search(line)]
            raise SchemaError(
                f"{listing([str(f) for f in files])} cannot be compiled: {' '.join(lines) or 'protoc failed'}",
                f"correct the definition, or set proto-path to the folders of its imports{_advise_package(lines)}",
            )
        return read_set(target.read_bytes(), "the output of protoc")


def _write_common_files(folder: Path) -> None:
    """Write the files that readers bring along as ``.proto`` files into a folder, which is created."""
    folder.mkdir()
    for name, text in _common_sources().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@cache
def _common_sources() -> Mapping[str, str]:
    """The content of the files that readers bring along, by name."""
    return {name: proto_text(file) for name, file in common_files().items()}


def _advise_package(lines: Sequence[str]) -> str:
    """Which package has a file that protoc does not find, as the end of advice; empty if all of `COMMON` are there."""
    packages = {"google/type/": "googleapis-common-protos", "confluent/": "a newer confluent-kafka"}
    missing = [packages[prefix] for prefix in COMMON if any(line.startswith(prefix) for line in lines)]
    return f"; or install {' and '.join(missing)}, which has its imports" if missing else ""


def compile_text(text: str, folders: Sequence[str | Path] = ()) -> FileDescriptorSet:
    """Compile the content of a ``.proto`` file (see `compile_files`)."""
    with tempfile.TemporaryDirectory(prefix="kdsl-proto-") as folder:
        path = Path(folder, TEXT_NAME)
        path.write_text(text, encoding="utf-8")
        try:
            return compile_files([path], folders)
        except SchemaError as e:
            raise SchemaError(
                e.message.replace(f"{folder}{os.sep}", "").replace(repr(TEXT_NAME), "proto-text"), e.fix
            ) from e


def pool_of(files: FileDescriptorSet) -> descriptor_pool.DescriptorPool:
    """A separate pool with the files of a set, in which imports come first."""
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _compiler() -> list[str]:
    """Return the command of grpcio-tools, or else of protoc on the PATH."""
    if find_spec("grpc_tools") is not None:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    if (protoc := shutil.which("protoc")) is not None:
        return [protoc]
    raise SchemaError(
        "there is no compiler of .proto files here",
        "install kdsl-kafka[protobuf] (grpcio-tools) or protoc, or use a class, or a descriptor-file from elsewhere",
    )


def _files_of(file: FileDescriptor) -> FileDescriptorSet:
    """A file of a pool and all its imports, each once and after its own imports."""
    files: dict[str, FileDescriptorProto] = {}

    def add(one: FileDescriptor) -> None:
        if one.name in files:
            return
        for needed in one.dependencies:
            add(needed)
        files[one.name] = FileDescriptorProto.FromString(one.serialized_pb)

    add(file)
    return FileDescriptorSet(file=files.values())


def _add_well_known(files: FileDescriptorSet) -> Mapping[str, FileDescriptorProto]:
    """Return the files by name, with those added that readers bring along if the set lacks them."""
    by_name = {file.name: file for file in files.file}
    missing = {name for file in files.file for name in file.dependency if name not in by_name}
    while missing:
        name = min(missing)
        if name in common_files():
            by_name[name] = common_files()[name]
        elif not name.startswith(GOOGLE):
            raise SchemaError(
                f"the descriptor set lacks {name!r}, which a file in it imports",
                "write the set with protoc --include_imports",
            )
        else:
            by_name[name] = _import_google_file(name)
        missing |= set(by_name[name].dependency)
        missing -= set(by_name)
    return by_name


def _import_google_file(name: str) -> FileDescriptorProto:
    """A file of ``google/protobuf/``, as Python has it; `SchemaError` if it does not have it."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        file: FileDescriptor = importlib.import_module(module).DESCRIPTOR
    except ImportError as e:
        raise SchemaError(f"there is no {name!r}, which a file imports", "add its folder to proto-path") from e
    return FileDescriptorProto.FromString(file.serialized_pb)


def _find_name(name: str, files: Collection[FileDescriptorProto]) -> str:
    """Find the full name of a message by its full name, its Java name (the first of several), or its bare name.

    Messages of files that readers bring along are found by their full names only, unless there are no other files.
    """
    own = [f for f in files if not f.name.startswith(KNOWN)] or list(files)
    names = [full for file in own for full in message_names(file)]
    every = {full for file in files for full in message_names(file)}
    if name in every:
        return name
    java = [full for file in own for spelled, full in java_names(file) if spelled == name.replace("$", ".")]
    if java:
        return java[0]
    bare = [full for full in names if full.rpartition(".")[2] == name]
    if len(bare) == 1:
        return bare[0]
    if bare:
        raise SchemaError(f"several messages have the name {name!r}: {listing(bare)}", "write the full name of one")
    known = listing(names[:_MAX_LISTED]) + (f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else "")
    by_bare = {full.rpartition(".")[2]: full for full in names}
    bare_name = name.replace("$", ".").rpartition(".")[2]
    close = nearest(name, names) or nearest(bare_name, by_bare)
    for one, full in by_bare.items():
        close = close.replace(repr(one), repr(full))
    raise SchemaError(f"there is no message {name!r}{close}", f"write the name of one that exists: {known or 'none'}")


def _with_imports(name: str, files: Mapping[str, FileDescriptorProto]) -> list[str]:
    """The names of a file's direct and indirect imports, each once and after its own imports, and then its own name.

    All of them are keys of `files`.
    """
    names: dict[str, None] = {}

    def add(one: str) -> None:
        if one not in names:
            for needed in files[one].dependency:
                add(needed)
            names[one] = None

    add(name)
    return list(names)


def _strip_file(file: FileDescriptorProto) -> FileDescriptorProto:
    """A copy of the file without parts that no message needs: comments and services."""
    bare_file = FileDescriptorProto()
    bare_file.CopyFrom(file)
    for name in ("source_code_info", "service"):
        bare_file.ClearField(name)
    return bare_file
