"""Flink SQL as a tree: what `kdsl.declare.translate.reader` makes of a text; each node knows its place in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal as Choice

import attrs

from kdsl.types import model as t


@attrs.frozen(kw_only=True)
class Node:
    """A part of an expression or query; ``at`` is the index of its first character in the text."""

    at: int = attrs.field(default=0, eq=False)


def deepest(root: Node) -> Node:
    """The node with the most others around it; found without recursion, which a deep tree has too much of."""
    found = root
    level: list[object] = [root]
    while level:
        found = next((one for one in level if isinstance(one, Node)), found)
        below: list[object] = []
        for one in level:
            if isinstance(one, Node):
                below += [getattr(one, a.name) for a in attrs.fields(type(one)) if a.name != "at"]
            elif isinstance(one, tuple):
                below += one
        level = below
    return found


@attrs.frozen
class Literal(Node):
    """A constant: its kind and its text (digits, or the content of the quotes)."""

    kind: Choice["string", "number", "bytes", "boolean", "null", "date", "time", "timestamp"]
    text: str


@attrs.frozen
class Span(Node):
    """``INTERVAL '1-2' YEAR TO MONTH``: the text, the first unit and the last one."""

    text: str
    unit: str
    until: str


@attrs.frozen
class Name(Node):
    """A column, with what qualifies it before and members of rows behind: ``t.a.b``."""

    parts: tuple[str, ...]


@attrs.frozen
class Call(Node):
    """A function call; ``words`` holds what stands in it beside arguments (``RETURNING``, ``TO HOUR``)."""

    name: str
    arguments: tuple[Node, ...] = ()
    words: Mapping[str, Any] = attrs.field(factory=dict)
    distinct: bool = False
    star: bool = False
    filter: Node | None = None
    over: Over | None = None


@attrs.frozen
class Over(Node):
    """The window of an analytic function: ``frame`` is the text of its bounds, ``name`` that of one of ``WINDOW``."""

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
    """``x.name`` of what is no plain name."""

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
    """One of the things that are selected."""

    value: Node
    alias: str | None = None


@attrs.frozen
class Order(Node):
    """One of the things that rows are ordered by."""

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
    """``ROLLUP (…)``, ``CUBE (…)`` or ``GROUPING SETS (…)``: the sets of keys, each as it stands there."""

    kind: str
    sets: tuple[tuple[Node, ...], ...]


@attrs.frozen
class Combined(Node):
    """Two queries as one: ``UNION ALL`` and the like."""

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
    """A query with what stands around it: ``WITH``, ``ORDER BY``, ``LIMIT``, ``OFFSET``."""

    body: Node
    named: tuple[tuple[str, tuple[str, ...], Node], ...] = ()
    order: tuple[Order, ...] = ()
    limit: Node | None = None
    offset: Node | None = None


@attrs.frozen
class Table(Node):
    """A table by its name; ``hint`` is the text of a hint behind it, which begins at ``hint_at``."""

    name: tuple[str, ...]
    alias: str | None = None
    hint: str = ""
    hint_at: int = attrs.field(default=0, eq=False)


@attrs.frozen
class Derived(Node):
    """A query in the place of a table."""

    query: Node
    alias: str | None = None
    columns: tuple[str, ...] = ()


@attrs.frozen
class Windowed(Node):
    """``TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL …)`` and its kin in the place of a table."""

    kind: str
    table: Table
    time: str
    spans: tuple[Node, ...]
    keys: tuple[str, ...] = ()
    alias: str | None = None


@attrs.frozen
class Unnest(Node):
    """``UNNEST(array)`` in the place of a table."""

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
