"""The connectors that a ``WITH`` clause or a document can name, and where each can be used."""

from __future__ import annotations

from typing import Literal

import attrs

Availability = Literal["topic", "script", "later"]


@attrs.frozen
class Connector:
    """A connector.

    Attributes:
        name: Its name.
        use: ``"topic"``: its tables are topics. ``"script"``: its tables can only be used in SQL scripts. ``"later"``:
            Flink has it, but kdsl does not support it yet.
        instead: What to write instead, for a connector that cannot be used everywhere.
    """

    name: str
    use: Availability
    instead: str = ""


_SCRIPT = "run the file with `kdsl run`; a table by itself has the connector 'kafka' or 'upsert-kafka'"
CONNECTORS = {
    c.name: c
    for c in (
        Connector("kafka", "topic"),
        Connector("upsert-kafka", "topic"),
        Connector(
            "dynamic-kafka",
            "later",
            "declare a table of the connector 'kafka' for each cluster, with its 'properties.bootstrap.servers' and "
            "'topic', and read them with UNION ALL",
        ),
        Connector("print", "script", _SCRIPT),
        Connector("blackhole", "script", _SCRIPT),
        Connector("datagen", "script", _SCRIPT),
    )
}
"""All connectors by name. Each is added here, and read where its use says: topics by `kdsl.declare.with_clause`."""

NAMES = tuple(name for name, c in CONNECTORS.items() if c.use != "later")

AVAILABLE = (
    "kdsl has 'kafka' and 'upsert-kafka', and in scripts that `kdsl run` runs also 'print', 'blackhole' and 'datagen'; "
    "other systems are read and written with Spark's own connectors, in Python"
)
"""What to use instead of a connector that does not exist."""
