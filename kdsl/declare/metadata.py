"""The metadata of a Kafka record that a column can show: keys, types when read, types when written.

Source: Flink's KafkaDynamicSource and KafkaDynamicSink (RULES section 10).
"""

from __future__ import annotations

import attrs

from kdsl.types import model as t

_HEADERS = t.Map(t.STRING.as_nullable(False), t.BYTES)
_HEADER_LIST = t.Array(
    t.Row((t.Field("key", t.STRING.as_nullable(False)), t.Field("value", t.BYTES)), nullable=False), nullable=False
)


@attrs.frozen
class MetadataKey:
    """A piece of metadata.

    Attributes:
        name: The name in ``METADATA FROM 'name'``.
        type: The type when read.
        writable: Whether a sink can write it; ``topic`` only where the table has several topics or a pattern.
        doc: What it is.
    """

    name: str
    type: t.DataType
    writable: bool
    doc: str


METADATA = {
    key.name: key
    for key in (
        MetadataKey("topic", t.STRING.as_nullable(False), True, "The record's topic."),
        MetadataKey("partition", t.Int(nullable=False), False, "The record's partition."),
        MetadataKey("headers", _HEADERS.as_nullable(False), True, "The headers; for a repeated key, the last one."),
        MetadataKey("header-list", _HEADER_LIST, True, "All headers in order, including repeated keys."),
        MetadataKey("leader-epoch", t.Int(), False, "The leader epoch of the record, if the broker reports it."),
        MetadataKey("offset", t.BigInt(nullable=False), False, "The record's offset in its partition."),
        MetadataKey("timestamp", t.TimestampLtz(3, nullable=False), True, "The record's timestamp, milliseconds."),
        MetadataKey(
            "timestamp-type",
            t.STRING.as_nullable(False),
            False,
            "What the timestamp is: NoTimestampType, CreateTime or LogAppendTime.",
        ),
        MetadataKey(
            "__raw_key__", t.BYTES, True, "The bytes of the message key. Written only by a table without a key format."
        ),
        MetadataKey(
            "__raw_value__",
            t.BYTES,
            True,
            "The bytes of the message value. Written only by a table without value columns, with no `format`.",
        ),
    )
}

IN_VALUE = "value."
"""The prefix of the keys of a value format's metadata (RULES MD-12)."""
RECORD_FIELDS = {
    "key": "__raw_key__",
    "value": "__raw_value__",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestamp_type": "timestamp-type",
    "headers": "header-list",
    "leader_epoch": "leader-epoch",
}
"""The fields of a raw record, with the metadata keys of the columns that show them."""
