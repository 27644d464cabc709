"""The rows and tables in messages of change data, for the reference observer of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from kdsl.formats import TableId
from kdsl.shown_values import quote_value, show_value
from kdsl.types import model as t
from kdsl_formats.cdc_json.reference_decoder import ChangeReadingRules, ReferenceChangeDecoder
from kdsl_formats.cdc_json.source_types import parse_numbers
from kdsl_formats.json.document import Integer, parse_only
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.reference_decoder import PAYLOAD
from kdsl_formats.json.reference_observer import SchemaReader, Shown

Row = dict[str, Any]
_ANY_KEY = ("",)
"""Tables with a key also read changes without the row before them."""


@attrs.frozen
class DeclaredTypes:
    """How messages say the types of their columns.

    Attributes:
        member: The member that says them, by the names of columns.
        read: The type that a value of it stands for; None where it is of the wrong kind.
    """

    member: str
    read: Callable[[Any], t.DataType | None]


class ChangeReader:
    """Reads messages of change data.

    Args:
        rules: How the decoder reads them; the row is ignored.
        types: How messages say types; None where columns are inferred from values.
        declaring: Whether a table is to be declared, see `ChangeJson.message_reader`.
    """

    def __init__(
        self, rules: ChangeReadingRules, types: DeclaredTypes | None = None, *, declaring: bool = False
    ) -> None:
        if declaring:
            rules = attrs.evolve(rules, keyed=_ANY_KEY, skip_truncate=True)
        key = t.Row(tuple(t.Field(name, t.STRING) for name in rules.keyed))
        self.rules = attrs.evolve(rules, row=key, metadata=(), ignore_parse_errors=False)
        self._structure = ReferenceChangeDecoder(self.rules)
        self.types = types
        self._declaring = declaring
        self.schemas = SchemaReader(rules.dialect.members, required=not declaring) if rules.payload else None

    def __call__(self, message: bytes) -> Shown | None:
        """Return the table of a message and its rows, before and after its changes; None if it has no rows.

        Schemas in messages are cached.
        """
        document = parse_only(message)
        if not list(self._structure.read_document(document)):
            return None
        change = self._structure.single_element(document)
        schema = None
        if self.schemas is not None:
            schema = self.schemas.read(message, change)
            change = change[PAYLOAD]
        whole, parts = self._images(change)
        if self._declaring:
            rows = [*whole, *({**row, **part} for row, part in zip(whole, parts, strict=False))]
            return Shown((), [parse_numbers(row, change.get("sqlType")) for row in rows], schema=schema)
        rows = [*whole, *parts]
        table = self.table_of(change)
        if schema is not None:
            return Shown(table, rows, schema.types, schema=schema)
        types = self.read_types(change, rows)
        return Shown(table, rows, types, self.primary_key_of(change), len(whole))

    def _images(self, change: Row) -> tuple[list[Row], list[Row]]:
        """The rows of a change that are whole, and those that may have only some members; other values are left out.

        A before-image is whole if there is no after-image.
        """
        dialect = self.rules.dialect
        first, second = (change.get(member) for member in dialect.members)
        match dialect.images:
            case "before and after":
                whole, parts = (second, first) if isinstance(second, dict) else (first, None)
                return list(_objects([whole])), list(_objects([parts]))
            case "data and old":
                return list(_objects([first])), list(_objects([second]))
            case _:
                whole, parts = (second, first) if first is None else (first, second)
                return list(_objects(whole or [])), list(_objects(parts or []))

    def table_of(self, change: Row) -> TableId:
        """The names of a change's table, without a schema if it has none; a single member is split at its dots."""
        dialect = self.rules.dialect
        parts = []
        for path in dialect.table_id:
            outer, _, inner = path.rpartition(".")
            holder = change.get(outer) if outer else change
            value = holder.get(inner) if isinstance(holder, dict) else None
            if value is None and path == "source.schema":
                continue
            if type(value) is not str or not value:
                raise FieldError("it is not a name, but a part of the table id").inside(path)
            parts.append(value)
        return tuple(parts[0].split(".")) if len(dialect.table_id) == 1 else tuple(parts)

    def primary_key_of(self, change: Row) -> tuple[str, ...]:
        """The names of the primary key; empty if the dialect or the change does not say them."""
        member = self.rules.dialect.primary_key
        names = None if member is None else change.get(member)
        if names is None:
            return ()
        if not isinstance(names, list) or not all(type(name) is str for name in names):
            raise FieldError("it is not a list of names").inside(str(member))
        return tuple(names)

    def read_types(self, change: Row, rows: list[Row]) -> Mapping[str, t.DataType] | None:
        """The types that a change says, first those of the columns in its rows; None where values show the types.

        Columns whose type it does not say are left out.
        """
        types = self.types
        if types is None:
            return None
        declared = change.get(types.member)
        if not isinstance(declared, dict):
            raise FieldError("is absent, but says the types of columns (infer-schema.strategy)").inside(types.member)
        names = dict.fromkeys([*(name for row in rows for name in row), *declared])
        types_by_name = {}
        for name in names:
            if name not in declared:
                continue
            kind = types.read(declared[name])
            if kind is None:
                raise (
                    FieldError(f"{quote_value(declared[name])} is not a type")
                    .inside(show_value(name))
                    .inside(types.member)
                )
            types_by_name[name] = kind
        return types_by_name


def _objects(values: list[Any]) -> Iterator[Row]:
    """The objects among some values."""
    return (value for value in values if isinstance(value, dict))


def jdbc_code(value: Any) -> int | None:
    """A JDBC type number; None if the value is not a JSON integer."""
    return int(value) if isinstance(value, Integer) else None
