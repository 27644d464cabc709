"""The imports of a written module: each name is imported when it is first used, under a name that nothing else has."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kdsl.codegen.layout import call, fits

_STANDARD = ("builtins", "collections", "dataclasses", "datetime", "decimal", "enum", "typing")


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
        """The name under which something of a module is known."""
        if (module, name) not in self._named:
            self._named[module, name] = self._free(name)
        return self._named[module, name]

    def known(self, module: str, name: str) -> str | None:
        """The name under which something is imported already."""
        return self._named.get((module, name))

    def builtin(self, name: str) -> str:
        """The name under which a built-in type is known: an attribute of the same name would hide it."""
        if name not in self._taken:
            return name
        if "builtins" not in self._modules:
            self._modules["builtins"] = self._free("builtins")
        return f"{self._modules['builtins']}.{name}"

    def kdsl(self, name: str) -> str:
        """The name under which something of kdsl is known."""
        return self.name("kdsl", name)

    def _free(self, name: str) -> str:
        made = name
        while made in self._taken:
            made += "_"
        self._taken.add(made)
        return made

    def lines(self) -> Iterator[str]:
        """The import statements, in the usual order, with empty lines between their groups."""
        yield "from __future__ import annotations"
        standard = [m for m in {*self._modules, *(m for m, _ in self._named)} if m.partition(".")[0] in _STANDARD]
        groups = [standard, [m for m in {m for m, _ in self._named} if m not in standard]]
        for group in groups:
            if group:
                yield ""
            for module in sorted(m for m in group if m in self._modules):
                alias = self._modules[module]
                yield f"import {module}" if alias == module else f"import {module} as {alias}"
            for module in sorted(group):
                yield from self._of(module)

    def _of(self, module: str) -> Iterator[str]:
        found = {name: known for (m, name), known in self._named.items() if m == module}
        plain = sorted((n for n, known in found.items() if n == known), key=_order)
        if plain:
            line = f"from {module} import {', '.join(plain)}"
            yield line if fits(line) else call(f"from {module} import (", plain)
        for name in sorted((n for n, known in found.items() if n != known), key=_order):
            yield f"from {module} import {name} as {found[name]}"


def _order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as isort has it."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)
