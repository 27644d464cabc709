"""The messages of problems as tests compare them."""

from __future__ import annotations

from kdsl.errors import Problem


def without_code(problem: Problem) -> str:
    """The message without the code at its end, which says what the name of the rule is and not what is wrong."""
    return str(problem).replace(f" [{problem.code}]", "")
