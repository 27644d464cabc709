"""The imports of a generated module: a name is imported when it is first used, under a name that nothing else has."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kdsl.codegen.layout import call, fits

_STANDARD = ("builtins", "collections", "dataclasses", "datetime", "decimal", "enum", "pathlib", "typing")
_SHORT = {"datetime": "dt"}


class Imports:
    """The imports of one module.

    Args:
        taken: The names that attributes and classes of the module have.
    """

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._named: dict[tuple[str, str], str] = {}
        self._modules: dict[str, str] = {}

    def name(self, module: str, name: str) -> str:
        """Import something from a module, and return its name in the generated module: qualified if it is taken."""
        if (module, name) not in self._named:
            self._named[module, name] = f"{self._import_module(module)}.{name}" if name in self._taken else name
            self._taken.add(name)
        return self._named[module, name]

    def _import_module(self, module: str) -> str:
        """Import a module as a whole, because attributes would hide its names, and return its local name."""
        if module not in self._modules:
            self._modules[module] = self._reserve_name(_SHORT.get(module, module.rpartition(".")[2]))
        return self._modules[module]

    def get(self, module: str, name: str) -> str | None:
        """The name under which something is imported already; None if it is not."""
        return self._named.get((module, name))

    def builtin(self, name: str) -> str:
        """Return the name of a built-in type, qualified, with an import, if an attribute has the same name."""
        if name not in self._taken:
            return name
        return f"{self._import_module('builtins')}.{name}"

    def kdsl(self, name: str) -> str:
        """Import something from kdsl, and return its name in the generated module."""
        return self.name("kdsl", name)

    def _reserve_name(self, name: str) -> str:
        """Return a name that is not taken, with underscores after it if necessary, and mark it as taken."""
        unique = name
        while unique in self._taken:
            unique += "_"
        self._taken.add(unique)
        return unique

    def lines(self) -> Iterator[str]:
        """Yield the import statements: annotations from ``__future__``, the standard library, then all others.

        Empty lines are between these groups; the first one is always there.
        """
        yield "from __future__ import annotations"
        every = {*self._modules, *(m for m, _ in self._named)}
        standard = [m for m in every if m.partition(".")[0] in _STANDARD]
        for group in (standard, [m for m in every if m not in standard]):
            if group:
                yield ""
            for module in sorted(m for m in group if m in self._modules):
                alias = self._modules[module]
                yield f"import {module}" if alias == module else f"import {module} as {alias}"
            for module in sorted(group):
                if plain := sorted(
                    (n for (m, n), known in self._named.items() if m == module and n == known), key=_import_order
                ):
                    line = f"from {module} import {', '.join(plain)}"
                    yield line if fits(line) else call(f"from {module} import (", plain)


def _import_order(name: str) -> tuple[int, str]:
    """Return the key of isort's order: constants, then classes, then the rest, each by name."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)
