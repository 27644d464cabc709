"""Values of records in error messages, which can be hidden from whoever may see an error but not the data.

A decoder's error quotes the value that it cannot read. Each such value stands between two marks, from where the message
is written to where it is shown: then the marks are removed (`reveal_values`), or the values with them (`hide_values`).
The marks are noncharacters of Unicode; `show_value` replaces those of the value itself, so that no value can end its
mark, whatever it contains and wherever it is cut.
"""

from __future__ import annotations

import re

LONGEST = 60
"""The maximum length of a value in an error message."""
HIDDEN = "…"
"""What stands in place of a value."""

_BEGIN, _END = "\ufde0", "\ufde1"
_MARK = re.compile(f"[{_BEGIN}{_END}]")
_VALUE = re.compile(f"{_BEGIN}[^{_BEGIN}{_END}]*{_END}")


def show_value(value: object) -> str:
    """Return a value for an error message, marked, and cut after `LONGEST` characters.

    Args:
        value: A number, or a string in the form in which it is shown, such as its ``repr``.
    """
    text = str(value)
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return f"{_BEGIN}{_MARK.sub(chr(0xFFFD), text)}{_END}"


def quote_value(value: object) -> str:
    """Return the ``repr`` of a value for an error message, marked, and cut after `LONGEST` characters."""
    return show_value(repr(value))


def quote_path(path: str) -> str:
    """Return a path to a value in quotes, as ``repr`` does, with the marks of the values in it."""
    quote = '"' if "'" in path and '"' not in path else "'"
    parts = [part if _MARK.fullmatch(part) else _escape(part, quote) for part in re.split(f"({_MARK.pattern})", path)]
    return f"{quote}{''.join(parts)}{quote}"


def reveal_values(message: str) -> str:
    """Return a message with its values and without their marks."""
    return _MARK.sub("", message)


def hide_values(message: str) -> str:
    """Return a message with `HIDDEN` in place of each value."""
    return _MARK.sub("", _VALUE.sub(HIDDEN, message))


def _escape(text: str, quote: str) -> str:
    """Return the inside of the ``repr`` of a string that is quoted by a character."""
    inside = repr(f"\"'{text}")[4:-1]  # a string with both quotes is always in single ones
    return inside if quote == "'" else inside.replace("\\'", "'")
