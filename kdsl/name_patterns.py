r"""Regular expressions of names, as of topics and tables: what Java's and Python's languages have in common.

Flink's users write Java's patterns. Names are simple, so the common language is enough, and a pattern means the same in
Python, in Java's clients and in Flink. What only one of the two languages has, or reads in its own way, is refused by
name. As in Java, ``\w``, ``\d``, ``\s`` and ``(?i)`` concern ASCII only.
"""

from __future__ import annotations

import re

TOPIC_FIX = "write a pattern that the whole topic name must match, such as 'orders-.*'"
"""What to write instead of a pattern, where nothing else is known."""

_ESCAPE = r"\\(?:[^a-zA-Z0-9]|[tnrfabBAdDwWsS1-9]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"
_PART = re.compile(
    rf"{_ESCAPE}|\((?:(?!\?)|\?(?:[:=!>]|<[=!]|-?i:))|\[\^?\]?(?:(?!&&)[^\\\[\]]|(?!\\[bBA1-9]){_ESCAPE})*\]"
    r"|\{[0-9]+(?:,[0-9]*)?\}|[^\\\[({]"
    r"|\[[^\\\[\]]*\Z"  # Python reports a class that does not end
)
"""A part of the common language: an escape, the start of a group, a class, a repetition, or another character."""
_REFUSED = (
    (r"\\[pP](?:\{[^}]*\}|\w)?", "write the characters out, as [a-z]"),
    (r"\\Q(?:(?!\\E).)*(?:\\E)?", r"write a backslash before each special character, as in orders\.eu"),
    (r"\\k(?:<\w*>)?|\(\?P?<\w*>|\(\?P=\w*\)", r"write a group as (…), and \1 for what it has matched"),
    (r"\\[zZG]", "remove it: the whole name must match"),
    (r"\(\?i\)", "put (?i) first, as in '(?i)orders-.*', or write (?i:…) around a part"),
    (r"\(\?-i\)", "write (?-i:…) around a part"),
    (r"\(\?[a-zA-Z-]+[:)]", "remove it; the only flag is (?i), at the beginning, for any letter case"),
    (r"\\.?", "write the character itself, or its code, as \\u00e9"),
    (r"\(\?.?", "write a group as (…) or (?:…)"),
    (r"\{[^}]*\}?", r"write a repetition as {2}, {2,} or {0,2}, and a brace as \{"),
    (r"\[\^?\]?(?:[^\\\[\]]|\\.)*", "write one class in brackets, such as [a-z0-9_], with \\[ for a bracket"),
)
"""Constructs that only one of the languages has, or that differ, and what to write instead; the first one fits."""


class PatternError(Exception):
    """A pattern that cannot be used.

    Args:
        message: Why, as the end of "the pattern … ".
        fix: What to write instead.
    """

    def __init__(self, message: str, fix: str = TOPIC_FIX) -> None:
        super().__init__(message)
        self.fix = fix


def compile_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern, which a whole name must match.

    Args:
        pattern: The pattern.
        flags: Flags of `re`, beside that for ASCII.
    """
    index = len("(?i)") if pattern.startswith("(?i)") else 0
    while index < len(pattern):
        part = _PART.match(pattern, index)
        if part is None:
            raise _refuse(pattern, index)
        index = part.end()
    try:
        return re.compile(pattern, re.ASCII | flags)
    except re.error as e:
        at = "" if e.pos is None else f" at position {e.pos}"
        raise PatternError(f"is not a regular expression: {e.msg}{at}") from None


def _refuse(pattern: str, index: int) -> PatternError:
    """Return the error for what begins at an index, which is not part of the common language."""
    for construct, fix in _REFUSED:
        if match := re.compile(construct, re.DOTALL).match(pattern, index):
            return PatternError(
                f"has '{match[0]}' at position {index}, which Java and Python do not have in common", fix
            )
    raise AssertionError(pattern)
