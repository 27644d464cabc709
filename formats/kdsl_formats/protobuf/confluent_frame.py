"""The message indexes between Confluent's frame and a Protobuf message, which name the message in its schema file.

A message is named by its path in the file: the index of the outermost message, of the message inside it, and so on. The
indexes are varints with their count before them; a single zero byte is the first message of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from kdsl.formats import BadRecord
from kdsl_formats._columns.arrays import Integers, Mask, slices
from kdsl_formats._columns.varints import unzigzag, varint_sizes, write_varints, zigzag
from kdsl_formats.protobuf.wire import MessageBuffer

Path = tuple[int, ...]
FIRST: Path = (0,)
DEEPEST = 32
_WORD = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_][\w.]*|[{};]|[^\s]""", re.DOTALL
)


@attrs.frozen(eq=False)
class Framed:
    """Messages of one type, without their indexes.

    Attributes:
        path: The path of the message type.
        indexes: The indices of the messages in the array that was split, ascending.
        messages: The messages.
    """

    path: Path
    indexes: Integers
    messages: pa.BinaryArray


def split_indexes(bodies: pa.BinaryArray) -> tuple[list[Framed], tuple[BadRecord, ...]]:
    """Split bodies, which are not null, into message indexes and messages.

    Returns:
        The messages grouped by path, and the bodies whose indexes cannot be read.
    """
    buffer, start, end = MessageBuffer.of(bodies)
    everywhere = np.arange(len(bodies), dtype=np.int64)
    if len(bodies) and bool((end > start).all()) and not buffer.data.take(start).any():
        return [Framed(FIRST, everywhere, slices(buffer.data, start + 1, end, None, pa.binary()))], ()
    levels, cursor, wrong = _read_indexes(buffer, start, end)
    framed = []
    for path, where in _group_by_path(levels, np.flatnonzero(~wrong)):
        framed.append(Framed(path, where, slices(buffer.data, cursor[where], end[where], None, pa.binary())))
    bad = tuple(
        BadRecord(int(i), "the indexes after the frame, which name the message, cannot be read")
        for i in np.flatnonzero(wrong)
    )
    return framed, bad


def _read_indexes(buffer: MessageBuffer, start: Integers, end: Integers) -> tuple[Integers, Integers, Mask]:
    """The indexes of each body (padded with -1), the start of its message, and which bodies cannot be read."""
    counts, size, bad = buffer.varints(start)
    deep = unzigzag(counts).view(np.int64)
    cursor = start + size
    wrong = (cursor > end) | (deep < 0) | (deep > DEEPEST)
    if bad is not None:
        wrong |= bad
    deep = np.where(wrong, 0, deep)
    levels = np.full((len(start), max(int(deep.max()) if len(deep) else 0, 1)), -1, dtype=np.int64)
    levels[deep == 0, 0] = 0
    for level in range(levels.shape[1]):
        which = np.flatnonzero((deep > level) & ~wrong)
        numbers, size, bad = buffer.varints(cursor[which])
        cursor[which] += size
        levels[which, level] = values = unzigzag(numbers).view(np.int64)
        wrong[which] |= (cursor[which] > end[which]) | (values < 0)
        if bad is not None:
            wrong[which] |= bad
    return levels, np.minimum(cursor, end), wrong


def _group_by_path(levels: Integers, which: Integers) -> Iterator[tuple[Path, Integers]]:
    """Group some bodies by path: yields each path with the indices of its bodies."""
    kinds, kind = np.unique(levels[which], axis=0, return_inverse=True)
    for i, path in enumerate(kinds.tolist()):
        yield tuple(n for n in path if n >= 0), which[kind.reshape(-1) == i]


def encode_path(path: Sequence[int]) -> bytes:
    """Encode a path as message indexes."""
    if tuple(path) == FIRST:
        return b"\0"
    numbers = zigzag(np.array([len(path), *path], dtype=np.int64))
    sizes = varint_sizes(numbers)
    ends = np.cumsum(sizes)
    target = np.zeros(int(ends[-1]), dtype=np.uint8)
    write_varints(target, ends - sizes, numbers, sizes)
    return target.tobytes()


def path_of(file: FileDescriptorProto, name: str) -> Path:
    """The path of a message, given by its full name, in the file that contains it."""
    return next(path for full, path in message_paths(file) if full == name)


def message_paths(file: FileDescriptorProto) -> Iterator[tuple[str, Path]]:
    """The full names of a file's messages with their paths, as Confluent's serializers count them.

    The entries of maps and the messages of groups, and what is inside these, are left out and not counted: the numbers
    in the paths are not always the indices in the descriptor.
    """

    def inside(messages: Sequence[DescriptorProto], prefix: str, outer: Path) -> Iterator[tuple[str, Path]]:
        for i, message in enumerate(messages):
            name = prefix + message.name
            groups = {f.type_name for f in message.field if f.type == FieldDescriptorProto.TYPE_GROUP}
            nested = [m for m in message.nested_type if not (m.options.map_entry or f".{name}.{m.name}" in groups)]
            yield name, (*outer, i)
            yield from inside(nested, f"{name}.", (*outer, i))

    yield from inside(file.message_type, f"{file.package}." if file.package else "", ())


def message_paths_in_text(text: str) -> dict[Path, str]:
    """The full names of the messages in a ``.proto`` text by their paths (see `message_paths`).

    The text is read without a compiler, and not checked; what is not a message is skipped.
    """
    package = ""
    names_found: dict[Path, str] = {}
    blocks: list[tuple[Path, str] | None] = []  # the message of each open brace; None for other blocks
    counts: dict[Path, int] = {}
    words = [word for word in _WORD.findall(text) if not word.startswith(("//", "/*"))]
    begins = True  # whether a statement begins here
    for i, word in enumerate(words):
        following = words[i + 1 : i + 3]
        if word == "package" and begins and not blocks and following:
            package = following[0]
        elif word == "{":
            before = words[i - 2 : i]
            outer = next((block for block in reversed(blocks) if block is not None), ((), ""))
            direct = not blocks or blocks[-1] is not None
            if len(before) == 2 and before[0] == "message" and direct and _begins_statement(words, i - 2):
                path = (*outer[0], counts.get(outer[0], 0))
                counts[outer[0]] = path[-1] + 1
                name = f"{outer[1]}.{before[1]}" if outer[1] else before[1]
                names_found[path] = name
                blocks.append((path, name))
            else:
                blocks.append(None)
        elif word == "}" and blocks:
            blocks.pop()
        begins = word in "{};"
    return {path: f"{package}.{name}" if package else name for path, name in names_found.items()}


def _begins_statement(words: list[str], i: int) -> bool:
    """Whether a statement begins with the word at an index."""
    return i == 0 or words[i - 1] in ("{", "}", ";")
