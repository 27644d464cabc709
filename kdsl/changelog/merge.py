"""What targets share that merge changes: the parts of a ``MERGE`` in SQL, and the check of the session and the columns.

The target's row is ``target``, and the change is ``source``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kdsl.changelog.target import explain_missing_row
from kdsl.errors import ChangelogError, listing
from kdsl.formats import kind_column, unavailable_column
from kdsl.spark_internals.session import is_connect
from kdsl.types.spark import time_columns
from kdsl.types.sql import literal, quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_is_delete(changes: DataFrame) -> str:
    """Write the condition that a change is a delete."""
    return f"source.{quote_name(kind_column(changes.columns))} = '-D'"


def list_columns(changes: DataFrame) -> list[str]:
    """List the columns of a changelog, without those of the row kind and of unavailable values."""
    own = (kind_column(changes.columns), unavailable_column(changes.columns))
    return [name for name in changes.columns if name not in own]


def match_columns(target: str, changes: DataFrame, existing: Sequence[str], *, add: bool) -> list[str]:
    """Return the columns of the changelog (`list_columns`); the table has them, or gets them.

    Args:
        target: The table, for messages.
        changes: The changes.
        existing: The columns of the table; letter case does not matter.
        add: Whether columns that the table does not have are added to it.
    """
    names = list_columns(changes)
    known = {name.lower() for name in existing}
    missing = [name for name in names if name.lower() not in known]
    if missing and not add:
        raise ChangelogError(
            f"{target}: the changelog has {listing(missing)}, but the table only has the columns {listing(existing)}; "
            "pass schema_evolution=True to add what is missing, or drop it from the changelog"
        )
    return names


def check_table_name(target: str, name: str) -> None:
    """Check the name of a table in a catalog, which Spark's functions for tables only take as SQL."""
    if "${" in name:
        raise ChangelogError(
            f"{target}: Spark replaces '${{' in the names of tables; choose another name, in an ingestion with a route"
        )


def write_condition(keys: Sequence[str]) -> str:
    """Write the condition that a row has the key of a change; without keys no row has it."""
    return " AND ".join(f"target.{quote_name(key)} = source.{quote_name(key)}" for key in keys) or "false"


def write_assignments(
    changes: DataFrame, keys: Sequence[str], names: Sequence[str], existing: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Write the values of an update and of an insert, by quoted columns.

    A column that a change names in ``_unavailable`` keeps its value; if the table has no such row, the merge fails.

    Args:
        changes: The changes.
        keys: The columns of the key, which an update leaves out.
        names: The columns of the changelog.
        existing: The columns that the table has before the merge.
    """
    values = {quote_name(name): f"source.{quote_name(name)}" for name in names}
    updated = {quote_name(name): values[quote_name(name)] for name in names if name not in keys}
    own = unavailable_column(changes.columns)
    if own in changes.columns:
        known = {name.lower() for name in existing}
        for name in (name for name in names if name not in keys):
            value = values[quote_name(name)]
            unavailable = f"array_contains(source.{quote_name(own)}, {literal(name)[0]})"
            if name.lower() in known:
                updated[quote_name(name)] = f"CASE WHEN {unavailable} THEN target.{quote_name(name)} ELSE {value} END"
            values[quote_name(name)] = f"CASE WHEN {unavailable} THEN {_raise_missing_row(name, keys)} ELSE {value} END"
    return updated, values


def _raise_missing_row(name: str, keys: Sequence[str]) -> str:
    """Write the SQL that fails a change without a value for a column, if the table does not have its row."""
    parts = [f"concat({literal(f'{key} = ')[0]}, CAST(source.{quote_name(key)} AS STRING))" for key in keys]
    reason = explain_missing_row(name)
    return f"raise_error(concat({literal(f'{reason}: ')[0]}, concat_ws(', ', {', '.join(parts)})))"


def check_jvm_target(changes: DataFrame, target: str, title: str) -> None:
    """Check that a session is a classic one and that no column is a ``TIME``, for a target that is called through Java.

    Args:
        changes: The changes.
        target: The target as it is declared, for messages.
        title: What stores the table, for messages.
    """
    if times := time_columns(changes.schema):
        verb, them = ("is", "it") if len(times) == 1 else ("are", "them")
        raise ChangelogError(
            f"{target}: {listing(times)} of the changelog {verb} TIME, which {title} cannot store; cast {them} to a "
            f"STRING before, or drop {them}"
        )
    if is_connect(changes.sparkSession):
        raise ChangelogError(
            f"{target}: kdsl calls {title} through the session's JVM, and a session of Spark Connect has none; use a "
            "classic session, or MERGE Changelog(rows, table).dedupe() with SQL in a foreachBatch"
        )
