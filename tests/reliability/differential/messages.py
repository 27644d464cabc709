"""Changes to the records of a topic, as Debezium, Canal, and programs that send rows as JSON write them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

from kdsl.testing import Record
from tests.reliability.differential.generator import Source, World
from tests.reliability.differential.model import Change, Row

TABLE_FIELDS = ("the database", "the table")
"""The members of plain rows that name their table."""


def write_records(world: World) -> list[list[Record]]:
    """The records of each round."""
    remaining = {source.number: iter(source.changes) for source in world.sources}
    sources = {source.number: source for source in world.sources}
    records = [list(_write(world, sources[number], next(remaining[number]))) for number in world.order]
    rounds, start = [], 0
    for count in world.rounds:
        rounds.append([record for some in records[start : start + count] for record in some])
        start += count
    return rounds


def _write(world: World, source: Source, change: Change) -> Iterator[Record]:
    row = change.before if change.after is None else change.after
    assert row is not None
    key = _object({name: row[name] for name in source.rules.key}) if source.rules.key else None
    place = f"{source.number}/{key}" if world.by_key and key else str(source.number)
    partition = zlib.crc32(place.encode()) % world.partitions
    match world.wire:
        case "debezium-json":
            yield Record(_debezium(source, change), key, partition=partition)
            if change.after is None:
                yield Record(None, key, partition=partition)
        case "canal-json":
            yield Record(_canal(source, change), key, partition=partition)
        case "json":
            names = {name: json.dumps(text) for name, text in zip(TABLE_FIELDS, source_id(source), strict=True)}
            yield Record(_object({**names, **row}), key, partition=partition)


def source_id(source: Source) -> tuple[str, str]:
    """The id of the upstream table."""
    return source.database, source.name


def _debezium(source: Source, change: Change) -> str:
    op = "c" if change.before is None else "d" if change.after is None else "u"
    before, after = ("null" if row is None else _object(row) for row in (change.before, change.after))
    table = json.dumps({"db": source.database, "table": source.name})
    return f'{{"before":{before},"after":{after},"op":"{op}","source":{table}}}'


def _canal(source: Source, change: Change) -> str:
    kind = "INSERT" if change.before is None else "DELETE" if change.after is None else "UPDATE"
    row = change.before if change.after is None else change.after
    assert row is not None
    old = "null"
    if change.before is not None and change.after is not None:
        changed = {name: change.before.get(name, "null") for name in row if change.before.get(name) != row[name]}
        old = f"[{_object(changed)}]"
    keys = json.dumps(list(source.rules.key) or None)
    database, table = json.dumps(source.database), json.dumps(source.name)
    return (
        f'{{"data":[{_object(row)}],"old":{old},"type":"{kind}","database":{database},"table":{table},'
        f'"pkNames":{keys},"isDdl":false,"es":1700000000000}}'
    )


def _object(row: Row) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in row.items()) + "}"
