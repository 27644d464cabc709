"""Change data among JSON objects: which tool wrote it, and the rows inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.format import ChangeJson

Object = dict[str, Any]
_FORMATS: tuple[type[ChangeJson], ...] = (DebeziumJson, CanalJson, MaxwellJson, OggJson)
_NUMBERS: Mapping[int, Callable[[str], Any]] = {  # by the numbers of JDBC's types
    **dict.fromkeys((-6, -5, 4, 5), int),
    **dict.fromkeys((6, 7, 8), float),
}


def change_data(objects: Sequence[Object]) -> tuple[ChangeJson, list[Object]] | None:
    """The format of changes, and the rows that they hold.

    Args:
        objects: The messages.

    Returns:
        The format and the rows, before and after changes; None where some message is no change, or none has a row.
    """
    payloads = [o["payload"] for o in objects if set(o) == {"schema", "payload"} and isinstance(o["payload"], dict)]
    found: tuple[ChangeJson, list[Object]] | None = None
    if objects and len(payloads) == len(objects):
        found = DebeziumJson(schema_include=True), _rows(DebeziumJson.dialect, payloads)
    else:
        made = ((cls(), _rows(cls.dialect, objects)) for cls in _FORMATS)
        found = next(((chosen, rows) for chosen, rows in made if rows), None)
    return found if found is not None and found[1] else None


def _rows(dialect: Dialect, changes: Sequence[Object]) -> list[Object]:
    """The rows of changes; none where one of them is of another dialect."""
    known = {*dialect.inserts, dialect.update, dialect.delete}
    rows: list[Object] = []
    for change in changes:
        operation = change.get(dialect.operation)
        if not isinstance(operation, str) or operation not in known | set(dialect.skipped):
            return []
        images = list(_images(dialect, change))
        if operation in known and not images:
            return []
        rows += images
    return rows


def _images(dialect: Dialect, change: Object) -> Iterator[Object]:
    first, second = (change.get(member) for member in dialect.members)
    match dialect.images:
        case "before and after":
            yield from (image for image in (first, second) if isinstance(image, dict))
        case "data and old":
            yield from _changed(first, second)
        case "lists of data and old" if isinstance(first, list):
            before = second if isinstance(second, list) else [None] * len(first)
            for row, old in zip(first, before, strict=False):
                for image in _changed(row, old):
                    yield _typed(image, change.get("sqlType"))


def _changed(row: Any, old: Any) -> Iterator[Object]:
    """A row, and what it was before: the members that were others stand apart."""
    if isinstance(row, dict):
        yield row
        if isinstance(old, dict):
            yield {**row, **old}


def _typed(row: Object, types: Any) -> Object:
    """A row of Canal's, whose values are all texts, with numbers where the database has them."""
    kinds = types if isinstance(types, dict) else {}
    return {name: _number(value, kinds.get(name)) for name, value in row.items()}


def _number(value: Any, kind: Any) -> Any:
    read = _NUMBERS.get(kind) if isinstance(kind, int) else None
    if read is None or not isinstance(value, str):
        return value
    try:
        return read(value)
    except ValueError:
        return value
