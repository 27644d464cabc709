from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kdsl.client.docs import reference
from kdsl.client.translate import known_settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "client-settings.md"


def test_the_page_is_the_one_that_the_table_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_the_page_names_every_setting() -> None:
    page = reference()

    assert [name for name in known_settings() if f"`{name}`" not in page] == []


def test_the_module_prints_the_page() -> None:
    printed = subprocess.run([sys.executable, "-m", "kdsl.client.docs"], cwd=ROOT, capture_output=True, check=True)

    assert printed.stdout.decode("utf-8") == reference()
