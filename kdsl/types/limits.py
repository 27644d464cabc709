"""How large a schema from elsewhere may be.

A schema of a few kilobytes can describe more members than fit into memory: a record with two members of one record
type, which has two members of another one, and so on, doubles with each level. The types of such a schema are counted
while it is read, and it is refused with the limit in the message.
"""

from __future__ import annotations

from typing import Final

MAX_TYPES: Final = 100_000
"""How many types a schema may have; the types inside a named type count at each use of it."""
MAX_DEPTH: Final = 100
"""How many levels deep the types of a schema may be nested; also Protobuf's own limit for messages."""
