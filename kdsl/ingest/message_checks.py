"""What the bytes of single messages in JSON contain: names that no column can have, and Kafka Connect's schemas."""

from __future__ import annotations

import json
import re

import pyarrow as pa

from kdsl.own_columns import MARK

IMPOSSIBLE_NAME = re.compile(rb'(?i)\\ufdd0|""|' + re.escape(MARK.encode()))
"""`MARK` in a message of JSON, as it is or escaped, or an empty string."""
CONNECT_MEMBERS = ("payload", "schema")
"""The members of a message that Kafka Connect wrote with its schema, in order."""


def read_field_names(key: bytes) -> tuple[str, ...]:
    """The fields of a message key in JSON, with or without its schema; empty if it is something else."""
    try:
        document = json.loads(key)
    except (ValueError, RecursionError):
        return ()
    if isinstance(document, dict) and {*document} == {"schema", "payload"}:
        document = document["payload"]
    return tuple(document) if isinstance(document, dict) else ()


def may_have_impossible_names(messages: pa.BinaryArray) -> bool:
    """Whether the bytes of messages in JSON contain what a name that no column can have contains."""
    return any(IMPOSSIBLE_NAME.search(buffer) for buffer in messages.buffers()[2:] if buffer is not None)


def may_have_connect_schemas(messages: pa.BinaryArray) -> bool:
    """Whether the bytes of messages in JSON contain the names of the members that Connect writes."""
    buffers = [bytes(buffer) for buffer in messages.buffers()[2:] if buffer is not None]
    return all(any(b'"%s"' % name.encode() in data for data in buffers) for name in CONNECT_MEMBERS)


def has_connect_schema(message: bytes) -> bool:
    """Whether a message is a row with the schema that Kafka Connect writes with ``schemas.enable``."""
    try:
        document = json.loads(message)
    except ValueError:
        return False
    if not isinstance(document, dict) or sorted(document) != [*CONNECT_MEMBERS]:
        return False
    schema = document["schema"]
    return isinstance(schema, dict) and "type" in schema and "optional" in schema
