"""Upsert tables under kills: random upserts, what they are to become, and the judge of what was written.

A record's value says its key and a version, which no other record of a topic has but its equal repeats, so that each
record of a key tells its place in what the key is to become.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kdsl.testing import Record, RunningKafka

Upsert = tuple[int, int | None]
"""A key and its version; None deletes it."""
COLUMNS = [{"name": "id", "type": "INT"}, {"name": "version", "type": "BIGINT"}]


def key_text(key: int) -> str:
    """A message key, as the format json writes it."""
    return f'{{"id":{key}}}'


def value_text(key: int, version: int) -> str:
    """A message value, as the format json writes it."""
    return f'{{"id":{key},"version":{version}}}'


def upsert_tables(
    kafka: RunningKafka,
    source: str,
    target: str,
    *,
    per_batch: int,
    appends: bool = False,
    changes: bool = False,
    reading: Mapping[str, Any] | None = None,
    writing: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Tables ``source`` and ``target`` of keys and versions.

    Args:
        kafka: Where both are.
        source: The topic that is read.
        target: The topic that is written, as upserts.
        per_batch: The most records of a batch.
        appends: The source is a plain table of values, and no upsert table.
        changes: The source is a table of change data that is compared with the last row of each key.
        reading: More options of the source, under Flink's keys.
        writing: More options of the target.
    """
    formats = {"key.format": "json", "value.format": "json"}
    limit: dict[str, Any] = {
        "scan.max-records-per-trigger": per_batch,
        "scan.topic-partition-discovery.interval": "1 s",
    }
    plain = {"connector": "kafka", "value.format": "json", "scan.startup.mode": "earliest-offset"}
    upserts = {"connector": "upsert-kafka", **formats}
    events = {
        "connector": "kafka",
        "key.format": "json",
        "key.fields": "id",
        "value.format": "debezium-json",
        "scan.startup.mode": "earliest-offset",
        "cdc-events-duplicate": "true",
    }
    servers = {"properties.bootstrap.servers": kafka.bootstrap_servers}
    source_of = plain if appends else events if changes else upserts
    read = {**source_of, **servers, "topic": source, **limit, **(reading or {})}
    written = {**upserts, **servers, "topic": target, **(writing or {})}
    key = {"primary_key": ["id"]}
    return {
        "tables": [
            {"name": "source", "columns": COLUMNS, "options": read, **({} if appends else key)},
            {"name": "target", "columns": COLUMNS, "options": written, **key},
        ]
    }


def random_upserts(count: int, keys: int, seed: int) -> list[Upsert]:
    """Upserts with equal repeats, deletes, deletes of unknown keys, and keys that come again."""
    chance = random.Random(seed)
    last: dict[int, int] = {}
    results: list[Upsert] = []
    for version in range(count):
        key = chance.randrange(keys)
        what = chance.random()
        if what < 0.2:
            results.append((key, None))
            last.pop(key, None)
        elif what < 0.35 and key in last:
            results.append((key, last[key]))
        else:
            results.append((key, version))
            last[key] = version
    return results


def send(kafka: RunningKafka, topic: str, upserts: Iterable[Upsert]) -> None:
    """Write upserts, each into the partition of its key."""
    records = [Record(None if v is None else value_text(k, v), key_text(k)) for k, v in upserts]
    kafka.produce(topic, *records)


def repeat_some(upserts: Sequence[Upsert], seed: int) -> list[Upsert]:
    """Upserts with parts that come again, as of a connector that was killed and goes on from an older offset."""
    chance = random.Random(seed)
    results: list[Upsert] = []
    for upsert in upserts:
        results.append(upsert)
        if chance.random() < 0.01:
            results += results[-chance.randrange(5, 100) :]
    return results


def send_changes(kafka: RunningKafka, topic: str, upserts: Iterable[Upsert], seed: int) -> None:
    """Write upserts as Debezium writes changes where PostgreSQL sends keys alone; some deletes are tombstones."""
    chance = random.Random(seed)
    records = []
    for key, version in upserts:
        change: dict[str, Any] = {"before": None, "after": {"id": key, "version": version}, "op": chance.choice("cu")}
        if version is None:
            change = {"before": {"id": key}, "after": None, "op": "d"}
            records += [Record(json.dumps(change), key_text(key))] if chance.random() < 0.8 else []
        records.append(Record(None if version is None else json.dumps(change), key_text(key)))
    kafka.produce(topic, *records)


def versions_of_upserts(upserts: Iterable[Upsert]) -> dict[int, list[int | None]]:
    """What each key becomes: its versions and tombstones, without repeats and deletes of what is not there."""
    results: dict[int, list[int | None]] = {}
    for key, version in upserts:
        so_far = results.setdefault(key, [])
        if (so_far[-1] if so_far else None) != version:
            so_far.append(version)
    return {key: versions for key, versions in results.items() if versions}


def read_versions(kafka: RunningKafka, topic: str) -> dict[int, list[int | None]]:
    """What was written of each key, in order; each is in one partition alone, and says its key in the value, too."""
    results: dict[int, list[int | None]] = {}
    partitions: dict[int, int] = {}
    for message in kafka.read(topic):
        key = json.loads(message.key() or b"")["id"]
        assert partitions.setdefault(key, message.partition() or 0) == message.partition(), (
            f"key {key} in two partitions"
        )
        value = message.value()
        row = None if value is None else json.loads(value)
        assert row is None or row["id"] == key
        results.setdefault(key, []).append(None if row is None else row["version"])
    return results


def replays(expected: Sequence[int | None], seen: Sequence[int | None], *, gathered: bool = False) -> bool:
    """Whether what was seen is what was expected, to its end, with parts that came again from an earlier record.

    Args:
        expected: What was to be written of a key.
        seen: What was written of it.
        gathered: A buffer may leave out all but the last one of a flush.
    """
    reached = [-1]  # the indices that a reader may have reached
    for one in seen:
        furthest = len(expected) if gathered else max(reached) + 2
        reached = [at for at, value in enumerate(expected[:furthest]) if value == one]
        if not reached:
            return False
    return len(expected) - 1 in reached


def wrong(
    expected: Mapping[int, Sequence[int | None]], seen: Mapping[int, Sequence[int | None]], *, gathered: bool = False
) -> dict[int, Any]:
    """The keys whose records are not what was expected, with both."""
    keys = expected.keys() | seen.keys()
    pairs = {key: (list(expected.get(key, ())), list(seen.get(key, ()))) for key in sorted(keys)}
    return {key: both for key, both in pairs.items() if not replays(*both, gathered=gathered)}
