"""Kafka as a source and as a sink of many tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from kdsl.client_settings.properties import Properties, Value
from kdsl.cluster import SERVERS
from kdsl.declare.connector import (
    CONFIGS,
    PARTITIONS,
    REPLICATION_FACTOR,
    Delivery,
    KafkaOptions,
    check_positive,
    check_replicas,
    check_string,
)
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA
from kdsl.errors import listing, nearest, pluralize
from kdsl.formats import ALONE, Observer, TableId, Use, format_class, format_names
from kdsl.ingest.ends.end import COMMAS, Sink, SinkRules, Source, WrongOption
from kdsl.ingest.ends.kafka_end import DEBEZIUM, PROPERTIES, KafkaEnd, Side
from kdsl.ingest.ids import parse_id
from kdsl.ingest.initial_schemas import InitialTable, read_initial_schemas, write_initial_schema
from kdsl.ingest.selectors import SelectorError, TopicMapping
from kdsl.kafka_table import KafkaTable
from kdsl.name_patterns import PatternError, compile_pattern
from kdsl.options import option
from kdsl.own_columns import explain_reserved, is_reserved
from kdsl.plugins import import_object
from kdsl.resolve.delivery import wrong_prefix
from kdsl.table import Table

if TYPE_CHECKING:
    InitialSchemas = str | Sequence[str | type[KafkaTable] | Table] | None
else:  # the constructor writes table classes as statements
    InitialSchemas = str | None
MAX_TOPIC = 249
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")
ANY_TOPIC = "<topic>"
"""What stands for the topic in the option ``table`` of a source."""
_FEED = (
    *("topic", "topic_pattern", "key_prefix", "value_prefix", "startup", "startup_timestamp", "startup_offsets"),
    *("header_filter", "check_group", "discovery", "max_records_per_trigger", "max_records_per_partition", "transport"),
)
METADATA_NAMES = (
    *("topic", "partition", "offset", "timestamp", "timestamp-type", "headers", "leader-epoch"),
    *("__raw_key__", "__raw_value__"),
)
"""The metadata that rows of an ingestion can have as columns."""


def _check_metadata(names: tuple[str, ...]) -> str | None:
    """What to write instead of metadata that does not exist; None if all of it does."""
    wrong = [name for name in names if name not in METADATA_NAMES]
    return f"use {listing(METADATA_NAMES)}; not {wrong[0]!r}{nearest(wrong[0], METADATA_NAMES)}" if wrong else None


class KafkaFeed(KafkaEnd, KafkaOptions, Source):
    """Reads the tables in Kafka topics, whose columns are inferred from the messages."""

    type: ClassVar[str] = "kafka"
    formats: ClassVar[Mapping[Side, tuple[str, ...]]] = {
        "key": ("json",),
        "value": ("debezium-json", "canal-json", "json"),
    }
    of_format: ClassVar[tuple[str, ...]] = ("distributed-tables",)
    without: ClassVar[Mapping[str, str]] = {a.name: "" for a in KafkaOptions.declarations() if a.name not in _FEED}

    key_prefix: str = option(
        "key.fields-prefix",
        "A prefix of the columns of the message key, which come before those of the value.",
        default="",
    )
    value_prefix: str = option(
        "value.fields-prefix",
        "A prefix of the columns of the message value; neither prefix may begin with the other.",
        default="",
    )
    inference: Literal["continuous", "static"] = option(
        "schema.inference.strategy",
        "continuous: columns are added and become wider as messages show it. static: the columns of a table are "
        "inferred once; later messages are read with them.",
        default="continuous",
        ignore_case=True,
    )
    prefetch: int = option(
        "scan.max.pre.fetch.records",
        "How many of the newest records of each partition are looked at before the first batch; 0 for none.",
        default=50,
        check=lambda v: None if v >= 0 else "use a number from 0 on",
    )
    metadata: tuple[str, ...] = option(
        "metadata.list",
        f"Metadata of the record as columns after those of the value, with commas: {', '.join(METADATA_NAMES)}.",
        default=(),
        codec=COMMAS,
        check=_check_metadata,
    )
    initial_schemas: InitialSchemas = option(
        "scan.value.initial-schemas.ddls",
        "CREATE TABLE statements of Flink SQL, separated by ';', with the first schema of tables by their ids (the "
        "topic, if messages name no table). Types only become wider from there. Metadata and computed columns are "
        "columns of the rows, too; WITH ('key.fields' = 'a;b') says which columns are in the message key. In Python "
        "also a list of statements and table classes.",
        default=None,
    )
    table: str | None = option(
        "table",
        f"The id of the table that all messages belong to, whatever they name; {ANY_TOPIC} in it stands for their "
        f"topic: 'shop.{ANY_TOPIC}'. By default messages name their tables, or belong to that of their topic.",
        default=None,
    )
    ignore_errors: bool = option(
        "ingestion.ignore-errors",
        "Whether records that cannot be read are left out; otherwise they stop the ingestion.",
        default=False,
    )
    max_errors: int = option(
        "ingestion.error-tolerance.max-count",
        "With ingestion.ignore-errors: how many such records there may be in all. -1: any number.",
        default=-1,
        check=lambda v: None if v >= -1 else "use a number from 0 on, or -1 for any number",
    )
    distributed_tables: bool = option(
        "distributed-tables",
        "Whether the changes of one table are in several partitions; they are then ordered by the time in the source. "
        "Written with the format before it: debezium-json.distributed-tables.",
        default=False,
    )
    key_is_primary_key: bool = option(
        "source.primary-key-from-message-key",
        "For debezium-json: whether the fields of the message key are the primary key of a table that has no other.",
        default=True,
    )

    @classmethod
    def fits(cls, name: str, side: Side) -> bool:
        """Whether tables can be inferred from messages with a format on a side."""
        return name in format_names() and side in format_class(name).ingests

    if not TYPE_CHECKING:  # type checkers make the constructor from the fields

        def __init__(self, *positional: Any, **values: Any) -> None:
            """Create the source; a list or tuple of initial schemas becomes statements, a topic string splits at ``;``.

            Raises:
                TypeError: An initial schema is neither a statement nor a table of one topic, or options are given by
                    position that have none.
            """
            schemas = values.get("initial_schemas")
            if isinstance(schemas, (list, tuple)):
                values["initial_schemas"] = "; ".join(map(write_initial_schema, schemas)) or None
            if isinstance(values.get("topic"), (str, list)):
                topic = values["topic"]
                values["topic"] = tuple(map(str.strip, topic.split(";"))) if isinstance(topic, str) else tuple(topic)
            super().__init__(*positional, **values)

    def check(self) -> Iterator[WrongOption]:
        """Report what `KafkaEnd.check` reports, wrong combinations of options, and mistakes in initial schemas.

        Also a wrong pattern of topics, a wrong name of the table, and metadata that is listed twice.
        """
        yield from super().check()
        chosen = self.valid()
        yield from _check_topics(chosen)
        yield from _check_start(chosen)
        key, value = chosen.key_prefix, chosen.value_prefix
        if key and value and (key.startswith(value) or value.startswith(key)):
            message = f"the prefixes {key!r} and {value!r} begin with one another, so a name does not say its side"
            yield WrongOption(
                "ingest-prefix", "value.fields-prefix", message, "choose prefixes with different first characters"
            )
        for name, prefix in (("key.fields-prefix", key), ("value.fields-prefix", value)):
            if is_reserved(prefix):
                yield WrongOption("ingest-prefix", name, explain_reserved(prefix), "choose another prefix")
        if key and chosen.key is None:
            message = "key.fields-prefix has no effect without key.format"
            yield WrongOption("ingest-prefix", "key.fields-prefix", message, "add key.format: json, or remove it",
                              "warning")  # fmt: skip
        if chosen.max_errors != -1 and not chosen.ignore_errors:
            message = "ingestion.error-tolerance.max-count has no effect without ingestion.ignore-errors"
            fix = "set ingestion.ignore-errors to true, or remove it"
            yield WrongOption("ingest-errors", "ingestion.error-tolerance.max-count", message, fix, "warning")
        if chosen.value.is_lenient and chosen.ignore_errors:
            name = chosen.value.deciding_option("is_lenient")[1]
            message = f"{name} skips records before ingestion.ignore-errors can count and collect them"
            yield WrongOption("ingest-errors", name, message, "keep one of the two")
        if chosen.table is not None:
            try:
                chosen.table_id("topic")
            except ValueError as e:
                yield WrongOption("ingest-table", "table", str(e), f"write one to three names, as 'shop.{ANY_TOPIC}'")
        tables, schema_problems = read_initial_schemas(chosen.initial_ddl)
        if chosen.key is None and any(table.key for table in tables.values()):
            message = "scan.value.initial-schemas.ddls has key.fields, and no format reads the message keys"
            yield WrongOption("ingest-ddl", "scan.value.initial-schemas.ddls", message, "add key.format: json")
        for schema_problem in schema_problems:
            message = f"scan.value.initial-schemas.ddls: {schema_problem.message}"
            yield WrongOption("ingest-ddl", "scan.value.initial-schemas.ddls", message, schema_problem.fix)
        if chosen.inference == "static" and not chosen.prefetch and not chosen.initial_schemas:
            message = "schema.inference.strategy is static, and nothing says the columns before the first batch"
            fix = "set scan.max.pre.fetch.records to a number greater than 0, or scan.value.initial-schemas.ddls"
            yield WrongOption("ingest-static", "schema.inference.strategy", message, fix)
        if chosen.transport == "jvm" and "leader-epoch" in chosen.metadata:
            message = "metadata.list has 'leader-epoch', which the transport 'jvm' does not provide"
            yield WrongOption("ingest-metadata", "metadata.list", message, "leave it out, or set transport: librdkafka")
        columns = [name for name in chosen.metadata if chosen.metadata.count(name) > 1]
        if columns:
            message = f"metadata.list names {columns[0]!r} twice"
            yield WrongOption("ingest-metadata", "metadata.list", message, "remove one")

    def observer(self, max_columns: int, *, keyed: bool = False) -> Observer:
        """The observer of the message values.

        Args:
            max_columns: A message that would give a table more columns is bad.
            keyed: Whether updates may lack the row before, because rows are identified by a key.
        """
        use = Use(keyed=("key",)) if keyed else ALONE  # any name: what the key is, only the reader of rows must know
        observer = self.value.valid().observer(use, max_columns=max_columns)
        assert observer is not None  # the formats of a feed have one
        return observer

    @property
    def initial_ddl(self) -> str | None:
        """The statements of the initial schemas; None without any."""
        return self.initial_schemas if isinstance(self.initial_schemas, str) else None

    @property
    def initial_tables(self) -> Mapping[TableId, InitialTable]:
        """The tables that the initial schemas declare, by id; their problems are those of `check`."""
        return read_initial_schemas(self.initial_ddl)[0]

    def table_id(self, topic: str) -> TableId | None:
        """The table of all messages of a topic; None if the messages name their tables.

        Raises:
            ValueError: The option ``table`` is not the id of a table.
        """
        if self.table is None:
            return None
        return tuple(name.replace(ANY_TOPIC, topic) for name in parse_id(self.table))

    def metadata_columns(self, table: TableId) -> tuple[ColumnDef, ...]:
        """The metadata columns of a table's rows: those that its initial schema has, then those of ``metadata.list``.

        Of the list, names that the table declares and unknown names are left out.
        """
        declared = self.initial_tables.get(table)
        own = () if declared is None else tuple(c for c in declared.columns if c.role == "metadata")
        names = {c.name for c in own}
        listed = (name for name in self.metadata if name in METADATA and name not in names)
        return (*own, *(ColumnDef(name, METADATA[name].type, "metadata", virtual=True) for name in listed))

    @property
    def topics(self) -> str:
        """Which topics are read, for plans."""
        if self.topic_pattern is not None:
            return f"topics matching {self.topic_pattern}"
        return f"topic{'' if len(self.topic) == 1 else 's'} {', '.join(self.topic)}"

    def describe(self) -> Iterator[str]:
        """Yield the cluster, the topics, how they are read, and the other options, with secrets hidden."""
        yield " ".join(["kafka", *(f"({self.name})" for _ in [0] if self.name), self.cluster.label, self.topics])
        prefetch = (
            f"the newest {pluralize(self.prefetch, 'record')} of each partition first"
            if self.prefetch
            else "no prefetch"
        )
        yield f"  {self.value.identifier}, {self.inference} inference, {prefetch}, start {self.startup}"
        shown = {SERVERS, "topic", "topic-pattern", "value.format", "name", "schema.inference.strategy"}
        shown |= {"scan.max.pre.fetch.records", "scan.startup.mode", f"{PROPERTIES}{SERVERS}"}
        yield from (f"  {key} = {text}" for key, text in self.write().items() if key not in shown)


def _check_topics(feed: KafkaFeed) -> Iterator[WrongOption]:
    """Report missing topics, topics beside a pattern, and a pattern that kdsl cannot use."""
    if feed.topic and feed.topic_pattern is not None:
        yield WrongOption("topic-and-pattern", "topic-pattern", "topic and topic-pattern are both set",
                          "keep one of them")  # fmt: skip
    elif not any(feed.topic) and feed.topic_pattern is None:
        yield WrongOption("topic-missing", "topic", "the source has no topic", "add topic, or topic-pattern")
    if feed.topic_pattern is not None:
        try:
            compile_pattern(feed.topic_pattern)
        except PatternError as e:
            yield WrongOption("topic-pattern", "topic-pattern", f"the pattern {feed.topic_pattern!r} {e}", e.fix)


_SERVERS = "servers"
_NEEDS = {"timestamp": "scan.startup.timestamp-millis", "specific-offsets": "scan.startup.specific-offsets"}


def _check_start(feed: KafkaFeed) -> Iterator[WrongOption]:
    """Report a startup mode without the option that it needs, and, as warnings, such options of another mode."""
    values = {"timestamp": feed.startup_timestamp, "specific-offsets": feed.startup_offsets}
    for mode, value in values.items():
        key = _NEEDS[mode]
        if feed.startup == mode and value is None:
            yield WrongOption("startup", "scan.startup.mode", f"the startup mode {mode!r} needs {key}", f"add {key}")
        if feed.startup != mode and value is not None:
            message = f"{key} has no effect with the startup mode {feed.startup!r}"
            yield WrongOption("startup", key, message, f"set scan.startup.mode: {mode}, or remove it", "warning")


class KafkaTopics(KafkaEnd, Sink):
    """Writes tables to Kafka topics."""

    type: ClassVar[str] = "kafka"
    formats: ClassVar[Mapping[Side, tuple[str, ...]]] = {
        "key": ("json", "csv"),
        "value": ("debezium-json", "canal-json", "json"),
    }
    of_format: ClassVar[tuple[str, ...]] = ("include-schema.enabled", "emit.full-table-id.enabled")
    rules: ClassVar[SinkRules] = SinkRules("Kafka", stores_rows=False, checks_not_null=False)

    topic: str | None = option(
        "topic", "The topic of all tables. Without it a table has the topic of its id, such as db.orders.", default=None
    )
    topic_partitions: int | None = option("topic.partitions", PARTITIONS, default=None, check=check_positive)
    topic_replication_factor: int | None = option(
        "topic.replication-factor", REPLICATION_FACTOR, default=None, check=check_replicas
    )
    topic_configs: Mapping[str, Value] = option("topic.config.*", CONFIGS, default=Properties())
    partition_strategy: Literal["all-to-zero", "hash-by-key"] = option(
        "partition.strategy",
        "all-to-zero: partition 0. hash-by-key: by the message key, as Java's client does.",
        default="all-to-zero",
        ignore_case=True,
    )
    mapping: str | None = option(
        "sink.tableId-to-topic.mapping",
        "Topics of tables; the first that fits counts: 'db.orders:orders;db.users,db.people:persons'. The "
        "patterns are those of transforms. Messages keep the names of the tables.",
        default=None,
    )
    delivery: Delivery = option(
        "sink.delivery-guarantee",
        "at-least-once, exactly-once (readers of committed records see each change once), or none.",
        default="at-least-once",
        ignore_case=True,
    )
    transactional_id_prefix: str | None = option(
        "sink.transactional-id-prefix",
        "For exactly-once: the prefix of the transactional ids.",
        default=None,
        check=check_string,
    )
    table_id_headers: bool = option(
        "sink.add-tableId-to-header-enabled",
        "Whether records have the headers namespace, schemaName and tableName.",
        default=False,
    )
    custom_headers: str | None = option(
        "sink.custom-header", "Headers of all records: 'name:value', several separated by ';' or ','.", default=None
    )
    include_schema: bool = option(
        "include-schema.enabled",
        "Whether messages contain their schema. Written with the format before it: "
        "debezium-json.include-schema.enabled.",
        default=False,
    )
    full_table_id: bool = option(
        "emit.full-table-id.enabled",
        "Whether messages name all parts of the table id. Written with the format before it: "
        "debezium-json.emit.full-table-id.enabled.",
        default=False,
    )

    @classmethod
    def fits(cls, name: str, side: Side) -> bool:
        """Whether a format writes keys, or the changes of tables."""
        return name in format_names() and side in format_class(name).emits

    def check(self) -> Iterator[WrongOption]:
        """Report what `KafkaEnd.check` reports, wrong combinations of options, topics, mappings and headers."""
        yield from super().check()
        chosen = self.valid()
        if chosen.mapping is not None:
            key = "sink.tableId-to-topic.mapping"
            try:
                mapping = TopicMapping.parse(chosen.mapping)
            except SelectorError as e:
                yield WrongOption("ingest-mapping", key, str(e), e.fix)
            else:
                for topic in dict.fromkeys(topic for _, topic in mapping.entries):
                    if (wrong := wrong_topic(topic)) is not None:
                        yield WrongOption("ingest-topic", key, wrong, TOPIC_FIX)
            if chosen.topic is not None:
                message = "sink.tableId-to-topic.mapping has no effect, because topic is set"
                yield WrongOption("ingest-mapping", key, message, "remove one of the two", "warning")
        if chosen.topic is not None and (wrong := wrong_topic(chosen.topic)) is not None:
            yield WrongOption("ingest-topic", "topic", wrong, TOPIC_FIX)
        if chosen.delivery == "exactly-once":
            key, prefix = "sink.transactional-id-prefix", chosen.transactional_id_prefix
            if prefix is None:
                message = f"exactly-once needs {key}, which no other job on the cluster uses"
                yield WrongOption("transactional-id", "sink.delivery-guarantee", message, "add it")
            elif (wrong_id := wrong_prefix(prefix, key, lambda better: f"{key}: {better or 'ingest-1'}")) is not None:
                yield WrongOption("transactional-id", key, *wrong_id)
        try:
            self.headers()
        except ValueError as e:
            yield WrongOption("ingest-header", "sink.custom-header", str(e), "write 'name:value;name:value'")
        for key, enabled in (("include-schema.enabled", chosen.include_schema),
                             ("emit.full-table-id.enabled", chosen.full_table_id)):  # fmt: skip
            if enabled and chosen.value.identifier != DEBEZIUM:
                name = f"{chosen.value.identifier}.{key}"
                yield WrongOption("option-unknown", name, f"only the format debezium-json has {key}", "remove it")

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that all records get, from ``sink.custom-header``; empty entries are left out.

        Raises:
            ValueError: An entry has no colon, or no name.
        """
        pairs = []
        for entry in re.split(r"[;,]", self.valid().custom_headers or ""):
            name, colon, value = (part.strip() for part in entry.partition(":"))
            if entry.strip() and not (colon and name):
                raise ValueError(f"sink.custom-header has the entry {entry.strip()!r} without a name and a colon")
            pairs += [(name, value)] if entry.strip() else []
        return tuple(pairs)

    def topic_of(self, table: tuple[str, ...]) -> str:
        """The topic of a table: the option ``topic``, that of the mapping, or else the id of the table, without quotes.

        Raises:
            SelectorError: The mapping cannot be read.
        """
        mapping = TopicMapping.parse(self.mapping) if self.mapping else TopicMapping()
        return self.topic or mapping.topic(table) or ".".join(table)

    def locate(self) -> Mapping[str, Any]:
        """The bootstrap servers, and the options that choose topics."""
        chosen = self.valid()
        servers = sorted(server.strip() for server in self.cluster.bootstrap_servers.split(","))
        return {_SERVERS: servers, "topic": chosen.topic, "mapping": chosen.mapping}

    def is_same_location(self, before: Mapping[str, Any], now: Mapping[str, Any], tables: Iterable[TableId]) -> bool:
        """Whether one bootstrap server is the same, and the tables have the same topics."""
        if {*before} != {*now} or not {*before[_SERVERS]} & {*now[_SERVERS]}:
            return False
        earlier = attrs.evolve(self, topic=before["topic"], mapping=before["mapping"])  # type: ignore[misc]
        return all(earlier.topic_of(table) == self.topic_of(table) for table in tables)

    def writer(self, concurrency: int, name: str = "") -> Any:
        """The writer of messages, which writes all tables at once."""
        del concurrency
        return import_object("kdsl.ingest.run.sinks.kafka:KafkaWriter")(self, self.cluster, name)

    def describe(self) -> Iterator[str]:
        """Yield the cluster, topics, formats, partitions and delivery, and the other options, with secrets hidden."""
        key = "json" if self.key is None else self.key.identifier
        where = f"topic {self.topic}" if self.topic else "topics by mapping" if self.mapping else "topics by table id"
        yield " ".join(["kafka", *(f"({self.name})" for _ in [0] if self.name), self.cluster.label, where])
        partition = "partition 0" if self.partition_strategy == "all-to-zero" else "partitions by key"
        yield f"  {self.value.identifier}, key {key}, {partition}, {self.delivery}"
        shown = {"topic", "value.format", "key.format", "name", "partition.strategy", "sink.delivery-guarantee"}
        shown |= {f"{PROPERTIES}{SERVERS}"}
        yield from (f"  {key} = {text}" for key, text in self.write().items() if key not in shown)


TOPIC_FIX = f"write a name of at most {MAX_TOPIC} letters, digits, '.', '_' and '-'"
"""What to write instead of what `wrong_topic` refuses."""


def wrong_topic(name: str) -> str | None:
    """Why a string cannot be the name of a topic; None if it can."""
    if len(name) > MAX_TOPIC:
        return f"the topic {name[:20] + '…'!r} has {len(name)} characters, and Kafka allows {MAX_TOPIC}"
    if name in (".", "..") or not TOPIC_NAME.fullmatch(name):
        return f"the topic {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None
