"""Records what Debezium writes for every type of Postgres: ``python -m tests.debezium.record``.

It starts Postgres, Kafka, a schema registry and Kafka Connect, makes a few changes in three tables, and writes the
messages to ``tests/formats/debezium/``, one JSON object a line: the topic, the key and the value (both as text, or in
base64 where they are Avro), in the order of the topic. ``schemas.json`` there has the registry's schemas by id.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import httpx

from kdsl.testing import LocalKafka, LocalRegistry
from kdsl.testing.running import RunningKafka
from tests.debezium.connect import ConnectWorker, avro_converters, json_converters, postgres_connector
from tests.postgres import Postgres

_LAST = -1
"""The id of the last row of each table, which is waited for."""
PLACE = Path(__file__).parent.parent / "formats" / "debezium"

TYPES: Mapping[str, tuple[str, str, str, str]] = {
    # column: type, an ordinary value, a value at an edge, a special value (or NULL where there is none)
    "a_boolean": ("boolean", "true", "false", "NULL"),
    "a_smallint": ("smallint", "12", "-32768", "NULL"),
    "an_integer": ("integer", "123456", "-2147483648", "NULL"),
    "a_bigint": ("bigint", "9876543210", "-9223372036854775808", "NULL"),
    "a_real": ("real", "1.5", "-3.4028235e38", "'NaN'"),
    "a_double": ("double precision", "2.25", "1e-300", "'-Infinity'"),
    "a_numeric_12_2": ("numeric(12,2)", "1234.50", "-9999999999.99", "NULL"),
    "a_numeric_38_10": ("numeric(38,10)", "0.0000000001", "-1234567890123456789012345678.0123456789", "NULL"),
    "a_numeric": ("numeric", "3.14159", "-123456789012345678901234567890.5", "NULL"),
    "a_money": ("money", "99.95", "-1.01", "NULL"),
    "a_char_5": ("char(5)", "'ab'", "'äöü'", "NULL"),
    "a_varchar_20": ("varchar(20)", "'naïve'", "''", "NULL"),
    "a_text": ("text", "'line\nbreak'", "'\"quoted\" \\'", "NULL"),
    "a_bytea": ("bytea", "'\\x00ff10'", "'\\x'", "NULL"),
    "a_date": ("date", "'2024-02-29'", "'0001-01-01'", "'infinity'"),
    "a_time": ("time", "'13:45:30.123456'", "'00:00:00'", "'24:00:00'"),
    "a_time_3": ("time(3)", "'13:45:30.123'", "'23:59:59.999'", "NULL"),
    "a_timetz": ("timetz", "'13:45:30.5+02'", "'00:00:00-11'", "NULL"),
    "a_timestamp": ("timestamp", "'2024-02-29 13:45:30.123456'", "'0001-01-01 00:00:00'", "'infinity'"),
    "a_timestamp_3": ("timestamp(3)", "'2024-02-29 13:45:30.123'", "'1969-12-31 23:59:59.999'", "'-infinity'"),
    "a_timestamptz": ("timestamptz", "'2024-02-29 13:45:30.123456+02'", "'1969-12-31 23:59:59Z'", "'infinity'"),
    "an_interval": ("interval", "'1 year 2 months 3 days 04:05:06.789'", "'-1 day'", "NULL"),
    "a_uuid": ("uuid", "'6f1e5b9a-2c3d-4e5f-8a9b-0c1d2e3f4a5b'", "'00000000-0000-0000-0000-000000000000'", "NULL"),
    "a_json": ("json", """'{"a": 1, "b": [true, null]}'""", "'\"text\"'", "NULL"),
    "a_jsonb": ("jsonb", """'{"a": 1.50, "b": "ü"}'""", "'null'", "NULL"),
    "an_xml": ("xml", "'<a>1</a>'", "'<b/>'", "NULL"),
    "a_mood": ("shop.mood", "'happy'", "'sad'", "NULL"),
    "integers": ("integer[]", "'{1,2,NULL}'", "'{}'", "NULL"),
    "texts": ("text[]", "'{\"a b\",c,NULL}'", "'{}'", "NULL"),
    "numerics": ("numeric(10,2)[]", "'{1.25,NULL}'", "'{-0.01}'", "NULL"),
    "timestamps": ("timestamptz[]", "'{2024-02-29 13:45:30+00}'", "'{}'", "NULL"),
    "an_inet": ("inet", "'192.0.2.1/24'", "'2001:db8::1'", "NULL"),
    "a_point": ("point", "'(1.5,-2)'", "'(0,0)'", "NULL"),
    "a_bit_1": ("bit(1)", "B'1'", "B'0'", "NULL"),
    "a_bit_12": ("bit(12)", "B'100000000001'", "B'000000000000'", "NULL"),
    "a_range": ("int4range", "'[1,5)'", "'empty'", "NULL"),
    "an_hstore": ("hstore", "'a=>1,b=>NULL'", "''", "NULL"),
}

SPECIAL: Mapping[str, tuple[str, str]] = {
    "a_numeric": ("numeric", "'NaN'"),
    "a_numeric_12_2": ("numeric(12,2)", "'NaN'"),
    "an_infinite_numeric": ("numeric", "'Infinity'"),
}
"""What `decimal.handling.mode=precise` cannot hold, in a table of its own."""

UNCHANGED: Mapping[str, str] = {
    "a_text": "text",
    "a_bytea": "bytea",
    "a_jsonb": "jsonb",
    "texts": "text[]",
    "integers": "integer[]",
    "bigints": "bigint[]",
    "uuids": "uuid[]",
    "an_hstore": "hstore",
    "an_xml": "xml",
    "numerics": "numeric(10,2)[]",
    "doubles": "double precision[]",
    "dates": "date[]",
    "timestamps": "timestamptz[]",
    "booleans": "boolean[]",
}
"""Columns that Postgres stores out of line (TOAST), and does not send where a change leaves them alone."""

CONNECTORS: Mapping[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "json": (
        ("full", "default", "toast_full", "toast_default", "special"),
        {"skipped.operations": "none", "provide.transaction.metadata": "true"},
    ),
    "schemas": (("full",), {**json_converters(schemas=True), "skipped.operations": "none"}),
    "strings": (
        ("full", "special"),
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "isostring",
            "interval.handling.mode": "string",
            "binary.handling.mode": "hex",
            "hstore.handling.mode": "map",
        },
    ),
    "connect": (
        ("full", "special"),
        {
            "decimal.handling.mode": "double",
            "time.precision.mode": "connect",
            "binary.handling.mode": "base64",
            "hstore.handling.mode": "map",
        },
    ),
    "micros": (("full",), {"time.precision.mode": "microseconds"}),
    "nanos": (("full",), {"time.precision.mode": "nanoseconds"}),
    "unwrapped": (
        ("default",),
        {
            "transforms": "unwrap",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.delete.tombstone.handling.mode": "tombstone",
        },
    ),
    "unwrapped-schemas": (
        ("default",),
        {
            **json_converters(schemas=True),
            "transforms": "unwrap",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        },
    ),
}
"""The tables and the settings of each connector; the topics' prefix is its name."""


def create_tables(postgres: Postgres) -> None:
    """Create the tables, with rows for the connectors' snapshots."""
    columns = ", ".join(f"{name} {kind}" for name, (kind, *_) in TYPES.items())
    postgres.execute(
        f"""
        CREATE SCHEMA shop;
        CREATE EXTENSION hstore;
        CREATE TYPE shop.mood AS ENUM ('sad', 'happy');
        CREATE TABLE shop.full (id bigint PRIMARY KEY, required numeric(6,3) NOT NULL DEFAULT 1.5, {columns});
        CREATE TABLE shop.default (LIKE shop.full INCLUDING ALL);
        CREATE TABLE shop.toast_full (
            id bigint PRIMARY KEY, {", ".join(f"{name} {kind}" for name, kind in UNCHANGED.items())}, counter integer
        ) WITH (toast_tuple_target = 128);
        CREATE TABLE shop.toast_default (LIKE shop.toast_full INCLUDING ALL) WITH (toast_tuple_target = 128);
        CREATE TABLE shop.special (
            id bigint PRIMARY KEY, {", ".join(f"{name} {kind}" for name, (kind, _) in SPECIAL.items())}
        );
        ALTER TABLE shop.full REPLICA IDENTITY FULL;
        ALTER TABLE shop.toast_full REPLICA IDENTITY FULL;
        """
    )
    for table in ("toast_full", "toast_default"):
        for name in UNCHANGED:
            postgres.execute(f"ALTER TABLE shop.{table} ALTER COLUMN {name} SET STORAGE EXTERNAL")
    for table in ("full", "default"):
        ordinary = ", ".join(value for _, value, *_ in TYPES.values())
        postgres.execute(
            f"INSERT INTO shop.{table} VALUES (1, 12.345, {ordinary}); INSERT INTO shop.{table} (id) VALUES (2)"
        )


def change(postgres: Postgres) -> None:
    """Make one change of each kind."""
    edges = ", ".join(edge for _, _, edge, _ in TYPES.values())
    special = ", ".join(value for *_, value in TYPES.values())
    for table in ("full", "default"):
        postgres.execute(
            f"""
            INSERT INTO shop.{table} VALUES (3, -0.001, {edges});
            INSERT INTO shop.{table} VALUES (4, 0, {special});
            UPDATE shop.{table} SET a_varchar_20 = 'changed', a_numeric_12_2 = NULL WHERE id = 1;
            BEGIN;
            UPDATE shop.{table} SET id = 5 WHERE id = 2;
            DELETE FROM shop.{table} WHERE id = 3;
            COMMIT;
            SELECT pg_logical_emit_message(true, 'notes', 'in a transaction');
            TRUNCATE shop.{table};
            INSERT INTO shop.{table} (id) VALUES (6);
            """
        )
    postgres.execute("SELECT pg_logical_emit_message(false, 'notes', 'on its own')")
    long = {
        "text": "repeat('text ', 60)",
        "bytea": "decode(repeat('00ff', 150), 'hex')",
        "jsonb": "to_jsonb(repeat('json ', 60))",
        "text[]": "array_fill('item'::text, ARRAY[60])",
        "integer[]": "array_fill(7, ARRAY[80])",
        "bigint[]": "array_fill(7::bigint, ARRAY[60])",
        "uuid[]": "array_fill('6f1e5b9a-2c3d-4e5f-8a9b-0c1d2e3f4a5b'::uuid, ARRAY[20])",
        "hstore": "hstore('a', repeat('hstore ', 50))",
        "xml": "xmlelement(name a, repeat('xml ', 60))",
        "numeric(10,2)[]": "array_fill(7.25::numeric(10,2), ARRAY[40])",
        "double precision[]": "array_fill(7.5::double precision, ARRAY[40])",
        "date[]": "array_fill('2024-02-29'::date, ARRAY[60])",
        "timestamptz[]": "array_fill('2024-02-29 13:45:30Z'::timestamptz, ARRAY[30])",
        "boolean[]": "array_fill(true, ARRAY[250])",
    }
    for table in ("toast_full", "toast_default"):
        values = ", ".join(long[kind] for kind in UNCHANGED.values())
        postgres.execute(
            f"""
            INSERT INTO shop.{table} VALUES (1, {values}, 0);
            UPDATE shop.{table} SET counter = 1 WHERE id = 1;
            UPDATE shop.{table} SET counter = 2, a_text = 'short' WHERE id = 1;
            DELETE FROM shop.{table} WHERE id = 1;
            """
        )
    values = ", ".join(value for _, value in SPECIAL.values())
    postgres.execute(f"INSERT INTO shop.special VALUES (1, {values})")
    for table in ("full", "default", "special", "toast_full", "toast_default"):
        postgres.execute(f"INSERT INTO shop.{table} (id) VALUES ({_LAST})")


def record(
    postgres: Postgres, kafka: RunningKafka, registry: LocalRegistry, connect: ConnectWorker, folder: Path
) -> None:
    """Make the tables and the changes, and write what the connectors make of them into a folder."""
    create_tables(postgres)
    connectors = {**CONNECTORS, "avro": (("full", "toast_default"), avro_converters(registry.url))}
    for name, (tables, settings) in connectors.items():
        included = ",".join(f"shop.{table}" for table in tables)
        connect.create(name, {**postgres_connector(name, postgres, included), **settings})
    for name, (tables, _) in connectors.items():  # the snapshots must not see what changes later
        wait_for(kafka, connect, name, f"{name}.shop.{tables[0]}", 2)
    change(postgres)
    for name, (tables, _) in connectors.items():
        for table in tables:
            wait_for(kafka, connect, name, f"{name}.shop.{table}", _LAST)
        save(folder / f"{name}.jsonl", messages(kafka, name), avro=name == "avro")
        connect.delete(name)
    save_schemas(registry, folder / "schemas.json")


def wait_for(kafka: RunningKafka, connect: ConnectWorker, connector: str, topic: str, id_: int) -> None:
    """Wait until a topic has the row of an id.

    Args:
        kafka: Where the topic is, or will be.
        connect: The worker.
        connector: The connector that writes it.
        topic: The topic.
        id_: The id, in message keys.

    Raises:
        AssertionError: The connector has failed, or it takes too long.
    """
    until = time.monotonic() + 300
    while not any(is_key(key, connector, id_) for key in keys(kafka, topic)):
        assert connect.failure(connector) is None, connect.failure(connector)
        assert time.monotonic() < until, f"{topic} has no row {id_}"
        time.sleep(0.2)


def is_key(key: bytes, connector: str, id_: int) -> bool:
    """Whether a message key is that of an id: as JSON, or as Avro, where it ends with the number."""
    if connector == "avro":
        return key.endswith(bytes([id_ * 2 if id_ >= 0 else -id_ * 2 - 1]))
    return key.rstrip(b"}").endswith(f'"id":{id_}'.encode())


def keys(kafka: RunningKafka, topic: str) -> list[bytes]:
    """The keys of a topic's messages; none of a topic that is not there yet."""
    if topic not in kafka.admin().list_topics(timeout=30).topics:
        return []
    return [key for message in kafka.read(topic) if (key := message.key()) is not None]


def messages(kafka: RunningKafka, connector: str) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    """The messages of all topics of a connector but the rows that are waited for; of transactions the first ones."""
    for topic in sorted(kafka.admin().list_topics(timeout=30).topics):
        if topic.startswith(f"{connector}."):
            for message in kafka.read(topic)[: 4 if topic.endswith(".transaction") else None]:
                key = message.key()
                if key is None or ".shop." not in topic or not is_key(key, connector, _LAST):
                    yield topic, key, message.value()


def save(path: Path, values: Iterable[tuple[str, bytes | None, bytes | None]], *, avro: bool) -> None:
    """Write messages."""

    def to_string(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode() if avro else data.decode()

    lines = [
        json.dumps({"topic": topic, "key": to_string(key), "value": to_string(value)}, ensure_ascii=False)
        for topic, key, value in values
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def save_schemas(registry: LocalRegistry, path: Path) -> None:
    """Write the registry's schemas by subject and version."""
    with httpx.Client(base_url=registry.url, trust_env=False) as client:
        results = {}
        for subject in sorted(client.get("/subjects").json()):
            for version in client.get(f"/subjects/{subject}/versions").json():
                latest = client.get(f"/subjects/{subject}/versions/{version}").json()
                results[f"{subject}/{version}"] = {"id": latest["id"], "schema": json.loads(latest["schema"])}
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Record everything."""
    PLACE.mkdir(exist_ok=True)
    with (
        Postgres(wal_level="logical", max_wal_senders="20", max_replication_slots="20") as postgres,
        LocalKafka() as kafka,
        LocalRegistry() as registry,
        ConnectWorker(kafka.bootstrap_servers) as connect,
    ):
        record(postgres, kafka, registry, connect, PLACE)


if __name__ == "__main__":
    main()
