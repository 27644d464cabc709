"""Row rules: their conditions are conditions over the columns of the table, and can be checked where the rows are.

All actions run in the tasks that read or write the records, over Arrow batches: only there a violation has a topic, a
partition and an offset, and a record its bytes. Source of the semantics: a CHECK constraint of SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kdsl.declare.definition import TableDef
from kdsl.declare.row_rules import RowRuleDef
from kdsl.errors import Problem, listing
from kdsl.formats import Direction
from kdsl.options import Spelling
from kdsl.resolve.model import RowRule
from kdsl.resolve.rule import problem
from kdsl.types import model as t

if TYPE_CHECKING:
    from kdsl.flink_sql.conditions.compiler import Condition


def rules_of(table: TableDef, direction: Direction) -> tuple[RowRule, ...]:
    """All row rules of a valid table, their conditions as they are written, with the columns that these use."""
    if not table.rules:  # what compiles conditions is imported for tables that have some
        return ()
    from kdsl.flink_sql.conditions.compiler import compile_condition

    columns = _checkable_columns(table, direction)
    return tuple(
        RowRule(rule.name, rule.condition, rule.on_fail, compile_condition(rule.condition, columns).columns)
        for rule in table.rules
    )


def check_row_rules(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report conditions that are empty or cannot be checked in this direction, and actions that it does not have.

    If the type of a column could not be read, only empty conditions and actions are checked.
    """
    if not table.rules:
        return
    from kdsl.flink_sql.conditions.compiler import ConditionError, compile_condition

    columns = _checkable_columns(table, direction)
    known = all(c.type_known for c in table.columns)
    for rule in table.rules:
        condition: object = rule.condition  # type checkers do not see what a user's program passes
        if not isinstance(condition, str) or not condition.strip():
            message = f"the row rule {rule.name!r} has the condition {rule.condition!r}"
            yield _create_problem(table, rule, message, "write a condition, such as 'amount > 0'")
            continue
        yield from _check_action(table, rule, direction)
        if not known:
            continue  # the problem of the column says why
        try:
            condition = compile_condition(rule.condition, columns)
        except ConditionError as e:
            for part in e.parts:
                reason, fix = _explain_column(table, direction, part.name) or (part.reason, part.fix)
                yield _create_problem(table, rule, f"the row rule {rule.name!r} ({rule.condition}): {reason}", fix)
        else:
            yield from _check_metadata(table, rule, condition, direction)


def _checkable_columns(table: TableDef, direction: Direction) -> Mapping[str, t.DataType]:
    """Return the types, by name, of the columns that rows have when they are checked.

    Left out are computed columns, in a write virtual ones, and those whose types could not be read.
    """
    return {
        c.name: c.type
        for c in table.columns
        if c.type_known and c.role != "computed" and not (direction == "write" and c.virtual)
    }


def _create_problem(table: TableDef, rule: RowRuleDef, message: str, fix: str) -> Problem:
    """Return a problem of a row rule, at the rule's location."""
    return problem(table, "row-rule", message, fix, column=rule.where.column, where=rule.where)


def _check_action(table: TableDef, rule: RowRuleDef, direction: Direction) -> Iterator[Problem]:
    """Report a dead-letter action in a write or without a topic, and any rule in real-time mode."""
    if rule.on_fail == "dead_letter" and direction == "write":
        message = f"the row rule {rule.name!r} has on_fail='dead_letter', but a row that is written has no record yet"
        fix = "use 'warn', 'drop' or 'fail'; or declare the rule in a subclass of the table that is only read"
        yield _create_problem(table, rule, message, fix)
    if rule.on_fail == "dead_letter" and direction == "read" and table.options.dead_letter_topic is None:
        message = f"the row rule {rule.name!r} has on_fail='dead_letter', but the table has no dead-letter topic"
        in_python = table.spelling is Spelling.PYTHON
        topic = "dead_letters=DeadLetters('orders.dead')" if in_python else "'scan.dead-letter.topic'"
        yield _create_problem(table, rule, message, f"declare one with {topic}, or use another action")
    if table.options.latency == "realtime":
        message = f"the row rule {rule.name!r} is checked in Python, which real-time mode does not use"
        yield _create_problem(
            table, rule, message, f"remove the rule, or set {table.setting('latency', 'micro-batch')}"
        )


def _explain_column(table: TableDef, direction: Direction, name: str) -> tuple[str, str] | None:
    """Explain why a column that the table has cannot be used, and what to write instead; None for any other name."""
    column = next((c for c in table.columns if c.name == name), None)
    if column is None:
        return None
    if column.role == "computed":
        expression = column.expression
        instead = (expression.flink or expression.text) if expression is not None and expression.column is None else ""
        fix = f"write its expression in the rule: {instead}" if instead else "use the columns that it is computed from"
        return f"{name!r} is computed, and rules are checked before columns are computed", fix
    if column.virtual and direction == "write":
        fix = "declare the rule in a subclass of the table that is only read"
        return f"{name!r} is filled in by Kafka, so a row that is written does not have it", fix
    return None


def _check_metadata(table: TableDef, rule: RowRuleDef, condition: Condition, direction: Direction) -> Iterator[Problem]:
    """Report a rule that drops or rejects rows of change data by metadata, which the row before a change does not have.

    Only a read that does not keep the last row of each key is checked.
    """
    if rule.on_fail not in ("drop", "dead_letter") or not table.is_changelog or table.keeps_rows or direction != "read":
        return
    used = [c.name for c in table.columns if c.role == "metadata" and c.name in condition.columns]
    if used:
        message = (
            f"the row rule {rule.name!r} decides by {listing(used)} which rows the table has, but a later change "
            "contains the row before it without the metadata of its record, so that the decision could not be repeated"
        )
        fix = "use on_fail='warn' or 'fail', or decide by columns of the message value"
        yield _create_problem(table, rule, message, fix)
