from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from kdsl.formats import BUILT_IN, GROUP, Format, UnknownFormatError, format_class, format_names

ROOT = Path(__file__).parents[2]


def test_the_built_in_table_the_entry_points_and_the_modules_on_disk_are_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    entries = project["project"]["entry-points"][GROUP]
    folder = ROOT / "formats" / "kdsl_formats"
    # py.typed, what formats with a registry share, and which format messages seem to have
    not_formats = {"py", "registry", "suggest"}
    modules = {p.stem for p in folder.iterdir() if not p.name.startswith(("_", "."))} - not_formats

    assert entries == BUILT_IN
    assert {target.partition(":")[0].rpartition(".")[2] for target in BUILT_IN.values()} == modules


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_each_format_carries_the_name_that_it_is_found_by(name: str) -> None:
    kind = format_class(name)

    assert issubclass(kind, Format)
    assert kind.identifier == name
    assert set(format_names()) >= set(BUILT_IN)


def test_an_unknown_format_is_reported_with_a_suggestion() -> None:
    with pytest.raises(UnknownFormatError, match=r"there is no format 'jsn' \(did you mean 'json'\?\)"):
        format_class("jsn")
