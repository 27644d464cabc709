"""How the columns are divided between message key and message value: key fields, prefixes, EXCEPT_KEY.

Source: Flink's KafkaConnectorOptionsUtil (RULES KEY-1 to KEY-12).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.declare.dsl.values import BadValueError, to_arrow
from kdsl.errors import Problem, listing, nearest
from kdsl.formats import Direction, Format
from kdsl.options import Spelling
from kdsl.resolve.model import Part
from kdsl.resolve.rule import problem
from kdsl.types import model as t


def except_key(table: TableDef) -> bool:
    """Whether the key columns are left out of the message value."""
    return table.options.value_fields == "EXCEPT_KEY" and table.key_format is not None


def value_columns(table: TableDef) -> tuple[ColumnDef, ...]:
    """The columns that are stored in the message value, in the table's order.

    They are all physical columns, without the key columns if `except_key` says so.
    """
    keys = set(table.message_key) if except_key(table) else set()
    return tuple(c for c in table.physical if c.name not in keys)


def key_part(table: TableDef) -> Part | None:
    """The columns and format of the message key of a valid table; None if it has no key format.

    Files are read, and errors raised, as for `Format.portable`.
    """
    by_name = {c.name: c for c in table.physical}
    columns = [by_name[name] for name in table.message_key]
    return _make_part(table.key_format, columns, table.options.key_prefix)


def value_part(table: TableDef) -> Part | None:
    """The columns and format of the message value of a valid table.

    None if it has no format, or a column holds the raw value and no column is decoded from it. Files are read, and
    errors raised, as for `Format.portable`.
    """
    if has_raw_value_alone(table):
        return None
    return _make_part(table.value_format, value_columns(table), table.options.value_prefix)


def has_raw_value_alone(table: TableDef) -> bool:
    """Whether a column holds the bytes of the message value, and no column is decoded from them."""
    return not value_columns(table) and any(c.shows == "__raw_value__" for c in table.columns)


def _make_part(chosen: Format | None, columns: Sequence[ColumnDef], prefix: str) -> Part | None:
    """Return the key or value as a part of the plan, with ``prefix`` removed from its names; None without a format.

    Its format is that of `Format.portable`, for which the files that the format names may be read, and whose errors are
    passed on.
    """
    if chosen is None:
        return None
    fields = tuple(t.Field(c.name.removeprefix(prefix), c.type, c.comment) for c in columns)
    chosen = with_column_defaults(chosen, columns, prefix).portable()
    return Part(chosen, t.Row(fields, nullable=False), tuple(c.name for c in columns))


def with_column_defaults(chosen: Format, columns: Sequence[ColumnDef], prefix: str = "") -> Format:
    """A format with the defaults of its columns, where it can use them (`Format.with_defaults`).

    Args:
        chosen: The format.
        columns: Its columns.
        prefix: What is removed from their names on the wire.
    """
    row = t.Row(tuple(t.Field(c.name.removeprefix(prefix), c.type) for c in columns), nullable=False)
    defaults: dict[str, Any] = {}
    for column in columns:
        if column.default is not MISSING and column.default is not None:
            with suppress(BadValueError):  # which is reported when the table is read
                defaults[column.name.removeprefix(prefix)] = to_arrow(column.default, column.type)
    return chosen.with_defaults(row, defaults) if defaults else chosen


def check_key_format_and_fields(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report key columns without a key format, and a key format without key columns (KEY-1, KEY-2).

    The rules of upsert tables report theirs without key columns.
    """
    keys = table.message_key
    in_python, yaml = table.spelling is Spelling.PYTHON, table.spelling is Spelling.YAML
    key_format = "key=" if in_python else "'key.format'"
    if keys and table.key_format is None and "key" not in table.unread:
        message = f"{listing(keys)} {'is' if len(keys) == 1 else 'are'} in the message key, but there is no key format"
        column = next((c for c in table.columns if c.key), None)
        example = "key=Json()" if in_python else "'key.format': json" if yaml else "'key.format' = 'json'"
        yield problem(table, "key-format", message, f"add one, such as {example}", column=column, option="key.fields")
    if not keys and table.key_format is not None and table.upserts is None:
        raw = any(c.shows == "__raw_key__" and not c.virtual for c in table.columns)
        message = f"{key_format} is {table.key_format.identifier!r}, but no column is in the message key"
        fix = "declare the key columns as Key[...]" if in_python else "name them in 'key.fields'"
        yield problem(
            table, "key-fields", message, f"{fix}, or remove {key_format}" if not raw else f"remove {key_format}",
            option="key.format",
        )  # fmt: skip


def check_key_fields_exist(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report key columns that do not exist, are not physical columns, or are named twice (KEY-3, KEY-4)."""
    physical = [c.name for c in table.physical]
    by_name = {c.name: c for c in table.columns}
    seen: set[str] = set()
    for name in table.message_key:
        column = by_name.get(name)
        if column is None:
            message = f"the key field {name!r} is not a column of the table{nearest(name, physical)}"
            fix = f"name physical columns; there are {listing(physical)}"
            yield problem(table, "key-field", message, fix, option="key.fields")
        elif column.role != "physical":
            message = f"a {column.role} column cannot be part of the message key"
            yield problem(
                table, "key-field", message, f"use physical columns; there are {listing(physical)}", column=column
            )
        elif name in seen:
            message = f"the key field {name!r} is named twice"
            yield problem(table, "key-field-repeated", message, "name each key field once", option="key.fields")
        seen.add(name)


def check_prefixes(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report a key prefix without EXCEPT_KEY, and prefixes that overlap.

    Also report column names that do not begin with their side's prefix, or consist of nothing else.
    """
    options = table.options
    key, value = options.key_prefix, options.value_prefix
    key_set, value_set = table.setting("key_prefix", key), table.setting("value_prefix", value)
    except_key_set = table.setting("value_fields", "EXCEPT_KEY")
    if key and options.value_fields != "EXCEPT_KEY":
        message = (
            f"{key_set} and {table.setting('value_fields', 'ALL')} exclude each other, "
            "because the value would contain the key columns under names with the key's prefix"
        )
        yield problem(table, "key-prefix-all", message, f"set {except_key_set}", option="key_prefix")
    if key and value and (key.startswith(value) or value.startswith(key)):
        message = (
            f"{key_set} and {value_set}: one prefix starts with the other, so a name does not show whether a column "
            "belongs to the key or the value"
        )
        fix = "choose prefixes with different first characters, and begin the names of the columns with them"
        yield problem(table, "prefix-overlap", message, fix, option="value_prefix")
    by_name = {c.name: c for c in table.physical}
    sides = (
        ("key", key, key_set, [by_name[n] for n in dict.fromkeys(table.message_key) if n in by_name]),
        ("value", value, value_set, list(value_columns(table))),
    )
    for side, prefix, setting, columns in sides:
        for column in columns:
            if not column.name.startswith(prefix):
                message = f"{setting}, but the name of this {side} column does not start with it"
                fix = f"rename it to {prefix + column.name!r}"
                if side == "key" and table.key_fields:
                    fix += ", also in 'key.fields'"
                if side == "value" and column.name in table.message_key:
                    fix = f"set {except_key_set}, so that key columns stay out of the value"
                yield problem(table, f"{side}-prefix", message, fix, column=column)
            elif column.name == prefix != "":
                message = f"the name consists of the {side} prefix {prefix!r} only"
                yield problem(table, f"{side}-prefix", message, "add a name after the prefix", column=column)


def check_insert_only_key(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report a key format that carries changes (KEY-12)."""
    if table.key_format is not None and not table.key_format.insert_only:
        message = f"the key format {table.key_format.identifier!r} carries changes, which a message key cannot do"
        yield problem(
            table,
            "key-format-changes",
            message,
            "use a format that only inserts rows, such as json, csv or raw",
            option="key.format",
        )


def check_key_options_without_key(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Warn of a key prefix or EXCEPT_KEY in a table without a key, where it has no effect (KEY-7, KEY-8: accepted).

    A key format or key columns make a key; upsert tables are not checked.
    """
    if table.key_format is not None or table.message_key or table.upserts is not None:
        return
    for attribute, default in (("key_prefix", ""), ("value_fields", "ALL")):
        value = getattr(table.options, attribute)
        if value != default:
            message = f"{table.setting(attribute, value)} has no effect, because the table has no key columns"
            fix = "declare key columns and a key format, or remove it"
            yield problem(table, "key-option-unused", message, fix, option=attribute, severity="warning")
