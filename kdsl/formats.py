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
from typing import Any, ClassVar, Final, Literal, Protocol, Self

import attrs
import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.errors import KdslError, Problem, listing, nearest
from kdsl.options import Options
from kdsl.types import model as t

Direction = Literal["read", "write"]
Side = Literal["key", "value"]
GROUP = "kdsl.formats"
BUILT_IN = {
    "avro": "kdsl_formats.avro:Avro",
    "avro-confluent": "kdsl_formats.avro_confluent:AvroConfluent",
    "canal-json": "kdsl_formats.cdc_json:CanalJson",
    "csv": "kdsl_formats.csv:Csv",
    "debezium-avro-confluent": "kdsl_formats.debezium_avro_confluent:DebeziumAvroConfluent",
    "debezium-json": "kdsl_formats.cdc_json:DebeziumJson",
    "json": "kdsl_formats.json:Json",
    "maxwell-json": "kdsl_formats.cdc_json:MaxwellJson",
    "ogg-json": "kdsl_formats.cdc_json:OggJson",
    "protobuf": "kdsl_formats.protobuf:Protobuf",
    "protobuf-confluent": "kdsl_formats.protobuf:ProtobufConfluent",
    "raw": "kdsl_formats.raw:Raw",
}

ROW_KIND = "_row_kind"
"""The first column of a changelog's DataFrame."""
RowKind = Literal["+I", "-U", "+U", "-D"]
ROW_KINDS: Final[tuple[RowKind, ...]] = ("+I", "-U", "+U", "-D")
"""What a row of a changelog says, in the order of the numbers by which formats name it: a row that is new, a row as it
was before a change and after it, a row that is gone."""


@attrs.frozen
class Use:
    """How a table uses a format: what a decoder or an encoder needs to know besides its options and columns.

    Attributes:
        side: Whether it is the format of the message key or of the message value.
        metadata: The format's metadata that is wanted, by its keys (without ``value.``).
        topics: The topics that the table names; none where it has a pattern.
        registry: The schema registry of the cluster, secrets and all.
    """

    side: Side = "value"
    metadata: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    registry: Registry | None = None


ALONE: Final = Use()


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
        kinds: For each row what it says, as a place in `ROW_KINDS` (int8); None where each row is new.
        metadata: For each key of `Use.metadata` its values, one per row, of the Arrow type that `Format.metadata` says.
    """

    rows: pa.StructArray
    messages: pa.Array | None = None
    bad: tuple[BadRecord, ...] = ()
    kinds: pa.Array | None = None
    metadata: Mapping[str, pa.Array] = attrs.field(factory=dict)


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

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write rows.

        Args:
            rows: A struct array of the row type's Arrow type, no element of which is null.
            kinds: For each row what it says, as a place in `ROW_KINDS` (int8); None where each row is new, and always
                for a format that only inserts.
        """
        ...


class Format(Options):
    """A format: its options, its plan-time rules, its decoder and encoder.

    A subclass declares options with `kdsl.options.option` and is registered in the entry-point group ``kdsl.formats``
    under its identifier.

    Attributes:
        identifier: The format's name.
        insert_only: Whether every row is new; otherwise rows may be changes (`ROW_KINDS`).
        metadata: What a message says beside its row, by key, and of what type; a table shows it as ``value.<key>``.
        needs_registry: Whether messages name their schema by its id in a schema registry.
        connection: How the keys of the options begin that only say how something outside is reached; a query may go
            on with others.
    """

    identifier: ClassVar[str]
    insert_only: ClassVar[bool] = True
    metadata: ClassVar[Mapping[str, t.DataType]] = {}
    needs_registry: ClassVar[bool] = False
    connection: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = f"the format {getattr(cls, 'identifier', cls.__name__)!r}"

    @classmethod
    def column_types(cls) -> str | None:
        """The column types in Markdown, for the reference page of a format whose types hang on more than options."""
        return None

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """The problems of this format with a row type and a direction, each without its place.

        Options that are wrong by themselves are told by `problems`; this tells what concerns the columns and the
        combinations of options.
        """
        del row, direction
        return ()

    def check_use(self, row: t.Row, use: Use, direction: Direction) -> Iterable[Problem]:
        """The problems of this format with how a table uses it: its side and its topics.

        The registry is not known here; see `check_registry`.
        """
        del row, use, direction
        return ()

    def check_registry(self, registry: Registry | None) -> Iterable[Problem]:
        """The problems of this format with the cluster's schema registry, or with there being none.

        Told when the cluster is known, before anything runs. References to secrets are not resolved.
        """
        del registry
        return ()

    def registry(self, given: Registry | None) -> Registry | None:
        """The schema registry that this format asks; None where it asks none.

        Args:
            given: That of the cluster, whose login it may share.
        """
        del given
        return None

    def prunable(self) -> bool:
        """Whether a decoder for some of the columns gives for them what one for all columns gives.

        So for formats that find columns by name; not for those that count positions or look at all of them.
        """
        return False

    def portable(self) -> Self:
        """The format as it travels: what it reads from files or classes of this process is inside it.

        A plan holds this one. Only asked of a format that `check` has nothing against.
        """
        return self

    def shown_options(self) -> Mapping[str, str]:
        """The options that differ from their defaults, for people; what is long may be cut or told by its digest."""
        return self.to_strings()

    @abstractmethod
    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder that makes rows of this type; the names are those on the wire."""

    @abstractmethod
    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
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
