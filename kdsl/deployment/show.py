"""Prints differences: one line each, below the topic that they are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from kdsl.deployment.model import Difference, Mark

_SUMMARY: Mapping[Mark, str] = {"+": "to create", "~": "to change", "!": "refused", "?": "not comparable"}


def summarize(differences: Iterable[Difference]) -> str:
    """One line with the number of differences of each mark; without any, that nothing differs."""
    marks = Counter(d.mark for d in differences)
    counts = [f"{marks[mark]} {words}" for mark, words in _SUMMARY.items() if marks[mark]]
    return f"{', '.join(counts)}." if counts else "nothing differs."


def show_differences(differences: Iterable[Difference]) -> Iterator[str]:
    """Yield a line for each difference; those of an existing topic follow a line with its name."""
    every = list(differences)
    places = {d.place for d in every if d.kind == "topic"}
    for (kind, name, place, inside), group in groupby(every, key=_heading):
        members = list(group)
        on = f" on {place}" if kind == "topic" and len(places) > 1 else ""
        if not inside:
            yield from (show_line(d, on) for d in members)
            continue
        location = members[0].location
        yield f"{kind} {_printable(name)}{on}" + (f"  declared {location}" if location else "")
        what, values = (max(len(getattr(d, part)) for d in members) for part in ("what", "values"))
        for d in members:
            own = f" ({d.location})" if d.location and d.location != location else ""
            yield f"  {d.mark} {d.what:<{what}}  {d.values:<{values}}  {_one_line(d.consequence)}{own}"


def show_line(d: Difference, on: str = "") -> str:
    """One difference on a line by itself.

    Args:
        d: The difference.
        on: What follows its name, such as the place.
    """
    parts = [f"{d.mark} {d.kind} {_printable(d.name)}{on}", d.what, d.values, _one_line(d.consequence)]
    where = f"({d.location})" if d.location else ""
    return "  ".join(part for part in (*parts, where) if part)


def _heading(d: Difference) -> tuple[str, str, str, bool]:
    """What lines with the same heading have in common."""
    return d.kind, d.name, d.place, d.kind == "topic" and bool(d.what)


def _printable(name: str) -> str:
    """A name as it is, or quoted if it has characters that a terminal does not show."""
    return name if name.isprintable() else repr(name)


def _one_line(text: str) -> str:
    """A string without line breaks."""
    return " ".join(text.split())
