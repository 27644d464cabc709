"""Spark's plans: the nodes of analyzed ones and the expressions in these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kdsl.spark_internals.session import java_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def plan_of(df: DataFrame) -> PlanNode | None:
    """The plan of a DataFrame, analyzed when that was created; None for Spark Connect, where it stays on the server."""
    frame = java_dataframe(df)
    return None if frame is None else PlanNode(frame.queryExecution().analyzed())


def _elements(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(i) for i in range(sequence.size())]


class _Tree:
    """A node of a plan, or an expression.

    Args:
        java: Java's object of it.
    """

    def __init__(self, java: Any) -> None:
        self._java = java

    @property
    def class_name(self) -> str:
        """The name of its class in Catalyst, such as ``Project`` or ``AttributeReference``."""
        return str(self._java.getClass().getSimpleName())

    def __str__(self) -> str:
        return str(self._java.toString())


class Expression(_Tree):
    """An expression of Catalyst's, such as a column of a node."""

    @property
    def id(self) -> int:
        """The id of a column, which is unique in its plan."""
        return int(self._java.exprId().id())

    @property
    def name(self) -> str:
        """The name of a column or function."""
        return str(self._java.name())

    @property
    def type_name(self) -> str:
        """The name of its type without parameters, such as ``double``."""
        return str(self._java.dataType().typeName())

    @property
    def type(self) -> str:
        """Its type, such as ``decimal(10,2)``."""
        return str(self._java.dataType().simpleString())

    @property
    def function_name(self) -> str:
        """The name of an aggregate function, as SQL has it."""
        return str(self._java.prettyName())

    @property
    def aggregate_function(self) -> Expression:
        """The function of an ``AggregateExpression``."""
        return Expression(self._java.aggregateFunction())

    @property
    def children(self) -> list[Expression]:
        """The expressions in it."""
        return [Expression(child) for child in _elements(self._java.children())]

    @property
    def child(self) -> Expression:
        """The expression that an ``Alias`` names."""
        return Expression(self._java.child())

    @property
    def subquery(self) -> PlanNode:
        """The plan of a subquery expression."""
        return PlanNode(self._java.plan())

    @property
    def is_correlated(self) -> bool:
        """Whether a subquery expression refers to columns of the outer query."""
        return bool(self._java.outerAttrs().size())

    def has_metadata(self, key: str) -> bool:
        """Whether the metadata of a column has a key."""
        return bool(self._java.metadata().contains(key))

    def walk(self) -> Iterator[Expression]:
        """Yield the expression, then all expressions inside it, each before its own children."""
        pending = [self]
        while pending:
            expression = pending.pop()
            yield expression
            pending += expression.children


class PlanNode(_Tree):
    """A node of an analyzed plan, with all nodes below it."""

    @property
    def name(self) -> str:
        """The name that Spark shows for it; mostly its class."""
        return str(self._java.nodeName())

    @property
    def children(self) -> list[PlanNode]:
        """The nodes that it takes rows from."""
        return [PlanNode(child) for child in _elements(self._java.children())]

    @property
    def is_leaf(self) -> bool:
        """Whether it takes rows from no other node."""
        return not self._java.children().size()

    @property
    def output(self) -> list[Expression]:
        """Its columns."""
        return [Expression(column) for column in _elements(self._java.output())]

    @property
    def expressions(self) -> list[Expression]:
        """The expressions that it computes with."""
        return [Expression(expression) for expression in _elements(self._java.expressions())]

    @property
    def named_expressions(self) -> list[Expression]:
        """The expressions of the columns of a ``Project`` or ``Aggregate``; py4j's error for any other node."""
        aggregates = self.name == "Aggregate"
        return [
            Expression(e)
            for e in _elements(self._java.aggregateExpressions() if aggregates else self._java.projectList())
        ]

    @property
    def is_streaming(self) -> bool:
        """Whether its rows come from a stream."""
        return bool(self._java.isStreaming())

    @property
    def is_deterministic(self) -> bool:
        """Whether Spark holds all expressions of the plan for deterministic."""
        return bool(self._java.deterministic())

    @property
    def has_subqueries(self) -> bool:
        """Whether its expressions contain subqueries."""
        return bool(self._java.subqueries().size())

    @property
    def sides(self) -> tuple[PlanNode, PlanNode]:
        """Both sides of a ``Join``."""
        return PlanNode(self._java.left()), PlanNode(self._java.right())

    @property
    def source_name(self) -> str:
        """The format of a ``StreamingRelationV2``."""
        return str(self._java.sourceName())

    @property
    def source_class(self) -> str:
        """The class of the table behind a ``StreamingRelationV2``."""
        return str(self._java.table().getClass().getSimpleName())

    def source_option(self, name: str) -> str | None:
        """An option of a ``StreamingRelationV2``; None if it is not set. Another node raises py4j's error."""
        value = self._java.extraOptions().get(name)
        return None if value is None else str(value)

    def walk(self) -> Iterator[PlanNode]:
        """The node and all nodes below it, each before its children; without the nodes of subqueries in expressions."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> list[PlanNode]:
        """The nodes without children: those below it, or the node itself."""
        return [PlanNode(leaf) for leaf in _elements(self._java.collectLeaves())]


def plan_physically(frame: Any) -> None:
    """Plan Java's DataFrame up to the tasks, without running it; what Spark's planner raises is unchanged."""
    frame.queryExecution().executedPlan()
