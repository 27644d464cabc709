"""Windows of time in Spark SQL: as tables, where each row has its windows, and as keys of groups."""

from __future__ import annotations

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.scopes import Relation, Window
from kdsl.declare.translate.times import micros
from kdsl.declare.translate.values import Value
from kdsl.types import model as t
from kdsl.types.sql import quoted

WINDOW = "__window"
_STEP, _ALL = "__step", "__all"


def window_table(node: n.Windowed, view: str, base: Relation, time: Value, spans: list[int]) -> tuple[str, Relation]:
    """A table with a row for each window of each of its rows.

    Args:
        node: The window.
        view: The table's name in Spark.
        base: The table.
        time: Its column of time.
        spans: The lengths in milliseconds as Spark's ``window`` takes them; of CUMULATE the step is the second.
    """
    alias, column = quoted(base.alias), quoted(node.time)
    window = f"{alias}.{quoted(WINDOW)}"
    start, end = f"{window}.start", f"{window}.end"
    keys = [window]
    if node.kind == "CUMULATE":
        size, step, *rest = spans
        keys.append(f"{alias}.{quoted(_STEP)}")
        end = f"({start} + {keys[1]} * INTERVAL '{step / 1000:f}' SECOND)"
        first = f"({micros(column, f'{quoted(WINDOW)}.start')} DIV {step * 1000}L) + 1"
        whole = window_text("TUMBLE", column, [size, size, *rest] if rest else [size])
        inner = f"SELECT *, {whole} AS {quoted(WINDOW)} FROM {quoted(view)}"  # noqa: S608  # no database is asked
        steps = f"explode(sequence({first}, {size // step}L)) AS {quoted(_STEP)}"
        text = f"SELECT *, {steps} FROM ({inner}) AS {alias}"  # noqa: S608
    else:
        more = ""
        if node.kind == "SESSION" and not node.keys:
            keys.append(f"{alias}.{quoted(_ALL)}")
            more = f", {one_group(column)} AS {quoted(_ALL)}"
        made = window_text(node.kind, column, spans)
        text = f"SELECT *, {made} AS {quoted(WINDOW)}{more} FROM {quoted(view)}"  # noqa: S608
    ends = (
        ("window_start", window_bound(start, time.type)),
        ("window_end", window_bound(end, time.type)),
        ("window_time", Value(f"({end} - INTERVAL '0.001' SECOND)", time.type)),
    )
    texts = [value.text for _, value in ends]
    partition = tuple(found.text for name in node.keys if (found := base.get(name)) is not None)
    opened = Window(node.kind, node.at, texts[0], texts[1], texts[2], tuple(keys), partition)
    return f"({text}) AS {alias}", Relation(base.alias, (*base.columns, *ends), window=opened)


def one_group(time: str) -> str:
    """A key that is the same for all rows, and that Spark does not see to be: a stream's sessions need one."""
    return f"(hash({time}) & 0)"


def window_text(kind: str, time: str, spans: list[int]) -> str:
    """Spark's window of a time: size, slide, offset in milliseconds."""
    if kind == "SESSION":
        return f"session_window({time}, '{spans[0]} milliseconds')"
    size = f"'{spans[0]} milliseconds'"
    more = "".join(f", '{span} milliseconds'" for span in spans[1:])
    return f"window({time}, {size}{more})"


def window_bound(text: str, time: t.DataType | None) -> Value:
    """Where a window begins or ends: always a wall-clock time, in the session's zone."""
    if isinstance(time, t.TimestampLtz):
        text = f"CAST({text} AS TIMESTAMP_NTZ)"
    return Value(text, t.Timestamp(3, nullable=False))
