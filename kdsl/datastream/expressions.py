"""SQL expressions that a serializer evaluates for each row; syntax errors are found before the query runs."""

from __future__ import annotations

import re

from kdsl.spark_internals.sql_text import check_syntax

_CLOSING = {"(": ")", "[": "]"}
_PIECES = re.compile(
    r"""
      (?P<raw>\b[rR](?:'[^']*'|"[^"]*"))
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/)
    | (?P<open>['"`]|/\*)
    | (?P<bracket>[()\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)


def syntax_error(text: str) -> str | None:
    """Say why Spark cannot parse an expression; None if no error is known.

    Without an active session only empty strings, quotes and brackets are checked.

    Args:
        text: The expression, in Spark's SQL.
    """
    if not text.strip():
        return "it is empty"
    return _find_unbalanced(text) or _parse_with_spark(text)


def _find_unbalanced(text: str) -> str | None:
    """Describe the first quote or bracket without its counterpart; None if there is none."""
    pending: list[tuple[str, int]] = []
    for piece in _PIECES.finditer(text):
        where = f"at position {piece.start() + 1}"
        if piece["open"]:
            return f"{piece['open']} {where} is never closed"
        bracket = piece["bracket"]
        if bracket in _CLOSING:
            pending.append((bracket, piece.start()))
        elif bracket and (not pending or _CLOSING[pending.pop()[0]] != bracket):
            return f"{bracket} {where} closes no bracket"
    return f"{pending[-1][0]} at position {pending[-1][1] + 1} is never closed" if pending else None


def _parse_with_spark(text: str) -> str | None:
    """Return the first line of the error of Spark's parser; None if there is no error, or no active session."""
    from pyspark.errors import ParseException
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        return None
    try:
        check_syntax(session, text)
    except ParseException as e:
        return str(e).strip().splitlines()[0]
    return None
