"""Changes to the records of a topic, as Debezium, Canal, and programs that send rows as JSON write them."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator

from kdsl.testing import Record
from tests.reliability.differential.generator import NEVER, Obstacle, Source, World
from tests.reliability.differential.model import Change, Row


def write_records(world: World) -> list[list[Record]]:
    """The records of each round; of some worlds with others that cannot be read."""
    rng = random.Random(f"{world.seed}/broken")
    remaining = {source.number: iter(source.changes) for source in world.sources}
    sources = {source.number: source for source in world.sources}
    records = [list(_write(world, sources[number], next(remaining[number]))) for number in world.order]
    rounds, start = [], 0
    for count in world.rounds:
        rounds.append([record for some in records[start : start + count] for record in some])
        if world.broken:
            for value in ("oops", "{", '{"a":"\\ud800"}', f'{{"{NEVER}":1}}'):
                broken = Record(value, partition=rng.randrange(world.partitions))
                rounds[-1].insert(rng.randrange(len(rounds[-1]) + 1), broken)
        start += count
    return rounds


def write_obstacle(world: World, obstacle: Obstacle) -> list[Record]:
    """The records of a change that is refused."""
    source = next(source for source in world.sources if source.number == obstacle.number)
    return list(_write(world, source, obstacle.change))


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
            yield Record(_object(row), key, partition=partition)


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
        names = dict.fromkeys([*row, *change.before])
        changed = {name: change.before.get(name, "null") for name in names if change.before.get(name) != row.get(name)}
        old = f"[{_object(changed)}]"
    keys = json.dumps(list(source.rules.key) or None)
    database, table = json.dumps(source.database), json.dumps(source.name)
    return (
        f'{{"data":[{_object(row)}],"old":{old},"type":"{kind}","database":{database},"table":{table},'
        f'"pkNames":{keys},"isDdl":false,"es":1700000000000}}'
    )


def _object(row: Row) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in row.items()) + "}"
