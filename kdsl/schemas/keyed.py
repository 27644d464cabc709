"""Combines the columns of the message key and of the message value in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.formats import Format
from kdsl.schemas.model import STARTUP, Hint, Path


@attrs.frozen
class MessageSide:
    """One side of the messages.

    Attributes:
        format: Its format.
        columns: Its columns.
        hints: What a schema says about the types inside them.
    """

    format: Format
    columns: Sequence[ColumnDef]
    hints: Mapping[Path, Hint] = attrs.field(factory=dict)


def combine_sides(
    name: str,
    topic: str,
    key: MessageSide | None,
    value: MessageSide,
    *,
    upserts: bool = False,
    comment: str | None = None,
) -> tuple[TableDef, dict[Path, Hint]]:
    """Combine the columns of key and value in a table; also return what schemas say about the types inside it, by path.

    If the value contains all columns of the key, the table has the value's columns. Otherwise it has both, and the
    names of the key's columns begin with ``key_``, or with ``k_`` if a name in the value begins with ``key_``. The
    table is not checked.

    Args:
        name: The table's name.
        topic: The topic.
        key: The message key; None if it is not read. An upsert table needs one, which is not checked here.
        value: The message value.
        upserts: Whether it is an upsert table, whose primary key is the message key.
        comment: The table's comment.
    """
    options = UpsertOptions(topic=(topic,)) if upserts else KafkaOptions(topic=(topic,), startup=STARTUP)
    hints = dict(value.hints)
    if key is None:
        table = TableDef(name, tuple(value.columns), options=options, value_format=value.format, comment=comment)
        return table, hints
    own = [c.name for c in key.columns]
    if _contains_key(key.columns, value.columns, loosely=upserts):
        columns = tuple(attrs.evolve(c, key=c.name in own and not upserts) for c in value.columns)
    else:
        prefix = "k_" if any(c.name.startswith("key_") for c in value.columns) else "key_"
        options = attrs.evolve(options, key_prefix=prefix, value_fields="EXCEPT_KEY")  # type: ignore[misc]
        hints.update({(prefix + path[0], *path[1:]): hint for path, hint in key.hints.items()})
        columns = (*(attrs.evolve(c, name=prefix + c.name, key=not upserts) for c in key.columns), *value.columns)
        own = [prefix + each for each in own]
    return (
        TableDef(
            name,
            columns,
            options=options,
            key_format=key.format,
            value_format=value.format,
            primary_key=tuple(own) if upserts else (),
            comment=comment,
        ),
        hints,
    )


def _contains_key(key: Sequence[ColumnDef], value: Sequence[ColumnDef], *, loosely: bool) -> bool:
    """Whether all key columns are columns of the value; ``loosely`` compares names and types without nullability."""
    if not loosely:
        return all(c in value for c in key)
    kinds = {c.name: c.type.as_nullable() for c in value}
    return all(kinds.get(c.name) == c.type.as_nullable() for c in key)
