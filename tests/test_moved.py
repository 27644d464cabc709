"""docs/moved.md leads from every earlier module and public name to what replaces it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, _, GONE_ROWS = (ROOT / "docs" / "moved.md").read_text(encoding="utf-8").partition("\n## Gone\n")
MOVED = dict(re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|$", PAGE, re.M))
GONE = set(re.findall(r"^\| `([\w.]+)` \| .+ \|$", GONE_ROWS, re.M))
BEFORE = Path(__file__).with_name("modules_before.txt").read_text(encoding="utf-8").split()
# The public functions, classes and constants at the top of these modules.
NAMES_BEFORE = Path(__file__).with_name("names_before.txt").read_text(encoding="utf-8").split()


def test_every_new_name_can_be_imported() -> None:
    missing = [f"{old} -> {new}" for old, new in MOVED.items() if not exists(new)]

    assert missing == []


def test_every_earlier_module_exists_or_is_listed() -> None:
    missing = [module for module in BEFORE if module not in MOVED and not is_module(module)]

    assert missing == []


def test_every_earlier_name_exists_or_is_listed() -> None:
    missing = [name for name in NAMES_BEFORE if name not in MOVED and name not in GONE and not exists(new_name(name))]

    assert missing == []


def test_a_name_that_is_listed_as_gone_does_not_exist() -> None:
    assert [name for name in sorted(GONE) if name in MOVED or exists(new_name(name))] == []


def new_name(name: str) -> str:
    """A name in the new module of its earlier one."""
    module, _, last = name.rpartition(".")
    return f"{MOVED.get(module, module)}.{last}"


def exists(name: str) -> bool:
    """Whether a name is a module, or an attribute (of an attribute) of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        if is_module(module):
            value: object = importlib.import_module(module)
            for part in parts[length:]:
                if not hasattr(value, part):
                    return False
                value = getattr(value, part)
            return True
    return False


def is_module(name: str) -> bool:
    path = Path(*name.split("."))
    roots = (ROOT, ROOT / "formats")
    return any((root / path).with_suffix(".py").is_file() or (root / path / "__init__.py").is_file() for root in roots)
