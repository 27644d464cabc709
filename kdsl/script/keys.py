"""Which columns of a query name its rows: what rows that change must be written by.

A row that changes replaces the one before under the primary key of an upsert table. So the key of the query (what it
groups by, or the primary key of the changelog that it reads) has to fit the sink's primary key. Queries are followed as
far as columns go through them by themselves; of others nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import attrs

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.grouping import aggregates
from kdsl.declare.translate.query_reader import read_query

Kind = Literal["column", "constant", "aggregate", "other"]


@attrs.frozen
class Keyed:
    """The columns of a table or a query, and those of them that name a row.

    Attributes:
        columns: The names of the columns.
        key: The places of the columns that name a row together; -1 for one that is not among them. None: it is not
            known, or rows have no name.
        kinds: What each column is: one of a table as it is, a constant, an aggregate, or something else.
        filtered: Whether rows are chosen by columns that are not in the key.
    """

    columns: tuple[str, ...]
    key: tuple[int, ...] | None
    kinds: tuple[Kind, ...]
    filtered: bool = False

    @classmethod
    def table(cls, columns: Iterable[str], key: Sequence[str]) -> Keyed:
        """A table with a primary key; without one its rows have no name."""
        names = tuple(columns)
        plain: Kind = "column"
        return cls(names, tuple(names.index(c) for c in key if c in names) or None, tuple(plain for _ in names))


def keyed(text: str, tables: Mapping[str, Keyed]) -> Keyed | None:
    """The columns of a query, and what names its rows.

    Args:
        text: The query, which is known to be one.
        tables: The tables and views that it may read.

    Returns:
        None where the query is of another shape than can be followed.
    """
    return _query(read_query(text), dict(tables))


def unfit(query: Keyed, places: Sequence[int], *, images: bool) -> tuple[list[int], list[int]]:
    """What keeps a primary key from being one of the rows of a query.

    Args:
        query: The query.
        places: The columns of the query that become the primary key.
        images: Whether a row that changes is told as it was before, too.

    Returns:
        The places in the query's key that the primary key lacks: several rows have the same primary key. And the
        columns of the primary key that a row changes: what was written under the old one stays.
    """
    if query.key is None or any(query.kinds[p] == "other" and p not in query.key for p in places):
        return [], []
    lacking = [p for p in query.key if p not in places]
    changing = [p for p in places if p not in query.key and query.kinds[p] != "constant"]
    return lacking, [] if images else changing


def _query(node: n.Node, tables: dict[str, Keyed]) -> Keyed | None:
    match node:
        case n.Finished(body=body, named=named):
            known = dict(tables)
            for name, columns, inner in named:
                found = _renamed(_query(inner, known), columns)
                known.pop(name, None)
                if found is not None:
                    known[name] = found
            return _query(body, known)
        case n.Select():
            return _select(node, tables)
    return None


def _renamed(found: Keyed | None, names: Sequence[str]) -> Keyed | None:
    return found if found is None or not names else attrs.evolve(found, columns=tuple(names))


def _source(node: n.Node | None, tables: dict[str, Keyed]) -> tuple[Keyed | None, str | None]:
    match node:
        case n.Table(name=name, alias=alias):
            return tables.get(name[-1]), alias or name[-1]
        case n.Derived(query=query, alias=alias, columns=columns):
            return _renamed(_query(query, tables), columns), alias
    return None, None


def _select(node: n.Select, tables: dict[str, Keyed]) -> Keyed | None:
    source, alias = _source(node.source, tables)
    if source is None or node.distinct or any(isinstance(key, n.Grouping) for key in node.group):
        return None

    def meant(value: n.Node) -> object:
        """A column of the source by its place; anything else as it is."""
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
        value = meant(item.value)
        names.append(item.alias or (item.value.parts[-1] if isinstance(item.value, n.Name) else f"EXPR${len(names)}"))
        values.append(value)
        kinds.append(source.kinds[value] if isinstance(value, int) else _kind(item.value))
    grouped = bool(node.group) or any(isinstance(i, n.Item) and aggregates(i.value) for i in node.items)
    wanted: list[object] = list(map(meant, node.group)) if grouped else list(source.key or ())
    # What is left out before it is grouped does not change, and a group that passes HAVING no more is deleted.
    filtered = not grouped and (source.filtered or any(one not in wanted for one in map(meant, _names(node.where))))
    unknown = any(one not in values and not isinstance(one, int) for one in wanted)  # it may be there in other words
    if unknown or (not grouped and source.key is None):
        return Keyed(tuple(names), None, tuple(kinds), filtered)
    key = tuple(values.index(one) if one in values else -1 for one in wanted)
    return Keyed(tuple(names), key, tuple(kinds), filtered)


def _names(node: object) -> Iterator[n.Name]:
    """The columns that stand somewhere in an expression."""
    if isinstance(node, n.Name):
        yield node
    elif isinstance(node, n.Node):
        for a in attrs.fields(type(node)):
            yield from _names(getattr(node, a.name))
    elif isinstance(node, tuple):
        for one in node:
            yield from _names(one)


def _kind(value: n.Node) -> Kind:
    if isinstance(value, n.Literal):
        return "constant"
    return "aggregate" if aggregates(value) else "other"
