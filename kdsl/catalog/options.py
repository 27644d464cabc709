"""The options of a catalog, each declared once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Literal, TypedDict

from kdsl.catalog.inference import RECORDS, TIMEOUT
from kdsl.client_settings.properties import Properties, Value
from kdsl.errors import Problem
from kdsl.formats import Format, format_class
from kdsl.options import Options, option

REGISTRY_FORMATS = ("avro-confluent", "debezium-avro-confluent", "json-schema-confluent", "protobuf-confluent")
CatalogFormat = Literal[
    "json",
    "debezium-json",
    "canal-json",
    "avro-confluent",
    "debezium-avro-confluent",
    "json-schema-confluent",
    "protobuf-confluent",
]
CatalogStart = Literal["earliest-offset", "latest-offset", "group-offsets"]
OF_CLUSTER = ("type", "properties", "registry", "registry_properties")
"""The options that SQL has only: in Python the cluster says this."""
CLOUD_API = "aliyun.kafka."


class CatalogOptions(Options):
    """The topics of a Kafka cluster as tables, whose columns need not be declared."""

    title = "a catalog of the type 'kafka'"

    type: Literal["kafka"] = option("type", "The type of the catalog.", default="kafka")
    format: CatalogFormat | None = option(
        "format",
        "The format of the message values. By default it is that of the topic's subject in the schema registry, where "
        "there is one, and json.",
        default=None,
    )
    default_database: str = option(
        "default-database",
        "The name of the one database of the catalog. Kafka has none, and SQL has names of three parts.",
        default="kafka",
        check=lambda v: None if v else "write a name, or remove the option",
    )
    key_prefix: str = option("key.fields-prefix", "A prefix of the columns of the message key.", default="key_")
    value_prefix: str = option(
        "value.fields-prefix",
        "A prefix of the columns of the message value; neither prefix may begin with the other.",
        default="value_",
    )
    timestamp_format: Literal["SQL", "ISO-8601"] = option(
        "timestamp-format.standard",
        "The form of timestamps in JSON that is tried first: 2024-05-01 12:30:00.123 (SQL) or 2024-05-01T12:30:00.123 "
        "(ISO-8601).",
        default="SQL",
    )
    flatten: bool = option(
        "infer-schema.flatten-nested-columns.enable",
        "Whether the members of objects in JSON become columns, named by their path (`a.b`); otherwise an object is a "
        "STRING with its JSON.",
        default=False,
    )
    primitive_as_string: bool = option(
        "infer-schema.primitive-as-string",
        "Whether every number, boolean and string in JSON becomes a STRING, written as in the message.",
        default=False,
    )
    key_column: str = option(
        "infer-schema.parse-key-error.field-name",
        "The column of the bytes of keys that are not JSON, without the prefix of the key.",
        default="col",
        check=lambda v: None if v else "write a name, or remove the option",
    )
    compacted_as_upsert: bool = option(
        "infer-schema.compacted-topic-as-upsert-table",
        "Whether a compacted topic whose records have keys is an upsert table, whose primary key is the message key.",
        default=True,
    )
    sample: int = option(
        "max.fetch.records",
        "How many records columns are inferred from: the newest ones of each partition.",
        default=RECORDS,
        check=lambda v: None if v > 0 else "use an integer from 1",
    )
    timeout: timedelta = option(
        "fetch.timeout",
        "How long it may take to read these records.",
        default=timedelta(seconds=TIMEOUT),
        check=lambda v: None if v > timedelta(0) else "use a duration longer than 0",
    )
    startup: CatalogStart = option(
        "scan.startup.mode",
        "Where a read of a table starts that has no checkpoint; `start_at=`, and in SQL a hint, starts it elsewhere.",
        default="earliest-offset",
        ignore_case=True,
    )
    properties: Mapping[str, Value] = option(
        "properties.*",
        "Settings of the Kafka client by Java's names; `properties.bootstrap.servers` are the brokers.",
        default=Properties(),
    )
    registry: str | None = option(
        "schema-registry.url",
        "The address of the schema registry; that of the cluster by default.",
        default=None,
        secret="address",  # noqa: S106
    )
    registry_properties: Mapping[str, Value] = option(
        "schema-registry.properties.*", "Settings of the registry's client by Java's names.", default=Properties()
    )

    def check(self) -> Iterable[Problem]:
        """The problems of combinations of the options: prefixes, and settings of a registry without its address."""
        valid = self.valid()
        key, value = valid.key_prefix, valid.value_prefix
        if key and value and (key.startswith(value) or value.startswith(key)):
            message = f"the prefixes {key!r} and {value!r} begin with one another, so a column's name does not tell "
            message += "whether it is in the key"
            fix = "choose prefixes with different first characters"
            yield Problem("catalog-prefix", message, fix, option="value.fields-prefix")
        if valid.registry is None and valid.registry_properties:
            message = "'schema-registry.properties.*' has no effect without 'schema-registry.url'"
            fix = "add 'schema-registry.url', or remove them"
            yield Problem("catalog-registry", message, fix, option="schema-registry.url")

    def format_of_records(self, identifier: str | None = None) -> Format:
        """A format whose columns are inferred from records, with the options about timestamps and inference it has.

        Args:
            identifier: Its name; by default that of the catalog's format, or json.
        """
        chosen = self.valid()
        wanted = {
            "timestamp-format.standard": chosen.timestamp_format,
            "infer-schema.flatten-nested-columns.enable": str(chosen.flatten).lower(),
            "infer-schema.primitive-as-string": str(chosen.primitive_as_string).lower(),
        }
        of_format = format_class(identifier or chosen.format or "json")
        known = {a.metadata["key"] for a in of_format.declarations()}
        return of_format.from_strings({key: text for key, text in wanted.items() if key in known})

    def about_inference(self) -> dict[str, str]:
        """The options that what is inferred depends on, by their keys; defaults are left out.

        How many records are read, and for how long, does not count.
        """
        names = ("format", "key_prefix", "value_prefix", "timestamp_format", "flatten", "primitive_as_string")
        chosen = CatalogOptions(**{name: getattr(self, name) for name in (*names, "key_column", "compacted_as_upsert")})
        return chosen.to_strings()


def cloud_api_problem(key: str) -> Problem | None:
    """The problem of an option that begins with ``aliyun.kafka.``, the API of a cloud service; None for other keys."""
    if not key.startswith(CLOUD_API):
        return None
    message = f"{key!r} is for the API of a cloud service, to delete the consumer groups that another product's "
    message += "catalog creates"
    return Problem(
        "catalog-cloud-api", message, "remove it: kdsl creates no consumer group to look at records", option=key
    )


class CatalogKeywords(TypedDict, total=False):
    """The arguments of `kdsl.KafkaCatalog` besides its name and its cluster; see `CatalogOptions`."""

    format: CatalogFormat | None
    default_database: str
    key_prefix: str
    value_prefix: str
    timestamp_format: Literal["SQL", "ISO-8601"]
    flatten: bool
    primitive_as_string: bool
    key_column: str
    compacted_as_upsert: bool
    sample: int
    timeout: timedelta
    startup: CatalogStart
