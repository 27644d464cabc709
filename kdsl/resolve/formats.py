"""Formats: the value has one, their options are valid, and they support the columns (RULES OPT-5, section 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from kdsl.cluster import Registry
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction, Format, Side, Use
from kdsl.options import Spelling
from kdsl.registry.settings import SASL, inherits_login
from kdsl.resolve.keys import has_raw_value_alone, value_columns
from kdsl.resolve.rule import problem, value_severity
from kdsl.resolve.transport import transport_of
from kdsl.types import model as t


def check_value_format(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report a missing value format: value columns need one, and a write of key columns alone writes only tombstones.

    It is not needed for such a write if a column is the raw value.
    """
    if table.value_format is not None or "value" in table.unread:
        return
    key = "'format'" if table.upserts is None else "'value.format'"
    option = "value=" if table.spelling is Spelling.PYTHON else key
    example = {Spelling.PYTHON: "value=Json()", Spelling.DDL: f"{key} = 'json'", Spelling.YAML: f"{key}: json"}
    raw = any(c.shows == "__raw_value__" and not c.virtual for c in table.columns)
    if value_columns(table):
        message = f"there is no format for the message value ({option} is missing)"
        yield problem(table, "value-format", message, f"add one, such as {example[table.spelling]}", option="format")
    elif direction == "write" and table.physical and not raw:
        message = f"no column provides the message value ({option} is missing), so each record would be a tombstone"
        yield problem(table, "value-format", message, f"add one, such as {example[table.spelling]}", option="format")


def check_format_options(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report each invalid option of the formats, and each column or use of the table that a format does not support.

    Columns whose types could not be read are not reported, and a value whose only column is the raw one is not checked.
    """
    options = table.options
    by_name = {c.name: c for c in table.physical}
    keys = [by_name[n] for n in dict.fromkeys(table.message_key) if n in by_name]
    sides: tuple[tuple[Side, Format | None, list[ColumnDef], str], ...] = (
        ("key", table.key_format, keys, options.key_prefix),
        ("value", table.value_format, list(value_columns(table)), options.value_prefix),
    )
    for side, chosen, columns, dropped in sides:
        if chosen is None:
            continue
        row = t.Row(tuple(t.Field(c.name.removeprefix(dropped), c.type) for c in columns), nullable=False)
        by_wire_name = {c.name.removeprefix(dropped): c for c in columns}
        prefix = _prefix(table, side, chosen)
        names = attrs.fields_dict(type(chosen))
        for wrong in chosen.problems(_option_spelling(table, side, chosen)):
            declared = names.get(wrong.option or "")
            option = prefix + (declared.metadata["key"] if declared else wrong.option or "")
            severity = value_severity(chosen, wrong.option, direction)
            yield problem(table, wrong.code, wrong.message, wrong.fix, option=option, severity=severity)
        if side == "value" and has_raw_value_alone(table):
            continue  # the format decodes no column from the value
        keyed = table.primary_key if side == "value" and table.normalized else ()
        use = Use(side=side, topics=tuple(dict.fromkeys(options.topic)), keyed=keyed)
        for wrong in (*chosen.check(row, direction), *chosen.check_use(row, use, direction)):
            column = by_wire_name.get((wrong.where.column or "").split(".")[0])
            if column is not None and not column.type_known:
                continue
            option = f"{side}.format"
            yield problem(
                table, wrong.code, wrong.message, wrong.fix, column=column, option=option, severity=wrong.severity
            )


def check_registry(table: TableDef, of_cluster: Registry | None) -> Iterator[Problem]:
    """Report what formats find wrong with the schema registry of the cluster, or with its absence (SR-5)."""
    for side, chosen in (("key", table.key_format), ("value", table.value_format)):
        for wrong in chosen.check_registry(of_cluster) if chosen is not None else ():
            yield problem(table, wrong.code, wrong.message, wrong.fix, option=f"{side}.format", severity=wrong.severity)


def check_literal_secrets(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report literal secrets of formats, except those of the cluster's registry, that Spark would send in plain text.

    It does with the transport ``jvm``, and in staged writes.
    """
    staged = direction == "write" and table.options.exactly_once == "staged"
    if transport_of(table) != "jvm" and not staged:
        return
    how = f"with {table.setting('exactly_once', 'staged') if staged else table.setting('transport', 'jvm')}"
    sides = (("key", table.key_format, table.message_key), ("value", table.value_format, value_columns(table)))
    for side, chosen, columns in sides:
        for key in open_secrets(chosen, None) if chosen is not None and columns else ():
            assert chosen is not None
            option = _prefix(table, side, chosen) + key
            wrong = open_secret(option, how)
            yield problem(table, wrong.code, wrong.message, wrong.fix, option=option)


def open_secrets(chosen: Format, of_cluster: Registry | None) -> tuple[str, ...]:
    """The literal secrets that a format needs in each task: its own, and those of its registry.

    Returns:
        The keys of the format's options, then the names of the registry's settings. Settings that the format replaces
        or does not use are left out.
    """
    own = tuple(chosen.split()[1])
    used = chosen.registry(of_cluster)
    if used is None or of_cluster is None:
        return own
    cluster_settings = of_cluster.properties
    shared = (name for name in cluster_settings.split()[1] if name not in SASL or inherits_login(used))
    return (*own, *(n for n in shared if n in used.properties and used.properties[n] == cluster_settings[n]))


def open_secret(name: str, how: str) -> Problem:
    """Return the problem of a secret that would be sent in plain text (rule secret-literal).

    Args:
        name: The name of the secret.
        how: The setting with which it would be sent so.
    """
    return Problem(
        "secret-literal",
        f"the secret {name!r} is a literal, but {how} Spark would send it to the executors in plain text",
        "write a reference that each process resolves, such as ${env:NAME} or ${file:PATH}",
    )


def _prefix(table: TableDef, side: str, chosen: Format) -> str:
    """The prefix of the keys of a format's options; without the side if the user wrote ``format``."""
    short = side == "value" and "format" in table.option_locations
    return f"{chosen.identifier}." if short else f"{side}.{chosen.identifier}."


def _option_spelling(table: TableDef, side: str, chosen: Format) -> Callable[[str, str], str]:
    """Return a function from an option's Python name and key to the option as the table spells it."""
    if table.spelling is Spelling.PYTHON:
        return lambda name, _: f"{side}={type(chosen).__name__}({name}=)"
    return lambda _, key: repr(_prefix(table, side, chosen) + key)
