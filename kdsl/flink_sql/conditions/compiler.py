"""Compiles a condition of Flink SQL to a function of Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.flink_sql.conditions import operators, patterns
from kdsl.flink_sql.conditions.casts import BOUNDS, convert, convert_exactly
from kdsl.flink_sql.conditions.functions import FUNCTIONS, NONDETERMINISTIC, OF_NULL, join
from kdsl.flink_sql.conditions.values import (
    Compiled,
    Evaluated,
    Failure,
    Rows,
    Step,
    as_array,
    compile_constant,
    compile_strict,
    find_true_rows,
)
from kdsl.flink_sql.expressions.translator import ColumnScope, ExpressionTranslator
from kdsl.flink_sql.expressions.values import (
    Interval,
    TypedSql,
    as_decimal,
    common_number_type,
    same_in_spark,
)
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError, nesting_error
from kdsl.flink_sql.syntax.expression_reader import read_expression
from kdsl.flink_sql.syntax.intervals import interval_microseconds
from kdsl.types import model as t
from kdsl.types.arrays import Mask
from kdsl.types.arrow import arrow_type

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,6})?")
_TIME = re.compile(r"\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?")
_DAY = 86_400_000_000
_NOT_HERE = (
    "rows are checked while they are read and written, by Arrow, which does not compute it exactly as Spark does"
)


@attrs.frozen(eq=False)
class Condition:
    """A compiled condition.

    Attributes:
        text: The condition.
        sql: The same in Spark SQL, which gives the same values.
        columns: The columns that it uses.
        nullable: Whether it may be NULL.
    """

    text: str
    sql: str
    columns: tuple[str, ...]
    _step: Step

    def find_violations(self, columns: Mapping[str, pa.Array], count: int) -> tuple[Mask | None, tuple[Failure, ...]]:
        """Find the rows for which the condition is false; NULL is not false, as in a CHECK constraint of SQL.

        Args:
            columns: The columns, by name; at least those that the condition uses.
            count: How many rows there are.

        Returns:
            Which rows violate the condition, None if no row does; and the rows for which it cannot be computed (a
            division by zero, a number or time outside the range of its type), which may be among the first, too.
        """
        evaluated = self._step(Rows(columns, count))
        values = evaluated.values
        if isinstance(values, pa.Scalar):
            return (np.full(count, fill_value=True) if values.as_py() is False and count else None), evaluated.failures
        if values.false_count == 0:
            return None, evaluated.failures
        return find_true_rows(pc.invert(values), count), evaluated.failures

    def values(self, columns: Mapping[str, pa.Array], count: int) -> tuple[pa.Array, tuple[Failure, ...]]:
        """Compute the condition for each row: true, false or NULL; and the rows for which it cannot be computed.

        The value of such a row means nothing.
        """
        evaluated = self._step(Rows(columns, count))
        return as_array(evaluated, count), evaluated.failures


def compile_condition(text: str, columns: Mapping[str, t.DataType]) -> Condition:
    """Compile a condition.

    Args:
        text: A condition of Flink SQL: ``amount > 0 AND country IN ('DE', 'FR')``.
        columns: The columns that it may use, by name.
    """
    try:
        node = read_expression(text)
        translate = ExpressionTranslator(text, ColumnScope(columns))
        typed = _translate(translate, node, text)
    except UntranslatableError as e:
        raise ConditionError([e, *_unknown_columns(e, columns)]) from None
    if typed.family not in ("boolean", "null"):
        reason = f"the condition is {typed.spelling}, not BOOLEAN"
        raise ConditionError([UntranslatableError(text, reason, "write a comparison, such as amount > 0", text)])
    compiler = Compiler(text, translate)
    try:
        compiled = compiler(node)
    except RecursionError:
        raise ConditionError([nesting_error("", text, n.deepest_node(node).at)]) from None
    if compiler.refused:
        raise ConditionError(compiler.refused)
    used = {part.parts[0] for part in n.names(node)}
    return Condition(text, typed.text, tuple(name for name in columns if name in used), compiled.step)


class ConditionError(Exception):
    """A condition cannot be used.

    Attributes:
        parts: Why, for each part of it.
    """

    def __init__(self, parts: Sequence[UntranslatableError]) -> None:
        super().__init__("; ".join(dict.fromkeys(part.reason for part in parts)))
        self.parts = tuple(parts)


def _translate(translate: ExpressionTranslator, node: n.Node, text: str) -> TypedSql:
    """Translate a syntax tree to typed Spark SQL; raise UntranslatableError, also if it is nested too deeply."""
    try:
        return translate(node)
    except RecursionError:
        raise nesting_error("", text, n.deepest_node(node).at) from None


def _unknown_columns(first: UntranslatableError, columns: Mapping[str, t.DataType]) -> Iterable[UntranslatableError]:
    """Yield an error for each use of an unknown column in a condition, except ``first``, at which translation ended.

    Nothing is yielded if the condition cannot be read.
    """
    try:
        every = list(n.names(read_expression(first.text)))
    except UntranslatableError:
        return
    translate = ExpressionTranslator(first.text, ColumnScope(columns))
    for name in every:
        if name.parts[0] in columns or name.at == first.position:
            continue
        try:
            translate(name)
        except UntranslatableError as e:
            yield e


class _RefusedError(Exception):
    """A part of the condition was refused; it is in `Compiler.refused`."""


class Compiler:
    """Compiles the parts of one condition; call it with a node of the syntax tree.

    Each method that compiles adds the parts inside of its node that cannot be computed exactly to ``refused``.

    Args:
        text: The condition.
        translate: Translates it to Spark SQL, which gives the types.

    Attributes:
        refused: The parts that cannot be computed exactly. `refuse` adds one, and raises `_RefusedError`.
    """

    def __init__(self, text: str, translate: ExpressionTranslator) -> None:
        self.refused: list[UntranslatableError] = []
        self._text, self._translate = text, translate
        self._types: dict[int, TypedSql] = {}

    def type_of(self, node: n.Node) -> TypedSql:
        """The translation of a part to Spark SQL, with its type, cached by node; raises UntranslatableError."""
        if id(node) not in self._types:
            self._types[id(node)] = self._translate(node)
        return self._types[id(node)]

    def refuse(self, node: n.Node, what: str, fix: str, reason: str = _NOT_HERE) -> NoReturn:
        """Add a part that cannot be computed to ``refused``, and raise the internal error that `__call__` catches.

        ``what`` describes the part; the reason is by default that Arrow does not compute it exactly as Spark does.
        """
        name = getattr(node, "name", None) or self._text[node.at : node.at + 1]
        self.refused.append(
            UntranslatableError(str(name), f"{what} cannot be used in a row rule: {reason}", fix, self._text, node.at)
        )
        raise _RefusedError

    def __call__(self, node: n.Node) -> Compiled:
        """Compile a part; NULL of its type (else BOOLEAN) stands for a refused part, so the others are checked, too."""
        try:
            return self._compile(node)
        except _RefusedError:
            kind = self.type_of(node).type
            return compile_constant(
                None, kind if kind is not None and not isinstance(kind, Interval) else operators.BOOLEAN
            )

    def _compile(self, node: n.Node) -> Compiled:
        """Compile a part by its kind of node."""
        match node:
            case n.Literal():
                return self._compile_literal(node)
            case n.Name(parts=(name, *members)):
                return self._compile_column(node, name, members)
            case n.Unary(operator="NOT", operand=operand):
                return operators.negate(self.compile_boolean(operand))
            case n.Unary(operator="+", operand=operand):
                return self(operand)
            case n.Unary():
                return self._compile_negative(node)
            case n.Binary(operator=("AND" | "OR") as operator, left=left, right=right):
                return operators.combine(operator, self.compile_boolean(left), self.compile_boolean(right))
            case n.Binary(operator="||", left=left, right=right):
                return compile_strict(self.type_of(node).type, join, *self.unify((left, right), t.STRING))
            case n.Binary(operator=("=" | "<>" | "<" | "<=" | ">" | ">=") as operator, left=left, right=right):
                return self.compile_comparison(node, operator, left, right)
            case n.Binary():
                return self._compile_binary(node)
            case n.Between():
                return self._compile_between(node)
            case n.In():
                return self._compile_in(node)
            case n.Like():
                return self._compile_like(node)
            case n.Is():
                return self._compile_is(node)
            case n.Case():
                return self._compile_case(node)
            case n.Cast(operand=operand, type=kind, trying=trying):
                return self._cast(node, self(operand), kind, trying=trying)
            case n.Member(operand=operand, name=name):
                inner = self(operand)
                return compile_strict(self.type_of(node).type, partial(pc.struct_field, indices=name), inner)
            case n.Call():
                return self._compile_call(node)
        what = {n.Index: "an element of an array or a map", n.Collection: "a constructed ARRAY, MAP or ROW"}
        return self.refuse(node, what.get(type(node), "this expression"), "compare columns and constants")

    # columns and constants

    def _compile_column(self, node: n.Node, name: str, members: Sequence[str]) -> Compiled:
        """Compile a column, or a member of it, which exist: the translation of the whole condition has checked it."""

        def step(rows: Rows) -> Evaluated:
            values = rows.columns[name]
            for member in members:
                values = pc.struct_field(values, indices=member)
            return Evaluated(values)

        return Compiled(self.type_of(node).type, step)

    def _compile_literal(self, node: n.Literal) -> Compiled:
        """Compile a constant, or NULL without a type; `refuse` a date or time that `_compile_moment` cannot read."""
        kind = self.type_of(node).type
        if kind is None:
            null = pa.scalar(None, pa.null())
            return Compiled(None, lambda _: Evaluated(null), null)
        match node.kind:
            case "boolean":
                return compile_constant(node.text.upper() == "TRUE", kind)
            case "bytes":
                return compile_constant(bytes.fromhex(node.text), kind)
            case "number":
                return compile_constant(_number(node.text, kind), kind)
            case "date" | "time" | "timestamp":
                return self._compile_moment(node, node.text, kind)
        return compile_constant(node.text, kind)

    def _compile_moment(self, node: n.Node, text: str, kind: t.DataType) -> Compiled:
        """Compile a date or time that is written as a string; `refuse` (an error) another form, and an instant."""
        try:
            match kind:
                case t.Date() if _DATE.fullmatch(text):
                    return compile_constant(date.fromisoformat(text), kind)
                case t.Timestamp() if _DATE.fullmatch(text) or _TIMESTAMP.fullmatch(text):
                    return compile_constant(datetime.fromisoformat(text), kind)
                case t.Time() if _TIME.fullmatch(text):
                    return compile_constant(time.fromisoformat(text), kind)
        except ValueError:
            pass
        if isinstance(kind, t.TimestampLtz):
            reason = "the instant depends on the time zone of the session"
            return self.refuse(
                node, f"{kind.spelling} beside {text!r}", "compare two columns, or use a TIMESTAMP", reason
            )
        fix = "write DATE '2024-12-31', TIMESTAMP '2024-12-31 23:59:59.123456' or TIME '23:59:59'"
        return self.refuse(node, f"{text!r} as {kind.spelling}", fix, "it is not written as SQL writes constants")

    # conditions

    def compile_boolean(self, node: n.Node) -> Compiled:
        """Compile a part that is a BOOLEAN, as the translation has checked; a NULL without a type becomes one."""
        value = self(node)
        return value if value.type is not None else compile_constant(None, operators.BOOLEAN)

    def compile_comparison(self, node: n.Node, operator: str, left: n.Node, right: n.Node) -> Compiled:
        """Compare two expressions in the type in which Spark compares them, or refuse as `_compile_comparable`."""
        return operators.compare(operator, *self._compile_comparable(node, left, right))

    def _compile_comparable(self, node: n.Node, left: n.Node, right: n.Node) -> tuple[Compiled, Compiled]:
        """Compile two expressions, and convert them to the type in which Spark compares them.

        If one is NULL without a type, also as the value of a `CASE`, neither is converted. `refuse` arrays, maps and
        rows; numbers that Arrow may convert differently; and beside a date or time a string that is not a constant
        date or time.
        """
        a, b = self.type_of(left), self.type_of(right)
        x, y = self(left), self(right)
        if a.type is None or b.type is None or x.type is None or y.type is None:
            null = self(n.Literal("null", "", at=node.at))
            return null if a.type is None else x, null if b.type is None else y
        if a.family == b.family == "other":
            self.refuse(node, f"a comparison of {a.spelling}", "compare its members")
        if a.family == b.family:
            if a.family != "number" or same_in_spark(a.type, b.type):
                return x, y
            if (exact := convert_exactly(y, x.type)) is not None:
                return x, exact
            if (exact := convert_exactly(x, y.type)) is not None:
                return exact, y
            wide = common_number_type(a.type, b.type)
            return self._widen(node, x, wide), self._widen(node, y, wide)
        if a.family == "text":
            return self._compile_moment(left, a.constant or "", b.type), y
        return x, self._compile_moment(right, b.constant or "", a.type)

    def _widen(self, node: n.Node, value: Compiled, kind: t.DataType) -> Compiled:
        """Convert a number to a wider type, unless it has that type, or refuse as `_cast`."""
        return self._cast(node, value, kind) if value.type != kind else value

    def _cast(self, node: n.Node, value: Compiled, kind: t.DataType, *, trying: bool = False) -> Compiled:
        """Convert a value to a type; `refuse` a conversion that Arrow may do differently."""
        converted = convert(value, kind, trying=trying)
        if converted is not None:
            return converted
        have = "NULL" if value.type is None else value.type.spelling
        return self.refuse(node, f"a conversion of {have} to {kind.spelling}", "compare values of the same type")

    def _compile_between(self, node: n.Between) -> Compiled:
        """Compile ``[NOT] BETWEEN [SYMMETRIC]`` as two comparisons, four if it is symmetric.

        Values that `_compile_comparable` refuses are refused.
        """

        def inside(low: n.Node, high: n.Node) -> Compiled:
            above = self.compile_comparison(node, ">=", node.operand, low)
            return operators.combine("AND", above, self.compile_comparison(node, "<=", node.operand, high))

        result = inside(node.low, node.high)
        if node.symmetric:
            result = operators.combine("OR", result, inside(node.high, node.low))
        return operators.negate(result) if node.negated else result

    def _compile_in(self, node: n.In) -> Compiled:
        """Compile ``[NOT] IN`` with a list of values, or refuse as `_compile_comparable`."""
        result = self._compile_in_constants(node)
        if result is None:
            each = [self.compile_comparison(node, "=", node.operand, value) for value in node.values]
            result = each[0]
            for other in each[1:]:
                result = operators.combine("OR", result, other)
        return operators.negate(result) if node.negated else result

    def _compile_in_constants(self, node: n.In) -> Compiled | None:
        """Compile ``IN`` with a set of constants, without ``NOT``, or refuse as `_compile_comparable`.

        None if the values must be compared one by one: not all are constants of the operand's type and other than NULL,
        or the operand is a FLOAT, a DOUBLE or itself a constant.
        """
        pairs = [self._compile_comparable(node, node.operand, value) for value in node.values]
        operand = pairs[0][0]
        kinds = {str(arrow_type(one.type)) for pair in pairs for one in pair if one.type is not None}
        constants = [other.constant for _, other in pairs]
        if len(kinds) != 1 or isinstance(operand.type, t.Float | t.Double):
            return None
        if any(c is None or not c.is_valid for c in constants) or operand.constant is not None:
            return None
        values = pa.array([c for c in constants if c is not None], arrow_type(operand.type))  # type: ignore[arg-type]

        def compute(operands: Any) -> Any:
            among = pc.is_in(operands, value_set=values)
            if isinstance(operands, pa.Array) and not operands.null_count:
                return among
            return pc.if_else(pc.is_valid(operands), among, pa.scalar(None, pa.bool_()))

        return compile_strict(operators.BOOLEAN, compute, operand)

    def _compile_like(self, node: n.Like) -> Compiled:
        """Compile LIKE; `refuse` SIMILAR TO, and a pattern that is not a string in quotes.

        Also refuse a pattern that escapes another character than ``%``, ``_`` and the escape character itself.
        """
        if node.similar:
            self.refuse(node, "SIMILAR TO", "use LIKE, or REGEXP(text, 'regular expression')")
        pattern, escape = self.type_of(node.pattern).constant, None
        if pattern is None or not isinstance(node.pattern, n.Literal):
            self.refuse(node, "LIKE with a pattern that is not a constant", "write the pattern in quotes")
        if node.escape is not None:
            escape = self.type_of(node.escape).constant
        try:
            find = patterns.compile_like(pattern, escape)
        except patterns.PatternError as e:
            reason = "the escape character stands before %, _ or itself"
            self.refuse(node, f"{e} in a pattern of LIKE", "remove it", reason)
        result = self.match(operators.BOOLEAN, find, node.operand)
        return operators.negate(result) if node.negated else result

    def match(self, kind: t.DataType | None, find: Callable[[pa.Array], pa.Array], text: n.Node) -> Compiled:
        """Compile a function with a result of type ``kind`` that ``find`` computes for an array of strings.

        ``text`` is a string, as the translation has checked.
        It is a BOOLEAN NULL if ``text`` is NULL without a type.
        """
        value = self(text)
        if value.type is None:
            return compile_constant(None, operators.BOOLEAN)

        def compute(values: Any) -> Any:
            if isinstance(values, pa.Scalar):
                return find(pa.array([values.as_py()], pa.string()))[0]
            return find(values)

        return compile_strict(kind, compute, value)

    def _compile_is(self, node: n.Is) -> Compiled:
        """Compile ``IS [NOT]`` with NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM.

        `refuse` JSON, and for DISTINCT FROM what `_compile_comparable` refuses.
        """
        if node.what == "DISTINCT":
            assert node.other is not None
            same = operators.compile_not_distinct(*self._compile_comparable(node, node.operand, node.other))
            return same if node.negated else operators.negate(same)
        if node.what == "JSON":
            self.refuse(node, "IS JSON", "check the members of the column")
        if node.what == "NULL":
            value = self(node.operand)
            return compile_strict(operators.BOOLEAN, pc.is_valid if node.negated else pc.is_null, value)
        value = self.compile_boolean(node.operand)
        if node.what == "UNKNOWN":
            return compile_strict(operators.BOOLEAN, pc.is_valid if node.negated else pc.is_null, value)
        of_true, negated = node.what == "TRUE", node.negated

        def compute(values: Any) -> Any:
            flags = pc.fill_null(values if of_true else pc.invert(values), False)
            return pc.invert(flags) if negated else flags

        return compile_strict(operators.BOOLEAN, compute, value)

    def _compile_case(self, node: n.Case) -> Compiled:
        """Compile ``CASE``, with an operand or without, to values of one type; without ELSE the last one is NULL.

        It is a BOOLEAN NULL if all its values are NULL without a type. Values that cannot be converted to that type
        exactly are refused, and operands as by `_compile_comparable`.
        """
        kind = self.type_of(node).type
        if kind is None:
            return compile_constant(None, operators.BOOLEAN)
        null = n.Literal("null", "", at=node.at)
        *values, otherwise = self.unify([*(then for _, then in node.whens), node.otherwise or null], kind)
        conditions = [
            self.compile_boolean(when)
            if node.operand is None
            else self.compile_comparison(when, "=", node.operand, when)
            for when, _ in node.whens
        ]
        return operators.choose(kind, list(zip(conditions, values, strict=True)), otherwise)

    def unify(self, nodes: Iterable[n.Node], kind: t.DataType) -> list[Compiled]:
        """Compile expressions and convert them to one type; a conversion that Arrow may do differently is refused."""
        return [self._cast(node, self(node), kind) for node in nodes]

    # arithmetic

    def _compile_negative(self, node: n.Unary) -> Compiled:
        """Compile ``-x``, to a constant for a literal; intervals, NULL, and decimals of over 34 digits are refused."""
        kind = self.type_of(node).type
        if kind is None or isinstance(kind, Interval):
            self.refuse(node, "an interval or NULL after -", "write the constant itself")
        value = self(node.operand)
        negated = operators.compile_unary(kind, value, "negate")
        if negated is not None and isinstance(node.operand, n.Literal) and value.constant is not None:
            number = value.constant.as_py()
            return compile_constant(None if number is None else -number, kind)
        if negated is None:
            self.refuse(node, f"- {kind.spelling}", "declare at most 34 digits, or compare the number itself")
        return negated

    def _compile_binary(self, node: n.Binary) -> Compiled:
        """Compile arithmetic of numbers, times and intervals; `refuse` NULL and what cannot be computed exactly."""
        families = {self.type_of(node.left).family, self.type_of(node.right).family}
        if families & {"interval", "date", "time", "timestamp"}:
            return self._compile_moved_time(node)
        compiled = self.compile_arithmetic(node, self.type_of(node).type)
        if compiled is None:
            what = f"{self.type_of(node.left).spelling} {node.operator} {self.type_of(node.right).spelling}"
            self.refuse(node, what, "compare the columns themselves, or declare numbers with fewer digits")
        return compiled

    def compile_arithmetic(self, node: n.Binary, kind: t.DataType | None) -> Compiled | None:
        """Compile ``+ - * / %`` of two numbers to the type ``kind``; None if it is NULL, or may differ from Spark's.

        None also for an operand that is NULL without a type. Operands whose conversion may differ are refused as by
        `_cast`.
        """
        a, b = self.type_of(node.left), self.type_of(node.right)
        if a.type is None or b.type is None or kind is None:
            return None
        left, right = self(node.left), self(node.right)
        if isinstance(kind, t.Decimal):
            left, right = (self._widen(node, value, as_decimal(value.type or t.Int())) for value in (left, right))
        else:
            wide = common_number_type(a.type, b.type)
            if isinstance(wide, t.Float) and node.operator == "/":
                return None
            left, right = self._widen(node, left, wide), self._widen(node, right, wide)
        return operators.calculate(node.operator, kind, left, right)

    def _compile_moved_time(self, node: n.Binary) -> Compiled:
        """Compile a DATE or timestamp plus or minus a constant interval of weeks or shorter units.

        Anything else is refused, as are parts of a day for a DATE, and an interval that is too long.
        """
        moved, span = node.left, node.right
        if isinstance(moved, n.Span) and node.operator == "+":
            moved, span = span, moved
        kind = self.type_of(node).type
        length = interval_microseconds(span) if isinstance(span, n.Span) else None
        fix = "move a DATE by days, or a TIMESTAMP by a constant INTERVAL of days, hours, minutes or seconds"
        if length is None or kind is None or not isinstance(kind, t.Date | t.Timestamp | t.TimestampLtz):
            self.refuse(node, f"this use of {node.operator} with a time or an interval", fix)
        if isinstance(kind, t.Date) and length % _DAY:
            self.refuse(node, "a DATE moved by parts of a day", fix)
        steps, number = (length // _DAY, t.Int()) if isinstance(kind, t.Date) else (length, t.BigInt())
        if abs(steps) >= BOUNDS[type(number)]:
            self.refuse(node, "an interval of that length", "write a shorter interval")
        unit = arrow_type(number)
        moved_number = compile_strict(number, lambda values: pc.cast(values, unit), self(moved))
        return operators.add(kind, moved_number, compile_constant(steps if node.operator == "+" else -steps, number))

    # calls

    def _compile_call(self, node: n.Call) -> Compiled:
        """Compile a function call; most calls with an argument that is NULL without a type are NULL.

        `refuse` (with an error) functions that are not in `FUNCTIONS`, calls that these cannot compute for the types or
        values of the arguments, and functions with another result each time.
        """
        name = node.name.upper()
        if name in NONDETERMINISTIC and not (name == "UNIX_TIMESTAMP" and node.arguments):
            reason = f"it is {NONDETERMINISTIC[name]}, and a row is valid or not whenever it is read"
            self.refuse(node, name, "compare with a column of the record, such as its metadata 'timestamp'", reason)
        for argument in node.arguments:
            self.type_of(argument)
        function = FUNCTIONS.get(name)
        kind = self.type_of(node).type
        if function is not None and name not in OF_NULL and any(self.type_of(a).type is None for a in node.arguments):
            return compile_constant(None, kind or operators.BOOLEAN)
        compiled = None if function is None else function(self, node, kind)
        if compiled is None:
            kinds = ", ".join(self.type_of(argument).spelling for argument in node.arguments)
            what = name if function is None else f"{name}({kinds})"
            self.refuse(node, what, f"use the operators, or one of {', '.join(sorted(FUNCTIONS))}")
        return compiled


def _number(text: str, kind: t.DataType) -> int | float | Decimal:
    """Convert the digits of a number, which the parser has checked, to the Python type of its SQL type."""
    if isinstance(kind, t.Double):
        return float(text)
    return Decimal(text.removesuffix(".")) if isinstance(kind, t.Decimal) else int(text.removesuffix("."))
