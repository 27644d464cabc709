"""The parts of the documentation and their pages, as docs/README.md lists them; the site and llms.txt follow it."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
_ITEM = re.compile(r"- \[([^\]]+)\]\(([^)]+)\): (.+)")


@attrs.frozen
class Page:
    """A page of the site.

    Attributes:
        title: The title in the navigation.
        path: Where the page is, from the root of the project.
        about: What it has, in a phrase.
        group: The part of the documentation and, after a slash, the group within.
    """

    title: str
    path: str
    about: str
    group: str


def read_pages(index: Path = INDEX) -> list[Page]:
    """The pages in their order; ValueError for a list item that is not ``- [Title](page.md): about``."""
    pages, part, group = [], "", ""
    for line in index.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            part = group = line.removeprefix("## ")
        elif line.startswith("### "):
            group = f"{part}/{line.removeprefix('### ')}"
        elif line.startswith("- "):
            item = _ITEM.fullmatch(line)
            if item is None:
                raise ValueError(f"{index}: {line!r} is not '- [Title](page.md): about'")
            path = (index.parent / item[2]).resolve().relative_to(index.parents[1]).as_posix()
            pages.append(Page(item[1], path, item[3], group))
    return pages
