"""Files that a page shows: code after a paragraph that begins with the name of the file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.installed_plugins import write_metadata
from tests.pages import ROOT


def section_of(page: str, heading: str) -> str:
    """The text of a section of a page in docs/, up to the next heading of its level."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


_FILE = re.compile(r"^`([\w.]+)`[^\n]*(?:\n[^`\n][^\n]*)*\n\n```\w+\n(.*?)```", re.MULTILINE | re.DOTALL)


def install_package(section: str, folder: Path) -> None:
    """Write the files of a section into a folder, with the metadata of its entry points, as an installation does."""
    files = dict(
        re.findall(r"^`([\w.]+)`[^\n]*(?:\n[^`\n][^\n]*)*\n\n```\w+\n(.*?)```", section, re.MULTILINE | re.DOTALL)
    )
    for name, code in files.items():
        (folder / name).write_text(code, encoding="utf-8")
    write_metadata(folder, tomllib.loads(files["pyproject.toml"])["project"]["entry-points"])


def other_code(section: str, language: str) -> str:
    """The last code of a section in one language."""
    return str(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[-1])
