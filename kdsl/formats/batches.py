"""What formats get and return: how a table uses them, batches of rows and messages, and what messages show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, Protocol

import attrs
import pyarrow as pa

from kdsl import own_columns
from kdsl.cluster import Registry
from kdsl.shown_values import reveal_values
from kdsl.types.arrays import Indices
from kdsl.types.widening import TableSchema

Direction = Literal["read", "write"]
Side = Literal["key", "value"]
READ_ONLY: Final = "format-read-only"
"""The code of a problem of a format that can read a table with its options, but not write it."""

SCHEMA_HEADERS: Final[Mapping[Side, str]] = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""The headers that name the schemas of keys and values in a registry, as Confluent's serializers write them."""
ROW_KIND = "_row_kind"
"""The first column of a changelog's DataFrame."""
UNAVAILABLE = "_unavailable"
"""The last column of a changelog's DataFrame if its format has ``unavailable='keep'``: for each row, the names of the
columns whose values the writer of the change did not have."""
RowKind = Literal["+I", "-U", "+U", "-D"]
ROW_KINDS: Final[tuple[RowKind, ...]] = ("+I", "-U", "+U", "-D")
"""The row kinds, in the order of the numbers that formats use: a new row, the row before an update, the row after it, a
deleted row."""


def kind_column(names: Collection[str]) -> str:
    """The name of the column with the row kind, if rows have one: that of an ingestion's rows, or `ROW_KIND`.

    Args:
        names: The columns of the rows.
    """
    return own_columns.KIND if own_columns.KIND in names else ROW_KIND


def unavailable_column(names: Collection[str]) -> str:
    """The name of the column that lists columns without a value, if rows have one; as `kind_column`.

    Args:
        names: The columns of the rows, with that of the row kind.
    """
    return own_columns.UNAVAILABLE if own_columns.KIND in names else UNAVAILABLE


STATE_HAS_ROWS: Final = (
    ", or declare the primary key and the table option cdc-events-duplicate (cdc_events_duplicate=True), which takes "
    "the before-image from state"
)
"""The end of a decoder's error for an update without its before-image."""
SINK_HAS_ROWS: Final = (
    ", or write an ingestion's rows to a table with a primary key in Delta Lake or a database, without a filter and "
    "SOFT_DELETE, which needs no row before an update"
)
"""As `STATE_HAS_ROWS`, for tables whose columns are inferred from messages."""


@attrs.frozen
class Use:
    """How a table uses a format: everything a decoder or encoder needs besides the options and the columns.

    Attributes:
        side: Whether it is the format of the message key or of the message value.
        metadata: The keys of the format's metadata that the table reads (without ``value.``).
        topics: The topics that the table names; empty if it has a pattern.
        registry: The schema registry of the cluster, including its secrets.
        keyed: The names on the wire of the primary key, if the table is read by key; otherwise empty. Updates and
            deletes then need no before-image, and of a before-image or a deleted row only the key columns are used.
        count_undeclared: Whether a decoder of rows counts the values of columns that the table does not declare, as
            decoders of changes always do (`Decoded.undeclared`).
    """

    side: Side = "value"
    metadata: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    registry: Registry | None = None
    keyed: tuple[str, ...] = ()
    count_undeclared: bool = False


ALONE: Final = Use()


@attrs.frozen
class BadRecord:
    """A message that a decoder could not read, or a row that an encoder could not write.

    Attributes:
        index: Its index in the input array, from 0.
        marked_reason: Why it failed, as a sentence that does not name the record; the caller adds topic, partition and
            offset. Values of the record, also names and keys that only the record has, are marked by
            `kdsl.shown_values.show_value`, so that dead letters can leave them out. The argument is named ``reason``.
    """

    index: int
    marked_reason: str = attrs.field(alias="reason", eq=reveal_values)

    @property
    def reason(self) -> str:
        """Why it failed, with values of the record."""
        return reveal_values(self.marked_reason)


@attrs.frozen(eq=False)
class Decoded:
    """The result of decoding an array of messages.

    Attributes:
        rows: A struct array of exactly the row type's Arrow type, with one element per row, none of them null.
        messages: The index of the message of each row, ascending (int32 or int64); None if each message produced
            exactly one row.
        bad: The messages that failed; they produce no rows.
        kinds: The kind of each row, as an index into `ROW_KINDS` (int8); None if all rows are inserts.
        metadata: The values of each key of `Use.metadata`, one per row, with the Arrow type that `Format.metadata`
            declares.
        infinite: How many values in the rows are NULL because they are infinite, which their types cannot represent.
        unavailable: By column name, a boolean mask (without nulls) of the rows whose value the writer of the change did
            not have; these rows have NULL. Columns without such rows are left out.
        undeclared: The columns that messages contain but the row type does not, with the minimum number of times each
            was seen. Only change data formats report them.
        lossy: By column name, how many integers in the messages lost digits in an inferred DOUBLE column. Columns
            without such integers are left out.
        truncates: The ascending indices of the messages that empty the table; they produce no rows. Reported only for
            tables that are read by key (`Use.keyed`).
    """

    rows: pa.StructArray
    messages: pa.Array | None = None
    bad: tuple[BadRecord, ...] = ()
    kinds: pa.Array | None = None
    metadata: Mapping[str, pa.Array] = attrs.field(factory=dict)
    infinite: int = 0
    unavailable: Mapping[str, pa.BooleanArray] = attrs.field(factory=dict)
    undeclared: Mapping[str, int] = attrs.field(factory=dict)
    truncates: tuple[int, ...] = ()
    lossy: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class Encoded:
    """The result of encoding a struct array of rows.

    Attributes:
        messages: A binary array with one element per row; null is a null message (a tombstone, or no key).
        bad: The rows that failed; their messages are null.
        frame: What names the schema of the messages that are not null, if it belongs in the header
            `Format.choose_frame_header` instead of before them; None in formats without such a header.
    """

    messages: pa.BinaryArray
    bad: tuple[BadRecord, ...] = ()
    frame: bytes | None = None


TableId = tuple[str, ...]
"""The names of an upstream table, from the outermost in: of a table, or of a database and a table, or of a database, a
schema and a table. It is empty where messages name no table, and their topic is the table."""
MAX_COLUMNS: Final = 2000
"""How many columns a table may get by observation, unless the caller says otherwise."""


@attrs.frozen
class SchemaDelta:
    """What observed messages show of one table beyond the schema that was known.

    Attributes:
        table: The table.
        schema: The known schema joined with what the messages show (`kdsl.types.widening.join_schemas`). Columns that
            are new come last, in the order in which the messages show them.
        first: For each column that is new, or has another type than in the known schema, the index of the first
            message that shows it.
    """

    table: TableId
    schema: TableSchema
    first: Mapping[str, int]


class LocatedMessages(Protocol):
    """Messages of one table in which an observer has located what its format reads."""

    @property
    def messages(self) -> Indices:
        """The indices of the messages among those that were observed, ascending."""
        ...


@attrs.frozen(eq=False)
class Observed:
    """What an observer found in an array of messages.

    Attributes:
        ids: The tables whose rows the messages hold, in the order in which they first occur.
        tables: For each message the index of its table in `ids` (int32). NULL for a message without rows of a table:
            tombstones, messages that options leave out, messages about something else than rows, and bad ones.
        deltas: What the messages show beyond the known schemas, by table in the order of `ids`; empty in the steady
            state. A table whose messages show no column yet (``{}``, or only nulls) has none.
        bad: The messages that cannot be read, or do not fit what the options say about columns; they show nothing.
            Ascending by index.
        located: What the observer knows of messages of some tables, for decoders of its format. It is valid until the
            observer is used again.
    """

    ids: tuple[TableId, ...]
    tables: pa.Int32Array
    deltas: tuple[SchemaDelta, ...] = ()
    bad: tuple[BadRecord, ...] = ()
    located: Mapping[TableId, LocatedMessages] = attrs.field(factory=dict)
