"""Warns of queries that compare or unite wall-clock times with instants, which depends on the session's time zone."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from kdsl.plan.model import ReadPlan
from kdsl.plan.text import read_plan_text
from kdsl.run.listeners.events import Observer, Query
from kdsl.run.session import get_setting
from kdsl.spark_internals.errors import GatewayError
from kdsl.spark_internals.plans import Expression, PlanNode, plan_of, plan_of_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("kdsl.read")
_SET_OPERATIONS = ("Except", "Intersect", "Union")
_INSTANT = re.compile(r"timestamp(?!_ntz)")
_COLUMN_ID = re.compile(r"#\d+L?")
_warned: set[str] = set()
"""What was logged of writes, which a function of ``foreachBatch`` repeats for each batch."""


def warn_of_mixed_times(df: DataFrame, target: str) -> None:
    """Log a warning, once in this process, if a query compares or unites columns of TIMESTAMP with TIMESTAMP_LTZ.

    Spark converts the wall-clock times to instants without a word, in the time zone of the session. A cast that the
    query contains is not warned of.

    Args:
        df: The query. On Spark Connect its plan is not known, and nothing is logged.
        target: What is written, for the message.
    """
    message = _find_mixes(lambda: plan_of(df), target, df.sparkSession)
    if message and message not in _warned:
        _warned.add(message)
        _log.warning(message)


class MixedTimes(Observer):
    """The observer that warns of streaming queries when they start, whatever their sink is (`warn_of_mixed_times`)."""

    def on_start(self, query: Query) -> None:
        """Check the query, in a classic session."""
        name = query.name or f"the query {query.id}"
        if message := _find_mixes(lambda: plan_of_query(query.session, query.id), name, query.session):
            _log.warning(message)


MIXED_TIMES: Observer = MixedTimes()


@attrs.frozen
class _Mix:
    """Times of the two kinds that meet.

    Attributes:
        how: What happens to them, such as ``compares``.
        wall_clock: The wall-clock time, as SQL.
        instant: The instant.
    """

    how: str
    wall_clock: str
    instant: str

    def __str__(self) -> str:
        wall_clock = f"{self.wall_clock} (TIMESTAMP, a wall-clock time)"
        return f"{self.how} {wall_clock} with {self.instant} (TIMESTAMP_LTZ, an instant)"


def _find_mixes(read_plan: Callable[[], PlanNode | None], target: str, spark: SparkSession) -> str:
    """Describe all mixed times of a plan for a warning; empty if it has none, or cannot be read.

    The query may have ended, and a version of Spark whose plans are not known must not fail a write.
    """
    try:
        plan = read_plan()
        return "" if plan is None else _describe_mixes(plan, target, spark)
    except GatewayError as e:
        _log.debug("cannot read the plan of %s: %s", target, e)
        return ""


def _describe_mixes(plan: PlanNode, target: str, spark: SparkSession) -> str:
    """Describe all mixed times of a plan for a warning; empty if it has none. Py4J's errors are passed on."""
    leaves = plan.leaves()
    if len(leaves) < 2:  # most batches of foreachBatch, which need not wait for more calls
        types = [column.type for leaf in leaves for column in leaf.output]
        if not (any("timestamp_ntz" in one for one in types) and any(map(_INSTANT.search, types))):
            return ""
    tables = {column.id: table for leaf in leaves if (table := _table_of(leaf)) for column in leaf.output}
    mixes = dict.fromkeys(str(mix) for node in plan.walk() for mix in _mixes(node, tables))
    if not mixes:
        return ""
    zone = get_setting(spark, "spark.sql.session.timeZone")
    return (
        f"{target}: the query {'; and '.join(mixes)}; Spark takes wall-clock times for times in the session's time "
        f"zone, which is {zone}, so the rows depend on spark.sql.session.timeZone; declare both columns with the same "
        "type, or, if the wall-clock times are times in that zone, write .cast('timestamp')"
    )


def _mixes(node: PlanNode, tables: Mapping[int, str]) -> Iterator[_Mix]:
    """Yield the mixed times of a node: operands of one expression, and columns of a set operation.

    Args:
        node: The node.
        tables: The names of kdsl's tables by the ids of their columns.
    """
    if node.class_name in _SET_OPERATIONS:
        columns = [_columns(child) for child in node.children]
        for same in zip(*columns, strict=False):
            yield from _mix("unites", same, tables)
    for expression in node.expressions:
        for part in expression.walk():
            if len(children := part.children) > 1:
                yield from _mix("compares", children, tables)


def _columns(side: PlanNode) -> list[Expression]:
    """The columns of a set operation's side; for those that Spark converts, the expressions that it has inserted."""
    if side.class_name != "Project":
        return side.output
    inserted = [e.child if e.class_name == "Alias" else e for e in side.named_expressions]
    return [e if _converts_times(e) else column for e, column in zip(inserted, side.output, strict=True)]


def _mix(how: str, operands: tuple[Expression, ...] | list[Expression], tables: Mapping[int, str]) -> Iterator[_Mix]:
    """Yield the first pair of a wall-clock time that Spark has converted and an instant among some operands, if any."""
    converted = [e.child for e in operands if _converts_times(e)]
    if converted:
        instants = [e for e in operands if not _converts_times(e) and _INSTANT.search(e.type)]
        if instants:
            yield _Mix(how, _describe(converted[0], tables), _describe(instants[0], tables))


def _converts_times(expression: Expression) -> bool:
    """Whether Spark itself has inserted this expression to convert a wall-clock time, or a struct with one."""
    if expression.class_name != "Cast" or expression.is_written_cast:
        return False
    before, after = expression.child.type, expression.type
    times = before.count("timestamp") == after.count("timestamp")
    return times and before.count("timestamp_ntz") > after.count("timestamp_ntz")


def _describe(expression: Expression, tables: Mapping[int, str]) -> str:
    """Write an expression for people; a column with the table of kdsl's that it comes from, where that is known."""
    if expression.class_name == "ListQuery":
        expression = expression.subquery.output[0]
    text = _COLUMN_ID.sub("", str(expression))
    table = tables.get(expression.id) if expression.class_name == "AttributeReference" else None
    return f"{table}.{text}" if table else text


def _table_of(leaf: PlanNode) -> str | None:
    """The name of the table that a leaf reads with kdsl's own source; None for other leaves."""
    from kdsl.run.librdkafka.options import PLAN

    text = leaf.source_option(PLAN) if leaf.class_name == "StreamingRelationV2" else leaf.read_option(PLAN)
    return None if text is None else read_plan_text(text, ReadPlan).table
