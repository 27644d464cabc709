from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.formats import FORMATS, Format, UnknownFormatError, format_class, format_names
from kdsl.plugins import OWN

ROOT = Path(__file__).parents[2]


BUILT_IN = OWN[FORMATS.name]


def test_the_formats_and_the_modules_on_disk_are_the_same() -> None:
    folder = ROOT / "formats" / "kdsl_formats"
    # py.typed, what formats with a registry share, and which format messages seem to have
    not_formats = {"py", "registry", "suggest"}
    modules = {p.stem for p in folder.iterdir() if not p.name.startswith(("_", "."))} - not_formats

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
