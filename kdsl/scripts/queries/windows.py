"""Windows of time in Spark SQL: as tables with a row for each window of each row, and as keys of groups."""

from __future__ import annotations

from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.own_columns import ALL, STEP, WINDOW
from kdsl.scripts.queries.scopes import Relation, Window
from kdsl.types import model as t
from kdsl.types.sql import microseconds_between, quote_name


def make_window_table(
    node: n.Windowed, view: str, base: Relation, time: TypedSql, spans: list[int]
) -> tuple[str, Relation]:
    """Write the SQL of a table with a row for each window of each of its rows; also return its columns and window.

    Args:
        node: The window.
        view: The table's name in Spark.
        base: The table.
        time: Its time column.
        spans: The lengths in milliseconds in the order of Spark's ``window``; for CUMULATE the second is the step.
    """
    alias, column = quote_name(base.alias), quote_name(node.time)
    window = f"{alias}.{quote_name(WINDOW)}"
    start, end = f"{window}.start", f"{window}.end"
    keys = [window]
    if node.kind == "CUMULATE":
        size, step, *rest = spans
        keys.append(f"{alias}.{quote_name(STEP)}")
        end = f"({start} + {keys[1]} * INTERVAL '{step / 1000:f}' SECOND)"
        first = f"({microseconds_between(column, f'{quote_name(WINDOW)}.start')} DIV {step * 1000}L) + 1"
        whole = write_window("TUMBLE", column, [size, size, *rest] if rest else [size])
        inner = f"SELECT *, {whole} AS {quote_name(WINDOW)} FROM {quote_name(view)}"  # noqa: S608  # no database is asked
        steps = f"explode(sequence({first}, {size // step}L)) AS {quote_name(STEP)}"
        text = f"SELECT *, {steps} FROM ({inner}) AS {alias}"  # noqa: S608
    else:
        more = ""
        if node.kind == "SESSION" and not node.keys:
            keys.append(f"{alias}.{quote_name(ALL)}")
            more = f", {find_single_group_key(column)} AS {quote_name(ALL)}"
        windows = write_window(node.kind, column, spans)
        text = f"SELECT *, {windows} AS {quote_name(WINDOW)}{more} FROM {quote_name(view)}"  # noqa: S608
    ends = (
        ("window_start", write_window_bound(start, time.type)),
        ("window_end", write_window_bound(end, time.type)),
        ("window_time", TypedSql(f"({end} - INTERVAL '0.001' SECOND)", time.type)),
    )
    texts = [value.text for _, value in ends]
    partition = tuple(key_column.text for name in node.keys if (key_column := base.get(name)) is not None)
    opened = Window(node.kind, node.at, texts[0], texts[1], texts[2], tuple(keys), partition)
    return f"({text}) AS {alias}", Relation(base.alias, (*base.columns, *ends), window=opened)


def find_single_group_key(time: str) -> str:
    """Write the SQL of a key that is equal for all rows but not a constant to Spark, which a stream's sessions need."""
    return f"(hash({time}) & 0)"


def write_window(kind: str, time: str, spans: list[int]) -> str:
    """Write the SQL of Spark's window function for a time.

    ``spans`` are milliseconds: size, slide and offset, the last two optional; for SESSION the gap.
    """
    if kind == "SESSION":
        return f"session_window({time}, '{spans[0]} milliseconds')"
    size = f"'{spans[0]} milliseconds'"
    more = "".join(f", '{span} milliseconds'" for span in spans[1:])
    return f"window({time}, {size}{more})"


def write_window_bound(text: str, time: t.DataType | None) -> TypedSql:
    """Write the SQL of a window's start or end (``text``) as a wall-clock TIMESTAMP(3) in the session's time zone."""
    if isinstance(time, t.TimestampLtz):
        text = f"CAST({text} AS TIMESTAMP_NTZ)"
    return TypedSql(text, t.Timestamp(3, nullable=False))
