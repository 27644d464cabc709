"""The reference observer: what messages show about tables and their columns, one message at a time.

It defines what the fast observer of `observer` finds. A value is accepted only if the reference decoder reads it with
the type that it shows, or with the known type that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import BadRecord, Observed, SchemaDelta, TableId
from kdsl.shown_values import quote_value, show_value
from kdsl.types import model as t
from kdsl.types.strings import numbers
from kdsl.types.widening import TableSchema, holds, join
from kdsl_formats._columns.arrays import Indices
from kdsl_formats._connect.by_schema import NO_SCHEMA
from kdsl_formats._connect.messages import Heads
from kdsl_formats._connect.schemas import SchemaTable, table_of_schema
from kdsl_formats._connect.wires import NO_MODES, Modes, wire_of
from kdsl_formats._text.inferred import type_of_text
from kdsl_formats.json.document import Empty, Fractional, Integer, parse_only
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.flattening import flatten_members
from kdsl_formats.json.inference import InferenceRules
from kdsl_formats.json.reference_decoder import PAYLOAD, ReadingRules, ReferenceDecoder

LONG = 1 << 63
_MAX_SCHEMAS = 64
NO_TABLE = -1
_BIGINT, _DOUBLE, _WIDE = t.BigInt(), t.Double(), t.Decimal(t.MAX_DECIMAL, 0)
_NESTED = (t.Array, t.Map, t.Multiset, t.Row)


@attrs.frozen
class Shown:
    """What one message shows.

    Attributes:
        table: The table.
        rows: Rows of the table, whole or in part: values by the names of columns.
        types: The types of columns, where the message says them; it says those of all its columns then.
        primary_key: The names of the key columns, where the message says them.
        keyed_rows: How many of the rows, the first ones, must have a primary key.
        schema: The table of the schema that the message holds, by which it is read; None of other messages.
    """

    table: TableId
    rows: Sequence[Mapping[str, Any]]
    types: Mapping[str, t.DataType] | None = None
    primary_key: tuple[str, ...] = ()
    keyed_rows: int = 0
    schema: SchemaTable | None = None


class TableGrowth:
    """The columns of a table, as they grow in one batch.

    Messages may be added in any order, as long as `in_any_order` stays true.

    Attributes:
        known: The schema that was known before the batch.
        known_types: The types of its columns, by name.
        types: The types of all columns, by name.
        first: For each column that is not as it was known: the index of the first message that showed it, and the
            column's index in what that message shows.
        primary_key: The names of the key columns.
        in_any_order: Whether the result is the same for every order of the messages.
    """

    def __init__(self, known: TableSchema | None) -> None:
        self.known = known
        self.known_types = {} if known is None else {f.name: f.type for f in known.columns}
        self.types: dict[str, t.DataType] = dict(self.known_types)
        self.first: dict[str, tuple[int, int]] = {}
        self.primary_key = () if known is None else known.primary_key
        self.in_any_order = True

    @property
    def known_key(self) -> tuple[str, ...]:
        """The names of the key columns that were known before the batch."""
        return () if self.known is None else self.known.primary_key

    def widen(self, index: int, shown: Mapping[str, t.DataType], primary_key: tuple[str, ...]) -> None:
        """Add what one message shows, in place; types that the known columns hold change nothing.

        New columns are nullable, but those of the key of a new table are not. Of different keys the first one stays.
        `in_any_order` is cleared if the result depends on which message came first.

        Args:
            index: The index of the message.
            shown: The types that it shows, by column.
            primary_key: The names of the key columns that it says; empty if it does not.
        """
        if self.first and primary_key != self.primary_key and self.primary_key != self.known_key:
            self.in_any_order = False
        if self.first and primary_key and not self.primary_key:
            self.in_any_order = False
        self.primary_key = self.primary_key or primary_key
        for order, (name, kind) in enumerate(shown.items()):
            known = self.known_types.get(name)
            if known is None:
                kind = kind.as_nullable(name not in self.primary_key or self.known is not None)
            elif holds(known, kind):
                continue
            else:
                kind = kind.as_nullable(known.nullable)
            before = self.types.get(name)
            self.types[name] = kind if before is None else join(before, kind)
            self.first[name] = min(self.first.get(name, (index, order)), (index, order))

    def delta(self, table: TableId) -> SchemaDelta | None:
        """The schema of the table with all that is new; None where nothing goes beyond the known schema."""
        if not self.first and self.primary_key == self.known_key:
            return None
        fields = {} if self.known is None else {f.name: f for f in self.known.columns}
        first = sorted(self.first.items(), key=lambda item: item[1])
        columns = [attrs.evolve(field, type=self.types[name]) for name, field in fields.items()]
        columns += [t.Field(name, self.types[name]) for name, _ in first if name not in fields]
        schema = TableSchema(tuple(columns), self.primary_key)
        return SchemaDelta(table, schema, {name: index for name, (index, _) in first})


class Observation:
    """What is found in one batch of messages.

    Args:
        known: The schemas that are known.
        count: The number of messages.
    """

    def __init__(self, known: Mapping[TableId, TableSchema], count: int) -> None:
        self.known = known
        self.tables = np.full(count, NO_TABLE, dtype=np.int32)
        self.codes: dict[TableId, int] = {}
        self.growths: dict[TableId, TableGrowth] = {}
        self.bad: list[BadRecord] = []

    def code(self, table: TableId) -> int:
        """The number of a table in `tables`, which is assigned on first use."""
        return self.codes.setdefault(table, len(self.codes))

    def growth(self, table: TableId) -> TableGrowth:
        """The columns of a table as they grow; created from its known schema on first use."""
        growth = self.growths.get(table)
        if growth is None:
            growth = self.growths[table] = TableGrowth(self.known.get(table))
        return growth

    def mark(self, indexes: Indices, table: TableId) -> None:
        """Assign messages to a table."""
        self.tables[indexes] = self.code(table)

    @property
    def in_any_order(self) -> bool:
        """Whether the result is the same for every order of the messages."""
        return all(growth.in_any_order for growth in self.growths.values())

    def result(self) -> Observed:
        """The tables by first message, the table of each message or null, how schemas have grown, and bad messages."""
        ids = list(self.codes)
        with_table = np.flatnonzero(self.tables >= 0)
        codes, first = np.unique(self.tables[with_table], return_index=True)
        order = codes[np.argsort(first)]
        rank = np.full(len(ids) + 1, NO_TABLE, dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        tables = rank[self.tables]
        tables_in_order = [ids[code] for code in order.tolist()]
        deltas = [self.growths[table].delta(table) for table in tables_in_order if table in self.growths]
        return Observed(
            tuple(tables_in_order),
            pa.array(tables, pa.int32(), mask=tables == NO_TABLE),
            tuple(delta for delta in deltas if delta is not None),
            tuple(sorted(self.bad, key=lambda bad: bad.index)),
        )


class ReferenceObserver:
    """Looks at one message at a time; the converters of types are cached.

    Args:
        read: Reads one message that is not empty; None where it holds no rows. Raises ValueError if it is bad.
        inference: How columns are inferred.
        rules: How the decoder reads values.
    """

    def __init__(self, read: Callable[[bytes], Shown | None], inference: InferenceRules, rules: ReadingRules) -> None:
        self._read = read
        self.inference = inference
        self.rules = rules
        self._converters: dict[tuple[t.DataType, Modes], Callable[[Any], Any]] = {}

    def observe(self, messages: pa.BinaryArray, known: Mapping[TableId, TableSchema]) -> Observed:
        """Return the tables and new columns that messages show beyond the known schemas, and the bad messages."""
        observation = Observation(known, len(messages))
        for index, message in enumerate(messages.to_pylist()):
            self.look_at(observation, index, message)
        return observation.result()

    def look_at(self, observation: Observation, index: int, message: bytes | None) -> None:
        """Add what a message shows, or why it is bad, to an observation; messages without rows show nothing."""
        if not message:
            return
        try:
            shown = self._read(message)
            if shown is None:
                return
            growth = observation.growth(shown.table)
            types = self._types_shown(shown, growth)
        except ValueError as e:
            observation.bad.append(BadRecord(index, str(e)))
            return
        growth.widen(index, types, shown.primary_key)
        observation.tables[index] = observation.code(shown.table)

    def _types_shown(self, shown: Shown, growth: TableGrowth) -> dict[str, t.DataType]:
        """Return the types of columns that a message shows; may clear `in_any_order` of the table's growth.

        Types that the message declares are among them even if they are known; a value that its known column holds shows
        none.
        """
        self._check_key(shown, growth)
        types: dict[str, t.DataType] = {}
        for name, kind in (shown.types or {}).items():
            types[name] = self.inference.fixed.get(name) or self.type_declaration(kind)
        for row in shown.rows:
            for name, value in row.items():
                if value is None:
                    continue
                try:
                    shown_type = self._type_shown(shown, growth, name, value)
                except FieldError as e:
                    raise e.inside(show_value(name)) from None
                if shown_type is not None:
                    before = types.get(name)
                    types[name] = shown_type if before is None else join(before, shown_type)
        if "" in types:
            raise FieldError("a member has an empty name, which no column can have")
        new = [name for name in types if name not in growth.types]
        if new and len(growth.types) + len(new) > self.inference.max_columns:
            growth.in_any_order = False
            name = new[max(0, self.inference.max_columns - len(growth.types))]
            raise FieldError(self._too_many(name))
        return types

    def _too_many(self, name: str) -> str:
        """The error text for a column that a table cannot have because it would have too many."""
        if self.inference.flatten and "." in name:
            outer, inner = name.split(".", 1)
            data = f"the names of the members of {quote_value(outer)} are data, such as {quote_value(inner)}"
            fix = f"if {data}, keep it whole: "
        else:
            outer, fix = name, "if the names of members are data, infer the object that holds them as one column: "
        return (
            f"the table would have more than {self.inference.max_columns:,} columns with {quote_value(name)}; {fix}"
            f"'infer-schema.fixed-types' = '{show_value(outer)} STRING'"
        )

    def _check_key(self, shown: Shown, growth: TableGrowth) -> None:
        """Check a message's primary key; `growth.in_any_order` is cleared where the order of the messages decides."""
        key = shown.primary_key
        if not key and growth.primary_key != growth.known_key:
            growth.in_any_order = False
        if key and growth.primary_key and key != growth.primary_key:
            growth.in_any_order = False
            raise FieldError(
                f"the primary key is ({', '.join(map(quote_value, key))}), but that of the table is "
                f"({', '.join(map(quote_value, growth.primary_key))})"
            )
        for name in key or growth.primary_key:
            for i, row in enumerate(shown.rows):
                if row.get(name) is None and (i < shown.keyed_rows or name in row):
                    raise FieldError("it is in the primary key, but null or absent").inside(show_value(name))

    def type_declaration(self, kind: t.DataType) -> t.DataType:
        """The type of a column for which a message declares a type: STRING if scalars are inferred as strings."""
        return t.STRING if self.inference.as_strings and not isinstance(kind, _NESTED) else kind

    def _type_shown(self, shown: Shown, growth: TableGrowth, name: str, value: Any) -> t.DataType | None:
        """The type of a value that is not null; None where the known type of its column holds it. Reads `growth`."""
        fixed = self.inference.fixed.get(name)
        if shown.schema is not None:
            return self._type_of_schema(shown.schema, fixed, name, value)
        if fixed is not None:
            self._check_fits(value, fixed)
            return fixed
        if shown.types is not None:
            if name not in shown.types:
                raise FieldError("the message does not say its type")
            kind = self.type_declaration(shown.types[name])
            self._check_fits(value, kind)
            return kind
        known = growth.known_types.get(name)
        if known is not None and self.is_held(value, known):
            self._convert(value, known)
            return None
        kind = self.type_of(value)
        self._convert(value, kind)
        return kind

    def _type_of_schema(self, schema: SchemaTable, fixed: t.DataType | None, name: str, value: Any) -> t.DataType:
        """The type of a value in a message that is read by its schema: the fixed type, or else the declared one.

        The latter is STRING for a scalar if scalars are inferred as strings.
        """
        kind = schema.types.get(name)
        if kind is None:
            raise FieldError("the schema in the message does not have it")
        self._check_fits(value, kind, schema.modes)
        if fixed is not None and not holds(fixed, kind):
            raise FieldError(f"the schema in the message says {kind.spelling}, which {fixed.spelling} does not hold")
        return fixed or self.type_declaration(kind)

    def type_of(self, value: Any) -> t.DataType:
        """The type that a value that is not null gives a new column: STRING if scalars are inferred as strings."""
        return t.STRING if self.inference.as_strings else type_of_value(value, times=self.inference.times)

    def is_held(self, value: Any, known: t.DataType) -> bool:
        """Whether a known type holds a value that is not null: all values of its own type, or this one without a loss.

        A string is not held as a number, nor a number as a boolean or a time, even if the decoder would read it so.
        """
        if holds(known, type_of_value(value, times=self.inference.times)):
            return True
        match known:
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() | t.Decimal():
                return isinstance(value, (Integer, Fractional)) and self._fits(value, known)
            case t.Float():
                return isinstance(value, (Integer, Fractional)) and self._is_float(value, known)
            case t.Char(length=length) | t.VarChar(length=length):
                return type(value) is str and len(value) <= length
            case t.Binary() | t.VarBinary():
                return type(value) is str and self._fits(value, known)
            case t.Array() | t.Map() | t.Multiset() | t.Row():
                return isinstance(value, (dict, list)) and self._fits(value, known)
            case _:
                return False

    def _is_float(self, value: str, kind: t.Float) -> bool:
        """Whether a number equals a 32-bit float exactly."""
        return self._fits(value, kind) and numbers.parse_exact(value) == Decimal(self._convert(value, kind))

    def _fits(self, value: Any, kind: t.DataType) -> bool:
        """Whether the decoder reads a value as a type without a loss."""
        try:
            self._check_fits(value, kind)
        except FieldError:
            return False
        return True

    def _check_fits(self, value: Any, kind: t.DataType, modes: Modes = NO_MODES) -> None:
        """Check that the decoder reads a value as a type, without losing a part of it.

        For a type whose form `modes` decides, it is only checked that the value can be read.
        """
        read = self._convert(value, kind, modes)
        if wire_of(kind, modes) is not None:
            return
        match kind:
            case t.Boolean():
                words = ("true", "false", "0", "1") if self.rules.as_texts else ("true", "false")
                fits = isinstance(value, bool) or str(value).strip().lower() in words
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                fits = type(value) is not Fractional or numbers.parse_exact(value) == read
            case t.Float() | t.Double() if type(value) is str:
                fits = abs(read) != float("inf") or "infinity" in value.lower()
            case t.Float() | t.Double():
                fits = abs(read) != float("inf") and _is_double(value)
            case t.Decimal():
                fits = read is not None and numbers.parse_exact(numbers.trim(value)) == read
            case t.Char(length=length) | t.VarChar(length=length):
                fits = len(read) <= length
            case t.Time(precision=precision):
                fits = len(value.partition(".")[2].rstrip("0")) <= max(precision, 3)
            case _:
                fits = read is not None
        if not fits:
            shown = show_value(repr(str(value)) if type(value) is str else str(value))
            raise FieldError(f"{shown} does not fit the type {kind.spelling}")

    def _convert(self, value: Any, kind: t.DataType, modes: Modes = NO_MODES) -> Any:
        """A value as the decoder reads it; with `NO_MODES`, the modes of the rules are used. Converters are cached."""
        modes = self.rules.modes if modes == NO_MODES else modes
        convert = self._converters.get((kind, modes))
        if convert is None:
            rules = attrs.evolve(self.rules, modes=modes)
            convert = self._converters[kind, modes] = ReferenceDecoder(t.Row(()), rules).converter(kind)
        return convert(value)


def type_of_value(value: Any, *, times: bool) -> t.DataType:
    """The type of a JSON value that is not null, by itself: STRING also for objects, arrays and numbers out of range.

    Others are BOOLEAN, BIGINT, DECIMAL(38, 0), DOUBLE and the types of `type_of_text`.

    Args:
        value: The value, as `kdsl_formats.json.document` parses it.
        times: Whether strings that look like dates, times or timestamps are of these types.
    """
    match value:
        case dict() | list():
            return t.STRING
        case bool():
            return t.Boolean()
        case Integer():
            return _type_of_integer(value)
        case Fractional():
            return _DOUBLE if _is_double(value) else t.STRING
        case _:
            return type_of_text(value) if times else t.STRING


def _type_of_integer(spelled: Integer) -> t.DataType:
    """The type of an integer: BIGINT, DECIMAL(38, 0), or STRING if it has more digits."""
    if len(spelled) > t.MAX_DECIMAL + 1:
        return t.STRING
    number = int(spelled)
    if -LONG <= number < LONG:
        return _BIGINT
    return _WIDE if abs(number) < 10**t.MAX_DECIMAL else t.STRING


def _is_double(spelled: str) -> bool:
    """Whether a number has a double near it: neither infinite, nor zero without being zero."""
    number = float(spelled)
    if number == 0:
        return not spelled.lower().partition("e")[0].strip("-.0")
    return abs(number) != float("inf")


class SchemaReader:
    """The tables that the schemas in messages describe.

    Args:
        members: See `table_of_schema`.
        required: Whether a message without a schema of rows is bad. Otherwise its schema may also be null, or one of
            something else, but the message must have no other members than a schema and a payload.

    Attributes:
        heads: The tables by the heads of messages.
    """

    def __init__(self, members: Sequence[str] = (), *, required: bool = True) -> None:
        self._members, self._required = members, required
        self.heads = Heads(lambda schema: table_of_schema(schema, members), _MAX_SCHEMAS)

    def read(self, message: bytes, document: Mapping[str, Any]) -> SchemaTable | None:
        """The table of the schema in a message, parsed as `document`; some are cached by the bytes before the payload.

        None if it is not a schema of rows, and that is not required.
        """
        schema = document.get("schema")
        if not self._required and not (len(document) == 2 and (schema is None or _has_type(schema))):
            raise ValueError("the message is not a schema and a payload")
        head_and_table = self.heads.find(message)
        table = table_of_schema(schema, self._members) if head_and_table is None else head_and_table[1]
        if table is None and self._required:
            raise ValueError(NO_SCHEMA)
        return table


def _has_type(schema: Any) -> bool:
    """Whether a value looks like a schema of Kafka Connect, so that a plain row with a column schema is not one."""
    return isinstance(schema, dict) and "type" in schema


class RowReader:
    """Reads messages that are rows themselves, for a `ReferenceObserver`.

    Args:
        rules: How the decoder reads messages.
        id_fields: The members whose values are the table id.
        null_is_tombstone: Whether the JSON value null counts as a message without a row.
        declaring: Whether a table is to be declared; schemas in messages may then be null.
    """

    def __init__(
        self,
        rules: ReadingRules,
        id_fields: tuple[str, ...] = (),
        *,
        null_is_tombstone: bool = False,
        declaring: bool = False,
    ) -> None:
        self.rules = rules
        self.id_fields = id_fields
        self._null_is_tombstone = null_is_tombstone
        plain = attrs.evolve(rules, flat=None, ignore_parse_errors=False, fail_on_missing_field=False)
        self._structure = ReferenceDecoder(t.Row(()), plain)
        self._declaring = declaring
        self._schemas = SchemaReader(required=not declaring)

    def __call__(self, message: bytes) -> Shown | None:
        """Return the rows of a message and their table; None if it has no rows. Schemas in messages are cached."""
        try:
            document = parse_only(message)
        except Empty:
            if self.rules.streaming:
                raise
            return None
        if self._null_is_tombstone and document is None:
            return None
        self._structure.read_document(document)
        if self.rules.payload:
            row = document[PAYLOAD]
            if row is None and not self._declaring:
                return None
            schema = self._schemas.read(message, document)
            if row is None:  # the schema alone says what a table has
                return None if schema is None else Shown((), [], schema.types, schema=schema)
            return Shown(self.table_of(row), [row], None if schema is None else schema.types, schema=schema)
        objects = document if isinstance(document, list) else [document]
        objects = [each for each in objects if each is not None]
        if not objects:
            return None
        tables = list(dict.fromkeys(self.table_of(each) for each in objects))
        if len(tables) > 1:
            names = " and ".join(quote_value(".".join(table)) for table in tables)
            raise FieldError(f"the message has rows of {names}, and may have those of one table only")
        flat = self.rules.flat
        return Shown(tables[0], objects if flat is None else [flatten_members(each, flat) for each in objects])

    def table_of(self, row: Mapping[str, Any]) -> TableId:
        """The table id of a row, empty where the topic is the table; `FieldError` as in `_id_part`."""
        return tuple(_id_part(row, name) for name in self.id_fields)


def _id_part(row: Mapping[str, Any], name: str) -> str:
    """One part of a table id as a string: a member, or one inside objects (``a.b``)."""
    value: Any = row.get(name, _ABSENT)
    if value is _ABSENT and "." in name:
        value = row
        for step in name.split("."):
            value = value.get(step, _ABSENT) if isinstance(value, dict) else _ABSENT
    if value is _ABSENT or value is None:
        reason = "is absent" if value is _ABSENT else "is null"
    elif isinstance(value, (dict, list)):
        reason = "is an object" if isinstance(value, dict) else "is an array"
    elif isinstance(value, bool):
        return "true" if value else "false"
    elif value == "":
        reason = "is empty"
    else:
        return str.__str__(value)
    raise FieldError(f"{reason}, but it is a part of the table id (decode.parser-table-id.fields)").inside(name)


_ABSENT = object()
