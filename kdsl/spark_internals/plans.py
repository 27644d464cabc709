"""Spark's plans: the nodes of analyzed ones and the expressions in these."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kdsl.spark_internals.errors import GatewayError, JavaError
from kdsl.spark_internals.queries import java_query
from kdsl.spark_internals.session import is_spark_3, java_dataframe, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan_of(df: DataFrame) -> PlanNode | None:
    """The plan of a DataFrame, analyzed when that was created; None for Spark Connect, where it stays on the server."""
    frame = java_dataframe(df)
    return None if frame is None else PlanNode(frame.queryExecution().analyzed())


def plan_of_query(spark: SparkSession, query_id: str) -> PlanNode | None:
    """The analyzed plan of a streaming query that runs; None if it has ended, and for Spark Connect.

    Py4J's errors are passed on.
    """
    query = java_query(spark, query_id)
    return None if query is None else PlanNode(query.analyzedPlan())


def optimize_plan(df: DataFrame) -> PlanNode | None:
    """The plan of a DataFrame after Spark's optimizer, also of a stream; None for Spark Connect.

    Spark's and py4j's errors are passed on.
    """
    frame = java_dataframe(df)
    if frame is None:
        return None
    optimizer = java_session(df.sparkSession).sessionState().optimizer()
    return PlanNode(optimizer.execute(frame.queryExecution().analyzed()))


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
    def type_json(self) -> str:
        """Its type, in the JSON of Spark's schemas."""
        return str(self._java.dataType().json())

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
        """The expression that an ``Alias`` names, or a ``Cast`` converts."""
        return Expression(self._java.child())

    @property
    def is_written_cast(self) -> bool:
        """Whether a ``Cast`` stands in the query; otherwise Spark has inserted it to give operands the same type."""
        return bool(self._java.getTagValue(self._java.USER_SPECIFIED_CAST()).isDefined())

    @property
    def subquery(self) -> PlanNode:
        """The plan of a subquery expression."""
        return PlanNode(self._java.plan())

    @property
    def is_correlated(self) -> bool:
        """Whether a subquery expression refers to columns of the outer query."""
        return bool(self._java.outerAttrs().size())

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

    @property
    def source_options(self) -> dict[str, str]:
        """All options of a ``StreamingRelationV2``. Another node raises py4j's error."""
        return {str(name): str(value) for name, value in self._java.extraOptions().asCaseSensitiveMap().items()}

    @property
    def read_name(self) -> str | None:
        """What a leaf that is not a stream reads: a table's name or the paths of files; None if it does not tell."""
        try:
            if self.class_name == "DataSourceV2Relation":
                return str(self._java.table().name())
            if self.class_name == "HiveTableRelation":
                return str(self._java.tableMeta().identifier().unquotedString())
            if self.class_name == "LogicalRelation":
                table = self._java.catalogTable()
                if table.isDefined():
                    return str(table.get().identifier().unquotedString())
                return ", ".join(
                    str(path.toString()) for path in _elements(self._java.relation().location().rootPaths())
                )
        except GatewayError:  # a relation of another kind, such as that of a database
            return None
        return None

    def read_option(self, name: str) -> str | None:
        """An option of a ``DataSourceV2Relation``; None if it is not set, or for another node."""
        if self.class_name != "DataSourceV2Relation":
            return None
        value = self._java.options().get(name)
        return None if value is None else str(value)

    @property
    def moves_rows(self) -> bool:
        """Whether a ``Repartition`` or ``RepartitionByExpression`` shuffles rows, as ``coalesce`` does not."""
        return bool(self._java.shuffle())

    def walk(self) -> Iterator[PlanNode]:
        """The node and all nodes below it, each before its children; without the nodes of subqueries in expressions."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> list[PlanNode]:
        """The nodes without children: those below it, or the node itself."""
        return [PlanNode(leaf) for leaf in _elements(self._java.collectLeaves())]


_TABLE, _OPTIONS = 2, 3
"""The positions of these among the fields of a ``StreamingRelationV2``."""


def replace_stream_options(
    df: DataFrame, choose: Callable[[PlanNode], tuple[Mapping[str, str], bool] | None]
) -> DataFrame:
    """Return a stream of a classic session whose sources have other options, and which is the same otherwise.

    Spark's errors are passed on.

    Args:
        df: The stream.
        choose: Returns all options of a source, which is a ``StreamingRelationV2``, and whether the source must be
            loaded again because it keeps those with which it was loaded; None to leave it as it is.
    """
    spark, jvm = df.sparkSession, jvm_of(df.sparkSession)
    replaced: list[tuple[Any, Any]] = []

    def replace(node: Any) -> Any:
        children = _elements(node.children())
        if children:
            new = [replace(child) for child in children]
            return node.withNewChildren(jvm.PythonUtils.toSeq(new)) if replaced else node
        known = next((new for old, new in replaced if old.equals(node)), None)
        if known is not None:  # the same source twice stays one source
            return known
        choice = choose(PlanNode(node)) if node.getClass().getSimpleName() == "StreamingRelationV2" else None
        if choice is None:
            return node
        options, reloads = choice
        fields = [node.productElement(i) for i in range(node.productArity())]
        if reloads:
            loaded = spark.readStream.format(str(node.sourceName())).options(**options).load()
            fields[_TABLE] = java_dataframe(loaded).queryExecution().analyzed().collectLeaves().apply(0).table()
        fields[_OPTIONS] = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(dict(options))
        replaced.append((node, node.copy(*fields)))
        return replaced[-1][1]

    plan = replace(java_dataframe(df).queryExecution().analyzed())
    if not replaced:
        return df
    package = jvm.org.apache.spark.sql if is_spark_3() else jvm.org.apache.spark.sql.classic
    return type(df)(getattr(package, "Dataset").ofRows(java_session(spark), plan), spark)  # noqa: B009


_OTHER_SCANS = (
    *("CommandResultExec", "EmptyRelationExec", "ExternalRDDScanExec", "FileSourceScanExec", "HiveTableScanExec"),
    *("LocalTableScanExec", "OneRowRelationExec", "RangeExec"),
)
"""The nodes of physical plans that read something else than partitions of a source like Kafka."""
_OTHER_RDDS = (
    *("EmptyRDD", "FileScanRDD", "HadoopRDD", "JDBCRDD", "NewHadoopRDD", "ParallelCollectionRDD", "RangeRDD"),
    "EmptyRDDWithPartitions",
)
"""The RDDs without dependencies that read something else."""
_PICKLED = ("pickedPartition", "pickledPartition")
"""The methods with the bytes of a partition of a source in Python: as Spark spells it, and as it may correct it."""


class _UnknownScanError(Exception):
    """Something reads rows that this module does not know."""


def read_partitions(df: DataFrame) -> list[Any] | None:
    """The partitions that the tasks of a DataFrame's first stage read, in their order; empty for Spark Connect.

    Those of sources in Python are the objects that the source has planned, those of other sources are Java's. What is
    read before a shuffle is left out. Nothing runs, but sources plan what they read.

    Returns:
        The partitions; None if they cannot be found, because the plan has nodes or RDDs that are not known, such as
        those of a checkpoint or of another version of Spark.
    """
    frame = java_dataframe(df)
    if frame is None:
        return []
    plan = frame.queryExecution().executedPlan()
    try:
        return list(_partitions_of_plan(plan))
    except _UnknownScanError:
        return None
    except GatewayError as e:
        if isinstance(e, JavaError):
            raise
        return None  # a method does not exist in this version of Spark


def _partitions_of_plan(node: Any) -> Iterator[Any]:
    """Yield the partitions that a node of a physical plan reads without a shuffle; errors as in `read_partitions`."""
    name = str(node.getClass().getSimpleName())
    if name == "AdaptiveSparkPlanExec":
        yield from _partitions_of_plan(node.initialPlan())
    elif name == "InMemoryTableScanExec":
        yield from _partitions_of_plan(node.relation().cachedPlan())
    elif name in ("RDDScanExec", "RowDataSourceScanExec"):
        yield from _partitions_of_rdd(node.rdd())
    elif name in ("BatchScanExec", "MicroBatchScanExec"):
        yield from map(_read_partition, _elements(node.inputPartitions()))
    elif not name.endswith("ExchangeExec"):
        children = _elements(node.children())
        if not children and name.removesuffix("$") not in _OTHER_SCANS:
            raise _UnknownScanError
        for child in children:
            yield from _partitions_of_plan(child)


def _partitions_of_rdd(rdd: Any) -> Iterator[Any]:
    """Yield the partitions that an RDD reads without a shuffle: one of ``foreachBatch``, or of Spark's Kafka source."""
    name = str(rdd.getClass().getSimpleName())
    dependencies = _elements(rdd.dependencies())
    if name == "KafkaSourceRDD":
        yield from rdd.partitions()
    elif name == "DataSourceRDD":
        for partition in rdd.partitions():
            # Spark 4.2 has one in each, earlier versions a sequence.
            many = _has_method(partition, "inputPartitions")
            inputs = partition.inputPartitions() if many else partition.inputPartition().toList()
            yield from map(_read_partition, _elements(inputs))
    elif not dependencies and name not in _OTHER_RDDS:
        raise _UnknownScanError
    for dependency in dependencies:
        if str(dependency.getClass().getSimpleName()) != "ShuffleDependency":
            yield from _partitions_of_rdd(dependency.rdd())


def _has_method(java: Any, name: str) -> bool:
    """Whether the class of a Java object has a public method."""
    return any(str(method.getName()) == name for method in java.getClass().getMethods())


def _read_partition(partition: Any) -> Any:
    """The object of a source in Python that a partition contains; the partition itself if it has none."""
    if not str(partition.getClass().getSimpleName()).startswith("Python"):
        return partition
    method = next((name for name in _PICKLED if _has_method(partition, name)), None)
    if method is None:
        raise _UnknownScanError
    with suppress(Exception):  # of a source whose classes are not here
        return pickle.loads(bytes(getattr(partition, method)()))  # noqa: S301  # planned by our own driver
    return partition


def plan_physically(frame: Any) -> None:
    """Plan Java's DataFrame up to the tasks, without running it; what Spark's planner raises is unchanged."""
    frame.queryExecution().executedPlan()
