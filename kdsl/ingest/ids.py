"""Table ids as strings: the names of a table, joined by dots; a name that would be misread is in back-ticks."""

from __future__ import annotations

import re

from kdsl.formats import TableId

MAX_PARTS = 3
_PART = re.compile(r"`(?:[^`]|``)*`|[^.`]+")


def parse_id(text: str) -> TableId:
    """Read a table id such as ``db.orders``; names may be in back-ticks, and blanks around others are dropped.

    Every id that `format_id` writes is read as it was.
    """
    parts: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        name = match[0]
        if name.startswith("`"):
            parts.append(name[1:-1].replace("``", "`"))
        elif name := name.strip():
            parts.append(name)
        else:
            break
        position = match.end()
        if not text.startswith(".", position):
            break
        position += 1
    if position != len(text) or text.endswith(".") or not 1 <= len(parts) <= MAX_PARTS:
        raise ValueError(f"{text!r} is not the name of a table, such as 'orders', 'db.orders' or 'db.schema.orders'")
    return tuple(parts)


def quote_part(name: str) -> str:
    """Write one name of a table id.

    An empty one, and one with a dot, a back-tick, or blanks around it, is put in back-ticks, and each in it is doubled.
    """
    is_plain = name and name == name.strip() and not {".", "`"} & set(name)
    return name if is_plain else "`{}`".format(name.replace("`", "``"))


def format_id(table: TableId) -> str:
    """Write a table id of one to three names, whatever these are; `parse_id` reads it."""
    return ".".join(map(quote_part, table))
