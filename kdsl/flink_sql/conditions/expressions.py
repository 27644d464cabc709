"""Compiles an expression to a function of Arrow batches that gives Spark's results, in Flink's SQL or in Spark's.

An expression in Spark's SQL is read as one in Flink's, so it may only have what means the same in both: ``/`` and ``%``
of whole numbers, for example, do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs
import pyarrow as pa

from kdsl.flink_sql.conditions.casts import convert
from kdsl.flink_sql.conditions.compiler import Compiler, ConditionError
from kdsl.flink_sql.conditions.values import Compiled, Failure, Rows, as_array
from kdsl.flink_sql.expressions.translator import ColumnScope, ExpressionTranslator
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.flink_sql.syntax.expression_reader import read_expression
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, cast_array

_OPERATORS = frozenset(("AND", "OR", "||", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*"))
_FUNCTIONS = frozenset(("ABS", "COALESCE", "CONCAT", "LOWER", "STARTSWITH", "ENDSWITH", "UPPER"))
_CASTS = (t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Decimal, t.VarChar, t.Date)


@attrs.frozen(eq=False)
class ExpressionOfRows:
    """A compiled expression.

    Attributes:
        type: The type to which its values are converted.
    """

    type: t.DataType
    _compiled: Compiled

    def values(self, columns: Mapping[str, pa.Array], count: int) -> tuple[pa.Array, tuple[Failure, ...]]:
        """Compute the expression for each row, and the rows for which it cannot be computed; their values mean nothing.

        Args:
            columns: The columns, by name; at least those that it uses.
            count: How many rows there are.
        """
        evaluated = self._compiled.step(Rows(columns, count))
        return cast_array(as_array(evaluated, count), arrow_type(self.type)), evaluated.failures


def compile_expression(
    text: str, columns: Mapping[str, t.DataType], kind: t.DataType, dialect: Literal["flink", "spark"]
) -> ExpressionOfRows:
    """Compile an expression, whose values are converted to a type; ConditionError if Arrow may differ from Spark.

    Args:
        text: The expression.
        columns: The columns that it may use, by name.
        kind: The type.
        dialect: Whose SQL it is.
    """
    try:
        node = read_expression(text)
        translate = ExpressionTranslator(text, ColumnScope(columns))
        translate(node)
        compiler = Compiler(text, translate)
        compiled = compiler(node)
    except UntranslatableError as e:
        raise ConditionError([e]) from None
    except RecursionError:
        raise ConditionError([UntranslatableError(text, "it is nested too deeply", "", text)]) from None
    other = next((part for part in n.walk(node) if not _means_the_same(part)), None) if dialect == "spark" else None
    if other is not None:
        reason = "it may mean something else in Spark's SQL"
        raise ConditionError([UntranslatableError(text[other.at :], reason, "", text, other.at)])
    if compiler.refused:
        raise ConditionError(compiler.refused)
    if compiled.type is not None and arrow_type(compiled.type) == arrow_type(kind):
        return ExpressionOfRows(kind, compiled)
    converted = convert(compiled, kind)
    if converted is None:
        raise ConditionError([UntranslatableError(text, f"its values are not certainly {kind.spelling}", "", text)])
    return ExpressionOfRows(kind, converted)


def _means_the_same(node: n.Node) -> bool:
    """Return whether a part of an expression, without those inside of it, means the same in Spark's SQL."""
    match node:
        case n.Literal(kind="string", text=text):
            return "\\" not in text
        case n.Literal(kind=kind):
            return kind in ("number", "boolean", "null")
        case n.Binary(operator=operator):
            return operator in _OPERATORS
        case n.Call(name=name):
            return name.upper() in _FUNCTIONS
        case n.Cast(type=target):
            return isinstance(target, _CASTS)
    return isinstance(node, n.Name | n.Unary | n.Between | n.In | n.Is | n.Case)
