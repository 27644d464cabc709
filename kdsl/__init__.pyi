"""The public names of kdsl, each with the module that defines it.

This file is the only list: type checkers read it, and `kdsl/__init__.py` imports from these modules on first use.
"""

from __future__ import annotations

from kdsl.callbacks import (
    KafkaTopicPartition as KafkaTopicPartition,
    OffsetsRetriever as OffsetsRetriever,
    PartitionerInput as PartitionerInput,
)
from kdsl.catalog.declared import infer_columns as infer_columns
from kdsl.catalog.kafka import KafkaCatalog as KafkaCatalog
from kdsl.changelog.changes import Changelog as Changelog
from kdsl.cluster import Cluster as Cluster, Registry as Registry
from kdsl.datastream.offsets import (
    KafkaOffsetResetStrategy as KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer as KafkaOffsetsInitializer,
    OffsetResetStrategy as OffsetResetStrategy,
    OffsetsInitializer as OffsetsInitializer,
)
from kdsl.datastream.records import KafkaRecordDeserializationSchema as KafkaRecordDeserializationSchema
from kdsl.datastream.schemas import FormatSchema as FormatSchema, SimpleStringSchema as SimpleStringSchema
from kdsl.datastream.serializers import KafkaRecordSerializationSchema as KafkaRecordSerializationSchema
from kdsl.datastream.sink import DeliveryGuarantee as DeliveryGuarantee, KafkaSink as KafkaSink
from kdsl.datastream.source import KafkaSource as KafkaSource
from kdsl.ddl.load import load_sql as load_sql, sql as sql
from kdsl.declare.dead_letters import DeadLetters as DeadLetters
from kdsl.declare.dsl.columns import (
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
from kdsl.declare.dsl.computed import (
    as_value as as_value,
    computed as computed,
    expression as expression,
)
from kdsl.declare.dsl.expectations import (
    Expectation as Expectation,
    expect as expect,
)
from kdsl.declare.dsl.ref import (
    Ref as Ref,
    ref as ref,
)
from kdsl.declare.dsl.relation import aliased as aliased
from kdsl.declare.dsl.rows import row_kind as row_kind, with_row_kind as with_row_kind
from kdsl.declare.start_and_end import Checkpoint as Checkpoint
from kdsl.declare.topic_settings import TopicSettings as TopicSettings
from kdsl.deployment.compare import apply as apply, diff as diff
from kdsl.deployment.model import Difference as Difference
from kdsl.deployment.result import Applied as Applied, Diff as Diff
from kdsl.errors import (
    ChangelogError as ChangelogError,
    CheckpointError as CheckpointError,
    DeadLetterError as DeadLetterError,
    ExactlyOnceError as ExactlyOnceError,
    InferenceError as InferenceError,
    KafkaReadError as KafkaReadError,
    KdslError as KdslError,
    LeaseHeldError as LeaseHeldError,
    OffsetError as OffsetError,
    Problem as Problem,
    RecordError as RecordError,
    ResolveError as ResolveError,
    RowError as RowError,
    SecretError as SecretError,
    TopicMissingError as TopicMissingError,
    TopicRecreatedError as TopicRecreatedError,
    UnreachableError as UnreachableError,
    Where as Where,
    WriteError as WriteError,
)
from kdsl.formats import ROW_KIND as ROW_KIND, Format as Format
from kdsl.kafka_table import KafkaTable as KafkaTable, UpsertTable as UpsertTable
from kdsl.options import option as option
from kdsl.run.arrow.batches import Batches as Batches
from kdsl.run.arrow.produce import ProduceResult as ProduceResult
from kdsl.run.metrics.model import (
    QueryMetrics as QueryMetrics,
    SinkMetrics as SinkMetrics,
    SourceMetrics as SourceMetrics,
)
from kdsl.run.metrics.observer import metrics as metrics
from kdsl.run.metrics.prometheus import MetricsServer as MetricsServer, serve_metrics as serve_metrics
from kdsl.table import Table as Table, load_tables as load_tables
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
from kdsl_formats.json_schema_confluent import JsonSchemaConfluent as JsonSchemaConfluent
from kdsl_formats.protobuf import Protobuf as Protobuf, ProtobufConfluent as ProtobufConfluent
from kdsl_formats.raw import Raw as Raw

__version__: str
"""The installed version of kdsl."""
