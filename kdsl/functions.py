"""Functions of the user by name: ``package.module:function``.

A plan is text, so a function that runs in another process (a partitioner, an offsets initializer) goes by its name, and
that process imports it. `name_of` gives the name, `load` the function; both say why where they cannot.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from kdsl.errors import KdslError, nearest


class FunctionError(KdslError):
    """A function that another process cannot import, or that is not there.

    Args:
        reason: What is wrong with it.
        fix: What to do.
    """

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason, fix)
        self.reason, self.fix = reason, fix

    def __str__(self) -> str:
        return f"{self.reason}; {self.fix}"


def name_of(function: Callable[..., Any]) -> str:
    """The name by which another process can import a function.

    Args:
        function: A function or a class at the top of a module, or a method of such a class.

    Raises:
        FunctionError: It is a lambda, a local function, an object without a name, or stands in the main program.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    fix = "define it with def at the top of a module that all processes can import"
    if not isinstance(module, str) or not isinstance(name, str):
        raise FunctionError(f"{function!r} has no name by which it can be imported", fix)
    if "<lambda>" in name:
        raise FunctionError("a lambda has no name by which another process can import it", fix)
    if "<locals>" in name:
        raise FunctionError(
            f"{name.replace('.<locals>', '')} is defined inside a function, where no import finds it", fix
        )
    if module == "__main__":
        module = _main_module() or module
    if module == "__main__":
        reason = f"{name} is defined in the main program, which other processes do not have"
        raise FunctionError(reason, "move it to a module of its own, and import it from there")
    found = f"{module}:{name}"
    if module in sys.modules and _lookup(sys.modules[module], name) is not function:
        raise FunctionError(f"{found} is another object than the given one (a decorator?)", fix)
    return found


def load(name: str) -> Callable[..., Any]:
    """Import a function by its name.

    Args:
        name: ``package.module:function``.

    Raises:
        FunctionError: The module cannot be imported here, or has no such function.
    """
    module_name, _, path = name.partition(":")
    try:
        module = import_module(module_name)
    except Exception as e:
        missing = (
            isinstance(e, ModuleNotFoundError) and e.name is not None and f"{module_name}.".startswith(f"{e.name}.")
        )
        reason = (
            f"there is no module {e.name!r}" if missing and isinstance(e, ImportError) else f"{type(e).__name__}: {e}"
        )
        raise FunctionError(
            f"{name!r} cannot be imported in this process ({sys.executable}): {reason}",
            "the driver and every executor must have the module: install it there, or send it with "
            "spark-submit --py-files or spark.addArtifacts(…, pyfile=True)",
        ) from e
    function = _lookup(module, path)
    if function is None:
        raise FunctionError(
            f"the module {module_name!r} has no {path!r}{nearest(path, dir(module))}", "correct the name"
        )
    if not callable(function):
        raise FunctionError(f"{name!r} is a {type(function).__name__} and cannot be called", "name a function")
    found: Callable[..., Any] = function
    return found


def _lookup(module: ModuleType, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _main_module() -> str | None:
    """The name under which the main program can be imported: that of ``python -m package.module``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec.name if spec is not None and not spec.name.endswith("__main__") else None
