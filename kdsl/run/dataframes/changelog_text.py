"""Rows of a changelog as lines of text, as Flink prints them: ``+I[101, scooter, 3.14]``.

For people to read: what ``kdsl peek`` and the connector ``print`` write.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.formats import ROW_KIND, ROW_KINDS
from kdsl.run.dataframes.collect import collect_arrow
from kdsl.types.arrow import plain_values
from kdsl.types.strings import numbers, temporal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SECOND = 1_000_000_000


def changelog_lines(rows: pa.RecordBatch | pa.Table | DataFrame) -> Iterator[str]:
    """Yield a line for each row: the row kind, then the values in brackets.

    Args:
        rows: Arrow rows, or a batch DataFrame, whose rows are all collected on the driver. Where there is no
            column `ROW_KIND`, each row is an insert (``+I``).
    """
    table: pa.RecordBatch | pa.Table = rows if isinstance(rows, (pa.RecordBatch, pa.Table)) else collect_arrow(rows)
    names = [name for name in table.schema.names if name != ROW_KIND]
    columns = [_to_strings(table.column(name)) for name in names]
    kinds = table.column(ROW_KIND).to_pylist() if len(names) < table.num_columns else repeat(ROW_KINDS[0])
    for _, kind, *values in zip(range(table.num_rows), kinds, *columns, strict=False):
        yield f"{kind}[{', '.join(values)}]"


def _to_strings(column: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return the values of a column as `changelog_lines` shows them."""
    return [_to_string(value, column.type) for value in plain_values(column)]


def _to_string(value: Any, kind: pa.DataType) -> str:
    """Return a value (`kdsl.types.arrow.plain_values`) as Flink prints it.

    NULL is ``null``, a boolean ``true``, arrays and bytes are ``[1, 2]``, maps ``{k=v}``, and rows ``+I[1, a]``.
    """
    if value is None:
        return "null"
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if pa.types.is_float32(kind):
        return numbers.format_float(value)
    if pa.types.is_float64(kind):
        return numbers.format_double(value)
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return f"[{', '.join(str(b - 256 if b > 127 else b) for b in value)}]"
    if pa.types.is_date32(kind):
        return temporal.format_date(value)
    if pa.types.is_time64(kind):
        return _clock(value * (1 if kind.unit == "ns" else 1000))
    if pa.types.is_timestamp(kind):
        return _timestamp(value, kind)
    if pa.types.is_struct(kind):
        return f"{ROW_KINDS[0]}[{', '.join(_to_string(value[f.name], f.type) for f in kind)}]"
    if pa.types.is_map(kind):
        entries = (f"{_to_string(k, kind.key_type)}={_to_string(v, kind.item_type)}" for k, v in value)
        return f"{{{', '.join(entries)}}}"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"[{', '.join(_to_string(v, kind.value_type) for v in value)}]"
    return str(value)


def _timestamp(value: int, kind: pa.TimestampType) -> str:
    """Return a timestamp as Flink prints it: ``2026-01-31T12:00``; ``2026-01-31T12:00:00Z`` if its type has a zone.

    Only without a zone are seconds left out that are zero.
    """
    nanos = value * {"s": _SECOND, "ms": 1_000_000, "us": 1000, "ns": 1}[kind.unit]
    days, rest = divmod(nanos, 86400 * _SECOND)
    clock = _clock(rest)
    if kind.tz is None:
        return f"{temporal.format_date(days)}T{clock}"
    return f"{temporal.format_date(days)}T{clock if len(clock) > 5 else f'{clock}:00'}Z"


def _clock(nanos: int) -> str:
    """A time of day from nanoseconds; without seconds that are zero, and with 3, 6 or 9 digits of a fraction."""
    seconds, fraction = divmod(nanos, _SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if seconds % 60 or fraction:
        text += f":{seconds % 60:02}"
    if fraction:
        digits = f"{fraction:09}"
        while digits.endswith("000"):
            digits = digits[:-3]
        text += f".{digits}"
    return text
