"""The first code that a reader of the documentation sees: a table, and its use."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST_TABLES = [ROOT / "README.md", ROOT / "docs" / "guide.md"]
_IMPORTS = "from __future__ import annotations\nfrom pyspark.sql import SparkSession\nspark: SparkSession\n"


def first_table(path: Path, *, used: bool = False) -> str:
    """The first code of a page as a module.

    Args:
        path: The page.
        used: With what the page does with the table, in a function, so that nothing of it runs.
    """
    code = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)[0]
    body, _, rest = code.partition("\n\nshop = ")
    job = f"\ndef job(spark: SparkSession) -> None:\n    shop = {rest.strip()}\n".replace("\nbig", "\n    big")
    return f"{_IMPORTS}{body}{job if used and rest else ''}\n"


def code_of(path: Path, language: str = "python") -> str:
    """All code of a page in one language, as one program."""
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL))
