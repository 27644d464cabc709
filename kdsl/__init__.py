"""Kafka tables for PySpark: declare a topic once as a typed class; read it and write it.

The public names stand in ``__init__.pyi``. Each is imported when it is first used, so that ``import kdsl`` is cheap,
also in executors.
"""

from __future__ import annotations

import ast
import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from kdsl.distribution import NAME, require_own_files

require_own_files(Path(__file__).parent)


@cache
def _modules() -> dict[str, str]:
    """The module of each public name, as the stub beside this file imports it; OSError if the stub is missing."""
    stub = pkgutil.get_data(__name__, "__init__.pyi") or b""
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names if alias.asname}


def __getattr__(name: str) -> Any:
    """Return a public name from its module, which is imported at the first use, or ``__version__`` or ``__all__``."""
    if name == "__version__":
        from importlib.metadata import version

        return version(NAME)
    if name == "__all__":
        return sorted(_modules())
    if name.startswith("_") or name not in _modules():
        raise AttributeError(f"module 'kdsl' has no attribute {name!r}")
    from kdsl.extras import explain_missing_package

    with explain_missing_package(f"kdsl.{name}"):
        return getattr(import_module(_modules()[name]), name)


def __dir__() -> list[str]:
    return sorted(_modules())
