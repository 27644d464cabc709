"""What a format is, and the registry that finds one by name.

A format turns message bytes into rows and back. It is a group of options (typed constructor, Flink keys) that makes a
`Decoder` and an `Encoder` for a row type; both work on whole Arrow arrays. The formats themselves are plug-ins of the
entry-point group ``kdsl.formats``; kdsl's own live in the package ``kdsl_formats``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Literal, Protocol

import attrs
import pyarrow as pa

from kdsl.errors import KdslError, Problem, listing, nearest
from kdsl.options import Options
from kdsl.types import model as t

Direction = Literal["read", "write"]
GROUP = "kdsl.formats"
BUILT_IN = {"csv": "kdsl_formats.csv:Csv", "json": "kdsl_formats.json:Json", "raw": "kdsl_formats.raw:Raw"}


@attrs.frozen
class BadRecord:
    """A message that a decoder could not read, or a row that an encoder could not write.

    Attributes:
        index: Its place in the array that was given, from 0.
        reason: Why, in a sentence without the record's place (the caller knows topic, partition and offset).
    """

    index: int
    reason: str


@attrs.frozen(eq=False)
class Decoded:
    """What a decoder made of an array of messages.

    Attributes:
        rows: A struct array of exactly the row type's Arrow type, one element per row, none of them null.
        messages: For each row the index of its message, ascending (int32 or int64); None when there is one row per
            message, in their order.
        bad: The messages that failed; they give no rows.
    """

    rows: pa.StructArray
    messages: pa.Array | None = None
    bad: tuple[BadRecord, ...] = ()


@attrs.frozen(eq=False)
class Encoded:
    """What an encoder made of a struct array of rows.

    Attributes:
        messages: A binary array, one element per row; null is a null message (a tombstone, or no key).
        bad: The rows that failed; their messages are null.
    """

    messages: pa.BinaryArray
    bad: tuple[BadRecord, ...] = ()


class Decoder(Protocol):
    """Message bytes to rows. Made once per worker and used for many batches; not shared between threads."""

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages (null is a null message)."""
        ...


class Encoder(Protocol):
    """Rows to message bytes. Made once per worker and used for many batches; not shared between threads."""

    def encode(self, rows: pa.StructArray) -> Encoded:
        """Write a struct array of the row type's Arrow type (no element of which is null)."""
        ...


class Format(Options):
    """A format: its options, its plan-time rules, its decoder and encoder.

    A subclass declares options with `kdsl.options.option` and is registered in the entry-point group ``kdsl.formats``
    under its identifier.
    """

    identifier: ClassVar[str]
    insert_only: ClassVar[bool] = True
    metadata: ClassVar[Mapping[str, t.DataType]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = f"the format {getattr(cls, 'identifier', cls.__name__)!r}"

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """The problems of this format with a row type and a direction, each without its place.

        Options that are wrong by themselves are told by `problems`; this tells what concerns the columns and the
        combinations of options.
        """
        del row, direction
        return ()

    def prunable(self) -> bool:
        """Whether a decoder for some of the columns gives for them what one for all columns gives.

        So for formats that find columns by name; not for those that count positions or look at all of them.
        """
        return False

    @abstractmethod
    def decoder(self, row: t.Row) -> Decoder:
        """A decoder that makes rows of this type; the names are those on the wire."""

    @abstractmethod
    def encoder(self, row: t.Row) -> Encoder:
        """An encoder for rows of this type; the names are those on the wire."""


class UnknownFormatError(KdslError):
    """No format has this name, or its package cannot be imported."""


@cache
def _registered() -> dict[str, EntryPoint]:
    found = {name: EntryPoint(name, target, GROUP) for name, target in BUILT_IN.items()}
    for point in entry_points(group=GROUP):
        if point.name in found and found[point.name].value != point.value:
            raise KdslError(
                f"two packages register the format {point.name!r}: {found[point.name].value} and {point.value}; "
                "uninstall one of them"
            )
        found[point.name] = point
    return found


def format_names() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    return tuple(sorted(_registered()))


@cache
def format_class(identifier: str) -> type[Format]:
    """The format of a name.

    Raises:
        UnknownFormatError: There is none of that name, or its package fails to import.
    """
    point = _registered().get(identifier)
    if point is None:
        names = format_names()
        raise UnknownFormatError(
            f"there is no format {identifier!r}{nearest(identifier, names)}; there are {listing(names)}"
        )
    try:
        loaded: Any = point.load()
    except (ImportError, AttributeError) as e:
        raise UnknownFormatError(f"the format {identifier!r} ({point.value}) cannot be imported: {e}") from e
    if not (isinstance(loaded, type) and issubclass(loaded, Format)):
        raise UnknownFormatError(f"the format {identifier!r} ({point.value}) is no subclass of kdsl.Format")
    return loaded
