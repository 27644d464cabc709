"""What a function is called with, and the functions that only put their arguments into a template."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.casts import cast
from kdsl.declare.translate.values import INTEGERS, Value
from kdsl.types import model as t

if TYPE_CHECKING:
    from kdsl.declare.translate.scalar import Scalar

Function = Callable[["Arguments"], Value]


class Arguments:
    """What a function was called with."""

    def __init__(self, scalar: Scalar, node: n.Call, values: list[Value]) -> None:
        self.scalar, self.node, self.values = scalar, node, values
        self.name = node.name.upper()

    def fail(self, reason: str, fix: str) -> NoReturn:
        """Refuse the call."""
        self.scalar.fail(self.node, self.node.name, f"{self.name} {reason}", fix)

    def __getitem__(self, index: int) -> Value:
        """An argument."""
        return self.values[index]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.values)

    @property
    def nullable(self) -> bool:
        """Whether an argument may be NULL."""
        return any(v.nullable for v in self.values)

    def count(self, least: int, most: int | None = None) -> None:
        """Refuse another number of arguments."""
        most = least if most is None else most
        if not least <= len(self) <= most:
            wanted = str(least) if least == most else f"{least} to {most}" if most < 99 else f"{least} or more"
            self.fail(f"takes {wanted} arguments, not {len(self)}", "give it so many")

    def kinds(self, *wanted: str) -> None:
        """Refuse arguments of other kinds: ``text``, ``number``, ``whole``, ``bytes``, ``any``; the last repeats."""
        for i, value in enumerate(self.values):
            want = wanted[min(i, len(wanted) - 1)]
            if want == "any" or value.type is None:
                continue
            fits = isinstance(value.type, INTEGERS) if want == "whole" else value.family in want.split("|")
            if not fits:
                shown = want.replace("whole", "whole number").replace("|", " or ")
                self.fail(f"takes a {shown} as argument {i + 1}, not {value.spelling}", "CAST it to the type meant")

    def doubles(self) -> list[str]:
        """The arguments as DOUBLE."""
        return [v.text if isinstance(v.type, t.Double) else cast(v, t.Double()).text for v in self.values]

    def constant(self, index: int, what: str) -> str:
        """A constant text."""
        found = self.values[index].constant
        if found is None:
            self.fail(f"needs {what} as a constant", "write it in quotes")
        return found

    def made(self, text: str, kind: t.DataType, *, nullable: bool | None = None) -> Value:
        """The result; NULL where an argument is, unless said otherwise."""
        return Value(text, kind.as_nullable(self.nullable if nullable is None else nullable))


def plain(
    template: str, kind: t.DataType, *kinds: str, least: int | None = None, nullable: bool | None = None
) -> Function:
    """A function whose translation only puts the arguments in; ``{*}`` stands for all of them."""

    def function(call: Arguments) -> Value:
        most = 99 if kinds and kinds[-1] == "…" else len(kinds)
        wanted = kinds[:-1] if most == 99 else kinds
        call.count(len(wanted) if least is None else least, most)
        call.kinds(*(wanted or ("any",)))
        texts = [v.text for v in call.values]
        text = template.replace("{*}", ", ".join(texts))
        for i, each in enumerate(texts):
            text = text.replace(f"{{{i}}}", each)
        return call.made(text, kind, nullable=nullable)

    return function
