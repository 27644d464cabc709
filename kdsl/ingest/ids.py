"""Table ids as strings: the names of a table, joined by dots; a name with a dot is in back-ticks."""

from __future__ import annotations

import re

from kdsl.formats import TableId

MAX_PARTS = 3
_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")


def parse_id(text: str) -> TableId:
    """Read a table id such as ``db.orders``; names may be in backquotes, and spaces around others are dropped.

    Raises:
        ValueError: It is not one to three names with dots between them.
    """
    parts: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        name = match[0]
        parts.append(name[1:-1].replace("``", "`") if name.startswith("`") else name.strip())
        position = match.end()
        if not text.startswith(".", position):
            break
        position += 1
    if position != len(text) or text.endswith(".") or not 1 <= len(parts) <= MAX_PARTS or not all(parts):
        raise ValueError(f"{text!r} is not the name of a table, such as 'orders', 'db.orders' or 'db.schema.orders'")
    return tuple(parts)


def quote_part(name: str) -> str:
    """Write one name of a table id; one with a dot or a back-tick is put in back-ticks, and each in it is doubled."""
    return "`{}`".format(name.replace("`", "``")) if "." in name or "`" in name else name


def format_id(table: TableId) -> str:
    """Write a table id; `parse_id` reads it."""
    return ".".join(map(quote_part, table))
