"""docs/moved.md leads from every earlier module, and from the public names that it lists, to something that exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOVED = dict(
    re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|$", (ROOT / "docs" / "moved.md").read_text(encoding="utf-8"), re.M)
)
BEFORE = Path(__file__).with_name("modules_before.txt").read_text(encoding="utf-8").split()


def test_every_new_name_can_be_imported() -> None:
    missing = [f"{old} -> {new}" for old, new in MOVED.items() if not exists(new)]

    assert missing == []


def test_every_earlier_module_exists_or_is_listed() -> None:
    missing = [module for module in BEFORE if module not in MOVED and not is_module(module)]

    assert missing == []


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
