"""What the codes of problems and the classes of errors mean: ``kdsl explain``, and the pages docs/problems/.

Everything is in ``codes.json``, which ``make docs`` generates: those of problems from the tests that follow their
advice, those of errors from the docstrings of their classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from typing import Final

import attrs
from cattrs import structure

from kdsl.errors import KdslError, nearest

AREAS: Final = {
    "tables": "Tables",
    "formats": "Formats",
    "programs": "Table classes, builders and files",
    "sql": "SQL scripts",
    "settings": "Clusters, clients and registries",
    "operations": "Reads, writes, catalogs and pipelines",
    "ingestions": "Ingestions",
    "errors": "Errors",
}
"""The pages, with their titles."""
_LEFT_OUT = "   …"
"""What stands for the other lines of an example."""


class UnknownCodeError(KdslError):
    """A code is neither that of a problem nor the name of an error."""


@attrs.frozen
class Text:
    """What a user writes.

    Attributes:
        text: The text.
        language: Its language, as Markdown names it: ``sql``, ``python``, ``yaml``, ``console`` or ``text``.
    """

    text: str
    language: str

    def to_markdown(self) -> str:
        """The text in a fence."""
        return f"```{self.language}\n{self.text}\n```"


@attrs.frozen
class Example:
    """A problem of one declaration.

    Attributes:
        message: What kdsl says about it.
        fix: What it says to write instead.
        wrong: The declaration, if it is short enough to be shown.
        right: The declaration after that.
    """

    message: str
    fix: str
    wrong: Text | None = None
    right: Text | None = None

    def to_markdown(self) -> str:
        """The example, its message, and what to write instead; of a long example the lines that differ are marked."""
        wrong, right = (None if text is None else text.to_markdown() for text in (self.wrong, self.right))
        if self.wrong and self.wrong == self.right:
            right = None  # the remedy is elsewhere, as in the call of a command
        elif self.wrong and self.right and self.wrong.text.count("\n") > 1:
            wrong, right = None, _mark_differences(self.wrong.text, self.right.text, self.message)
        return "\n\n".join(part for part in (wrong, f"> {self.message}", f"**Instead:** {self.fix}.", right) if part)


def _mark_differences(wrong: str, right: str, message: str) -> str:
    """The lines that differ, with their neighbours, the outermost ones, and those that have a name from the message."""
    lines = list(_compare_lines(wrong.splitlines(), right.splitlines()))
    changed = {i for i, line in enumerate(lines) if not line.startswith(" ")}
    names = re.findall(r"'([^']+)'", message)
    shown: list[str] = []
    for i, line in enumerate(lines):
        if changed & {i - 1, i, i + 1} or not line.startswith("   ") or any(name in line for name in names):
            shown.append(line)
        elif shown and shown[-1] != _LEFT_OUT:
            shown.append(_LEFT_OUT)
    return "\n".join(["```diff", *shown, "```"])


def _compare_lines(wrong: Sequence[str], right: Sequence[str]) -> Iterator[str]:
    """Yield the lines of both with ``-``, ``+`` or a blank before them; a comma at an end makes no difference."""
    matcher = SequenceMatcher(None, [line.rstrip(",") for line in wrong], [line.rstrip(",") for line in right], False)
    for change, wrong_start, wrong_end, right_start, right_end in matcher.get_opcodes():
        if change == "equal":
            yield from (f" {line}" for line in right[right_start:right_end])
        else:
            yield from (f"-{line}" for line in wrong[wrong_start:wrong_end])
            yield from (f"+{line}" for line in right[right_start:right_end])


@attrs.frozen
class Explanation:
    """What a code means.

    Attributes:
        area: The page: a key of `AREAS`.
        severity: ``error`` or ``warning``; of some problems it depends on the declaration.
        meaning: What the error is, in Markdown; empty for a problem, whose messages say it.
        examples: One for each different message.
    """

    area: str
    severity: tuple[str, ...] = ()
    meaning: str = ""
    examples: tuple[Example, ...] = ()

    def to_markdown(self) -> str:
        """The explanation in Markdown, without a heading."""
        kind = f"{' or '.join(self.severity).capitalize()}." if self.severity else ""
        return "\n\n".join(part for part in (kind, self.meaning, *(e.to_markdown() for e in self.examples)) if part)


@cache
def explanations() -> Mapping[str, Explanation]:
    """What each code means, sorted by the codes."""
    text = files("kdsl.explanations").joinpath("codes.json").read_text(encoding="utf-8")
    return {code: structure(value, Explanation) for code, value in json.loads(text).items()}


def explain(code: str) -> str:
    """What the code of a problem (``topic-pattern``) or the class of an error (``OffsetError``) means, in Markdown.

    Args:
        code: The code, as messages show it, also in brackets.
    """
    name = code.strip("[]")
    known = explanations()
    if name not in known:
        raise UnknownCodeError(
            f"no problem and no error has the code {name!r}{nearest(name, known)}; `kdsl explain` lists all codes"
        )
    return f"# {name}\n\n{known[name].to_markdown()}"


def list_codes(area: str) -> Iterable[str]:
    """The codes of a page, sorted."""
    return [code for code, explanation in explanations().items() if explanation.area == area]


def write_page(area: str) -> str:
    """The page of an area in Markdown: all its codes with what they mean.

    Args:
        area: A key of `AREAS`.
    """
    parts = [
        "<!-- Generated by `make docs` from the tests that follow the advice; do not edit. -->",
        f"# Problems: {AREAS[area]}" if area != "errors" else "# Errors",
    ]
    parts += [f"## `{code}`\n\n{explanations()[code].to_markdown()}" for code in list_codes(area)]
    return "\n\n".join(parts) + "\n"
