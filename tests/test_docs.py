from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.docs import page, write_pages
from kdsl.formats import BUILT_IN, format_class

FOLDER = Path(__file__).parents[1] / "docs" / "formats"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_page_says_what_the_format_declares(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == page(format_class(name)), "run python -m kdsl.docs"


def test_there_is_a_page_for_each_format_and_no_other(tmp_path: Path) -> None:
    written = write_pages(tmp_path)

    assert [path.relative_to(tmp_path) for path in written] == sorted(
        path.relative_to(FOLDER.parent) for path in FOLDER.iterdir()
    )
    assert [path.read_text(encoding="utf-8") for path in written] == [page(format_class(n)) for n in sorted(BUILT_IN)]
