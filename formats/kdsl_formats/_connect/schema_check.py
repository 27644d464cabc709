"""Compares the schemas inside messages with the columns of a table.

Without this check, a decimal with another scale than the column's, or a timestamp in another unit, would be read as a
different value. Nearly all messages of a topic begin with the same schema, which is compared once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import BadRecord, Decoded, Decoder
from kdsl.shown_values import show_value
from kdsl.types import model as t
from kdsl_formats._columns.arrays import find_present
from kdsl_formats._connect.messages import Heads, schema_in
from kdsl_formats._connect.schemas import DECIMAL, TIME_SCHEMAS, fields_of
from kdsl_formats._connect.wires import Decimals, Modes, Times, Timestamps, wire_of

_MAX_SCHEMAS = 16  # schemas
_ATTEMPTS = 8  # new schemas per batch
_FAMILIES = (t.Date, t.Time, (t.Timestamp, t.TimestampLtz))


class SchemaCheckingDecoder:
    """Decodes messages whose schema matches the columns; other messages are bad.

    Args:
        inner: Decodes the messages.
        row: The type of the rows.
        modes: How their values are read.
        members: The members of the payload that are such rows; empty if the payload itself is a row.
        ignore: Whether bad messages produce no rows, instead of an error.
    """

    def __init__(
        self, inner: Decoder, row: t.Row, modes: Modes, members: tuple[str, ...] = (), *, ignore: bool = False
    ) -> None:
        self._inner, self._row, self._modes, self._members = inner, row, modes, members
        self._ignore = ignore
        self._problems = Heads(self._find_problem, _MAX_SCHEMAS)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages; those whose schema contradicts the columns are bad records, or left out with `ignore`.

        The results for schemas are remembered for the next batch.
        """
        wrong = self._find_bad(messages)
        if not wrong:
            return self._inner.decode(messages)
        mask = np.zeros(len(messages), dtype=bool)
        mask[[bad.index for bad in wrong]] = True
        decoded = self._inner.decode(pc.if_else(pa.array(mask), pa.scalar(None, messages.type), messages))
        if self._ignore:
            return decoded
        return attrs.evolve(decoded, bad=tuple(sorted((*decoded.bad, *wrong), key=lambda bad: bad.index)))

    def _find_bad(self, messages: pa.BinaryArray) -> list[BadRecord]:
        """The messages whose schema contradicts the columns, as bad records; not ordered. Schemas are remembered."""
        rest = find_present(messages)
        bad: list[BadRecord] = []
        for _, problem, which in self._problems.group(messages, rest, _ATTEMPTS):
            if problem:
                bad += [BadRecord(index, problem) for index in np.flatnonzero(which).tolist()]
        for index in np.flatnonzero(rest).tolist():
            problem = self._find_problem(schema_in(messages[index].as_py()))
            if problem:
                bad.append(BadRecord(index, problem))
        return bad

    def _find_problem(self, schema: Any) -> str:
        """How a schema, or with `members` those of them that it has, contradicts the columns; empty if it does not."""
        rows: list[Any] = [schema]
        if self._members:
            rows = [f for f in fields_of(schema) if f["field"] in self._members]
        return "; ".join(
            dict.fromkeys(each for one in rows for each in find_contradictions(one, self._row, self._modes))
        )


def find_contradictions(schema: Any, kind: t.DataType, modes: Modes, path: str = "") -> Iterator[str]:
    """Find where values of a schema would be read as other values than were written; yields a sentence for each.

    A column that the schema lacks contradicts nothing; the keys of maps are not compared.

    Args:
        schema: The schema of Kafka Connect; anything but an object contradicts nothing, and neither do its malformed
            fields.
        kind: The column's type.
        modes: How values are read.
        path: The path of the column.
    """
    if not isinstance(schema, Mapping):
        return
    match kind:
        case t.Row(fields=fields):
            inner = {f["field"]: f for f in fields_of(schema)}
            for field in fields:
                inner_path = f"{path}.{field.name}" if path else field.name
                yield from find_contradictions(inner.get(field.name), field.type, modes, inner_path)
        case t.Array(element=element):
            yield from find_contradictions(schema.get("items"), element, modes, f"{path}[]")
        case t.Map(value=value):
            yield from find_contradictions(schema.get("values"), value, modes, f"{path}[]")
        case _:
            yield from _value_contradictions(schema, kind, modes, path)


def _value_contradictions(schema: Mapping[str, Any], kind: t.DataType, modes: Modes, path: str) -> Iterator[str]:
    """Find how the schema of a value without parts contradicts its column: by a scale, a unit, or another type of time.

    Nothing is found without a name in the schema, or where the modes leave the type to the format.
    """
    wire, name = wire_of(kind, modes), schema.get("name")
    if wire is None or not isinstance(name, str):
        return
    prefix = f"the schema in the message says that {path!r}"
    time_schema = TIME_SCHEMAS.get(name)
    if isinstance(wire, Decimals) and name == DECIMAL:
        parameters = schema.get("parameters")
        scale = parameters.get("scale") if isinstance(parameters, Mapping) else None
        shown = show_value(scale)
        if wire.mode == "precise" and scale is not None and str(scale) != str(wire.decimal.scale):
            yield f"{prefix} has the scale {shown}, but the column is {kind.spelling}; declare DECIMAL(p, {shown})"
    elif time_schema is not None and not any(
        isinstance(kind, f) and isinstance(time_schema.type, f) for f in _FAMILIES
    ):
        yield f"{prefix} is a {name}, but the column is {kind.spelling}; declare {time_schema.type.spelling}"
    elif (
        time_schema is not None and isinstance(wire, Times | Timestamps) and _units_differ(wire.unit, time_schema.unit)
    ):
        yield (
            f"{prefix} is a {name}, but the column {kind.spelling} with time.precision.mode {modes.times!r} counts "
            f"another unit; declare {time_schema.type.spelling}, or set the mode of the connector"
        )


def _units_differ(unit: int | None, other: int | None) -> bool:
    """Whether both are units of numbers and differ; None is the unit of strings, which need no check."""
    return unit is not None and other is not None and unit != other
