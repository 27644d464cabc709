"""The options of the connectors that only scripts have, each declared once: ``print``, ``blackhole``, ``datagen``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar, Literal

import attrs

from kdsl.ddl.tables import DeclaredTable
from kdsl.errors import Problem
from kdsl.options import Options, option


class PrintOptions(Options):
    """A sink that writes each row to the output of the command, as ``+I[1, a]``."""

    title: ClassVar[str] = "the connector print"
    identifier: str = option("print-identifier", "The string before each row, as in 'orders> '.", default="")
    standard_error: bool = option("standard-error", "Write to the error stream.", default=False)
    parallelism: int | None = option(
        "sink.parallelism",
        "Accepted as in Flink, without effect: one process writes all rows.",
        default=None,
        check=lambda v: None if v is None or v > 0 else "use an integer from 1",
    )


class BlackholeOptions(Options):
    """A sink that discards every row: for measurements, and for trying out a query."""

    title: ClassVar[str] = "the connector blackhole"


class DatagenOptions(Options):
    """A source of generated rows, random or in sequence.

    It ends by itself if ``number-of-rows`` is set, or if a column counts from a start to an end.
    """

    title: ClassVar[str] = "the connector datagen"
    rows_per_second: int = option(
        "rows-per-second",
        "The number of rows per second of a table that never ends; one that ends generates its rows at once.",
        default=10_000,
        check=lambda v: None if v > 0 else "use an integer from 1",
    )
    number_of_rows: int | None = option(
        "number-of-rows",
        "The number of rows; without it they never end, unless a column counts to an end.",
        default=None,
        check=lambda v: None if v is None or v >= 0 else "use an integer from 0",
    )
    parallelism: int | None = option(
        "scan.parallelism",
        "The number of tasks that generate rows; by default the number of cores.",
        default=None,
        check=lambda v: None if v is None or v > 0 else "use an integer from 1",
    )


class DatagenField(Options):
    """How one column of a datagen table is generated; each key is written after ``fields.<column>.``.

    The members of a row are ``fields.<column>.<member>.``, the elements of an array ``fields.<column>.element.``, keys
    and values of a map ``fields.<column>.key.`` and ``.value.``.
    """

    title: ClassVar[str] = "a column of the connector datagen"
    kind: Literal["random", "sequence"] = option(
        "kind", "Random values, or a sequence of numbers from start to end.", default="random", ignore_case=True
    )
    minimum: str | None = option("min", "The smallest number; by default the smallest one of the type.", default=None)
    maximum: str | None = option("max", "The largest number; by default the largest one of the type.", default=None)
    max_past: timedelta = option(
        "max-past",
        "How far a time may be in the past, at most; by default it is the present.",
        default=timedelta(0),
        check=lambda v: None if v >= timedelta(0) else "use a duration from 0",
    )
    length: int | None = option(
        "length",
        "The length of strings and bytes (by default 100, or the type's), or the number of elements (by default 3).",
        default=None,
        check=lambda v: None if v is None or v > 0 else "use an integer from 1",
    )
    var_len: bool = option("var-len", "Whether strings and bytes may also be shorter.", default=False)
    start: int | None = option("start", "The first number of a sequence.", default=None)
    end: int | None = option("end", "The last number of a sequence; the rows end with it.", default=None)
    null_rate: str = option(
        "null-rate",
        "The fraction of values that are NULL, from 0 to 1.",
        default="0",
        check=lambda v: None if re.fullmatch(r"0|1|[01]\.0*|0?\.\d+", v) else "use a number from 0 to 1, as 0.1",
    )


CONNECTORS: Mapping[str, type[Options]] = {
    "print": PrintOptions,
    "blackhole": BlackholeOptions,
    "datagen": DatagenOptions,
}
WRITE_ONLY = ("print", "blackhole")
"""The connectors of tables that cannot be read."""
_FIELDS = "fields."


@attrs.frozen
class ScriptOptions:
    """The options of a table that only scripts have.

    Attributes:
        options: The options of the connector.
        fields: For ``datagen``, the options of each column and of what is inside it, by path: ``a``, ``a.element``.
        problems: The problems of all of them.
    """

    options: Options
    fields: Mapping[str, DatagenField]
    problems: tuple[Problem, ...]


def read_script_options(table: DeclaredTable) -> ScriptOptions:
    """Read the options of a table of ``print``, ``blackhole`` or ``datagen``; mistakes are in the result's problems."""
    strings = {key: value for key, value in table.options.items() if key != "connector"}
    by_field: dict[str, dict[str, str]] = {}
    kind = CONNECTORS[table.options["connector"]]
    if kind is DatagenOptions:
        for key in [k for k in strings if k.startswith(_FIELDS)]:
            path, _, name = key.removeprefix(_FIELDS).rpartition(".")
            by_field.setdefault(path, {})[name] = strings.pop(key)
    options = kind.from_strings(strings)
    problems = [_locate(p, table, key) for key, p in _option_problems(options)]
    fields = {path: DatagenField.from_strings(texts) for path, texts in by_field.items()}
    for path, field in fields.items():
        problems += [
            _locate(p, table, key and f"{_FIELDS}{path}.{key}")
            for key, p in _option_problems(field, f"{_FIELDS}{path}.")
        ]
    return ScriptOptions(options, fields, tuple(problems))


def _option_problems(options: Options, prefix: str = "") -> list[tuple[str | None, Problem]]:
    """Return the problems of options, each with its key without the prefix, or None if it concerns no known option."""
    keys = {a.name: a.metadata["key"] for a in attrs.fields(type(options))}
    problems = options.problems(lambda _name, key: repr(f"{prefix}{key}"))
    return [(keys.get(problem.option or ""), problem) for problem in problems]


def _locate(problem: Problem, table: DeclaredTable, key: str | None) -> Problem:
    """Return a problem at the location of an option, or of the table if the option is None or not written there."""
    return problem.at(table.locations.get(key or "", table.where))
