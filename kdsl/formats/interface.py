"""The interfaces of formats, their decoders, encoders and observers, and of their schemas in a registry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import attrs
import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.errors import Problem
from kdsl.formats.batches import (
    ALONE,
    MAX_COLUMNS,
    BadRecord,
    Decoded,
    Direction,
    Encoded,
    LocatedMessages,
    Observed,
    Side,
    TableId,
    Use,
)
from kdsl.options import Options
from kdsl.types import model as t
from kdsl.types.arrays import Indices
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient
    from kdsl.registry.model import RegisteredSchema, SubjectVersion

OnUnavailable = Literal["error", "null", "keep"]
OnTruncate = Literal["error", "skip", "apply"]


class Observer(Protocol):
    """Messages to table ids and schemas. Made once per worker and used for many batches; not shared between threads."""

    def observe(self, messages: pa.BinaryArray, known: Mapping[TableId, TableSchema]) -> Observed:
        """Look at an array of messages (null is a null message).

        Every message that is neither bad nor without a table can be read without error by the decoder of
        `Format.reading_observed` for the row type ``join_schemas(known.get(id), delta.schema).row``, and for any schema
        that is joined with more.

        Args:
            messages: Messages of one topic.
            known: The schemas of tables that are known already. They never become narrower.
        """
        ...


class Decoder(Protocol):
    """Decodes messages. Created once per worker, used for many batches, and not shared between threads."""

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode an array of messages; null is a null message.

        Messages that cannot be decoded do not raise an error: they are among the bad records of the result.

        Raises:
            KdslError: What decoding needs cannot be fetched, such as a schema from the schema registry.
        """
        ...


@runtime_checkable
class LocatingDecoder(Decoder, Protocol):
    """A decoder that reads messages faster if an observer of its format has located what it reads."""

    def decode_located(self, messages: pa.BinaryArray, located: LocatedMessages, places: Indices) -> Decoded:
        """Decode messages as `decode` does.

        Args:
            messages: The messages.
            located: What the observer knows of some of them; other messages may be among these, too.
            places: The indices of the messages among those that were observed, ascending.
        """
        ...


class Encoder(Protocol):
    """Encodes rows. Created once per worker, used for many batches, and not shared between threads."""

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows; those that cannot be encoded do not raise an error, but are bad records of the result.

        Args:
            rows: A struct array of the row type's Arrow type, without null elements.
            kinds: The kind of each row, as an index into `ROW_KINDS` (int8); None if all rows are inserts, and always
                for a format that only inserts.

        Raises:
            KdslError: What encoding needs cannot be fetched or stored, such as a schema in the schema registry.
        """
        ...


class TableChangeEncoder(Protocol):
    """Encodes the changes of one table, each as one message. Created once per task, and used for many batches."""

    @property
    def deletes_are_null(self) -> bool:
        """Whether the delete of a row is a null message (a tombstone)."""
        ...

    def encode(self, rows: pa.StructArray, before: pa.Array, after: pa.Array) -> Encoded:
        """Encode changes, one message each.

        Args:
            rows: The rows before and after the changes, in any order.
            before: For each change the index of its row before, null for an insert (int64).
            after: For each change the index of its row after, null for a delete.

        Returns:
            The messages; if rows cannot be encoded, these are bad, and the messages do not matter.
        """
        ...


class RegistrySchemas(Protocol):
    """What ``kdsl doctor`` and ``kdsl diff`` ask a format about its schemas in a registry."""

    @property
    def auto_register(self) -> bool:
        """Whether a write registers a schema that is not registered under its subject."""
        ...

    @property
    def use_latest_version(self) -> bool:
        """Whether rows are written with the latest schema of the subject instead of the table's."""
        ...

    @property
    def normalize(self) -> bool:
        """Whether the registry normalizes schemas before it compares or stores them."""
        ...

    def find_subject(self, row: t.Row, use: Use, client: RegistryClient) -> str:
        """Return the subject of the schema that a write of rows registers.

        Raises:
            KdslError: It depends on the topic, and the use has not exactly one; or on a registered schema that cannot
                be read.
            RegistryError: The registry does not answer, or refuses the request.
        """
        ...

    def sink_schema(self, row: t.Row, client: RegistryClient) -> tuple[str, RegisteredSchema]:
        """Return the full name of the record that a write of rows writes, and the schema that it registers.

        Raises:
            RegistryError: The registry lacks a referenced schema, does not answer, or refuses the request.
        """
        ...

    def schema_misfit(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient, direction: Direction) -> str:
        """Return why rows of a type cannot be read or written with a registered schema; empty if they can.

        Raises:
            RegistryError: The registry lacks a referenced schema, does not answer, or refuses the request.
        """
        ...

    def look_up(self, client: RegistryClient, subject: str, schema: RegisteredSchema, row: t.Row) -> SubjectVersion:
        """Return the version of the schema of written rows under a subject.

        Raises:
            UnknownSubjectError: It is not registered there.
            RegistryError: The registry does not answer, or refuses the request.
        """
        ...

    def find_replaced_nulls(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient) -> Mapping[str, Any]:
        """Return the defaults of nullable columns that the writer may have written in place of NULL, by column.

        Raises:
            RegistryError: The registry lacks a referenced schema, does not answer, or refuses the request.
        """
        ...


class Format(Options):
    """A format: its options, the checks at planning, its decoder and encoder.

    A subclass needs only `identifier`, `decoder` and `encoder`; everything else has a default that suits a format of
    plain rows without a schema registry. It declares options with `kdsl.options.option`, and is registered in the
    entry-point group ``kdsl.formats`` under its identifier.

    Attributes:
        identifier: The format's name.
        insert_only: Whether all rows are inserts; otherwise they may be changes (`ROW_KINDS`).
        metadata: The types of what a message contains besides its row, by key; a table shows it as ``value.<key>``.
        needs_registry: Whether messages name their schema by its id in a schema registry.
        connection: The prefixes of the options that a restarted query may change: those that only configure the
            connection to an external service, or that change with the columns.
        frame_headers: By side, the header that may name the schema of a message in place of a frame before its body;
            empty for formats whose messages name no schema.
        registered_format: The format that reads the same bodies by the schemas that messages name, in a format that
            reads all with one schema; None if messages need none.
        holds_one_value: Whether a message is the value of the only column.
        ingests: The sides of messages that a source of ingestions may have this format for; it then has an `observer`.
        emits: The sides of messages that a Kafka sink of ingestions may have this format for; that of values then has a
            `change_encoder`.
        keyed_by_primary_key: Whether the message keys of its writers have the primary keys of the tables.
        source_time: The key in `metadata` of the time of a change in the source, and the member of messages that has
            it; None if messages do not say it.

    The properties `has_inline_schemas`,  `is_lenient`, `on_unavailable` and `on_truncate` are decided by options of the
    format, which may have any names: ``skip_bad: bool = option("skip-bad", "…", default=False, decides="is_lenient")``.
    """

    identifier: ClassVar[str]
    insert_only: ClassVar[bool] = True
    metadata: ClassVar[Mapping[str, t.DataType]] = {}
    needs_registry: ClassVar[bool] = False
    connection: ClassVar[tuple[str, ...]] = ()
    frame_headers: ClassVar[Mapping[Side, str]] = {}
    registered_format: ClassVar[str | None] = None
    holds_one_value: ClassVar[bool] = False
    ingests: ClassVar[tuple[Side, ...]] = ()
    emits: ClassVar[tuple[Side, ...]] = ()
    keyed_by_primary_key: ClassVar[bool] = False
    source_time: ClassVar[tuple[str, str] | None] = None
    _deciding: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def __init_subclass__(cls) -> None:
        """Make the subclass a group of options, whose title in messages has the identifier."""
        super().__init_subclass__()
        cls.title = f"the format {getattr(cls, 'identifier', cls.__name__)!r}"
        options = ((a.metadata["decides"], a.name, a.metadata["key"]) for a in cls.declarations())
        cls._deciding = {decided: (name, key) for decided, name, key in options if decided is not None}

    @property
    def is_lenient(self) -> bool:
        """Whether messages that cannot be read produce no row, and bad values are NULL; otherwise they are errors.

        False without an option that decides it.
        """
        return bool(self._decide("is_lenient", False))

    @property
    def on_unavailable(self) -> OnUnavailable | None:
        """How values are read that the writer of a change did not have (`Decoded.unavailable`).

        ``error`` stops the read, ``null`` reads NULL, ``keep`` reads NULL and names the column in each row
        (`UNAVAILABLE`), so that targets keep their value. None, without an option that decides it, is right for formats
        whose messages have all values.
        """
        chosen: OnUnavailable | None = self._decide("on_unavailable", None)
        return chosen

    @property
    def on_truncate(self) -> OnTruncate:
        """How a message is read that empties its table: it is an error, skipped, or deletes all rows (``apply``).

        With ``apply`` the decoder reports it in `Decoded.truncates`. ``error`` without an option that decides it.
        """
        chosen: OnTruncate = self._decide("on_truncate", "error")
        return chosen

    @property
    def has_inline_schemas(self) -> bool | None:
        """Whether each message contains its schema; None, without an option that decides it, if none ever does."""
        chosen: bool | None = self._decide("has_inline_schemas", None)
        return chosen

    @property
    def names_tables(self) -> bool:
        """Whether messages name their tables (`Observed.ids`); otherwise, by default, their topic is the table."""
        return False

    @property
    def fixed_types(self) -> Mapping[str, t.DataType]:
        """The types of columns that are not inferred, by their names in messages; none by default."""
        return {}

    @property
    def tombstone(self) -> bytes | None:
        """The message value that is read as a tombstone, as if it were null; None, the default, if there is none."""
        return None

    def without_connection(self) -> Self:
        """Return the format with the defaults of the options that `connection` names: no address, and no login."""
        own: dict[str, Any] = {
            a.name: a.default for a in self.declarations() if a.metadata["key"].startswith(self.connection)
        }
        return attrs.evolve(self, **own)  # type: ignore[misc]  # each subclass is an attrs class

    def _decide(self, name: str, default: Any) -> Any:
        """Return the value of the option that decides a property; the default without one."""
        return getattr(self, self._deciding[name][0]) if name in self._deciding else default

    @classmethod
    def deciding_option(cls, name: str) -> tuple[str, str]:
        """The option that decides a property: its Python name, and its Flink key with the identifier before it.

        Args:
            name: The property, such as ``is_lenient``.

        Raises:
            KeyError: The format has no such option.
        """
        option, key = cls._deciding[name]
        return option, f"{cls.identifier}.{key}"

    @classmethod
    def column_types(cls) -> str | None:
        """The column types in Markdown, for the reference page of a format whose types depend on more than options.

        None for a format whose page needs no such section.
        """
        return None

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Yield the problems of this format with a row type and a direction, without locations; none by default.

        Options that are wrong by themselves are reported by `problems`; this method checks the columns and the
        combinations of options.
        """
        del row, direction
        return ()

    def check_use(self, row: t.Row, use: Use, direction: Direction) -> Iterable[Problem]:
        """Yield the problems of this format with the way a table uses it: its side and its topics; none by default.

        The registry is not known here; see `check_registry`.
        """
        del row, use, direction
        return ()

    def check_registry(self, registry: Registry | None) -> Iterable[Problem]:
        """Yield the problems of this format with the cluster's schema registry, or with its absence; none by default.

        It is called once the cluster is known, before anything runs. References to secrets are not resolved.
        """
        del registry
        return ()

    def registry(self, cluster_registry: Registry | None) -> Registry | None:
        """Return the schema registry that this format uses, unchecked; None if it uses none, which is the default.

        Args:
            cluster_registry: The registry of the cluster, whose login it may share.
        """
        del cluster_registry
        return None

    def prunable(self) -> bool:
        """Whether a decoder for some of the columns returns the same values for them as a decoder for all columns.

        The default is False, which is right for formats that count positions or read all columns; those that find
        columns by name return True.
        """
        return False

    def alternatives(self) -> Iterable[Format]:
        """Yield this format with other options that its messages may need; none by default.

        If a message cannot be read, they are tried in this order, and the error names the first that reads it, and
        the other messages of its batch as before. They must not lose data; one with another `tombstone` is suggested
        for messages that are this tombstone, if they delete their rows.
        """
        return ()

    def is_plausible(self, row: t.Row, messages: pa.BinaryArray, decoded: Decoded) -> bool:
        """Return whether this format, as an alternative, read what the writer of messages meant; True by default.

        A format whose options read almost any value, such as numbers of an unknown unit, says so here.

        Args:
            row: The columns.
            messages: Messages of one batch.
            decoded: What this format read.
        """
        del row, messages, decoded
        return True

    def portable(self) -> Self:
        """Return the format as a plan contains it: with the contents of files and classes of this process.

        By default that is the format itself. It is called only if `check` has found no problem; an error means that a
        file or class has changed since.
        """
        return self

    def with_defaults(self, row: t.Row, defaults: Mapping[str, Any]) -> Self:
        """Return the format with the defaults that columns have where a message lacks them; itself by default.

        It is for formats whose messages name their schema, because elsewhere a missing value is NULL.

        Args:
            row: The columns, with their names on the wire.
            defaults: The defaults by column, as values that Arrow accepts.
        """
        del row, defaults
        return self

    def display_options(self) -> Mapping[str, str]:
        """Return the options that differ from their defaults, for display; long values may be shortened or digested."""
        return self.to_strings()

    @abstractmethod
    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """Create a decoder to rows of this type, whose column names are those on the wire."""

    @abstractmethod
    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """Create an encoder of rows of this type, whose column names are those on the wire."""

    def find_form(self, message: bytes) -> str:
        """Return the form of a message: what its writer adds to the row; empty, the default, if that is nothing.

        It is stored in checkpoints, and may contain schemas, but no values of rows.
        """
        del message
        return ""

    def form_encoder(self, row: t.Row, form: str, use: Use = ALONE) -> Encoder:
        """Create an encoder of messages with a form (`find_form`), which registers no schema; by default `encoder`.

        Args:
            row: The type of the rows, whose column names are those on the wire.
            form: The form.
            use: How the table uses the format.
        """
        del form
        return self.encoder(row, use)

    def join_frames(
        self, side: Side, messages: pa.BinaryArray, frames: pa.BinaryArray
    ) -> tuple[pa.BinaryArray, tuple[BadRecord, ...]]:
        """Join messages with what the header of `frame_headers` says, to the messages that a decoder takes.

        By default, which suits a format without such a header, messages are returned as they are.

        Args:
            side: Whether they are keys or values.
            messages: The messages; null is a null message.
            frames: The header's value for each message; null for a record without it.

        Returns:
            The messages; and those whose header cannot be read, which are null.
        """
        del side, frames
        return messages, ()

    def choose_frame_header(self, side: Side) -> str | None:
        """The header that gets what names the schema of a written message (`Encoded.frame`); None if there is none."""
        del side
        return None

    def may_lack_values(self, messages: pa.BinaryArray) -> bool:
        """Whether some messages may lack values, by a look at their bytes; by default whether any message may."""
        del messages
        return self.on_unavailable is not None

    def explain_python(self, types: Sequence[t.DataType]) -> str:
        """Name what needs Python to be read and written exactly, as a noun; empty if Spark's own expressions suffice.

        They take a message as bytes, or as a string in UTF-8 (real-time mode). By default the format needs Python.

        Args:
            types: The types of the columns.
        """
        del types
        return f"the format {self.identifier!r}"

    def registry_schemas(self) -> RegistrySchemas | None:
        """What can be asked about its schemas in a registry; None, the default, for a format without such schemas."""
        return None

    def observer(self, use: Use = ALONE, *, max_columns: int = MAX_COLUMNS) -> Observer | None:
        """Return an observer, which learns tables and their columns from messages; None if the format cannot.

        Args:
            use: How the table uses the format; the observer of a message key finds no table ids in it.
            max_columns: A message that would give a table more columns than this is bad.
        """
        del use, max_columns
        return None

    def change_encoder(
        self, row: t.Row, table: TableId, keys: Sequence[str], *, with_schema: bool = False, full_table_id: bool = False
    ) -> TableChangeEncoder | None:
        """Return an encoder of the changes of one table; None, the default, if the format cannot write them.

        Args:
            row: The columns.
            table: The id of the table, which messages may name.
            keys: The primary key.
            with_schema: Whether messages contain their schema; only for formats that can (``debezium-json``).
            full_table_id: Whether messages name all parts of the id; as `with_schema`.
        """
        del row, table, keys, with_schema, full_table_id
        return None

    def reading_observed(self) -> Self:
        """Return the format whose decoder reads all that an observer of this format accepts; itself by default."""
        return self
