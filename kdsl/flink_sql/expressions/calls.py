"""The arguments of a function call, and functions that only insert their arguments into a template."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NoReturn, Protocol

from kdsl.flink_sql.expressions.casts import cast
from kdsl.flink_sql.expressions.values import INTEGERS, TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.types import model as t

Function = Callable[["Arguments"], TypedSql]
_PLACEHOLDER = re.compile(r"\{(\*|\d)\}")


class Translator(Protocol):
    """What functions need of the translator of expressions; see `ExpressionTranslator`."""

    def __call__(self, node: n.Node) -> TypedSql:
        """Translate an expression."""
        ...

    def fail(self, node: n.Node, name: str, reason: str, fix: str) -> NoReturn:
        """Raise an UntranslatableError that names a part of the expression, the reason, and the fix."""
        ...

    def require_family(self, node: n.Node, value: TypedSql, family: str, what: str) -> None:
        """Check that a value belongs to a family of types, or raise UntranslatableError."""
        ...

    def make_comparable(self, node: n.Node, left: TypedSql, right: TypedSql, what: str) -> tuple[str, str]:
        """Return the SQL of two values in types that can be compared, or raise UntranslatableError."""
        ...

    def unify(self, node: n.Node, what: str, values: list[TypedSql]) -> tuple[t.DataType | None, list[str]]:
        """Return the common type of some values (None if all are NULL), and their SQL in that type."""
        ...

    def translate_cast(self, node: n.Node, value: TypedSql, kind: t.DataType, *, trying: bool = False) -> TypedSql:
        """Translate ``CAST`` of a value, or ``TRY_CAST`` where ``trying`` is true; or raise UntranslatableError."""
        ...


class Arguments:
    """The arguments of a function call.

    Attributes:
        translator: What translates expressions.
        node: The call in the syntax tree.
        values: The translated arguments.
        name: The function's name in capitals.
    """

    def __init__(self, translator: Translator, node: n.Call, values: list[TypedSql]) -> None:
        self.translator, self.node, self.values = translator, node, values
        self.name = node.name.upper()

    def fail(self, reason: str, fix: str) -> NoReturn:
        """Raise the UntranslatableError that the call cannot be translated: the reason, and the fix."""
        self.translator.fail(self.node, self.node.name, f"{self.name} {reason}", fix)

    def __getitem__(self, index: int) -> TypedSql:
        """The argument at an index, from 0."""
        return self.values[index]

    def __len__(self) -> int:
        """The number of arguments."""
        return len(self.values)

    @property
    def nullable(self) -> bool:
        """Whether an argument may be NULL."""
        return any(v.nullable for v in self.values)

    def require_count(self, least: int, most: int | None = None) -> None:
        """Check that there are from ``least`` to ``most`` arguments, by default exactly ``least``."""
        most = least if most is None else most
        if not least <= len(self) <= most:
            wanted = str(least) if least == most else f"{least} to {most}" if most < 99 else f"{least} or more"
            self.fail(f"takes {wanted} arguments, not {len(self)}", f"pass {wanted}")

    def require_kinds(self, *wanted: str) -> None:
        """Check the kinds of the arguments: ``text``, ``number``, ``whole``, ``bytes``, ``boolean``, ``any``.

        NULL is of any kind. Alternatives are separated by ``|``; the last kind also applies to all further arguments.
        The number of arguments is not checked.
        """
        for i, value in enumerate(self.values):
            want = wanted[min(i, len(wanted) - 1)]
            if want == "any" or value.type is None:
                continue
            fits = isinstance(value.type, INTEGERS) if want == "whole" else value.family in want.split("|")
            if not fits:
                names = {"text": "a string", "number": "a number", "whole": "an integer", "bytes": "bytes"}
                shown = " or ".join(names.get(kind, f"a {kind}") for kind in want.split("|"))
                self.fail(
                    f"takes {shown} as argument {i + 1}, not {value.spelling}", "CAST it to the type that you mean"
                )

    def as_doubles(self) -> list[str]:
        """Return the SQL of all arguments, which must be numbers or NULL, cast to DOUBLE where they are not."""
        return [v.text if isinstance(v.type, t.Double) else cast(v, t.Double()).text for v in self.values]

    def require_constant(self, index: int, what: str) -> str:
        """Return the value of a constant string or number that is an argument."""
        constant = self.values[index].constant
        if constant is None:
            self.fail(f"needs {what} as a constant", "write it in quotes")
        return constant

    def result(self, text: str, kind: t.DataType, *, nullable: bool | None = None) -> TypedSql:
        """Wrap the SQL of the call with its type; by default it may be NULL if an argument may be."""
        return TypedSql(text, kind.as_nullable(self.nullable if nullable is None else nullable))


def template_function(
    template: str,
    kind: t.DataType | Callable[[Arguments], t.DataType],
    *kinds: str,
    least: int | None = None,
    nullable: bool | Literal["first"] | None = None,
) -> Function:
    """Create a function whose translation is a template: ``{0}`` stands for the first argument, ``{*}`` for all.

    ``kind`` is the type of its result, or a function that returns it or refuses the arguments. ``kinds`` are as
    for `Arguments.require_kinds`, and ``double``: a number that is cast to DOUBLE, as all others then are; a last ``…``
    allows up to 99 arguments. ``least`` is the smallest number of arguments, by default that of the kinds. ``nullable``
    is whether the result may be NULL: by default if an argument may be, with ``first`` if the first may be.
    """
    most = 99 if kinds[-1:] == ("…",) else len(kinds)
    wanted = kinds[:-1] if most == 99 else kinds
    as_doubles = "double" in wanted
    checked = ["number" if name == "double" else name for name in wanted] or ["any"]

    def translate(call: Arguments) -> TypedSql:
        call.require_count(len(wanted) if least is None else least, most)
        call.require_kinds(*checked)
        result_type = kind if isinstance(kind, t.DataType) else kind(call)
        texts = call.as_doubles() if as_doubles else [v.text for v in call.values]
        # in one pass, because a string among the arguments may look like a placeholder
        text = _PLACEHOLDER.sub(lambda m: ", ".join(texts) if m[1] == "*" else texts[int(m[1])], template)
        return call.result(text, result_type, nullable=call[0].nullable if nullable == "first" else nullable)

    return translate
