"""Java properties files."""

from __future__ import annotations

import re

_LINE = re.compile(r"(?P<key>(?:\\.|[^\\\s=:])+)?[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Parse a Java properties file, with comments, continued lines and escapes; the last of equal keys counts.

    A Unicode escape without four digits is not an error: it is the letter u.
    """
    values = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        whole = line.lstrip(" \t\f")
        if not whole or whole[0] in "#!":
            continue
        while re.search(r"(?<!\\)(?:\\\\)*\\$", whole):
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        match = _LINE.fullmatch(whole)
        if match:
            values[_unescape(match["key"] or "")] = _unescape(match["value"])
    return values


def _unescape(text: str) -> str:
    """Replace the escapes of Java's properties files by their characters."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _CONTROLS.get(m[2] or "", m[2] or ""), text)
