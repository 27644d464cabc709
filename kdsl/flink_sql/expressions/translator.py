"""Translates scalar expressions from syntax trees of Flink SQL to typed Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn, Protocol

import attrs

from kdsl.errors import listing, nearest
from kdsl.flink_sql.expressions import functions
from kdsl.flink_sql.expressions.arithmetic import translate_arithmetic, widen
from kdsl.flink_sql.expressions.calls import Arguments
from kdsl.flink_sql.expressions.casts import NoCastError, cast
from kdsl.flink_sql.expressions.literals import translate_interval, translate_literal
from kdsl.flink_sql.expressions.values import (
    NoCommonTypeError,
    TypedSql,
    common_number_type,
    common_type,
    same_in_spark,
)
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError, nesting_error
from kdsl.flink_sql.syntax.expression_reader import read_expression
from kdsl.types import model as t
from kdsl.types.sql import literal, quote_name, string_sql

_TYPING_ERROR = 0.8
"""How alike a wrong name and a function must be to be a typing error: similar names mean different things."""


class Scope(Protocol):
    """Resolves the names in an expression."""

    def column(self, parts: tuple[str, ...]) -> tuple[TypedSql, tuple[str, ...]] | None:
        """Return the column of a name, and the rest of the name: members of its row; None if there is no column."""
        ...

    def names(self) -> Iterable[str]:
        """List the names of all columns, for messages."""
        ...


@attrs.frozen
class ColumnScope:
    """The columns of one table."""

    types: Mapping[str, t.DataType]

    def column(self, parts: tuple[str, ...]) -> tuple[TypedSql, tuple[str, ...]] | None:
        """Return the column called ``parts[0]``, and the rest of the name; None, never an error, if there is none."""
        kind = self.types.get(parts[0])
        return None if kind is None else (TypedSql(quote_name(parts[0]), kind), parts[1:])

    def names(self) -> Iterable[str]:
        """List the names of the columns."""
        return self.types


class ExpressionTranslator:
    """Translates the expressions of one SQL text; call it with a node of the syntax tree.

    It changes nothing; translators of queries add what a stream must know of an expression to their facts.
    """

    def __init__(self, text: str, scope: Scope, *, member: str = "EXPR$") -> None:
        self.source = text
        self.scope = scope
        self.member = member

    def fail(self, node: n.Node, name: str, reason: str, fix: str) -> NoReturn:
        """Raise an UntranslatableError for a part of the text: its name, the reason, and the fix."""
        raise UntranslatableError(name, reason, fix, self.source, node.at)

    def __call__(self, node: n.Node) -> TypedSql:
        """Translate a node."""
        try:
            return self._translate(node)
        except NoCastError as e:
            self.fail(node, "CAST", e.reason, e.fix)

    def _translate(self, node: n.Node) -> TypedSql:
        """Translate a node by its kind."""
        match node:
            case n.Literal():
                return translate_literal(node, self.source)
            case n.Name(parts=parts):
                return self.translate_name(node, parts)
            case n.Span():
                return translate_interval(node, self.source)
            case n.Unary():
                return self.translate_unary(node)
            case n.Binary():
                return self.translate_binary(node)
            case n.Call():
                return self.translate_call(node)
            case n.Cast(operand=operand, type=kind, trying=trying):
                return self.translate_cast(node, self(operand), kind, trying=trying)
            case n.Case():
                return self.translate_case(node)
            case n.Between():
                return self.translate_between(node)
            case n.In():
                return self.translate_in(node)
            case n.Like():
                return self.translate_like(node)
            case n.Is():
                return self.translate_is(node)
            case n.Index():
                return self.translate_index(node)
            case n.Member(operand=operand, name=name):
                return self.translate_member(node, self(operand), name)
            case n.Collection():
                return self.translate_collection(node)
            case n.Nested():
                return self.translate_nested_query(node)
        raise AssertionError(node)

    # names

    def translate_name(self, node: n.Node, parts: tuple[str, ...]) -> TypedSql:
        """Translate a column, and members of it."""
        match = self.scope.column(parts)
        if match is None:
            names = list(self.scope.names())
            shown = ".".join(parts)
            listed = ", ".join(map(repr, names))
            fix = f"use one of {listed}" if names else "write a constant, or name a table after FROM"
            elsewhere = self.find_tables_with(parts)
            if elsewhere:
                reason = f"no table after FROM has a column {shown!r}; it is a column of {listing(elsewhere)}"
                self.fail(node, parts[0], reason, f"join {elsewhere[0]!r}, or {fix}")
            self.fail(node, parts[0], f"there is no column {shown!r}{nearest(shown, names)}", fix)
        value, rest = match
        for member in rest:
            value = self.translate_member(node, value, member)
        return value

    def find_tables_with(self, parts: tuple[str, ...]) -> list[str]:
        """Return the tables that the expression cannot use and that have a column, for messages.

        Translators of queries override this.
        """
        del parts
        return []

    def translate_member(self, node: n.Node, value: TypedSql, name: str) -> TypedSql:
        """Translate a member of a row, which is nullable if the row is."""
        if not isinstance(value.type, t.Row):
            self.fail(
                node, name, f"{value.spelling} has no member {name!r}: it is not a ROW", "use a column of type ROW"
            )
        by_name = {f.name: f.type for f in value.type.fields}
        if name not in by_name:
            hint = nearest(name, by_name)
            self.fail(node, name, f"the row has no member {name!r}{hint}", f"use one of {', '.join(by_name)}")
        kind = by_name[name]
        return TypedSql(f"{value.text}.{quote_name(name)}", kind.as_nullable(kind.nullable or value.nullable))

    # operators

    def translate_unary(self, node: n.Unary) -> TypedSql:
        """Translate ``NOT``, ``-`` and ``+``."""
        value = self(node.operand)
        if node.operator == "NOT":
            self.require_family(node, value, "boolean", "NOT")
            return TypedSql(f"(NOT {value.text})", t.Boolean(nullable=value.nullable))
        if value.family == "interval" and node.operator == "-":
            return TypedSql(f"(- {value.text})", value.type)
        self.require_family(node, value, "number", node.operator)
        if node.operator == "+":
            return value
        constant = None if value.constant is None else f"-{value.constant}".removeprefix("--")
        if isinstance(value.type, t.Int | t.BigInt) and value.constant is not None:
            return TypedSql(f"({constant}{'L' if isinstance(value.type, t.BigInt) else ''})", value.type, constant)
        return TypedSql(f"(- {value.text})", value.type, constant)

    def require_family(self, node: n.Node, value: TypedSql, family: str, what: str) -> None:
        """Check that a value belongs to a family of types; NULL always does."""
        if value.family not in (family, "null"):
            wanted = "string" if family == "text" else family
            fix = "CAST the value to the type that you mean"
            self.fail(node, what, f"{what} takes a {wanted}, not {value.spelling}", fix)

    def translate_binary(self, node: n.Binary) -> TypedSql:
        """Translate ``AND``, ``OR``, comparison, ``||`` and arithmetic."""
        operator = node.operator
        left, right = self(node.left), self(node.right)
        nullable = left.nullable or right.nullable
        if operator in ("AND", "OR"):
            for value in (left, right):
                self.require_family(node, value, "boolean", operator)
            return TypedSql(f"({left.text} {operator} {right.text})", t.Boolean(nullable=nullable))
        if operator == "||":
            for value in (left, right):
                if value.family not in ("text", "null"):
                    self.fail(node, "||", f"|| joins strings, not {value.spelling}", "write CAST(… AS STRING)")
            return TypedSql(f"concat({left.text}, {right.text})", t.VarChar(nullable=nullable))
        if operator in ("=", "<>", "<", "<=", ">", ">="):
            a, b = self.make_comparable(node, left, right, operator)
            return TypedSql(f"({a} {operator} {b})", t.Boolean(nullable=nullable))
        return translate_arithmetic(self, node, left, right)

    def make_comparable(self, node: n.Node, left: TypedSql, right: TypedSql, what: str) -> tuple[str, str]:
        """Return the SQL of two values in types that can be compared by ``what``; numbers get their common type.

        Constant strings become dates or times if the other value is one. NULL without a type can be compared with
        anything.
        """
        if left.type is None or right.type is None:
            return left.text, right.text
        if left.family == right.family != "other":
            if left.family == "timestamp" and type(left.type) is not type(right.type):
                self.fail(
                    node,
                    what,
                    f"{what} compares {left.spelling} with {right.spelling}: a wall-clock time with an instant",
                    "CAST one of them, in the time zone of the session",
                )
            if left.family == "interval" and not same_in_spark(left.type, right.type):
                reason = f"{what} compares {left.spelling} with {right.spelling}"
                self.fail(node, what, reason, "write both in years and months, or both in days to seconds")
            if left.family == "number" and not same_in_spark(left.type, right.type):
                wide = common_number_type(left.type, right.type)
                return widen(left, wide), widen(right, wide)
            return left.text, right.text
        if left.family == "other" and right.family == "other" and same_in_spark(left.type, right.type):
            if what in ("=", "<>", "IN", "CASE", "DISTINCT") and not isinstance(left.type, t.Map | t.Multiset):
                return left.text, right.text
            self.fail(node, what, f"{left.spelling} cannot be compared by {what}", "compare its members")
        for one, other in ((left, right), (right, left)):
            if one.family == "text" and one.constant is not None and other.family in ("date", "time", "timestamp"):
                assert other.type is not None
                converted = cast(one, other.type).text
                return (converted, other.text) if one is left else (other.text, converted)
        return self.fail(
            node, what, f"{what} compares {left.spelling} with {right.spelling}", "CAST one of them to the other's type"
        )

    # conditions

    def translate_between(self, node: n.Between) -> TypedSql:
        """Translate ``[NOT] BETWEEN [SYMMETRIC]``."""
        value, low, high = self(node.operand), self(node.low), self(node.high)
        nullable = value.nullable or low.nullable or high.nullable

        def inside(a: TypedSql, b: TypedSql) -> str:
            x, y = self.make_comparable(node, value, a, ">="), self.make_comparable(node, value, b, "<=")
            return f"({x[0]} >= {x[1]} AND {y[0]} <= {y[1]})"

        text = f"({inside(low, high)} OR {inside(high, low)})" if node.symmetric else inside(low, high)
        return TypedSql(f"(NOT {text})" if node.negated else text, t.Boolean(nullable=nullable))

    def translate_in(self, node: n.In) -> TypedSql:
        """Translate ``[NOT] IN`` a list, or a query by `translate_in_query`."""
        value = self(node.operand)
        if node.query is not None:
            return self.translate_in_query(node, value)
        parts = []
        nullable = value.nullable
        for each in map(self, node.values):
            nullable = nullable or each.nullable
            a, b = self.make_comparable(node, value, each, "IN")
            parts.append(f"{a} = {b}")
        text = f"({' OR '.join(parts)})"
        return TypedSql(f"(NOT {text})" if node.negated else text, t.Boolean(nullable=nullable))

    def translate_in_query(self, node: n.In, value: TypedSql) -> TypedSql:
        """Raise UntranslatableError for ``IN (SELECT …)``; translators of queries override this."""
        self.fail(node, "IN", f"a query after IN ({value.spelling}) cannot be used in this expression", "use a join")

    def translate_nested_query(self, node: n.Nested) -> TypedSql:
        """Raise UntranslatableError for a query inside an expression; translators of queries override this."""
        self.fail(node, "SELECT", "a query cannot be used in this expression", "use a join")

    def translate_like(self, node: n.Like) -> TypedSql:
        """Translate ``[NOT] LIKE`` and ``[NOT] SIMILAR TO``."""
        what = "SIMILAR TO" if node.similar else "LIKE"
        value, pattern = self(node.operand), self(node.pattern)
        for each in (value, pattern):
            self.require_family(node, each, "text", what)
        nullable = value.nullable or pattern.nullable
        if node.similar:
            if pattern.constant is None or node.escape is not None or re.search(r"[\[\\^$]", pattern.constant):
                reason = "SIMILAR TO takes a constant pattern of %, _, |, *, +, ?, {} and () here"
                self.fail(node, "SIMILAR", reason, "use REGEXP(text, 'regular expression')")
            signs = {"%": ".*", "_": ".", ".": r"\."}
            regular = literal(f"^(?s:{''.join(signs.get(sign, sign) for sign in pattern.constant)})$")[0]
            negation = "NOT " if node.negated else ""
            return TypedSql(f"({value.text} {negation}RLIKE {regular})", t.Boolean(nullable=nullable))
        escape = None if node.escape is None else self(node.escape).constant
        if node.escape is not None and (escape is None or len(escape) != 1):
            self.fail(node, "ESCAPE", "the escape character is one character in quotes", "write ESCAPE '!'")
        shown = pattern.text
        if escape is None:
            # without ESCAPE Flink has no escape character; Spark's is the backslash
            constant = pattern.constant
            if constant is None:
                shown = f"replace({pattern.text}, {literal(chr(92))[0]}, {literal(chr(92) * 2)[0]})"
            else:
                shown = literal(constant.replace("\\", "\\\\"))[0]
        if escape == "'":
            self.fail(node, "ESCAPE", "the escape character cannot be a quote", "write ESCAPE '!'")
        # the backslash is Spark's own, and has no spelling that no setting changes
        clause = "" if escape in (None, "\\") else f" ESCAPE '{escape}'"
        negation = "NOT " if node.negated else ""
        return TypedSql(f"({value.text} {negation}LIKE {shown}{clause})", t.Boolean(nullable=nullable))

    def translate_is(self, node: n.Is) -> TypedSql:
        """Translate ``IS [NOT] NULL``, ``TRUE``, ``FALSE``, ``UNKNOWN``, ``DISTINCT FROM`` and ``JSON``."""
        value = self(node.operand)
        negation = "NOT " if node.negated else ""
        if node.what == "DISTINCT":
            assert node.other is not None
            a, b = self.make_comparable(node, value, self(node.other), "DISTINCT")
            same = f"({a} <=> {b})"
            return TypedSql(same if node.negated else f"(NOT {same})", t.Boolean(nullable=False))
        if node.what == "JSON":
            self.require_family(node, value, "text", "IS JSON")
            is_json = f"(try_parse_json({value.text}) IS {'' if node.negated else 'NOT '}NULL)"
            return TypedSql(is_json, t.Boolean(nullable=False))
        if node.what != "NULL":
            self.require_family(node, value, "boolean", f"IS {node.what}")
        what = "NULL" if node.what == "UNKNOWN" else node.what
        return TypedSql(f"({value.text} IS {negation}{what})", t.Boolean(nullable=False))

    def translate_case(self, node: n.Case) -> TypedSql:
        """Translate ``CASE``."""
        operand = None if node.operand is None else self(node.operand)
        conditions, values = [], []
        for when, then in node.whens:
            condition = self(when)
            if operand is None:
                self.require_family(when, condition, "boolean", "WHEN")
                conditions.append(condition.text if condition.type is not None else cast(condition, t.Boolean()).text)
            else:
                a, b = self.make_comparable(when, operand, condition, "CASE")
                conditions.append(f"{a} = {b}")
            values.append(self(then))
        otherwise = TypedSql("NULL") if node.otherwise is None else self(node.otherwise)
        kind, texts = self.unify(node, "CASE", [*values, otherwise])
        whens = " ".join(f"WHEN {c} THEN {v}" for c, v in zip(conditions, texts, strict=False))
        return TypedSql(f"(CASE {whens} ELSE {texts[-1]} END)", kind)

    def unify(self, node: n.Node, what: str, values: list[TypedSql]) -> tuple[t.DataType | None, list[str]]:
        """Return the common type of some values, and their SQL in that type; None, and their SQL, if all are NULL."""
        try:
            kind = common_type(v.type for v in values)
        except NoCommonTypeError as e:
            one = "NULL" if e.one is None else e.one.spelling
            self.fail(node, what, f"{what} has values of {one} and {e.other.spelling}", "CAST them to one type")
        if kind is None:
            return None, [v.text for v in values]
        return kind, [
            v.text if v.type is not None and same_in_spark(v.type, kind) else cast(v, kind).text for v in values
        ]

    # collections, casts, calls

    def translate_index(self, node: n.Index) -> TypedSql:
        """Translate ``x[i]``, which is NULL if an array or map has no such element."""
        value, index = self(node.operand), self(node.index)
        match value.type:
            case t.Array(element=element):
                if not isinstance(index.type, t.TinyInt | t.SmallInt | t.Int):
                    self.fail(node, "[", f"an array's index is an INT, not {index.spelling}", "CAST it to INT")
                if index.constant is not None and int(index.constant) < 1:
                    self.fail(node, "[", "the first element of an array is 1", "count from 1")
                return TypedSql(f"get({value.text}, {index.text} - 1)", element.as_nullable())
            case t.Map(key=key, value=inner):
                _, wanted = self.make_comparable(node, TypedSql("k", key), index, "[")
                return TypedSql(f"{value.text}[{wanted}]", inner.as_nullable())
        return self.fail(node, "[", f"{value.spelling} has no elements", "use it on an ARRAY or a MAP")

    def translate_collection(self, node: n.Collection) -> TypedSql:
        """Translate ``ARRAY[…]``, ``MAP[…]`` and ``ROW(…)``."""
        values = [self(item) for item in node.items]
        if node.kind == "ROW":
            if any(v.type is None for v in values):
                self.fail(node, "ROW", "a NULL in ROW has no type", "write CAST(NULL AS …)")
            fields = tuple(t.Field(f"{self.member}{i}", v.type) for i, v in enumerate(values) if v.type is not None)
            parts = ", ".join(f"{string_sql(f.name)}, {v.text}" for f, v in zip(fields, values, strict=True))
            return TypedSql(f"named_struct({parts})", t.Row(fields, nullable=False))
        if not values:
            self.fail(node, node.kind, f"an empty {node.kind} has no type", "CAST a NULL to the type instead")
        if node.kind == "ARRAY":
            kind, texts = self.unify(node, "ARRAY", values)
            return TypedSql(f"array({', '.join(texts)})", t.Array(kind or t.Int(), nullable=False))
        keys, key_texts = self.unify(node, "MAP", values[::2])
        inner, inner_texts = self.unify(node, "MAP", values[1::2])
        pairs = ", ".join(f"{k}, {v}" for k, v in zip(key_texts, inner_texts, strict=True))
        return TypedSql(f"map({pairs})", t.Map(keys or t.STRING, inner or t.STRING, nullable=False))

    def translate_cast(self, node: n.Node, value: TypedSql, kind: t.DataType, *, trying: bool = False) -> TypedSql:
        """Translate ``CAST``, or ``TRY_CAST`` where ``trying`` is true."""
        try:
            return cast(value, kind, trying=trying)
        except NoCastError as e:
            self.fail(node, "CAST", e.reason, e.fix)

    def translate_call(self, node: n.Call) -> TypedSql:
        """Translate a function call.

        One with ``OVER``, ``FILTER``, ``DISTINCT`` or ``*`` is left to `translate_aggregate`, as is an unknown
        function.
        """
        name = node.name.upper()
        if node.over is not None or node.filter is not None or node.star or node.distinct:
            return self.translate_aggregate(node)
        function = functions.FUNCTIONS.get(name)
        if function is None:
            return self.translate_aggregate(node)
        call = Arguments(self, node, [self(a) for a in node.arguments])
        return function(call)

    def translate_aggregate(self, node: n.Call) -> TypedSql:
        """Raise UntranslatableError for an aggregate, or a function that is unknown or has no equivalent in Spark.

        Translators of queries override this.
        """
        name = node.name.upper()
        if name in functions.AGGREGATES:
            self.fail(node, node.name, f"{name} is an aggregate, and an expression sees one row", "use it in a query")
        if name in functions.REFUSED:
            reason, fix = functions.REFUSED[name]
            self.fail(node, node.name, f"{name} cannot be translated: {reason}", fix)
        known = [*functions.FUNCTIONS, *functions.AGGREGATES, "CAST", "TRY_CAST"]
        hint = nearest(name, known, _TYPING_ERROR)
        self.fail(
            node, node.name, f"there is no function {node.name!r} that can be translated{hint}", "use another function"
        )


def find_wrong_calls(text: str, root: object) -> Iterator[UntranslatableError]:
    """Find calls of functions that are unknown, have no equivalent in Spark or are aggregates; no column is needed.

    Args:
        text: The text in which positions count.
        root: The expression, or several.
    """
    translator = ExpressionTranslator(text, ColumnScope({}))
    for call in (node for node in n.walk(root) if isinstance(node, n.Call)):
        if call.name.upper() in functions.FUNCTIONS and not (call.over or call.filter or call.star or call.distinct):
            continue
        try:
            translator.translate_aggregate(call)
        except UntranslatableError as e:
            yield e


def translate_expression(text: str, columns: Mapping[str, t.DataType]) -> TypedSql:
    """Translate a scalar expression of Flink SQL to Spark SQL, for a session in ANSI mode (Spark's default).

    Args:
        text: The expression: ``CAST(`timestamp` AS DATE)``, ``price * amount``.
        columns: The columns that it may use, by name; names are matched exactly, as in Flink.

    Returns:
        The Spark SQL, with the type that Flink gives the expression: the type of a computed column. A bare ``NULL`` has
        none.
    """
    node = read_expression(text)
    try:
        return ExpressionTranslator(text, ColumnScope(columns))(node)
    except RecursionError:
        raise nesting_error("", text, n.deepest_node(node).at) from None
