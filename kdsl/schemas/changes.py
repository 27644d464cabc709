"""Recognizes change data in JSON objects: the tool that wrote it, and the rows inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.formats import ChangeJson

Object = dict[str, Any]
_FORMATS: tuple[type[ChangeJson], ...] = (DebeziumJson, CanalJson, MaxwellJson, OggJson)
_NUMBERS: Mapping[int, Callable[[str], Any]] = {  # by the numbers of JDBC's types
    **dict.fromkeys((-6, -5, 4, 5), int),
    **dict.fromkeys((6, 7, 8), float),
}


def detect_change_data(objects: Sequence[Object]) -> tuple[ChangeJson, list[Object]] | None:
    """Detect the format of messages of change data, and extract the rows before and after changes.

    None if a message is not a change, or none has a row.
    """
    payloads = [o["payload"] for o in objects if set(o) == {"schema", "payload"} and isinstance(o["payload"], dict)]
    if objects and len(payloads) == len(objects):
        rows = _extract_rows(DebeziumJson.dialect, payloads)
        return (DebeziumJson(schema_include=True), rows) if rows else None
    candidates = ((cls(), _extract_rows(cls.dialect, objects)) for cls in _FORMATS)
    return next(((format_, rows) for format_, rows in candidates if rows), None)


def _extract_rows(dialect: Dialect, changes: Sequence[Object]) -> list[Object]:
    """Return the rows of changes, both before and after; none if a message is of another dialect.

    A change without its rows counts as one if it has their members, because some tools put a deleted row elsewhere.
    """
    known = {*dialect.inserts, dialect.update, dialect.delete}
    rows: list[Object] = []
    for change in changes:
        operation = change.get(dialect.operation)
        if not isinstance(operation, str) or operation not in {*known, *dialect.skipped, dialect.truncate}:
            return []
        images = list(_extract_images(dialect, change))
        if operation in known and not images and not all(member in change for member in dialect.members):
            return []
        rows += images
    return rows


def _extract_images(dialect: Dialect, change: Object) -> Iterator[Object]:
    """Yield the rows in a change: before and after it, or where it has ``data`` and ``old``, after and before it.

    Strings in numeric columns become numbers where the message is one of Canal.
    """
    first, second = (change.get(member) for member in dialect.members)
    match dialect.images:
        case "before and after":
            yield from (image for image in (first, second) if isinstance(image, dict))
        case "data and old":
            yield from _row_and_old(first, second)
        case "lists of data and old" if isinstance(first, list):
            before = second if isinstance(second, list) else [None] * len(first)
            for row, old in zip(first, before, strict=False):
                for image in _row_and_old(row, old):
                    yield _parse_numbers(image, change.get("sqlType"))


def _row_and_old(row: Any, old: Any) -> Iterator[Object]:
    """Yield a row, and the row before the change: ``old`` has its changed fields. Nothing without a row."""
    if isinstance(row, dict):
        yield row
        if isinstance(old, dict):
            yield {**row, **old}


def _parse_numbers(row: Object, types: Any) -> Object:
    """Convert a row of Canal, whose values are all strings, to one with numbers for the database's numeric columns.

    ``types`` are the numbers of JDBC's types by column; columns without one, or all if it is not a dict, stay strings.
    """
    kinds = types if isinstance(types, dict) else {}
    return {name: _parse_number(value, kinds.get(name)) for name, value in row.items()}


def _parse_number(value: Any, kind: Any) -> Any:
    """Convert a string to the number that its JDBC type says; return other values, and other strings, as they are."""
    read = _NUMBERS.get(kind) if isinstance(kind, int) else None
    if read is None or not isinstance(value, str):
        return value
    try:
        return read(value)
    except ValueError:
        return value
