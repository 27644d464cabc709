"""The rows that Spark's stateful operators have stored in a checkpoint, and whether a changed query still fits them.

Spark compares the types of stored rows with those of the query when a batch runs, and then fails with both schemas in a
message of thousands of characters. Rows are stored by joins of streams, with all columns that the query uses later, and
by deduplications, with the columns that are compared. Other operators store results, whose columns do not follow from
those of the tables.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.stored_columns import TableColumns
from kdsl.run.session import session_version
from kdsl.spark_internals.plans import PlanNode, optimize_plan
from kdsl.spark_internals.session import is_connect
from kdsl.spark_versions import STATE_READER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_log = logging.getLogger(__name__)
_JOIN = "symmetricHashJoin"
_DEDUPLICATION = "dedupe"
_SIDES = ("left", "right")


@attrs.frozen
class StoredRows:
    """The rows that an operator has stored.

    Attributes:
        operator: Spark's number of the operator.
        side: The side of a join; empty for a deduplication.
        columns: Their columns.
    """

    operator: int
    side: str
    columns: StructType

    def __str__(self) -> str:
        return f"the {self.side} side of a join" if self.side else "a deduplication"


@attrs.frozen
class ColumnChange:
    """How the columns of a table have changed since a query has completed a batch.

    Attributes:
        before: The columns with their types at that time.
        now: The columns with their types now.
        shows_new: Whether the query gets columns that are new.
    """

    before: Mapping[str, str]
    now: Mapping[str, str]
    shows_new: bool

    def of_rows(self, rows: StoredRows) -> tuple[str, str]:
        """Write the changed columns that matter to stored rows: as they were, and as they are; empty if none does."""
        names = set(rows.columns.names)
        holds_rows = bool(names & self.before.keys()) if rows.side else names >= self.before.keys()
        changed = [name for name, kind in self.before.items() if name in names and self.now.get(name) != kind]
        new = [name for name in self.now if name not in self.before] if holds_rows and self.shows_new else []
        before = ", ".join(f"{name} {self.before[name]}" for name in changed)
        return before, ", ".join(f"{name} {self.now[name]}" for name in (*changed, *new) if name in self.now)


def compare_columns(stored: TableColumns, now: TableColumns) -> ColumnChange | None:
    """Return how the columns of a table have changed; None if they are the same, or differ in those not selected."""
    change = ColumnChange(stored.types, now.types, shows_new=not stored.selected)
    known = {name: kind for name, kind in now.types.items() if change.shows_new or name in stored.types}
    return None if known == dict(stored.types) else change


def read_stored_rows(spark: SparkSession, location: str) -> list[StoredRows]:
    """Read which rows the operators of a checkpoint have stored, joins and deduplications, in Spark's order.

    This runs a small job. Spark's errors are raised unchanged.

    Args:
        spark: A session.
        location: The folder of the checkpoint, whose query has state.
    """
    metadata = spark.read.format("state-metadata").load(location).select("operatorId", "operatorName").distinct()
    stored = []
    for operator, name in sorted((int(row[0]), str(row[1])) for row in metadata.collect()):
        reader = spark.read.format("statestore").option("operatorId", operator)
        if name == _JOIN:
            for side in _SIDES:
                rows: Any = reader.option("joinSide", side).load(location).schema["value"].dataType
                stored.append(StoredRows(operator, side, rows))
        elif name == _DEDUPLICATION:
            key: Any = reader.load(location).schema["key"].dataType
            stored.append(StoredRows(operator, "", key))
    return stored


def warn_of_changed_rows(df: DataFrame, checkpoint: Checkpoint, table: str) -> None:
    """Log a warning if the joins of a stream have other columns than the rows that their checkpoint has stored.

    Spark compares them in the first batch, which then fails.

    Nothing is checked without a completed batch, without a join of streams, on Spark Connect, with a Spark that cannot
    read states, and if the operators do not correspond to the stored ones: Spark then reports what is wrong.

    Args:
        df: The stream that the query is to write.
        checkpoint: Its checkpoint.
        table: What is written, for messages.
    """
    spark = df.sparkSession
    if is_connect(spark) or not STATE_READER.is_in(session_version(spark)) or checkpoint.last_batches()[1] < 0:
        return
    try:
        plan = optimize_plan(df)
        joins = [] if plan is None else list(_joins_of_streams(plan))
        stored = [rows for rows in read_stored_rows(spark, checkpoint.location) if rows.side] if joins else []
    except Exception as e:  # noqa: BLE001  # Spark compares them, too, and reports what is wrong
        _log.debug("cannot compare the state of %s with the query: %s", checkpoint.location, e)
        return
    if len(stored) != len(joins) * len(_SIDES):
        return
    sides = [side for join in joins for side in join]
    lines = [
        f"\n    {rows} stores {change}"
        for rows, columns in zip(stored, sides, strict=True)
        if (change := _describe_change(rows.columns, columns))
    ]
    if lines:
        _log.warning(
            "%s: the state in the checkpoint %s has rows with other columns than the query has now, and Spark cannot "
            "change stored rows, so the first batch fails:%s\nundo the change, or start with a new checkpoint where "
            "this one has stopped: read_stream(…, start_at=kdsl.Checkpoint(%r)) for each table that the query reads "
            "(docs/upgrading.md)",
            table, checkpoint.location, "".join(lines), checkpoint.location,
        )  # fmt: skip


def _joins_of_streams(node: PlanNode) -> Iterator[tuple[StructType, StructType]]:
    """Yield the columns of both sides of each join of two streams, in the order in which Spark numbers operators."""
    from pyspark.sql.types import StructField, StructType

    for one in node.walk():
        if one.class_name == "Join":
            left, right = one.sides
            if left.is_streaming and right.is_streaming:
                columns = [
                    [StructField(c.name, _read_type(c.type_json)) for c in side.output] for side in (left, right)
                ]
                yield StructType(columns[0]), StructType(columns[1])


def _read_type(text: str) -> DataType:
    """Read a type from the JSON of Spark's schemas."""
    from pyspark.sql.types import StructType

    field = {"name": "column", "type": json.loads(text), "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]}).fields[0].dataType


def _describe_change(stored: StructType, now: StructType) -> str:
    """Describe how the columns of stored rows differ from those of the query; empty if Spark takes them for equal.

    Spark compares types in order, and neither names nor, here, whether they may be NULL.
    """
    if [_shape(field.dataType) for field in stored] == [_shape(field.dataType) for field in now]:
        return ""
    before = {field.name: field.dataType.simpleString() for field in stored}
    after = {field.name: field.dataType.simpleString() for field in now}
    parts = [f"{name} {kind}, which the query does not have" for name, kind in before.items() if name not in after]
    parts += [f"{n} as {k}, and the query has it as {after[n]}" for n, k in before.items() if after.get(n, k) != k]
    new = [f"{name} {kind}" for name, kind in after.items() if name not in before]
    parts += [f"not {', '.join(new)}"] if new else []
    return "; ".join(parts) or f"the columns in another order: {', '.join(before)}; the query has {', '.join(after)}"


def _shape(kind: DataType) -> Any:
    """Return what Spark compares of a type: without the names of members and whether values may be NULL."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return tuple(_shape(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return "array", _shape(kind.elementType)
    if isinstance(kind, MapType):
        return "map", _shape(kind.keyType), _shape(kind.valueType)
    return kind.simpleString()
