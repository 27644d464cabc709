"""Python text in the form that formatters leave as it is.

What does not fit into a line goes one part to a line, with a comma behind the last: formatters keep that at any line
length from `WIDTH` on. A statement that cannot be broken so is marked to be skipped.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Iterable, Sequence

WIDTH = 88
INDENT = "    "
_SKIP = "  # fmt: skip"


def width(text: str) -> int:
    """The columns that a text takes, or more."""
    return sum(1 if c.isascii() else 2 for c in text)


def fits(line: str) -> bool:
    """Whether a line is short enough."""
    return width(line) <= WIDTH


def statement(line: str) -> str:
    """A statement of one line that cannot be broken."""
    return line if fits(line) else line + _SKIP


def call(head: str, parts: Sequence[str], indent: str = "", tail: str = ")") -> str:
    """A statement that ends in brackets, in one line or with a line for each part.

    Args:
        head: Everything to the opening bracket, without indentation.
        parts: What stands in the brackets; each may have several lines.
        indent: The indentation.
        tail: Everything from the closing bracket on.
    """
    line = f"{indent}{head}{', '.join(parts)}{tail}"
    if fits(line) and "\n" not in line:
        return line
    if not parts or not fits(f"{indent}{head}"):
        return statement(line) if "\n" not in line else line
    return "\n".join([f"{indent}{head}", *(f"{indent}{INDENT}{part}," for part in parts), f"{indent}{tail}"])


def mapping(head: str, entries: Iterable[tuple[str, str]], indent: str) -> str:
    """A dict as a part of a call, whose lines stand at an indentation."""
    pairs = [f"{key}: {value}" for key, value in entries]
    line = f"{head}{{{', '.join(pairs)}}}"
    if fits(f"{indent}{line},"):
        return line
    return "\n".join([f"{head}{{", *(f"{indent}{INDENT}{pair}," for pair in pairs), f"{indent}}}"])


def text(value: str) -> str:
    """A text as a literal, in the quotes that need the fewest escapes."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    return quote + "".join(_escaped(c, quote) for c in value) + quote


def _escaped(c: str, quote: str) -> str:
    if c == quote or c == "\\":
        return f"\\{c}"
    # repr writes a quote as it is, and whatever does not print as an escape
    return c if c in "'\"" else repr(c)[1:-1]


def bytes_text(value: bytes) -> str:
    """Bytes as a literal."""
    made = text(value.decode("latin-1"))
    return "b" + made[0] + "".join(c if c.isascii() else f"\\x{ord(c):02x}" for c in made[1:-1]) + made[-1]


def docstring(value: str, indent: str) -> str | None:
    """A text as a docstring that reads back equal; None where it cannot be one."""
    lines = value.split("\n")
    plain = all(line == line.rstrip() and _prints(line) for line in lines) and inspect.cleandoc(value) == value
    if not value or not plain or '"""' in value or "\\" in value or value[0] == '"':
        return None
    if len(lines) == 1:
        return None if value.endswith('"') else f'{indent}"""{value}"""'
    shown = "\n".join(f"{indent}{line}" if line else "" for line in lines)
    return f'{indent}"""{shown.removeprefix(indent)}\n{indent}"""'


def _prints(line: str) -> bool:
    return all(c.isprintable() and unicodedata.category(c) != "Cf" for c in line)
