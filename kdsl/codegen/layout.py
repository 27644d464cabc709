"""Python text in the form that formatters leave as it is.

What does not fit into a line goes one part to a line, with a comma behind the last: formatters keep that at any line
length from `WIDTH` on. A statement that cannot be broken so is marked to be skipped.
"""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Iterable, Sequence

WIDTH = 88
INDENT = "    "
_SKIP = "  # fmt: skip"
_CALL = re.compile(r"([\w.]+\()((['\"]).*\3)\)")


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
    # A class statement is broken there whatever it is called; of others formatters break the annotation, too.
    if not parts or not (fits(f"{indent}{head}") or head.startswith("class ")):
        return statement(line)
    inner = indent + INDENT
    if any(part.startswith("default=") and part[-1] in ")]}" and not fits(f"{inner}{part},") for part in parts):
        return statement(line)
    return "\n".join([f"{indent}{head}", *(f"{inner}{_broken(part, inner)}," for part in parts), f"{indent}{tail}"])


def part(head: str, parts: Sequence[str], indent: str, brackets: str = "()") -> str:
    """A call, or a list, as a part of a call, whose lines stand at an indentation."""
    line = f"{head}{brackets[0]}{', '.join(parts)}{brackets[1]}"
    if fits(f"{indent}{line},") or not parts:
        return line
    lines = (f"{indent}{INDENT}{part}," for part in parts)
    return "\n".join([f"{head}{brackets[0]}", *lines, f"{indent}{brackets[1]}"])


def _broken(part: str, indent: str) -> str:
    """A part that is too long and a call with one text, with the text in a line of its own."""
    found = None if "\n" in part or fits(f"{indent}{part},") else _CALL.fullmatch(part)
    return f"{found[1]}\n{indent}{INDENT}{found[2]},\n{indent})" if found else part


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
