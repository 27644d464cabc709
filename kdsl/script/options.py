"""The options of the connectors that only scripts have, each declared once: ``print``, ``blackhole``, ``datagen``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar, Literal

import attrs

from kdsl.declare.ddl.tables import DeclaredTable
from kdsl.errors import Problem
from kdsl.options import Options, option


class PrintOptions(Options):
    """A sink that writes each row to the output of the command, as ``+I[1, a]``."""

    title: ClassVar[str] = "the connector print"
    identifier: str = option("print-identifier", "What stands before each row, as 'orders> '.", default="")
    standard_error: bool = option("standard-error", "Write to the error stream.", default=False)
    parallelism: int | None = option(
        "sink.parallelism",
        "Taken over from Flink: rows are written in one place.",
        default=None,
        check=lambda v: None if v is None or v > 0 else "give it a number from 1",
    )


class BlackholeOptions(Options):
    """A sink that takes every row and keeps none: for measuring, and for trying a query out."""

    title: ClassVar[str] = "the connector blackhole"


class DatagenOptions(Options):
    """A source of made-up rows, random or in sequence.

    It ends by itself where ``number-of-rows`` is set, or where a column counts from a start to an end.
    """

    title: ClassVar[str] = "the connector datagen"
    rows_per_second: int = option(
        "rows-per-second",
        "How many rows come in a second, where the table never ends; one that ends gives its rows at once.",
        default=10_000,
        check=lambda v: None if v > 0 else "give it a number from 1",
    )
    number_of_rows: int | None = option(
        "number-of-rows",
        "How many rows there are; without it they never end, unless a column counts to an end.",
        default=None,
        check=lambda v: None if v is None or v >= 0 else "give it a number from 0",
    )
    parallelism: int | None = option(
        "scan.parallelism",
        "How many tasks make rows; by default as many as there are cores.",
        default=None,
        check=lambda v: None if v is None or v > 0 else "give it a number from 1",
    )


class DatagenField(Options):
    """How one column of a datagen table is made up; each key stands behind ``fields.<column>.``.

    The members of a row are ``fields.<column>.<member>.``, the elements of an array ``fields.<column>.element.``, keys
    and values of a map ``fields.<column>.key.`` and ``.value.``.
    """

    title: ClassVar[str] = "a column of the connector datagen"
    kind: Literal["random", "sequence"] = option(
        "kind", "random values, or one after the other from start to end.", default="random", ignore_case=True
    )
    minimum: str | None = option("min", "The least number that comes; by default the type's.", default=None)
    maximum: str | None = option("max", "The greatest number that comes; by default the type's.", default=None)
    max_past: timedelta = option(
        "max-past",
        "How long ago a time may be, at most; by default it is the present.",
        default=timedelta(0),
        check=lambda v: None if v >= timedelta(0) else "give it a length of time from 0",
    )
    length: int | None = option(
        "length",
        "How long a text or bytes are (100, or what the type says), how many elements there are (3).",
        default=None,
        check=lambda v: None if v is None or v > 0 else "give it a number from 1",
    )
    var_len: bool = option("var-len", "Whether a text or bytes may also be shorter.", default=False)
    start: int | None = option("start", "Of a sequence, the first number.", default=None)
    end: int | None = option("end", "Of a sequence, the last number; the rows end with it.", default=None)
    null_rate: str = option(
        "null-rate",
        "Which part of the rows is NULL, from 0 to 1.",
        default="0",
        check=lambda v: None if re.fullmatch(r"0|1|[01]\.0*|0?\.\d+", v) else "give it a number from 0 to 1, as 0.1",
    )


CONNECTORS: Mapping[str, type[Options]] = {
    "print": PrintOptions,
    "blackhole": BlackholeOptions,
    "datagen": DatagenOptions,
}
_FIELDS = "fields."


@attrs.frozen
class ScriptOptions:
    """The options of a table that only scripts have.

    Attributes:
        options: Those of the connector.
        fields: Of ``datagen``, those of each column and of what is inside it, by path: ``a``, ``a.element``.
        problems: What is wrong with them.
    """

    options: Options
    fields: Mapping[str, DatagenField]
    problems: tuple[Problem, ...]


def script_options(table: DeclaredTable) -> ScriptOptions:
    """Read the options of a table of ``print``, ``blackhole`` or ``datagen``.

    Args:
        table: The table; its connector is one of these.
    """
    given = {key: value for key, value in table.options.items() if key != "connector"}
    by_field: dict[str, dict[str, str]] = {}
    kind = CONNECTORS[table.options["connector"]]
    if kind is DatagenOptions:
        for key in [k for k in given if k.startswith(_FIELDS)]:
            path, _, name = key.removeprefix(_FIELDS).rpartition(".")
            by_field.setdefault(path, {})[name] = given.pop(key)
    options = kind.from_strings(given)
    problems = [_placed(p, table, key) for key, p in _told(options)]
    fields = {path: DatagenField.from_strings(texts) for path, texts in by_field.items()}
    for path, made in fields.items():
        problems += [_placed(p, table, key and f"{_FIELDS}{path}.{key}") for key, p in _told(made, f"{_FIELDS}{path}.")]
    return ScriptOptions(options, fields, tuple(problems))


def _told(options: Options, prefix: str = "") -> list[tuple[str | None, Problem]]:
    keys = {a.name: a.metadata["key"] for a in attrs.fields(type(options))}
    told = options.complaints(lambda _name, key: repr(f"{prefix}{key}"))
    return [(keys.get(name) if name else None, problem) for name, problem in told]


def _placed(problem: Problem, table: DeclaredTable, key: str | None) -> Problem:
    return problem.at(table.places.get(key or "", table.where))
