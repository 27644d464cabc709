"""Rows for a write from JSON objects, one in each line, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.declare.definition import MISSING, TableDef
from kdsl.declare.dsl.values import to_arrow
from kdsl.errors import KdslError, listing, nearest
from kdsl.formats import ROW_KIND, Decoded, format_class
from kdsl.plan.model import WritePlan
from kdsl.run.arrow.wrong_rows import find_wrong_rows
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type

MOST_LINES = 20
"""How many lines with errors a message names."""


class JsonRowError(KdslError):
    """A line is not a row of the table."""


def read_json_rows(
    lines: Sequence[bytes], table: TableDef, plan: WritePlan, cluster: Cluster, source: str
) -> pa.RecordBatch:
    """Read rows of a table from JSON objects, whose members are the table's columns that can be written.

    Values are those of the format ``json``; timestamps may have either of its two standards. A column that is left out
    has its default, or else is NULL. In a table of changes the member ``_row_kind`` is the row kind, ``+I`` by default.
    Blank lines are skipped. All rows are encoded once, so that the errors of all lines are known before one is sent.

    Args:
        lines: The lines.
        table: The table.
        plan: The write of the table.
        cluster: The cluster whose registry the formats use.
        source: Where the lines come from, for messages.

    Returns:
        The rows with the columns of the plan.
    """
    numbers = number_lines(lines)
    objects, problems = [], dict[int, str]()
    fields = [field for field in plan.columns.fields if field.name != ROW_KIND]
    known = {ROW_KIND, *(f.name for f in fields)} if plan.changelog else {f.name for f in fields}
    for number in numbers:
        value = _parse(lines[number - 1])
        if isinstance(value, str):
            problems[number] = value
        elif unknown := [name for name in value if name not in known]:
            hint = nearest(unknown[0], known)
            problems[number] = f"{listing(unknown)} cannot be written{hint}; the columns are {listing(sorted(known))}"
        elif not isinstance(value.get(ROW_KIND, ""), str):
            problems[number] = f"{ROW_KIND} is not a string"
        objects.append({} if isinstance(value, str) or number in problems else value)
    row = t.Row(tuple(attrs.evolve(f, type=f.type.as_nullable()) for f in fields), nullable=False)
    messages = [b"{}" if number in problems else lines[number - 1] for number in numbers]
    rows, reasons = _decode(row, messages)
    problems |= {numbers[index]: reason for index, reason in reasons.items()}
    defaults = {column.name: column.default for column in table.columns if column.default is not MISSING}
    arrays = {}
    for i, field in enumerate(fields):
        arrays[field.name] = rows.field(i)
        if field.name in defaults:
            absent = np.array([field.name not in one for one in objects], dtype=bool)
            arrays[field.name] = _fill(rows.field(i), absent, defaults[field.name], field.type)
    if plan.changelog:
        arrays[ROW_KIND] = pa.array([one.get(ROW_KIND, "+I") for one in objects], pa.string())
    names = [field.name for field in plan.columns.fields]
    batch = pa.RecordBatch.from_arrays([arrays[name] for name in names], names)
    good = [i for i, number in enumerate(numbers) if number not in problems]
    wrong = find_wrong_rows(plan, cluster, batch.take(pa.array(good, pa.int64())) if problems else batch)
    problems |= {numbers[good[i]]: reason for i, reason in islice(wrong, MOST_LINES + 1)}
    fail_at_lines(problems, source)
    return batch


def number_lines(lines: Sequence[bytes]) -> list[int]:
    """Return the numbers, from 1, of the lines that become rows: those that are not blank."""
    return [number for number, line in enumerate(lines, 1) if line.strip()]


def _parse(line: bytes) -> dict[str, Any] | str:
    """Parse a line as a JSON object; why that is not possible, if it is not."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as e:
        return f"it is not JSON: {e}"
    return value if isinstance(value, dict) else "it is not a JSON object"


def _decode(row: t.Row, messages: list[bytes]) -> tuple[pa.StructArray, dict[int, str]]:
    """Decode objects as rows; also return why some cannot be decoded, by their indices.

    Objects with timestamps in ISO-8601 are decoded in that standard; if both fail, the reason is that of the SQL one.
    """
    decoded = _decode_as("SQL", row, messages)
    bad = {one.index: one.reason for one in decoded.bad}
    again = sorted(bad)
    other = _decode_as("ISO-8601", row, [messages[index] for index in again])
    still = {again[one.index] for one in other.bad}
    good = [index for index in range(len(messages)) if index not in bad]
    place = {index: i for i, index in enumerate([*good, *(index for index in again if index not in still)])}
    joined = pa.concat_arrays([decoded.rows, other.rows])
    order = [place.get(index, 0) for index in range(len(messages))]
    rows = joined if not len(joined) else joined.take(pa.array(order, pa.int64()))
    return rows, {index: bad[index] for index in sorted(still)}


def _decode_as(standard: str, row: t.Row, messages: list[bytes]) -> Decoded:
    """Decode objects as rows, with timestamps of a standard."""
    options: dict[str, Any] = {"timestamp_format": standard}
    return format_class("json")(**options).decoder(row).decode(pa.array(messages, pa.binary()))


def _fill(values: pa.Array, absent: Any, default: Any, kind: t.DataType) -> pa.Array:
    """Return values with a default where they are absent."""
    extended = pa.concat_arrays([values, pa.array([to_arrow(default, kind)], arrow_type(kind))])
    return extended.take(pa.array(np.where(absent, len(values), np.arange(len(values)))))


def fail_at_lines(problems: Mapping[int, str], source: str) -> None:
    """Raise the error of lines that cannot be written, by their numbers; do nothing if there are none."""
    if problems:
        first = [f"{source}, line {number:,}: {problems[number]}" for number in sorted(problems)[:MOST_LINES]]
        raise JsonRowError("\n".join([*first, *(["more lines have errors"] if len(problems) > len(first) else [])]))
