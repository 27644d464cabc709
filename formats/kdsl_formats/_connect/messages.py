"""Messages that contain their schema, as Kafka Connect's JsonConverter writes them: ``{"schema":…,"payload":…}``."""

from __future__ import annotations

from typing import Any

import orjson

_BEFORE, _BETWEEN = b'{"schema":', b',"payload":'


def split_head(message: bytes) -> tuple[bytes, Any] | None:
    """Return what a message begins with, up to its payload, and the schema in it.

    Returns:
        None unless the schema and the payload are the first members, without blanks, and the schema is JSON.
    """
    end = message.find(_BETWEEN)
    if end < 0 or not message.startswith(_BEFORE):
        return None
    try:
        schema = orjson.loads(message[len(_BEFORE) : end])
    except ValueError:
        return None
    return message[: end + len(_BETWEEN)], schema


def head_of(message: bytes) -> bytes | None:
    """Return what a message begins with, up to its payload; None as for `split_head`."""
    split = split_head(message)
    return None if split is None else split[0]


def schema_in(message: bytes) -> Any:
    """Return the schema inside a message; None if it has none, or is not a JSON object."""
    try:
        document = orjson.loads(message)
    except ValueError:
        return None
    return document.get("schema") if isinstance(document, dict) else None
