"""Finds the columns that identify the rows of a query, which must match the primary key of an upsert table.

A changed row replaces the earlier row with the same primary key. So the key of the query (the columns that it groups
by, or the primary key of the changelog that it reads) must match the sink's primary key. Only queries that pass columns
through unchanged are analyzed; for all others there is no check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import attrs

from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.query_reader import read_query
from kdsl.scripts.queries.grouping import has_aggregate

Kind = Literal["column", "constant", "aggregate", "other"]


@attrs.frozen
class QueryKey:
    """The columns of a table or a query, and the key that identifies its rows.

    Attributes:
        columns: The names of the columns.
        key: The indices of the key's columns, -1 for one that the query does not select; None if the key is unknown
            or there is none.
        kinds: What each column is: a column of a table, a constant, an aggregate, or something else.
        filtered: Whether rows are filtered by columns that are not in the key.
    """

    columns: tuple[str, ...]
    key: tuple[int, ...] | None
    kinds: tuple[Kind, ...]
    filtered: bool = False

    @classmethod
    def table(cls, columns: Iterable[str], key: Sequence[str]) -> QueryKey:
        """Describe a table: its columns, and its primary key if it has one; unknown columns in it are ignored."""
        names = tuple(columns)
        plain: Kind = "column"
        return cls(names, tuple(names.index(c) for c in key if c in names) or None, tuple(plain for _ in names))


def find_query_key(
    text: str, tables: Mapping[str, QueryKey], names: Mapping[tuple[str, ...], str] | None = None
) -> QueryKey | None:
    """Find the columns of a query and the key of its rows.

    Args:
        text: A valid query.
        tables: The keys of the tables and views that it may read.
        names: The names in ``tables`` of paths that are written otherwise.

    Returns:
        None if the query cannot be analyzed: it is a join, a combination such as UNION, ``DISTINCT`` or
        ``GROUPING SETS``, reads such a query or a table that is not in ``tables``, or has no table.
    """
    tree = read_query(text)
    return _key_of_query(n.rename_tables(tree, names) if names else tree, dict(tables))


def find_key_mismatch(query: QueryKey, indices: Sequence[int], *, images: bool) -> tuple[list[int], list[int]]:
    """Find out why a primary key does not identify the rows of a query.

    Args:
        query: The key of the query.
        indices: The indices of the query's columns that become the primary key.
        images: Whether updates also include the row as it was.

    Returns:
        The indices of the columns of the query's key that the primary key lacks (several rows have the same primary
        key; -1 is a column that is not selected). And of the columns of the primary key that an update may change (the
        row under the old key remains), none if updates include it. Both are empty if the key is unknown, or if the
        primary key contains an expression that cannot be judged.
    """
    if query.key is None or any(query.kinds[p] == "other" and p not in query.key for p in indices):
        return [], []
    lacking = [p for p in query.key if p not in indices]
    changing = [p for p in indices if p not in query.key and query.kinds[p] != "constant"]
    return lacking, [] if images else changing


def _key_of_query(node: n.Node, tables: Mapping[str, QueryKey]) -> QueryKey | None:
    """Return the columns and the key of a query; None if it is not analyzed."""
    match node:
        case n.Finished(body=body, named=named):
            known = dict(tables)
            for name, columns, inner in named:
                named_query = _rename_columns(_key_of_query(inner, known), columns)
                known.pop(name, None)
                if named_query is not None:
                    known[name] = named_query
            return _key_of_query(body, known)
        case n.Select():
            return _key_of_select(node, tables)
    return None


def _rename_columns(columns: QueryKey | None, names: Sequence[str]) -> QueryKey | None:
    """Return the columns of a query under other names; no names keep them, and None stays None."""
    return columns if columns is None or not names else attrs.evolve(columns, columns=tuple(names))


def _key_of_source(node: n.Node | None, tables: Mapping[str, QueryKey]) -> tuple[QueryKey | None, str | None]:
    """Return the columns and key of the table or query after FROM (None if not analyzed), and its alias.

    A table without an alias has its own name, without the database; a nested query without one has None. Both are None
    for a join, and without FROM (``node`` is None).
    """
    match node:
        case n.Table(name=name, alias=alias):
            return tables.get(name[-1]), alias or name[-1]
        case n.Derived(query=query, alias=alias, columns=columns):
            return _rename_columns(_key_of_query(query, tables), columns), alias
    return None, None


def _key_of_select(node: n.Select, tables: Mapping[str, QueryKey]) -> QueryKey | None:
    """Return the columns and the key of a SELECT: what it groups by, or else the key of the table that it reads.

    The key in the result is None if there is none or it cannot be determined. The result is None if the query is not
    analyzed: a join, ``DISTINCT``, ``GROUPING SETS``, or a source that is not analyzed.
    """
    source, alias = _key_of_source(node.source, tables)
    if source is None or node.distinct or any(isinstance(key, n.Grouping) for key in node.group):
        return None

    def resolve(value: n.Node) -> object:
        parts = value.parts if isinstance(value, n.Name) else ()
        name = parts[-1] if len(parts) == 1 or (len(parts) == 2 and parts[0] == alias) else None
        return source.columns.index(name) if name in source.columns else value

    names: list[str] = []
    values: list[object] = []
    kinds: list[Kind] = []
    for item in node.items:
        if isinstance(item, n.Star):
            names += source.columns
            values += range(len(source.columns))
            kinds += source.kinds
            continue
        assert isinstance(item, n.Item)
        value = resolve(item.value)
        names.append(item.alias or (item.value.parts[-1] if isinstance(item.value, n.Name) else f"EXPR${len(names)}"))
        values.append(value)
        kinds.append(source.kinds[value] if isinstance(value, int) else _kind_of_column(item.value))
    grouped = bool(node.group) or any(isinstance(i, n.Item) and has_aggregate(i.value) for i in node.items)
    wanted: list[object] = list(map(resolve, node.group)) if grouped else list(source.key or ())
    # What is filtered before grouping does not change, and a group that no longer passes HAVING is deleted.
    filtered = not grouped and (source.filtered or any(one not in wanted for one in map(resolve, n.names(node.where))))
    # A key that is not selected may still be there as another expression.
    unknown = any(one not in values and not isinstance(one, int) for one in wanted)
    if unknown or (not grouped and source.key is None):
        return QueryKey(tuple(names), None, tuple(kinds), filtered)
    key = tuple(values.index(one) if one in values else -1 for one in wanted)
    return QueryKey(tuple(names), key, tuple(kinds), filtered)


def _kind_of_column(value: n.Node) -> Kind:
    """Return what an expression that is not a plain column is: a constant, an aggregate, or something else.

    Only a literal is a constant (``-1`` is something else); what contains an aggregate without OVER is an aggregate.
    """
    if isinstance(value, n.Literal):
        return "constant"
    return "aggregate" if has_aggregate(value) else "other"
