"""Scalar expressions: a tree of Flink SQL to typed Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn, Protocol

import attrs

from kdsl.declare.translate import functions, tree as n
from kdsl.declare.translate.calls import Arguments
from kdsl.declare.translate.casts import NoCastError, cast
from kdsl.declare.translate.errors import UntranslatableError
from kdsl.declare.translate.intervals import microseconds
from kdsl.declare.translate.reader import read_expression, too_deep
from kdsl.declare.translate.values import Interval, NoCommonTypeError, Value, arithmetic, common, number, same_in_spark
from kdsl.errors import nearest
from kdsl.types import model as t
from kdsl.types.sql import literal, quoted

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?")


class Scope(Protocol):
    """Where names are looked up."""

    def column(self, parts: tuple[str, ...]) -> tuple[Value, tuple[str, ...]] | None:
        """The column that a name means, and the rest of the name, which are members of its row; None if unknown."""
        ...

    def names(self) -> Iterable[str]:
        """The columns that there are, for messages."""
        ...


@attrs.frozen
class Columns:
    """The columns of one table."""

    types: Mapping[str, t.DataType]

    def column(self, parts: tuple[str, ...]) -> tuple[Value, tuple[str, ...]] | None:
        """See `Scope`."""
        kind = self.types.get(parts[0])
        return None if kind is None else (Value(quoted(parts[0]), kind), parts[1:])

    def names(self) -> Iterable[str]:
        """See `Scope`."""
        return self.types


class Scalar:
    """Translates the expressions of one text."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.source = text
        self.scope = scope

    def fail(self, node: n.Node, name: str, reason: str, fix: str) -> NoReturn:
        """Say that a part of the text cannot be translated."""
        raise UntranslatableError(name, reason, fix, self.source, node.at)

    def __call__(self, node: n.Node) -> Value:
        """The translation of a node."""
        match node:
            case n.Literal():
                return self.constant(node)
            case n.Name(parts=parts):
                return self.name(node, parts)
            case n.Span():
                return self.interval(node)
            case n.Unary():
                return self.unary(node)
            case n.Binary():
                return self.binary(node)
            case n.Call():
                return self.call(node)
            case n.Cast(operand=operand, type=kind, trying=trying):
                return self.cast(node, self(operand), kind, trying=trying)
            case n.Case():
                return self.case(node)
            case n.Between():
                return self.between(node)
            case n.In():
                return self.within(node)
            case n.Like():
                return self.like(node)
            case n.Is():
                return self.test(node)
            case n.Index():
                return self.element(node)
            case n.Member(operand=operand, name=name):
                return self.member(node, self(operand), name)
            case n.Collection():
                return self.collection(node)
            case n.Nested():
                return self.nested(node)
        raise AssertionError(node)

    # names and constants

    def name(self, node: n.Node, parts: tuple[str, ...]) -> Value:
        """A column, and members of it."""
        found = self.scope.column(parts)
        if found is None:
            names = list(self.scope.names())
            shown = ".".join(parts)
            fix = f"use one of {', '.join(map(repr, names))}" if names else "there is no table to take columns from"
            self.fail(node, parts[0], f"there is no column {shown!r}{nearest(shown, names)}", fix)
        value, rest = found
        for member in rest:
            value = self.member(node, value, member)
        return value

    def member(self, node: n.Node, value: Value, name: str) -> Value:
        """A member of a row."""
        if not isinstance(value.type, t.Row):
            self.fail(node, name, f"{value.spelling} has no members, and {name!r} is asked of it", "name a ROW")
        by_name = {f.name: f.type for f in value.type.fields}
        if name not in by_name:
            hint = nearest(name, by_name)
            self.fail(node, name, f"the row has no member {name!r}{hint}", f"use one of {', '.join(by_name)}")
        kind = by_name[name]
        return Value(f"{value.text}.{quoted(name)}", kind.as_nullable(kind.nullable or value.nullable))

    def constant(self, node: n.Literal) -> Value:
        """A constant."""
        text = node.text
        match node.kind:
            case "string":
                return Value(literal(text)[0], t.Char(max(len(text), 1), nullable=False), text)
            case "null":
                return Value("NULL")
            case "boolean":
                return Value(text, t.Boolean(nullable=False), text)
            case "bytes":
                return Value(f"X'{text}'", t.Binary(max(len(text) // 2, 1), nullable=False))
            case "number":
                return self.number(node)
            case "date" if _DATE.fullmatch(text):
                return Value(f"DATE '{text}'", t.Date(nullable=False))
            case "time" if _TIME.fullmatch(text):
                return Value(f"TIME '{text}'", t.Time(_digits(text), nullable=False))
            case "timestamp" if _TIMESTAMP.fullmatch(text):
                return Value(f"TIMESTAMP_NTZ '{text}'", t.Timestamp(_digits(text), nullable=False))
        form = {"date": "2024-12-31", "time": "23:59:59", "timestamp": "2024-12-31 23:59:59.123"}[node.kind]
        return self.fail(node, node.kind.upper(), f"{text!r} is no {node.kind.upper()}", f"write it as '{form}'")

    def number(self, node: n.Literal) -> Value:
        """A number: INT, BIGINT, DECIMAL, or DOUBLE with an exponent."""
        text = node.text.removesuffix(".")
        if "e" in text.lower():
            return Value(f"{text.upper().replace('E+', 'E')}D", t.Double(nullable=False), text)
        if "." in text:
            whole, _, behind = text.partition(".")
            digits = len(whole.lstrip("0") or whole[:1]) + len(behind)
            if digits > t.MAX_DECIMAL:
                self.fail(node, text, f"{text} has more than 38 digits", "write fewer")
            kind = t.Decimal(max(digits, len(behind), 1), len(behind), nullable=False)
            return Value(f"CAST('{text}' AS DECIMAL({kind.precision}, {kind.scale}))", kind, text)
        if len(text.lstrip("0")) > t.MAX_DECIMAL:
            self.fail(node, text, f"a number of {len(text)} digits is longer than 38", "write fewer")
        value = int(text)
        if value < 2**31:
            return Value(str(value), t.Int(nullable=False), text)
        if value < 2**63:
            return Value(f"{value}L", t.BigInt(nullable=False), text)
        return Value(f"{value}BD", t.Decimal(len(str(value)), 0, nullable=False), text)

    def interval(self, node: n.Span) -> Value:
        """An interval."""
        unit, until, text = node.unit, node.until, node.text.strip()
        months = unit in ("YEAR", "QUARTER", "MONTH")
        if unit == until and unit in ("WEEK", "QUARTER"):
            if not re.fullmatch(r"-?\d{1,9}", text):
                self.fail(node, unit, f"{text!r} is no number of {unit.lower()}s", f"write INTERVAL '2' {unit}")
            many, unit = (7, "DAY") if unit == "WEEK" else (3, "MONTH")
            text, until = str(int(text) * many), unit
        length = microseconds(node)
        if length is None if not months else not re.fullmatch(r"-?\d+" if unit == until else r"-?\d+-\d+", text):
            self.fail(node, "INTERVAL", f"{text!r} is no interval of {unit}", f"write INTERVAL '5' {unit}")
        shown = unit if unit == until else f"{unit} TO {until}"
        constant = None if length is None else str(length)
        return Value(f"(INTERVAL '{text}' {shown})", Interval(months, nullable=False), constant)

    # operators

    def unary(self, node: n.Unary) -> Value:
        """``NOT``, ``-`` and ``+``."""
        value = self(node.operand)
        if node.operator == "NOT":
            self.need(node, value, "boolean", "NOT")
            return Value(f"(NOT {value.text})", t.Boolean(nullable=value.nullable))
        if value.family == "interval" and node.operator == "-":
            return Value(f"(- {value.text})", value.type)
        self.need(node, value, "number", node.operator)
        if node.operator == "+":
            return value
        constant = None if value.constant is None else f"-{value.constant}".removeprefix("--")
        if isinstance(value.type, t.Int | t.BigInt) and value.constant is not None:
            return Value(f"({constant}{'L' if isinstance(value.type, t.BigInt) else ''})", value.type, constant)
        return Value(f"(- {value.text})", value.type, constant)

    def need(self, node: n.Node, value: Value, family: str, what: str) -> None:
        """Refuse a value of another kind."""
        if value.family not in (family, "null"):
            self.fail(node, what, f"{what} takes a {family}, not {value.spelling}", "CAST the value to the type meant")

    def binary(self, node: n.Binary) -> Value:
        """``AND``, ``OR``, comparison, ``||`` and arithmetic."""
        operator = node.operator
        left, right = self(node.left), self(node.right)
        nullable = left.nullable or right.nullable
        if operator in ("AND", "OR"):
            for value in (left, right):
                self.need(node, value, "boolean", operator)
            return Value(f"({left.text} {operator} {right.text})", t.Boolean(nullable=nullable))
        if operator == "||":
            for value in (left, right):
                if value.family not in ("text", "null"):
                    self.fail(node, "||", f"|| joins texts, not {value.spelling}", "write CAST(… AS STRING)")
            return Value(f"concat({left.text}, {right.text})", t.VarChar(nullable=nullable))
        if operator in ("=", "<>", "<", "<=", ">", ">="):
            a, b = self.comparable(node, left, right, operator)
            return Value(f"({a} {operator} {b})", t.Boolean(nullable=nullable))
        return self.arithmetic(node, left, right)

    def comparable(self, node: n.Node, left: Value, right: Value, what: str) -> tuple[str, str]:
        """Two values as they can be compared."""
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
            if left.family == "number" and not same_in_spark(left.type, right.type):
                wide = number(left.type, right.type)
                return self.widened(left, wide), self.widened(right, wide)
            return left.text, right.text
        if left.family == "other" and right.family == "other" and same_in_spark(left.type, right.type):
            if what in ("=", "<>", "IN", "CASE", "DISTINCT") and not isinstance(left.type, t.Map | t.Multiset):
                return left.text, right.text
            self.fail(node, what, f"{left.spelling} cannot be compared by {what}", "compare its members")
        for one, other in ((left, right), (right, left)):
            if one.family == "text" and one.constant is not None and other.family in ("date", "time", "timestamp"):
                assert other.type is not None
                made = cast(one, other.type).text
                return (made, other.text) if one is left else (other.text, made)
        return self.fail(
            node, what, f"{what} compares {left.spelling} with {right.spelling}", "CAST one of them to the other's type"
        )

    def widened(self, value: Value, kind: t.DataType) -> str:
        """A number as a wider type."""
        assert value.type is not None
        return value.text if same_in_spark(value.type, kind) else cast(value, kind).text

    def arithmetic(self, node: n.Binary, left: Value, right: Value) -> Value:
        """Numbers, and times with intervals."""
        operator = node.operator
        if "interval" in (left.family, right.family) or {left.family, right.family} & {"date", "time", "timestamp"}:
            return self.moved(node, left, right)
        for value in (left, right):
            self.need(node, value, "number", operator)
        if left.type is None or right.type is None:
            kind = (left.type or right.type or t.Int()).as_nullable()
            return cast(Value("NULL"), kind)
        kind = arithmetic(operator, left.type, right.type).as_nullable(left.nullable or right.nullable)
        if isinstance(kind, t.Decimal):
            a, b = (self.widened(v, _exact(v.type)) for v in (left, right))
            return Value(f"CAST(({a} {operator} {b}) AS DECIMAL({kind.precision}, {kind.scale}))", kind)
        wide = number(left.type, right.type)
        a, b = self.widened(left, wide), self.widened(right, wide)
        if not same_in_spark(kind, wide):  # the rest of a division has the type of the divisor
            return Value(f"CAST(({a} {operator} {b}) AS {kind.name})", kind)
        if operator == "/" and isinstance(kind, t.TinyInt | t.SmallInt | t.Int | t.BigInt):
            return Value(f"CAST(({a} DIV {b}) AS {kind.name})", kind)
        if operator == "/" and isinstance(kind, t.Float):
            return Value(f"CAST(({a} / {b}) AS FLOAT)", kind)
        return Value(f"({a} {operator} {b})", kind)

    def moved(self, node: n.Binary, left: Value, right: Value) -> Value:
        """A time moved by an interval."""
        operator = node.operator
        if left.family == "interval" and right.family != "interval" and operator == "+":
            left, right = right, left
        nullable = left.nullable or right.nullable
        match left.type, right.type:
            case (t.TimestampLtz(), Interval(months=False)) if operator in ("+", "-"):
                # Spark would add days of the session's zone, which may have 23 hours
                if right.constant is None:
                    self.fail(node, operator, "an instant moves by a constant here", "write INTERVAL '26' HOUR")
                text = f"timestamp_micros(unix_micros({left.text}) {operator} ({right.constant}L))"
                return Value(text, left.type.as_nullable(nullable))
            case ((t.Timestamp() | t.TimestampLtz()), Interval()) if operator in ("+", "-"):
                kind = left.type.as_nullable(nullable)
                return Value(f"({left.text} {operator} {right.text})", kind)
            case t.Date(), Interval(months=months) if operator in ("+", "-"):
                days = re.fullmatch(r"\(INTERVAL '(-?\d+)' (?:DAY|MONTH|YEAR)\)", right.text)
                if days or months:
                    return Value(f"({left.text} {operator} {right.text})", t.Date(nullable=nullable))
                self.fail(
                    node, operator, "a DATE moves by whole days, months or years", "CAST it to TIMESTAMP(3) before"
                )
            case Interval(months=a), Interval(months=b) if a == b and operator in ("+", "-"):
                return Value(f"({left.text} {operator} {right.text})", left.type)
            case Interval(), _ if right.family == "number" and operator == "*":
                return Value(f"({left.text} * {right.text})", left.type)
            case _, Interval() if left.family == "number" and operator == "*":
                return Value(f"({right.text} * {left.text})", right.type)
        reason = f"{left.spelling} {operator} {right.spelling} cannot be worked out"
        return self.fail(
            node, operator, reason, "use TIMESTAMPDIFF for the time between two, or an INTERVAL to move one"
        )

    # conditions

    def between(self, node: n.Between) -> Value:
        """``BETWEEN``."""
        value, low, high = self(node.operand), self(node.low), self(node.high)
        nullable = value.nullable or low.nullable or high.nullable

        def inside(a: Value, b: Value) -> str:
            x, y = self.comparable(node, value, a, ">="), self.comparable(node, value, b, "<=")
            return f"({x[0]} >= {x[1]} AND {y[0]} <= {y[1]})"

        text = f"({inside(low, high)} OR {inside(high, low)})" if node.symmetric else inside(low, high)
        return Value(f"(NOT {text})" if node.negated else text, t.Boolean(nullable=nullable))

    def within(self, node: n.In) -> Value:
        """``IN``."""
        value = self(node.operand)
        if node.query is not None:
            return self.in_query(node, value)
        parts = []
        nullable = value.nullable
        for each in map(self, node.values):
            nullable = nullable or each.nullable
            a, b = self.comparable(node, value, each, "IN")
            parts.append(f"{a} = {b}")
        text = f"({' OR '.join(parts)})"
        return Value(f"(NOT {text})" if node.negated else text, t.Boolean(nullable=nullable))

    def in_query(self, node: n.In, value: Value) -> Value:
        """``IN (SELECT …)``, which only a query has."""
        self.fail(node, "IN", f"a query behind IN ({value.spelling}) cannot stand in this expression", "use a join")

    def nested(self, node: n.Nested) -> Value:
        """A query inside of an expression, which only a query has."""
        self.fail(node, "SELECT", "a query cannot stand in this expression", "use a join")

    def like(self, node: n.Like) -> Value:
        """``LIKE`` and ``SIMILAR TO``."""
        what = "SIMILAR TO" if node.similar else "LIKE"
        value, pattern = self(node.operand), self(node.pattern)
        for each in (value, pattern):
            self.need(node, each, "text", what)
        nullable = value.nullable or pattern.nullable
        if node.similar:
            if pattern.constant is None or node.escape is not None or re.search(r"[\[\\^$]", pattern.constant):
                reason = "SIMILAR TO takes a constant pattern of %, _, |, *, +, ?, {} and () here"
                self.fail(node, "SIMILAR", reason, "use REGEXP(text, 'regular expression')")
            signs = {"%": ".*", "_": ".", ".": r"\."}
            regular = literal(f"^(?s:{''.join(signs.get(sign, sign) for sign in pattern.constant)})$")[0]
            negation = "NOT " if node.negated else ""
            return Value(f"({value.text} {negation}RLIKE {regular})", t.Boolean(nullable=nullable))
        escape = None if node.escape is None else self(node.escape).constant
        if node.escape is not None and (escape is None or len(escape) != 1):
            self.fail(node, "ESCAPE", "the escape character is one character in quotes", "write ESCAPE '!'")
        shown = pattern.text
        if escape is None:
            # without ESCAPE the reference knows no escape character, and Spark has the backslash
            constant = pattern.constant
            if constant is None:
                shown = f"replace({pattern.text}, {literal(chr(92))[0]}, {literal(chr(92) * 2)[0]})"
            else:
                shown = literal(constant.replace("\\", "\\\\"))[0]
        clause = "" if escape is None else f" ESCAPE {literal(escape)[0]}"
        negation = "NOT " if node.negated else ""
        return Value(f"({value.text} {negation}LIKE {shown}{clause})", t.Boolean(nullable=nullable))

    def test(self, node: n.Is) -> Value:
        """``IS NULL``, ``IS TRUE``, ``IS DISTINCT FROM``."""
        value = self(node.operand)
        negation = "NOT " if node.negated else ""
        if node.what == "DISTINCT":
            assert node.other is not None
            a, b = self.comparable(node, value, self(node.other), "DISTINCT")
            same = f"({a} <=> {b})"
            return Value(same if node.negated else f"(NOT {same})", t.Boolean(nullable=False))
        if node.what == "JSON":
            self.need(node, value, "text", "IS JSON")
            found = f"(try_parse_json({value.text}) IS {'' if node.negated else 'NOT '}NULL)"
            return Value(found, t.Boolean(nullable=False))
        if node.what != "NULL":
            self.need(node, value, "boolean", f"IS {node.what}")
        what = "NULL" if node.what == "UNKNOWN" else node.what
        return Value(f"({value.text} IS {negation}{what})", t.Boolean(nullable=False))

    def case(self, node: n.Case) -> Value:
        """``CASE``."""
        operand = None if node.operand is None else self(node.operand)
        conditions, values = [], []
        for when, then in node.whens:
            condition = self(when)
            if operand is None:
                self.need(when, condition, "boolean", "WHEN")
                conditions.append(condition.text)
            else:
                a, b = self.comparable(when, operand, condition, "CASE")
                conditions.append(f"{a} = {b}")
            values.append(self(then))
        otherwise = Value("NULL") if node.otherwise is None else self(node.otherwise)
        kind, texts = self.together(node, "CASE", [*values, otherwise])
        whens = " ".join(f"WHEN {c} THEN {v}" for c, v in zip(conditions, texts, strict=False))
        return Value(f"(CASE {whens} ELSE {texts[-1]} END)", kind)

    def together(self, node: n.Node, what: str, values: list[Value]) -> tuple[t.DataType | None, list[str]]:
        """Values as the one type that holds all of them."""
        try:
            kind = common(v.type for v in values)
        except NoCommonTypeError as e:
            one = "NULL" if e.one is None else e.one.spelling
            self.fail(node, what, f"{what} has values of {one} and {e.other.spelling}", "CAST them to one type")
        if kind is None:
            return None, [v.text for v in values]
        return kind, [
            v.text if v.type is not None and same_in_spark(v.type, kind) else cast(v, kind).text for v in values
        ]

    # collections, casts, calls

    def element(self, node: n.Index) -> Value:
        """``x[i]``."""
        value, index = self(node.operand), self(node.index)
        match value.type:
            case t.Array(element=element):
                if not isinstance(index.type, t.TinyInt | t.SmallInt | t.Int):
                    self.fail(node, "[", f"an array's index is an INT, not {index.spelling}", "CAST it to INT")
                if index.constant is not None and int(index.constant) < 1:
                    self.fail(node, "[", "the first element of an array is 1", "count from 1")
                return Value(f"get({value.text}, {index.text} - 1)", element.as_nullable())
            case t.Map(key=key, value=inner):
                _, wanted = self.comparable(node, Value("k", key), index, "[")
                return Value(f"{value.text}[{wanted}]", inner.as_nullable())
        return self.fail(node, "[", f"{value.spelling} has no elements", "use it on an ARRAY or a MAP")

    def collection(self, node: n.Collection) -> Value:
        """``ARRAY[…]``, ``MAP[…]``, ``ROW(…)``."""
        values = [self(item) for item in node.items]
        if node.kind == "ROW":
            if any(v.type is None for v in values):
                self.fail(node, "ROW", "a NULL in ROW has no type", "write CAST(NULL AS …)")
            fields = tuple(t.Field(f"EXPR${i}", v.type) for i, v in enumerate(values) if v.type is not None)
            parts = ", ".join(f"'{f.name}', {v.text}" for f, v in zip(fields, values, strict=True))
            return Value(f"named_struct({parts})", t.Row(fields, nullable=False))
        if not values:
            self.fail(node, node.kind, f"an empty {node.kind} has no type", "CAST a NULL to the type instead")
        if node.kind == "ARRAY":
            kind, texts = self.together(node, "ARRAY", values)
            return Value(f"array({', '.join(texts)})", t.Array(kind or t.Int(), nullable=False))
        keys, key_texts = self.together(node, "MAP", values[::2])
        inner, inner_texts = self.together(node, "MAP", values[1::2])
        pairs = ", ".join(f"{k}, {v}" for k, v in zip(key_texts, inner_texts, strict=True))
        return Value(f"map({pairs})", t.Map(keys or t.STRING, inner or t.STRING, nullable=False))

    def cast(self, node: n.Node, value: Value, kind: t.DataType, *, trying: bool = False) -> Value:
        """``CAST``."""
        try:
            return cast(value, kind, trying=trying)
        except NoCastError as e:
            self.fail(node, "CAST", e.reason, e.fix)

    def call(self, node: n.Call) -> Value:
        """A function call."""
        name = node.name.upper()
        if node.over is not None or node.filter is not None or node.star or node.distinct:
            return self.aggregate(node)
        made = functions.FUNCTIONS.get(name)
        if made is None:
            return self.aggregate(node)
        call = Arguments(self, node, [self(a) for a in node.arguments])
        return made(call)

    def aggregate(self, node: n.Call) -> Value:
        """An aggregate function, which only a query has; anything else is unknown."""
        name = node.name.upper()
        if name in functions.AGGREGATES:
            self.fail(node, node.name, f"{name} takes many rows, and here is one", "use it in a query")
        if name in functions.REFUSED:
            reason, fix = functions.REFUSED[name]
            self.fail(node, node.name, f"{name} cannot be translated: {reason}", fix)
        known = [*functions.FUNCTIONS, *functions.AGGREGATES, "CAST", "TRY_CAST"]
        hint = nearest(name, known)
        self.fail(
            node, node.name, f"there is no function {node.name!r} that can be translated{hint}", "use another one"
        )


def _digits(text: str) -> int:
    return len(text.partition(".")[2])


def _exact(kind: t.DataType | None) -> t.DataType:
    from kdsl.declare.translate.values import as_decimal

    assert kind is not None
    return as_decimal(kind)


def translate_expression(text: str, columns: Mapping[str, t.DataType]) -> Value:
    """A scalar expression of Flink SQL as Spark SQL, with its type.

    Raises:
        UntranslatableError: It is none, or has no equal in Spark.
    """
    node = read_expression(text)
    try:
        return Scalar(text, Columns(columns))(node)
    except RecursionError:
        raise too_deep("", text, n.deepest(node).at) from None
