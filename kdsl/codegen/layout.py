"""Python source in the layout that formatters leave unchanged.

A statement that does not fit into a line has one part per line, with a comma after the last: formatters keep that at
any line length from `WIDTH` on. A statement that cannot be broken in this way is marked with ``fmt: skip``.
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


def width(string: str) -> int:
    """The columns that a string takes on the screen, or more: two for each character that is not ASCII."""
    return sum(1 if c.isascii() else 2 for c in string)


def fits(line: str) -> bool:
    """Whether a line is at most `WIDTH` columns wide."""
    return width(line) <= WIDTH


def statement(line: str) -> str:
    """Return a statement on one line that cannot be broken; a long one gets a comment that keeps formatters away."""
    return line if fits(line) else line + _SKIP


def call(head: str, parts: Sequence[str], indent: str = "", tail: str = ")") -> str:
    """Lay out a statement that ends in brackets, on one line or with a line for each part.

    A long one that cannot be broken so gets a comment that keeps formatters away.

    Args:
        head: Everything up to the opening bracket, without indentation.
        parts: The parts in the brackets; each may have several lines.
        indent: The indentation.
        tail: Everything from the closing bracket on.
    """
    line = f"{indent}{head}{', '.join(parts)}{tail}"
    if fits(line) and "\n" not in line:
        return line
    # Formatters always break a class statement there; in other statements they break the annotation, too.
    if not parts or not (fits(f"{indent}{head}") or head.startswith("class ")):
        return statement(line)
    inner = indent + INDENT
    if any(part.startswith("default=") and part[-1] in ")]}" and not fits(f"{inner}{part},") for part in parts):
        return statement(line)
    return "\n".join([f"{indent}{head}", *(f"{inner}{_break_call(part, inner)}," for part in parts), f"{indent}{tail}"])


def part(head: str, parts: Sequence[str], indent: str, brackets: str = "()") -> str:
    """Lay out a call, or a list, as a part of a call: on one line, or with a line for each of its parts.

    ``head`` is everything up to the brackets. Lines after the first one are indented by ``indent``.
    """
    line = f"{head}{brackets[0]}{', '.join(parts)}{brackets[1]}"
    if fits(f"{indent}{line},") or not parts:
        return line
    lines = (f"{indent}{INDENT}{part}," for part in parts)
    return "\n".join([f"{head}{brackets[0]}", *lines, f"{indent}{brackets[1]}"])


def _break_call(part: str, indent: str) -> str:
    """Return a part; one that is too long and a call with one string, with the string on a separate line."""
    match = None if "\n" in part or fits(f"{indent}{part},") else _CALL.fullmatch(part)
    return f"{match[1]}\n{indent}{INDENT}{match[2]},\n{indent})" if match else part


def mapping(head: str, entries: Iterable[tuple[str, str]], indent: str) -> str:
    """Lay out a dict as a part of a call, as `part` does; the entries are the source of keys and values."""
    pairs = [f"{key}: {value}" for key, value in entries]
    line = f"{head}{{{', '.join(pairs)}}}"
    if fits(f"{indent}{line},"):
        return line
    return "\n".join([f"{head}{{", *(f"{indent}{INDENT}{pair}," for pair in pairs), f"{indent}}}"])


def string_literal(value: str) -> str:
    """Write a string as a literal, in the quotes that need the fewest escapes."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    return quote + "".join(_escape(c, quote) for c in value) + quote


def _escape(c: str, quote: str) -> str:
    """Escape a character of a string literal, whose quote is ``quote``, if it must be."""
    if c == quote or c == "\\":
        return f"\\{c}"
    # repr writes a quote unchanged, and unprintable characters as escapes
    return c if c in "'\"" else repr(c)[1:-1]


def bytes_literal(value: bytes) -> str:
    """Write bytes as a literal, with escapes for bytes that are not ASCII."""
    literal = string_literal(value.decode("latin-1"))
    return "b" + literal[0] + "".join(c if c.isascii() else f"\\x{ord(c):02x}" for c in literal[1:-1]) + literal[-1]


def docstring(value: str, indent: str) -> str | None:
    """Write a string as a docstring with exactly this value, indented; None if no docstring has this value."""
    lines = value.split("\n")
    plain = all(line == line.rstrip() and _is_printable(line) for line in lines) and inspect.cleandoc(value) == value
    if not value or not plain or '"""' in value or "\\" in value or value[0] == '"':
        return None
    if len(lines) == 1:
        return None if value.endswith('"') else f'{indent}"""{value}"""'
    indented = "\n".join(f"{indent}{line}" if line else "" for line in lines)
    return f'{indent}"""{indented.removeprefix(indent)}\n{indent}"""'


def _is_printable(line: str) -> bool:
    """Whether all characters of a line are visible or blanks."""
    return all(c.isprintable() and unicodedata.category(c) != "Cf" for c in line)
