"""The functions that Arrow computes with Spark's result; a function that is not here is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.flink_sql.conditions import operators, patterns
from kdsl.flink_sql.conditions.casts import FLOATS
from kdsl.flink_sql.conditions.values import Compiled, compile_strict
from kdsl.flink_sql.expressions.values import INTEGERS, TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, list_of_entries


class Compiler(Protocol):
    """What a function needs from the compiler of conditions (`kdsl.flink_sql.conditions.compiler`)."""

    def __call__(self, node: n.Node) -> Compiled:
        """Compile an expression; parts of it that cannot be evaluated are recorded."""
        ...

    def type_of(self, node: n.Node) -> TypedSql:
        """Return the translation of an expression, with its type."""
        ...

    def refuse(self, node: n.Node, what: str, fix: str, reason: str = ...) -> NoReturn:
        """Record an expression that cannot be evaluated (what it is, the fix, and why), and raise an internal error."""
        ...

    def compile_boolean(self, node: n.Node) -> Compiled:
        """Compile a condition."""
        ...

    def compile_comparison(self, node: n.Node, operator: str, left: n.Node, right: n.Node) -> Compiled:
        """Compile a comparison by an operator such as ``=``; refuse one that Arrow may compute differently."""
        ...

    def match(self, kind: t.DataType | None, find: Callable[[pa.Array], pa.Array], text: n.Node) -> Compiled:
        """Compile a function, with a result of type ``kind``, that ``find`` computes from an array of strings."""
        ...

    def unify(self, nodes: Iterable[n.Node], kind: t.DataType) -> list[Compiled]:
        """Compile expressions, and convert their values to one type; refuse what Arrow may convert differently."""
        ...

    def compile_arithmetic(self, node: n.Binary, kind: t.DataType | None) -> Compiled | None:
        """Compile an arithmetic operation; None if Arrow cannot compute it exactly, or it is NULL.

        Refuse operands that Arrow may convert differently.
        """
        ...


NONDETERMINISTIC = {
    "RAND": "a random number",
    "RAND_INTEGER": "a random number",
    "UUID": "a random value",
    "CURRENT_TIMESTAMP": "the time of the evaluation",
    "CURRENT_ROW_TIMESTAMP": "the time of the evaluation",
    "NOW": "the time of the evaluation",
    "LOCALTIMESTAMP": "the time of the evaluation",
    "CURRENT_DATE": "the day of the evaluation",
    "CURRENT_TIME": "the time of the evaluation",
    "LOCALTIME": "the time of the evaluation",
    "UNIX_TIMESTAMP": "the time of the evaluation",
    "PROCTIME": "the time of the evaluation",
}
"""Functions with another result each time, and what it is."""

Call = Callable[[Compiler, n.Call, t.DataType | None], Compiled | None]
"""Compiles a call; None if Arrow cannot compute it for these arguments."""


def _simple(compute: Callable[[Any], Any], *families: str) -> Call:
    """Return the compiler of a function of one argument; the result of Arrow's ``compute`` is cast to the call's type.

    It returns None for an argument of another family than ``families``, and if the call has no type; an argument that
    cannot be computed is recorded in the compiler.
    """

    def compile_call(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
        (argument,) = call.arguments
        if kind is None or compiler.type_of(argument).family not in families:
            return None
        return compile_strict(kind, lambda values: pc.cast(compute(values), arrow_type(kind)), compiler(argument))

    return compile_call


def _absolute(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile ABS of a number, as ``kind``; None for other types, and for decimals of more than 34 digits.

    A number that cannot be computed is recorded in the compiler.
    """
    if kind is None or not isinstance(kind, (*INTEGERS, *FLOATS, t.Decimal)):
        return None
    return operators.compile_unary(kind, compiler(call.arguments[0]), "abs")


def _mod(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile MOD as ``%``, or record and raise as `Compiler.arithmetic` does; None if it is inexact, or NULL."""
    return compiler.compile_arithmetic(n.Binary("%", *call.arguments, at=call.at), kind)


def _coalesce(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile COALESCE and IFNULL, or record and raise as `Compiler.unify` does; None if the result has no type."""
    return None if kind is None else operators.choose_first_valid(kind, compiler.unify(call.arguments, kind))


def _if(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile IF, or record and raise as `Compiler.unify` does; None if the result has no type."""
    if kind is None:
        return None
    then, otherwise = compiler.unify(call.arguments[1:], kind)
    return operators.choose(kind, [(compiler.compile_boolean(call.arguments[0]), then)], otherwise)


def _nullif(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile NULLIF, or record and raise as `Compiler.comparison` does; None if the result has no type."""
    if kind is None:
        return None
    value, other = call.arguments
    equal = compiler.compile_comparison(call, "=", value, other)
    null = compiler.unify((n.Literal("null", ""),), kind)[0]
    return operators.choose(kind, [(equal, null)], compiler(value))


def _extreme(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile GREATEST and LEAST, NULL if one is NULL, or record and raise as `Compiler.unify` does.

    None for FLOAT, DOUBLE, BOOLEAN and nested types, and if the result has no type.
    """
    if kind is None or isinstance(kind, FLOATS) or compiler.type_of(call).family in ("other", "boolean"):
        return None
    function = pc.max_element_wise if call.name.upper() == "GREATEST" else pc.min_element_wise
    return compile_strict(kind, partial(function, skip_nulls=False), *compiler.unify(call.arguments, kind))


def _trim(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile TRIM, LTRIM, RTRIM and BTRIM, by default of blanks; None if the characters vary by row, or are empty.

    Nothing is raised; an argument that cannot be computed is recorded in the compiler.
    """
    side = call.words.get("SIDE", {"LTRIM": "LEADING", "RTRIM": "TRAILING"}.get(call.name.upper(), "BOTH"))
    signs = " " if len(call.arguments) == 1 else compiler.type_of(call.arguments[1]).constant
    if not signs:
        return None
    names = {"LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim, "BOTH": pc.utf8_trim}
    return compile_strict(kind, partial(names[side], characters=signs), compiler(call.arguments[0]))


def _concat(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile CONCAT, NULL if one is NULL, or record and raise as `Compiler.unify` does."""
    return compile_strict(kind, join, *compiler.unify(call.arguments, t.STRING))


def join(*texts: Any) -> Any:
    """Join Arrow strings row by row; NULL if one of them is NULL."""
    return pc.binary_join_element_wise(*texts, "")


def _substring(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile SUBSTRING, SUBSTR and LEFT; None if a position or length is not a constant from 0, or the start is 0.

    Nothing is raised; an argument that cannot be computed is recorded in the compiler.
    """
    numbers = [compiler.type_of(argument).constant for argument in call.arguments[1:]]
    if any(number is None or not number.isdecimal() for number in numbers):
        return None
    constants = [int(number) for number in numbers if number is not None]
    start, *length = [1, *constants] if call.name.upper() == "LEFT" else constants
    if start < 1:
        return None
    stop = start - 1 + length[0] if length else None
    return compile_strict(
        kind, partial(pc.utf8_slice_codeunits, start=start - 1, stop=stop), compiler(call.arguments[0])
    )


def _regexp(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile REGEXP; the result is never None.

    `Compiler.refuse` records and raises for a pattern that is not a constant, or that RE2 does not match as Java does.
    """
    text, pattern = call.arguments
    constant = compiler.type_of(pattern).constant
    if constant is None:
        return compiler.refuse(call, "REGEXP with a pattern that is not a constant", "write the pattern in quotes")
    try:
        expression = patterns.compile_regular(constant)
    except patterns.PatternError as e:
        return compiler.refuse(
            call,
            f"{e} in the regular expression of REGEXP",
            "use characters, classes in [], ., ^, $, |, groups in () and the quantifiers ?, *, + and {n,m}",
        )
    return compiler.match(kind, expression.find, text)


def _with_end(compute: Callable[..., Any]) -> Call:
    """Return the compiler of STARTSWITH or ENDSWITH, which returns None if the second argument is not a constant.

    ``compute`` is Arrow's function for it.
    """

    def compile_call(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
        text, end = call.arguments
        constant = compiler.type_of(end).constant
        return None if constant is None else compiler.match(kind, partial(compute, pattern=constant), text)

    return compile_call


def _cardinality(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile CARDINALITY; None, and nothing raised, if the argument is not an ARRAY or a MAP.

    An argument that cannot be computed is recorded in the compiler.
    """

    def count(values: pa.Array) -> pa.Array:
        lists = list_of_entries(values) if pa.types.is_map(values.type) else values
        return pc.cast(pc.list_value_length(lists), pa.int32())

    if not isinstance(compiler.type_of(call.arguments[0]).type, t.Array | t.Map):
        return None
    return compile_strict(kind, count, compiler(call.arguments[0]))


_FIELDS = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "DAY": pc.day,
    "DAYOFMONTH": pc.day,
    "DOY": pc.day_of_year,
    "DAYOFYEAR": pc.day_of_year,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
}
_OF_DAYS = frozenset(("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFMONTH", "DOY", "DAYOFYEAR"))


def _field(compiler: Compiler, call: n.Call, kind: t.DataType | None) -> Compiled | None:
    """Compile EXTRACT, YEAR and the like; None for an unknown unit, and for other types than DATE and TIMESTAMP.

    None also for units shorter than a day of a DATE. Nothing is raised; an argument that cannot be computed is recorded
    in the compiler.
    """
    unit = str(call.words.get("UNIT", call.name)).upper()
    of = compiler.type_of(call.arguments[-1]).type
    known = isinstance(of, t.Timestamp) or (isinstance(of, t.Date) and unit in _OF_DAYS)
    if kind is None or not known or unit not in _FIELDS:
        return None
    compute = _FIELDS[unit]
    return compile_strict(kind, lambda values: pc.cast(compute(values), arrow_type(kind)), compiler(call.arguments[-1]))


OF_NULL = frozenset(("COALESCE", "IFNULL", "IF", "NULLIF", "GREATEST", "LEAST"))
"""The functions whose result may be another one than NULL if an argument is NULL."""
FUNCTIONS: Mapping[str, Call] = {
    "CHAR_LENGTH": _simple(pc.utf8_length, "text"),
    "CHARACTER_LENGTH": _simple(pc.utf8_length, "text"),
    "OCTET_LENGTH": _simple(pc.binary_length, "text", "bytes"),
    "ABS": _absolute,
    "MOD": _mod,
    "COALESCE": _coalesce,
    "IFNULL": _coalesce,
    "IF": _if,
    "NULLIF": _nullif,
    "GREATEST": _extreme,
    "LEAST": _extreme,
    **dict.fromkeys(("TRIM", "LTRIM", "RTRIM", "BTRIM"), _trim),
    "CONCAT": _concat,
    **dict.fromkeys(("SUBSTRING", "SUBSTR", "LEFT"), _substring),
    "REGEXP": _regexp,
    "STARTSWITH": _with_end(pc.starts_with),
    "ENDSWITH": _with_end(pc.ends_with),
    "CARDINALITY": _cardinality,
    "EXTRACT": _field,
    **dict.fromkeys(_FIELDS.keys() - {"DAY", "DOY"}, _field),
}
