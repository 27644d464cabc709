"""Changes of a table to messages in JSON: an update is one message with both of its rows.

The messages are those of Flink CDC's Kafka sink.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import TableId
from kdsl.types import model as t
from kdsl_formats._connect.schemas import connect_schema
from kdsl_formats._connect.wires import Modes
from kdsl_formats.json.changes import ChangeMessages, join_strings


@attrs.frozen
class DebeziumMessages(ChangeMessages):
    """Debezium's messages of one table.

    Attributes:
        head: What begins each message: its schema; empty without one.
        source: The member ``source``, which names the table.
    """

    head: str
    source: str
    deletes_are_null = False

    def join(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """Join the rows before and after changes to messages."""
        kinds = _choose(old, new, '"c"', '"u"', '"d"')
        old, new = (pc.fill_null(side, b"null") for side in (old, new))
        end = f',"source":{self.source}}}' + ("}" if self.head else "")
        return join_strings(f'{self.head}{{"before":', old, ',"after":', new, ',"op":', kinds, end)


@attrs.frozen
class CanalMessages(ChangeMessages):
    """Canal's messages of one table.

    Attributes:
        tail: The members that name the table and its primary key.
    """

    tail: str
    deletes_are_null = False

    def join(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """Join the rows before and after changes to messages."""
        is_update = pc.and_(old.is_valid(), new.is_valid())
        kinds = _choose(old, new, '"INSERT"', '"UPDATE"', '"DELETE"')
        data = _wrap(pc.if_else(new.is_valid(), new, old))
        replaced = _wrap(pc.if_else(is_update, old, pa.nulls(len(old), old.type)))
        return join_strings('{"old":', replaced, ',"data":', data, ',"type":', kinds, f",{self.tail}")


def describe_source(table: TableId, *, full: bool) -> str:
    """Write the member ``source`` of Debezium's messages.

    Args:
        table: The table.
        full: Whether it names all parts of the id.
    """
    name, schema, database = (*reversed(table), None, None)[:3]
    names = {"db": database, "schema": schema, "table": name} if full else {"db": schema, "table": name}
    return json.dumps(names, ensure_ascii=False)


def describe_table(table: TableId, keys: Sequence[str]) -> str:
    """Write the last members of Canal's messages: the table, and its primary key."""
    name, database = (*reversed(table), None)[:2]
    return f'"database":{json.dumps(database)},"table":{json.dumps(name)},"pkNames":{json.dumps(list(keys) or None)}}}'


def begin_with_schema(row: t.Row, modes: Modes) -> str:
    """Write the begin of messages with their schema in Kafka Connect's JSON: of the rows before and after a change."""
    fields = [{**connect_schema(row, modes), "optional": True, "field": side} for side in ("before", "after")]
    schema = json.dumps({"type": "struct", "fields": fields, "optional": False}, ensure_ascii=False)
    return f'{{"schema":{schema},"payload":'


def _wrap(texts: pa.Array) -> pa.Array:
    """Each string as a JSON list of one element; ``null`` for a missing one."""
    return pc.fill_null(join_strings("[", texts, "]"), b"null")


def _choose(before: pa.Array, after: pa.Array, insert: str, update: str, delete: str) -> pa.Array:
    """One of three strings for each change: ``insert`` if it has no row before, ``delete`` if none after.

    Otherwise ``update``.
    """
    texts = [pa.scalar(text.encode(), pa.binary()) for text in (insert, update, delete)]
    return pc.if_else(after.is_valid(), pc.if_else(before.is_valid(), texts[1], texts[0]), texts[2])
