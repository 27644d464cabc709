"""Infers the columns that a declared table leaves out: declared columns stay, the others follow them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from kdsl.catalog.inference import RECORDS, TIMEOUT, infer_value, infers, sample_topics
from kdsl.catalog.stored import Inference, keep_with
from kdsl.catalog.topic_schema import SideSchema, TopicSchema
from kdsl.cluster import Cluster
from kdsl.declare.definition import ColumnDef, Inferred, TableDef
from kdsl.errors import InferenceError
from kdsl.formats import Format
from kdsl.resolve.keys import except_key, has_raw_value_alone, value_columns
from kdsl.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INFER = "infer-schema."


def leaves_columns_out(table: TableDef, options: Mapping[str, str]) -> bool:
    """Whether columns of a declared table are to be inferred: it declares none of the value, or sets options about it.

    Columns of the message key are columns of the value, too, unless the option ``value.fields-include`` excludes them.
    False where columns cannot be inferred from the value format, and where the raw value is the only column.

    Args:
        table: The table.
        options: The options of its ``WITH`` clause by their keys.
    """
    chosen = table.value_format
    if chosen is None or not infers(chosen) or has_raw_value_alone(table):
        return False
    prefixes = tuple(f"{side}{chosen.identifier}.{_INFER}" for side in ("", "value."))
    return any(key.startswith(prefixes) for key in options) or not value_columns(table)


def infer_columns(
    table: Table,
    cluster: Cluster | None = None,
    *,
    checkpoint: str | None = None,
    spark: SparkSession | None = None,
    adopt: bool = False,
) -> Table:
    """Read a declared table's newest records, and return the table with the columns that they show.

    ``infer_columns(kdsl.sql("CREATE TABLE orders WITH ('connector' = 'kafka', …)"), cluster).read_stream(spark)``

    The columns that the table declares stay, and come first. It is inferred from the newest records of each partition;
    if the checkpoint has columns, nothing is read. If only Java's client can log in, a Spark session may be started.

    Args:
        table: The table; its value format is one that columns can be inferred from, such as json.
        cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
        checkpoint: The folder of the checkpoint of the query that reads the table. The columns are stored there, and a
            restart has them again, whatever the topic's newest records show by then.
        spark: The session, with which the folder is read and written.
        adopt: Infer the columns anew, and replace those that the checkpoint has.

    Raises:
        InferenceError: The topic has no records to infer columns from, more than half of them cannot be read, or the
            table has no value format or one that columns cannot be inferred from.
        CheckpointError: The checkpoint has columns that were inferred for another declaration, or cannot be read or
            written.
        ResolveError: The brokers are not known, or the topics, the header filter or the client settings have errors.
        KafkaReadError: The brokers refuse, cannot be reached, do not answer in time, or the topic does not exist.
        TypeError: A checkpoint is given without a session.
    """
    with keep_with(checkpoint, spark, adopt=adopt) as inference:
        return Table(with_inferred_columns(table.definition, table.cluster(cluster), inference, table.name))


def with_inferred_columns(table: TableDef, cluster: Cluster, inference: Inference, name: str) -> TableDef:
    """The definition of a declared table with the columns that are inferred.

    They are inferred now, from the newest records, and added to `inference`, if that does not have them. A Spark
    session may be started, as by `sample_topics`.

    Args:
        table: The table.
        cluster: The cluster of its topics.
        inference: What was inferred before, or is stored with a checkpoint.
        name: The table's name in what is stored.

    Raises:
        InferenceError: The table has no value format, or columns cannot be inferred from it.
        KdslError: As for `infer_columns`; or the checkpoint has columns that were inferred for another declaration.
    """
    chosen = table.value_format
    if chosen is None or not infers(chosen):
        what = "it has no value format" if chosen is None else f"columns cannot be inferred from {chosen.title}"
        raise InferenceError(f"{table.name}: {what}; declare the columns, or use the format json")
    schema = inference.schema(name, _declaration(table, chosen), lambda: _infer(table, cluster, chosen))
    return add_columns(table, schema)


def _infer(table: TableDef, cluster: Cluster, chosen: Format) -> TopicSchema:
    """Infer the columns of a table's values from the newest records, perhaps in Spark as `sample_topics`."""
    sample = sample_topics(table, cluster, RECORDS, TIMEOUT)
    value, notes = infer_value(sample, chosen, table.name)
    return TopicSchema(SideSchema(chosen, value.columns), source=sample.source, notes=notes)


def _declaration(table: TableDef, chosen: Format) -> dict[str, str]:
    """What a declaration says about the inference: options by their keys, and the columns as one string."""
    options = table.options.valid().to_strings()
    about_columns = ("topic", "topic-pattern", "key.fields-prefix", "value.fields-prefix", "value.fields-include")
    declared = {key: options[key] for key in about_columns if key in options}
    declared |= {f"{chosen.identifier}.{key}": text for key, text in chosen.to_strings().items()}
    declared["value.format"] = chosen.identifier
    columns = (f"{c.name} {c.type}{'' if c.role == 'physical' else f' {c.role}'}" for c in table.columns)
    return declared | {"columns": ", ".join(columns)}


def add_columns(table: TableDef, schema: TopicSchema) -> TableDef:
    """The definition of a declared table with the columns of an inferred schema after its own.

    A member of the value whose column the table declares is left out; if that column is not one of the value, a note
    says so. The value format becomes one that reads the messages as they were observed.

    Args:
        table: The table.
        schema: What was inferred of its values.
    """
    prefix = table.options.valid().value_prefix
    taken = {c.name: c for c in table.columns}
    in_value = {c.name for c in table.physical if not (except_key(table) and c.name in table.message_key)}
    added, hidden = [], []
    for field in schema.value.columns:
        name = prefix + field.name
        if name not in taken:
            added.append(ColumnDef(name, field.type, comment=field.comment, where=table.where))
        elif name not in in_value:
            hidden.append(field.name)
    notes = tuple(
        f"the member {name!r} is not read: the table declares another column {prefix + name!r}" for name in hidden
    )
    columns = (*table.columns, *added)
    inferred = Inferred(tuple(c.name for c in added), schema.source, (*schema.notes, *notes))
    assert table.value_format is not None
    return attrs.evolve(table, columns=columns, value_format=table.value_format.reading_observed(), inferred=inferred)
