"""Base64 as Jackson reads it (``Base64Variants.MIME_NO_LINEFEEDS``), one value at a time."""

from __future__ import annotations

import base64
import re

_GROUP = re.compile(r"[\x00-\x20]*([A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/][A-Za-z0-9+/=]|==))")
_REST = re.compile(r"[\x00-\x20]*")


def parse_base64(text: str) -> bytes:
    """Decode padded base64, with blanks before each group of four and at the end; groups may follow a padded one."""
    if len(text) % 4 or "=" in text[:-2]:
        return _read_groups(text)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return _read_groups(text)


def _read_groups(text: str) -> bytes:
    """Decode groups of four letters, padded with ``=``, as Jackson does, with blanks as in `parse_base64`.

    An empty string gives no bytes.
    """
    parts, position = [], 0
    while match := _GROUP.match(text, position):
        parts.append(base64.b64decode(match[1]))
        position = match.end()
    if not _REST.fullmatch(text, position):
        raise ValueError("not base64")
    return b"".join(parts)
