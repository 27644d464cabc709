"""What messages look like that a binary format cannot read."""

from __future__ import annotations

import orjson

JSON_INSTEAD = "; the message looks like JSON, which is read with the format json"


def looks_like_json(message: bytes) -> bool:
    """Return whether a message is an object or array in JSON."""
    if message.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        orjson.loads(message)
    except ValueError:
        return False
    return True
