"""Kafka tables for PySpark: declare a topic once as a typed class; read it and write it.

The names below are imported when they are first used, so that ``import kdsl`` is cheap, also in executors.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdsl.builders.offsets import (
        OffsetResetStrategy as OffsetResetStrategy,
        OffsetsInitializer as OffsetsInitializer,
    )
    from kdsl.builders.records import KafkaRecordDeserializationSchema as KafkaRecordDeserializationSchema
    from kdsl.builders.schemas import FormatSchema as FormatSchema, SimpleStringSchema as SimpleStringSchema
    from kdsl.builders.serializers import KafkaRecordSerializationSchema as KafkaRecordSerializationSchema
    from kdsl.builders.sink import DeliveryGuarantee as DeliveryGuarantee, KafkaSink as KafkaSink
    from kdsl.builders.source import KafkaSource as KafkaSource
    from kdsl.changelog.changes import Changelog as Changelog
    from kdsl.changelog.target import ChangelogError as ChangelogError
    from kdsl.cluster import Cluster as Cluster, Registry as Registry
    from kdsl.declare.classes.columns import (
        Col as Col,
        Header as Header,
        Headers as Headers,
        Key as Key,
        KeyField as KeyField,
        Metadata as Metadata,
        PrimaryKey as PrimaryKey,
        Virtual as Virtual,
        col as col,
        metadata as metadata,
        virtual as virtual,
    )
    from kdsl.declare.classes.computed import (
        as_value as as_value,
        computed as computed,
        expression as expression,
    )
    from kdsl.declare.classes.ref import (
        Ref as Ref,
        ref as ref,
    )
    from kdsl.declare.classes.rows import row_kind as row_kind, with_row_kind as with_row_kind
    from kdsl.declare.classes.table import KafkaTable as KafkaTable, UpsertTable as UpsertTable
    from kdsl.errors import (
        KdslError as KdslError,
        Problem as Problem,
        RecordError as RecordError,
        ResolveError as ResolveError,
        Where as Where,
    )
    from kdsl.formats import ROW_KIND as ROW_KIND, Format as Format
    from kdsl.offsets import OffsetsRetriever as OffsetsRetriever
    from kdsl.options import option as option
    from kdsl.partitioner import PartitionerInput as PartitionerInput
    from kdsl.run.checkpoint.kept import CheckpointError as CheckpointError
    from kdsl.run.cluster.errors import (
        KafkaReadError as KafkaReadError,
        OffsetError as OffsetError,
        TopicMissingError as TopicMissingError,
        TopicRecreatedError as TopicRecreatedError,
        UnreachableError as UnreachableError,
    )
    from kdsl.run.cluster.lease import LeaseHeldError as LeaseHeldError
    from kdsl.run.frames.rows import RowError as RowError
    from kdsl.run.librdkafka.transactions.token import ExactlyOnceError as ExactlyOnceError
    from kdsl.run.metrics.model import (
        QueryMetrics as QueryMetrics,
        SinkMetrics as SinkMetrics,
        SourceMetrics as SourceMetrics,
    )
    from kdsl.run.metrics.observer import metrics as metrics
    from kdsl.run.metrics.prometheus import MetricsServer as MetricsServer, serve_metrics as serve_metrics
    from kdsl.run.write import WriteError as WriteError
    from kdsl.secrets import SecretError as SecretError
    from kdsl.table import Table as Table, load_sql as load_sql, load_tables as load_tables, sql as sql
    from kdsl.types.python import (
        Float32 as Float32,
        Float64 as Float64,
        Int8 as Int8,
        Int16 as Int16,
        Int32 as Int32,
        Int64 as Int64,
        Named as Named,
        TimestampLtz as TimestampLtz,
        TimestampNtz as TimestampNtz,
        sql_type as sql_type,
    )
    from kdsl_formats.avro import Avro as Avro
    from kdsl_formats.avro_confluent import AvroConfluent as AvroConfluent
    from kdsl_formats.cdc_json import (
        CanalJson as CanalJson,
        DebeziumJson as DebeziumJson,
        MaxwellJson as MaxwellJson,
        OggJson as OggJson,
    )
    from kdsl_formats.csv import Csv as Csv
    from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent as DebeziumAvroConfluent
    from kdsl_formats.json import Json as Json
    from kdsl_formats.protobuf import Protobuf as Protobuf, ProtobufConfluent as ProtobufConfluent
    from kdsl_formats.raw import Raw as Raw

# The same names as above and below; a test holds them equal.
_PUBLIC = {
    "Avro": "kdsl_formats.avro",
    "AvroConfluent": "kdsl_formats.avro_confluent",
    "CanalJson": "kdsl_formats.cdc_json",
    "Changelog": "kdsl.changelog.changes",
    "ChangelogError": "kdsl.changelog.target",
    "CheckpointError": "kdsl.run.checkpoint.kept",
    "Cluster": "kdsl.cluster",
    "Col": "kdsl.declare.classes.columns",
    "Csv": "kdsl_formats.csv",
    "DebeziumAvroConfluent": "kdsl_formats.debezium_avro_confluent",
    "DebeziumJson": "kdsl_formats.cdc_json",
    "DeliveryGuarantee": "kdsl.builders.sink",
    "ExactlyOnceError": "kdsl.run.librdkafka.transactions.token",
    "Float32": "kdsl.types.python",
    "Float64": "kdsl.types.python",
    "Format": "kdsl.formats",
    "FormatSchema": "kdsl.builders.schemas",
    "Header": "kdsl.declare.classes.columns",
    "Headers": "kdsl.declare.classes.columns",
    "Int16": "kdsl.types.python",
    "Int32": "kdsl.types.python",
    "Int64": "kdsl.types.python",
    "Int8": "kdsl.types.python",
    "Json": "kdsl_formats.json",
    "KafkaReadError": "kdsl.run.cluster.errors",
    "KafkaRecordDeserializationSchema": "kdsl.builders.records",
    "KafkaRecordSerializationSchema": "kdsl.builders.serializers",
    "KafkaSink": "kdsl.builders.sink",
    "KafkaSource": "kdsl.builders.source",
    "KafkaTable": "kdsl.declare.classes.table",
    "UpsertTable": "kdsl.declare.classes.table",
    "KdslError": "kdsl.errors",
    "Key": "kdsl.declare.classes.columns",
    "KeyField": "kdsl.declare.classes.columns",
    "LeaseHeldError": "kdsl.run.cluster.lease",
    "MaxwellJson": "kdsl_formats.cdc_json",
    "Metadata": "kdsl.declare.classes.columns",
    "MetricsServer": "kdsl.run.metrics.prometheus",
    "Named": "kdsl.types.python",
    "OffsetError": "kdsl.run.cluster.errors",
    "OffsetResetStrategy": "kdsl.builders.offsets",
    "OffsetsInitializer": "kdsl.builders.offsets",
    "OffsetsRetriever": "kdsl.offsets",
    "OggJson": "kdsl_formats.cdc_json",
    "PartitionerInput": "kdsl.partitioner",
    "PrimaryKey": "kdsl.declare.classes.columns",
    "Problem": "kdsl.errors",
    "QueryMetrics": "kdsl.run.metrics.model",
    "ROW_KIND": "kdsl.formats",
    "Protobuf": "kdsl_formats.protobuf",
    "ProtobufConfluent": "kdsl_formats.protobuf",
    "Raw": "kdsl_formats.raw",
    "RecordError": "kdsl.errors",
    "Ref": "kdsl.declare.classes.ref",
    "Registry": "kdsl.cluster",
    "ResolveError": "kdsl.errors",
    "RowError": "kdsl.run.frames.rows",
    "SecretError": "kdsl.secrets",
    "SimpleStringSchema": "kdsl.builders.schemas",
    "SinkMetrics": "kdsl.run.metrics.model",
    "SourceMetrics": "kdsl.run.metrics.model",
    "Table": "kdsl.table",
    "TimestampLtz": "kdsl.types.python",
    "TimestampNtz": "kdsl.types.python",
    "TopicMissingError": "kdsl.run.cluster.errors",
    "TopicRecreatedError": "kdsl.run.cluster.errors",
    "UnreachableError": "kdsl.run.cluster.errors",
    "Virtual": "kdsl.declare.classes.columns",
    "Where": "kdsl.errors",
    "WriteError": "kdsl.run.write",
    "as_value": "kdsl.declare.classes.computed",
    "col": "kdsl.declare.classes.columns",
    "computed": "kdsl.declare.classes.computed",
    "expression": "kdsl.declare.classes.computed",
    "load_sql": "kdsl.table",
    "load_tables": "kdsl.table",
    "metadata": "kdsl.declare.classes.columns",
    "metrics": "kdsl.run.metrics.observer",
    "option": "kdsl.options",
    "ref": "kdsl.declare.classes.ref",
    "row_kind": "kdsl.declare.classes.rows",
    "serve_metrics": "kdsl.run.metrics.prometheus",
    "sql": "kdsl.table",
    "sql_type": "kdsl.types.python",
    "virtual": "kdsl.declare.classes.columns",
    "with_row_kind": "kdsl.declare.classes.rows",
}

__all__ = [
    "ROW_KIND",
    "Avro",
    "AvroConfluent",
    "CanalJson",
    "Changelog",
    "ChangelogError",
    "CheckpointError",
    "Cluster",
    "Col",
    "Csv",
    "DebeziumAvroConfluent",
    "DebeziumJson",
    "DeliveryGuarantee",
    "ExactlyOnceError",
    "Float32",
    "Float64",
    "Format",
    "FormatSchema",
    "Header",
    "Headers",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Json",
    "KafkaReadError",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaSink",
    "KafkaSource",
    "KafkaTable",
    "KdslError",
    "Key",
    "KeyField",
    "LeaseHeldError",
    "MaxwellJson",
    "Metadata",
    "MetricsServer",
    "Named",
    "OffsetError",
    "OffsetResetStrategy",
    "OffsetsInitializer",
    "OffsetsRetriever",
    "OggJson",
    "PartitionerInput",
    "PrimaryKey",
    "Problem",
    "Protobuf",
    "ProtobufConfluent",
    "QueryMetrics",
    "Raw",
    "RecordError",
    "Ref",
    "Registry",
    "ResolveError",
    "RowError",
    "SecretError",
    "SimpleStringSchema",
    "SinkMetrics",
    "SourceMetrics",
    "Table",
    "TimestampLtz",
    "TimestampNtz",
    "TopicMissingError",
    "TopicRecreatedError",
    "UnreachableError",
    "UpsertTable",
    "Virtual",
    "Where",
    "WriteError",
    "as_value",
    "col",
    "computed",
    "expression",
    "load_sql",
    "load_tables",
    "metadata",
    "metrics",
    "option",
    "ref",
    "row_kind",
    "serve_metrics",
    "sql",
    "sql_type",
    "virtual",
    "with_row_kind",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kdsl' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
