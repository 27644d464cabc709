"""Assertions for tests: rows and messages compared as ``kdsl test`` does it, with the same differences."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.testing.cases.compare import compare_messages, compare_rows
from kdsl.testing.cases.model import Content, Message, read_message
from kdsl.testing.running import Record

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage


def assert_rows(actual: object, expected: Iterable[Mapping[str, Any]], *, ordered: bool = True) -> None:
    """Compare rows by value; differences are listed column by column.

    Args:
        actual: A DataFrame of Spark, Arrow data (anything with ``__arrow_c_stream__``: pyarrow, polars, pandas, the
            batches of a read), or an iterable of dicts.
        expected: The rows, each with all columns. Values are Python's, or text in the form of the column's type, as in
            files of cases: ``"2026-01-31 08:00:00Z"``.
        ordered: Whether the order of the rows counts.

    Raises:
        AssertionError: The rows differ.
        TypeError: ``actual`` is not rows.
    """
    __tracebackhide__ = True
    _fail(compare_rows(list(expected), _to_arrow(actual), ordered=ordered))


def assert_messages(
    actual: Iterable[KafkaMessage[bytes, bytes] | Record],
    expected: Iterable[Mapping[str, Any]],
    *,
    ordered: bool = True,
) -> None:
    """Compare messages of a topic, such as those of ``kdsl_kafka.read(topic)``; differences are listed.

    Args:
        actual: The messages.
        expected: For each one ``key``, ``value`` and ``headers``; what is left out is null, or no headers. Strings are
            UTF-8, dicts and lists are compared as JSON. ``topic``, ``partition`` and ``timestamp`` (in milliseconds)
            are compared if one message has them.
        ordered: Whether their order counts.

    Raises:
        AssertionError: The messages differ.
        TypeError: An expected message has other keys, or content of another type.
    """
    __tracebackhide__ = True
    _fail(compare_messages([_expect(one) for one in expected], [_read(one) for one in actual], ordered=ordered))


def _fail(lines: Sequence[str]) -> None:
    """Raise an AssertionError with the lines, if there are some."""
    __tracebackhide__ = True
    if lines:
        raise AssertionError("\n".join(lines))


def _to_arrow(rows: object) -> pa.Table:
    """Convert rows to an Arrow table."""
    if hasattr(rows, "sparkSession"):
        from kdsl.run.dataframes.collect import collect_arrow

        return collect_arrow(rows)  # type: ignore[arg-type]
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows).read_all()
    if hasattr(rows, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(rows)])
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping | str | bytes):
        raise TypeError(f"{type(rows).__name__} is not rows; pass a DataFrame, Arrow data or dicts")
    dicts: list[Any] = list(rows)
    if wrong := [type(one).__name__ for one in dicts if not isinstance(one, Mapping)]:
        raise TypeError(f"{wrong[0]} is not a row; pass dicts")
    names = list(dict.fromkeys(name for one in dicts for name in one))
    return pa.table({name: [one.get(name) for one in dicts] for name in names})


def _expect(one: Mapping[str, Any]) -> Message:
    """Convert an expected message."""
    rest = dict(one)
    key, value, headers = (rest.pop(name, None) for name in ("key", "value", "headers"))
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return Message(_content(key), _content(value), tuple((name, _content(data)) for name, data in pairs), **rest)


def _read(one: Any) -> Message:
    """Convert a message of a topic, or one that is to be produced."""
    if isinstance(one, Record):
        headers = tuple((name, _content(data)) for name, data in one.headers)
        return Message(_content(one.key), _content(one.value), headers, one.partition, None, one.timestamp)
    return read_message(one)


def _content(value: Any) -> Content:
    """Convert a key, a value, or the value of a header."""
    if isinstance(value, Mapping | list):
        return Content(json.dumps(value).encode(), json=True)
    if value is not None and not isinstance(value, str | bytes):
        raise TypeError(f"{value!r} is not the content of a message; pass bytes, str, or a dict or list for JSON")
    return Content(value.encode() if isinstance(value, str) else value)
