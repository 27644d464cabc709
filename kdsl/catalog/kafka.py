"""The catalog of a Kafka cluster: its topics as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

import attrs

from kdsl.catalog.inference import (
    find_subject,
    infer_key,
    infer_value,
    sample_topics,
)
from kdsl.catalog.options import OF_CLUSTER, REGISTRY_FORMATS, CatalogKeywords, CatalogOptions
from kdsl.catalog.stored import Inference, keep_with
from kdsl.catalog.topic_schema import SideSchema, TopicSchema
from kdsl.cluster import SERVERS, Cluster, Registry
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.definition import ColumnDef, Inferred, TableDef
from kdsl.diagnostics.clients import open_admin
from kdsl.errors import InferenceError, Problem, TopicMissingError, fail_on, nearest
from kdsl.formats import Format
from kdsl.schemas.topic import is_compacted
from kdsl.table import Table
from kdsl.types import model as t

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POSITION = (
    ColumnDef("partition", t.Int(nullable=False), "metadata", virtual=True),
    ColumnDef("offset", t.BigInt(nullable=False), "metadata", virtual=True),
    ColumnDef("timestamp", t.TimestampLtz(3, nullable=False), "metadata", virtual=True),
)
"""The metadata columns of each table."""
_PRIMARY_KEY = ("partition", "offset")
_JSON = "json"


class KafkaCatalog:
    """The topics of a Kafka cluster as tables, whose columns are inferred when a table is first asked for.

    ```python
    shop = KafkaCatalog("shop", Cluster("localhost:9092"), format="json", sample=100)  # nothing is read yet
    shop.tables()
    orders = shop.table("orders")
    print(orders.explain())
    df = orders.read_stream(spark)
    ```

    A table has the metadata columns ``partition``, ``offset`` and ``timestamp``, the first two as its primary key, and
    the columns of the message key and the message value with their prefixes (``key_`` and ``value_``). A compacted
    topic whose records have keys is an upsert table, whose primary key is the message key.

    If only Java's client can log in to the cluster, it runs in the active Spark session, or in one that is started.

    Args:
        name: The name of the catalog.
        cluster: The cluster; if it has a schema registry, topics with a subject have the columns of their schemas.
        options: The options of `kdsl.catalog.options.CatalogOptions`, by their Python names.

    Raises:
        ResolveError: An option is unknown or has a wrong value, or options contradict each other.
    """

    def __init__(self, name: str, cluster: Cluster, **options: Unpack[CatalogKeywords]) -> None:
        """Check the options; nothing is read yet.

        Raises:
            ResolveError: An option is unknown or has a wrong value, or options contradict each other.
        """
        of_cluster = [key for key in options if key in OF_CLUSTER]
        problems = [
            Problem("option-unknown", f"a catalog has no argument {key!r}", "set it in the Cluster")
            for key in of_cluster
        ]
        fail_on(problems, f"the catalog {name!r}")
        self._initialize(name, cluster, CatalogOptions(**options))

    @classmethod
    def of_options(cls, name: str, cluster: Cluster, options: CatalogOptions) -> Self:
        """A catalog with options as a value.

        Args:
            name: The name of the catalog.
            cluster: The cluster.
            options: The options.

        Raises:
            ResolveError: An option is unknown or has a wrong value, or options contradict each other.
        """
        self = cls.__new__(cls)
        self._initialize(name, cluster, options)
        return self

    def _initialize(self, name: str, cluster: Cluster, options: CatalogOptions) -> None:
        """Set the attributes, for both constructors; ResolveError as in `of_options`."""
        self.name, self.cluster, self.options = name, cluster, options
        self._inference = Inference()
        fail_on([*options.problems(), *options.check()], f"the catalog {name!r}")

    def __repr__(self) -> str:
        return f"KafkaCatalog({self.name!r}, {self.cluster!r})"

    def tables(self) -> list[str]:
        """The names of the tables: the topics that this user may see, sorted, without Kafka's own.

        Raises:
            KafkaReadError: The brokers refuse, or cannot be reached.
            ResolveError: The client settings of the cluster have errors.
        """
        return sorted(open_admin(self.cluster, f"the catalog {self.name}").names())

    def table(
        self, name: str, *, checkpoint: str | None = None, spark: SparkSession | None = None, adopt: bool = False
    ) -> Table:
        """The table of a topic.

        Its columns are inferred the first time, and stay as they are until `refresh`.

        Args:
            name: The topic.
            checkpoint: The folder of the checkpoint of the query that reads the table. The columns are stored there,
                and a restart has them again, whatever the topic's newest records show by then. What this catalog has
                inferred without a checkpoint does not count.
            spark: The session, with which the folder is read and written.
            adopt: Infer the columns anew, and replace those that the checkpoint has; ignored without a checkpoint.

        Raises:
            TopicMissingError: There is no such topic.
            InferenceError: The topic has no records to infer columns from, or they cannot be read; or the catalog's
                format needs a subject that is missing or has another format, or its schema does not describe columns.
            CheckpointError: The checkpoint has columns that were inferred for other options of the catalog, or cannot
                be read or written.
            KafkaReadError: The brokers refuse, or cannot be reached.
            RegistryError: The schema registry does not answer, or denies access.
            SecretError: A reference to a secret in the settings of the registry cannot be resolved.
            ResolveError: A column of the message has the name of another column, or the client settings of the cluster
                or its registry have errors.
            TypeError: A checkpoint is given without a session.
        """
        if checkpoint is None:
            return self.connect(self.definition(name, self._inference))
        with keep_with(checkpoint, spark, adopt=adopt) as inference:
            return self.connect(self.definition(name, inference))

    def refresh(self, name: str) -> Table:
        """The table of a topic, inferred anew from its newest records or its latest schemas, not from a checkpoint.

        Raises:
            KdslError: As for `table`.
        """
        self._inference.forget(self.full_name(name))
        return self.table(name)

    def full_name(self, name: str) -> str:
        """The name of a table with those of the catalog and its database."""
        return f"{self.name}.{self.options.valid().default_database}.{name}"

    def definition(self, name: str, inference: Inference) -> TableDef:
        """The definition of a topic's table, without client properties and the address of the registry.

        The columns are inferred from the brokers or the registry, and added to `inference`, if that does not have them.

        Args:
            name: The topic.
            inference: What was inferred before, or is stored with a checkpoint.

        Raises:
            KdslError: As for `table`.
        """
        declared = {"topic": name, **self.options.about_inference()}
        schema = inference.schema(self.full_name(name), declared, lambda: self._infer(name))
        return define_table(name, schema, self.options)

    def connect(self, definition: TableDef) -> Table:
        """A table with the cluster's bootstrap servers and client properties in place of its own, and its registry.

        It is not checked, and nothing connects yet.
        """
        cluster = self.cluster
        properties = {**cluster.properties, SERVERS: cluster.bootstrap_servers}
        return Table(
            attrs.evolve(
                definition,
                properties=properties,
                key_format=_with_registry(definition.key_format, cluster.registry),
                value_format=_with_registry(definition.value_format, cluster.registry),
            )
        )

    def _infer(self, topic: str) -> TopicSchema:
        """Infer the columns of a topic from its subjects in the registry, or else from its newest records.

        The key's subject is used only if the value's is; a key without a subject is inferred from records, which are
        read in any case. If the catalog's format is one without registered schemas, such as json, no subject is used.
        """
        options, cluster = self.options.valid(), self.cluster
        if topic not in open_admin(cluster, topic).topics([topic]):
            names = self.tables()
            raise TopicMissingError(
                f"the catalog {self.name!r} has no table {topic!r}{nearest(topic, names)}: the cluster "
                f"{cluster.bootstrap_servers} has no such topic"
            )
        value, sources = self._find_value_subject(topic)
        key: SideSchema | None = None
        notes: tuple[str, ...] = ()
        sample = sample_topics(
            TableDef(topic, (), options=KafkaOptions(topic=(topic,))),
            cluster,
            options.sample,
            options.timeout.total_seconds(),
        )
        if value is None:
            value, notes = infer_value(sample, self.options.format_of_records(), f"the topic {topic!r}")
            sources = [sample.source]
        registered_key = self._find_key_subject(topic) if sources != [sample.source] else None
        if registered_key is not None:
            key, subject = registered_key
            sources.insert(0, subject)
        else:
            key, key_notes = infer_key(sample, self.options.format_of_records(_JSON), options.key_column)
            notes = (*key_notes, *notes)
            if key is not None and sources != [sample.source]:
                sources.insert(0, f"{sample.source} (the key)")
        keyed = key is not None and sample.keys.null_count == 0
        upserts = (
            keyed
            and value.format.insert_only
            and options.compacted_as_upsert
            and is_compacted(topic, cluster, "catalog")
        )
        return TopicSchema(value, key, upserts, ", ".join(sources), notes)

    def _find_value_subject(self, topic: str) -> tuple[SideSchema | None, list[str]]:
        """Look up the value's columns in the registry; return them, and the subject in words in a list.

        None and an empty list where columns are to be inferred from records: the format has no schemas, or none is
        chosen and there is no registry or subject.
        """
        chosen, registry = self.options.valid().format, self.cluster.registry
        if chosen is not None and chosen not in REGISTRY_FORMATS:
            return None, []
        if registry is None:
            if chosen is None:
                return None, []
            raise InferenceError(
                f"the catalog {self.name!r} has the format {chosen!r}, and its cluster has no schema registry; pass "
                "Cluster(…, registry='http://HOST:PORT'), in SQL 'schema-registry.url'"
            )
        side = find_subject(registry, topic, "value")
        if side is None:
            if chosen is None:
                return None, []
            raise InferenceError(
                f"the registry {registry.url} has no subject {f'{topic}-value'!r}, which the table needs because the "
                f"catalog {self.name!r} has the format {chosen!r}; remove the format, or take this topic from a "
                "catalog with the format 'json'"
            )
        if chosen is not None and side[0].format.identifier != chosen:
            raise InferenceError(
                f"the schema of the subject {f'{topic}-value'!r} is of the format {side[0].format.identifier!r}, and "
                f"the catalog {self.name!r} has the format {chosen!r}; remove the format"
            )
        return side[0], [f"the subject {side[1]}"]

    def _find_key_subject(self, topic: str) -> tuple[SideSchema, str] | None:
        """The key's columns by its subject, and the subject in words.

        None where there is none, or its schema has no columns or is one of change data.
        """
        if self.cluster.registry is None:
            return None
        try:
            side = find_subject(self.cluster.registry, topic, "key")
        except InferenceError:  # a schema of a string or a number: the bytes of the key are one column
            return None
        return None if side is None or not side[0].format.insert_only else (side[0], f"the subject {side[1]}")


def define_table(topic: str, schema: TopicSchema, options: CatalogOptions) -> TableDef:
    """The table of a topic, from what was inferred: columns of the place, the key and the value.

    If it upserts, the key is the primary key.

    Args:
        topic: The topic.
        schema: What was inferred.
        options: The options of the catalog.

    Raises:
        ResolveError: A column of the message has the name of another column.
    """
    chosen = options.valid()
    key = () if schema.key is None else schema.key.columns
    key_columns = tuple(
        ColumnDef(chosen.key_prefix + f.name, f.type, key=not schema.upserts, comment=f.comment) for f in key
    )
    value_columns = tuple(
        ColumnDef(chosen.value_prefix + f.name, f.type, comment=f.comment) for f in schema.value.columns
    )
    columns = (*POSITION, *key_columns, *value_columns)
    names = [c.name for c in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems = (
        Problem(
            "catalog-column",
            f"the messages of the topic {topic!r} give a column {name!r}, and the table has another one of this name",
            "choose other prefixes with 'key.fields-prefix' and 'value.fields-prefix' (key_prefix=, value_prefix=)",
        )
        for name in twice
    )
    fail_on(problems, f"the table {topic!r}")
    kind = UpsertOptions if schema.upserts else KafkaOptions
    arguments = {"topic": (topic,), "value_prefix": chosen.value_prefix}
    if key:
        arguments |= {"key_prefix": chosen.key_prefix, "value_fields": "EXCEPT_KEY"}
    if not schema.upserts:
        arguments["startup"] = chosen.startup
    return TableDef(
        name=topic,
        columns=columns,
        options=kind(**arguments),  # type: ignore[arg-type]
        key_format=None if schema.key is None else schema.key.format,
        value_format=schema.value.format,
        primary_key=tuple(c.name for c in key_columns) if schema.upserts else _PRIMARY_KEY,
        inferred=Inferred(tuple(c.name for c in (*key_columns, *value_columns)), schema.source, schema.notes),
    )


def _with_registry(chosen: Format | None, registry: Registry | None) -> Format | None:
    """A format that needs a registry with the address and login of this one, in place of its own.

    Other formats are returned as they are, and all if there is no registry.
    """
    if chosen is None or registry is None or not chosen.needs_registry:
        return chosen
    return attrs.evolve(chosen, url=registry.url, properties=registry.properties)  # type: ignore[misc]
