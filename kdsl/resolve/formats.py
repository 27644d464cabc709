"""Formats: the value has one, their options are right, and they can hold the columns (RULES OPT-5, section 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from kdsl.cluster import Registry
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction, Format, Side, Use
from kdsl.options import Spelling
from kdsl.registry.settings import SASL, inherits_login
from kdsl.resolve.keys import key_columns, value_columns
from kdsl.resolve.rule import problem, value_severity
from kdsl.types import model as t


def value_format(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Value columns need a value format; without both, a written record would be a tombstone."""
    if table.value_format is not None or "value" in table.unread:
        return
    key = "'format'" if table.upserts is None else "'value.format'"
    option = "value=" if table.spelling is Spelling.PYTHON else key
    example = {Spelling.PYTHON: "value=Json()", Spelling.DDL: f"{key} = 'json'", Spelling.YAML: f"{key}: json"}
    raw = any(c.shows == "__raw_value__" and not c.virtual for c in table.columns)
    if value_columns(table):
        message = f"there is no format for the message value ({option} is missing)"
        yield problem(table, "value-format", message, f"add one, as {example[table.spelling]}", option="format")
    elif direction == "write" and table.physical and not raw:
        message = f"nothing would write the message value ({option} is missing), so each record would be a tombstone"
        yield problem(table, "value-format", message, f"add one, as {example[table.spelling]}", option="format")


def format_options(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """The options of the formats are right, and the formats can hold the columns."""
    options = table.options
    by_name = {c.name: c for c in table.physical}
    keys = [by_name[n] for n in dict.fromkeys(key_columns(table)) if n in by_name]
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
        for attribute, found in chosen.complaints(_speller(table, side, chosen)):
            unknown = (
                k for k in table.places if k.startswith(prefix) and repr(k.removeprefix(prefix)) in found.message
            )
            option = prefix + names[attribute].metadata["key"] if attribute else next(unknown, f"{side}.format")
            severity = value_severity(chosen, attribute, direction)
            yield problem(table, found.code, found.message, found.fix, option=option, severity=severity)
        use = Use(side=side, topics=tuple(dict.fromkeys(options.topic)))
        for found in (*chosen.check(row, direction), *chosen.check_use(row, use, direction)):
            column = by_wire_name.get((found.where.column or "").split(".")[0])
            option = f"{side}.format"
            yield problem(
                table, found.code, found.message, found.fix, column=column, option=option, severity=found.severity
            )


def registry(table: TableDef, given: Registry | None) -> Iterator[Problem]:
    """Formats whose schemas stand in a registry have one: their own, or the cluster's (SR-5)."""
    for side, chosen in (("key", table.key_format), ("value", table.value_format)):
        for found in chosen.check_registry(given) if chosen is not None else ():
            yield problem(table, found.code, found.message, found.fix, option=f"{side}.format", severity=found.severity)


def literal_secrets(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A secret of a format is written out only where it can travel unseen; those of the registry are judged later."""
    staged = direction == "write" and table.options.exactly_once == "staged"
    if table.options.transport != "jvm" and not staged:
        return
    how = f"with {table.setting('exactly_once', 'staged') if staged else table.setting('transport', 'jvm')}"
    sides = (("key", table.key_format, key_columns(table)), ("value", table.value_format, value_columns(table)))
    for side, chosen, columns in sides:
        for key in open_secrets(chosen, None) if chosen is not None and columns else ():
            assert chosen is not None
            option = _prefix(table, side, chosen) + key
            found = open_secret(option, how)
            yield problem(table, found.code, found.message, found.fix, option=option)


def open_secrets(chosen: Format, given: Registry | None) -> tuple[str, ...]:
    """The secrets that a format needs in each task, and that are written out: its own, and those of its registry.

    Args:
        chosen: The format.
        given: The registry of the cluster.

    Returns:
        The keys of the format's options, then the names of the registry's settings. What the format replaces by its
        own, or has no use for, is not among them.
    """
    own = tuple(chosen.split()[1])
    asked = chosen.registry(given)
    if asked is None or given is None:
        return own
    shared = (name for name in given.properties.split()[1] if name not in SASL or inherits_login(asked))
    kept = (name for name in shared if name in asked.properties and asked.properties[name] == given.properties[name])
    return (*own, *kept)


def open_secret(name: str, how: str) -> Problem:
    """A secret that would travel in the open (rule secret-literal).

    Args:
        name: What it is called.
        how: What makes it travel so.
    """
    return Problem(
        "secret-literal",
        f"the secret {name!r} is written out, but {how} it would be a part of what Spark sends to the executors",
        "write a reference that each process resolves, as ${env:NAME} or ${file:PATH}",
    )


def _prefix(table: TableDef, side: str, chosen: Format) -> str:
    """What stands before the keys of a format's options: nothing but its name where the user wrote ``format``."""
    short = side == "value" and "format" in table.places
    return f"{chosen.identifier}." if short else f"{side}.{chosen.identifier}."


def _speller(table: TableDef, side: str, chosen: Format) -> Callable[[str, str], str]:
    if table.spelling is Spelling.PYTHON:
        return lambda name, _: f"{side}={type(chosen).__name__}({name}=)"
    return lambda _, key: repr(_prefix(table, side, chosen) + key)
