"""The syntax tree of Flink SQL, made by `expression_reader` and `query_reader`; each node knows its position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal as Choice

import attrs

from kdsl.types import model as t


@attrs.frozen(kw_only=True)
class Node:
    """A part of an expression or query; ``at`` is the position of its first character."""

    at: int = attrs.field(default=0, eq=False)


def deepest_node(root: Node) -> Node:
    """Find a node in the deepest level of a tree, without recursion, which would overflow the stack."""
    deepest_node = root
    level: list[object] = [root]
    while level:
        deepest_node = next((one for one in level if isinstance(one, Node)), deepest_node)
        level = [part for one in level for part in parts_of(one)]
    return deepest_node


def parts_of(node: object) -> Sequence[object]:
    """Return the attributes of a node except ``at``, or the elements of a tuple or a mapping's values; else nothing."""
    if isinstance(node, Node):
        return [getattr(node, a.name) for a in attrs.fields(type(node)) if a.name != "at"]
    if isinstance(node, Mapping):
        return list(node.values())
    return node if isinstance(node, tuple) else ()


def walk(root: object) -> Iterator[Node]:
    """Yield the nodes of a tree, or of a tuple or mapping of nodes: a node first, and then those inside it.

    It does not recurse, which would overflow the stack for a deep tree.
    """
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Node):
            yield node
        waiting += reversed(parts_of(node))


def rename_tables(root: Node, names: Mapping[tuple[str, ...], str]) -> Node:
    """Return the tree of a query with other tables; what they are called in the query does not change.

    Args:
        root: The tree.
        names: The new name of each path as it is written. Where a ``WITH`` defines that name, it keeps its meaning.
    """
    renamed: Node = _with_renamed_tables(root, names)
    return renamed


def _with_renamed_tables(node: Any, names: Mapping[tuple[str, ...], str]) -> Any:
    """Return a node, several nodes or any other attribute with its tables renamed; ``names`` is by path.

    A renamed table without an alias gets the last part of its path as one.
    """
    if isinstance(node, tuple):
        return tuple(_with_renamed_tables(one, names) for one in node)
    if isinstance(node, Mapping):
        return {word: _with_renamed_tables(one, names) for word, one in node.items()}
    if isinstance(node, Table):
        new = names.get(node.name)
        return node if new is None else attrs.evolve(node, name=(new,), alias=node.alias or node.name[-1])
    if not isinstance(node, Node):
        return node
    if isinstance(node, Finished) and node.named:
        return _with_renamed_tables_of_with(node, names)
    fields = {a.name: getattr(node, a.name) for a in attrs.fields(type(node)) if a.name != "at"}
    changed = {name: _with_renamed_tables(value, names) for name, value in fields.items()}
    return attrs.evolve(node, **{name: value for name, value in changed.items() if value is not fields[name]})


def _with_renamed_tables_of_with(node: Finished, names: Mapping[tuple[str, ...], str]) -> Finished:
    """Return a query with its tables renamed; a name of ``WITH`` holds in the queries after its definition."""
    definitions = []
    for name, columns, query in node.named:
        definitions.append((name, columns, _with_renamed_tables(query, names)))
        names = {path: new for path, new in names.items() if path != (name,)}
    renamed: Finished = _with_renamed_tables(attrs.evolve(node, named=()), names)
    return attrs.evolve(renamed, named=tuple(definitions))


def names(root: object) -> Iterator[Name]:
    """Yield the nodes of column names in a node or a tuple of nodes, one for each use, in the order of `walk`."""
    return (node for node in walk(root) if isinstance(node, Name))


def contains(root: object, *kinds: type[Node]) -> bool:
    """Whether a tree, with its root, contains a node of one of some kinds; see `walk`."""
    return any(isinstance(node, kinds) for node in walk(root))


@attrs.frozen
class Literal(Node):
    """A constant: its kind, and its digits or the content of its quotes."""

    kind: Choice["string", "number", "bytes", "boolean", "null", "date", "time", "timestamp"]
    text: str


@attrs.frozen
class Span(Node):
    """``INTERVAL '1-2' YEAR TO MONTH``: the string, the first unit and the last one."""

    text: str
    unit: str
    until: str


@attrs.frozen
class Name(Node):
    """A column, perhaps qualified by a table and followed by members of rows: ``t.a.b``."""

    parts: tuple[str, ...]


@attrs.frozen
class Call(Node):
    """A function call; ``words`` has the clauses beside its arguments (``RETURNING``, ``TO HOUR``)."""

    name: str
    arguments: tuple[Node, ...] = ()
    words: Mapping[str, Any] = attrs.field(factory=dict)
    distinct: bool = False
    star: bool = False
    filter: Node | None = None
    over: Over | None = None


@attrs.frozen
class Over(Node):
    """The window of an analytic function: ``frame`` is the SQL of its bounds, ``name`` that of a ``WINDOW`` clause."""

    partition: tuple[Node, ...]
    order: tuple[Order, ...]
    frame: str = ""
    name: str = ""


@attrs.frozen
class Unary(Node):
    """``-x``, ``+x``, ``NOT x``."""

    operator: str
    operand: Node


@attrs.frozen
class Binary(Node):
    """Arithmetic, comparison, ``AND``, ``OR``, ``||``."""

    operator: str
    left: Node
    right: Node


@attrs.frozen
class Case(Node):
    """``CASE``, with an operand or without."""

    operand: Node | None
    whens: tuple[tuple[Node, Node], ...]
    otherwise: Node | None


@attrs.frozen
class Cast(Node):
    """``CAST`` and ``TRY_CAST``."""

    operand: Node
    type: t.DataType
    trying: bool = False


@attrs.frozen
class Between(Node):
    """``x BETWEEN a AND b``."""

    operand: Node
    low: Node
    high: Node
    symmetric: bool = False
    negated: bool = False


@attrs.frozen
class In(Node):
    """``x IN (…)``: values, or a query."""

    operand: Node
    values: tuple[Node, ...]
    query: Node | None = None
    negated: bool = False


@attrs.frozen
class Like(Node):
    """``LIKE`` and ``SIMILAR TO``."""

    operand: Node
    pattern: Node
    escape: Node | None = None
    negated: bool = False
    similar: bool = False


@attrs.frozen
class Is(Node):
    """``IS NULL``, ``IS TRUE``, ``IS DISTINCT FROM x``."""

    operand: Node
    what: str
    other: Node | None = None
    negated: bool = False


@attrs.frozen
class Index(Node):
    """``x[i]``: an element of an array (from 1), or the value of a key."""

    operand: Node
    index: Node


@attrs.frozen
class Member(Node):
    """``x.name``, where ``x`` is an expression and not a name."""

    operand: Node
    name: str


@attrs.frozen
class Collection(Node):
    """``ARRAY[…]``, ``MAP[…]`` and ``ROW(…)``."""

    kind: str
    items: tuple[Node, ...]


@attrs.frozen
class Nested(Node):
    """A query inside an expression: a scalar one, or that of ``EXISTS``."""

    query: Node
    exists: bool = False


@attrs.frozen
class Star(Node):
    """``*`` or ``t.*``."""

    table: str | None = None


@attrs.frozen
class Item(Node):
    """A column of a SELECT list."""

    value: Node
    alias: str | None = None


@attrs.frozen
class Order(Node):
    """A key of ``ORDER BY``."""

    value: Node
    descending: bool = False
    nulls: str = ""


@attrs.frozen
class Select(Node):
    """``SELECT``."""

    items: tuple[Node, ...]
    source: Node | None = None
    distinct: bool = False
    where: Node | None = None
    group: tuple[Node, ...] = ()
    having: Node | None = None
    windows: tuple[tuple[str, Over], ...] = ()


@attrs.frozen
class Grouping(Node):
    """``ROLLUP (…)``, ``CUBE (…)`` or ``GROUPING SETS (…)``: the sets of keys, as they are written."""

    kind: str
    sets: tuple[tuple[Node, ...], ...]


@attrs.frozen
class Combined(Node):
    """Two queries combined by ``UNION``, ``INTERSECT`` or ``EXCEPT``."""

    operator: str
    every: bool
    left: Node
    right: Node


@attrs.frozen
class Values(Node):
    """``VALUES (1, 'a'), (2, 'b')``."""

    rows: tuple[tuple[Node, ...], ...]


@attrs.frozen
class Finished(Node):
    """A query with the clauses around it: ``WITH``, ``ORDER BY``, ``LIMIT``, ``OFFSET``."""

    body: Node
    named: tuple[tuple[str, tuple[str, ...], Node], ...] = ()
    order: tuple[Order, ...] = ()
    limit: Node | None = None
    offset: Node | None = None


@attrs.frozen
class Table(Node):
    """A table by its name; ``hint`` is the SQL of a hint after it, which begins at ``hint_at``."""

    name: tuple[str, ...]
    alias: str | None = None
    hint: str = ""
    hint_at: int = attrs.field(default=0, eq=False)


@attrs.frozen
class Derived(Node):
    """A query in ``FROM``."""

    query: Node
    alias: str | None = None
    columns: tuple[str, ...] = ()


@attrs.frozen
class Windowed(Node):
    """``TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL …)`` or another window function in ``FROM``."""

    kind: str
    table: Table
    time: str
    spans: tuple[Node, ...]
    keys: tuple[str, ...] = ()
    alias: str | None = None


@attrs.frozen
class Unnest(Node):
    """``UNNEST(array)`` in ``FROM``."""

    value: Node
    alias: str | None = None
    columns: tuple[str, ...] = ()
    ordinal: bool = False


@attrs.frozen
class Join(Node):
    """Two tables joined."""

    kind: str
    left: Node
    right: Node
    on: Node | None = None
    using: tuple[str, ...] = ()
    natural: bool = False
