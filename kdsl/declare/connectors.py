"""The connectors that a ``WITH`` clause or a document can name, and what each is for."""

from __future__ import annotations

from typing import Literal

import attrs

Use = Literal["topic", "script", "later"]


@attrs.frozen
class Connector:
    """A connector.

    Attributes:
        name: Its name.
        use: ``"topic"``: its tables are topics, and have all that a table has. ``"script"``: its tables only stand in
            scripts of SQL. ``"later"``: the reference has it, kdsl has it not yet.
        instead: Of one that is not there for all uses, what to write instead.
    """

    name: str
    use: Use
    instead: str = ""


_SCRIPT = "run the file with `kdsl run`; a table by itself has the connector 'kafka' or 'upsert-kafka'"
CONNECTORS = {
    c.name: c
    for c in (
        Connector("kafka", "topic"),
        Connector("upsert-kafka", "topic"),
        Connector("dynamic-kafka", "later", "name the topics of one cluster with the connector 'kafka'"),
        Connector("print", "script", _SCRIPT),
        Connector("blackhole", "script", _SCRIPT),
        Connector("datagen", "script", _SCRIPT),
    )
}
"""All connectors by name. Each is added here, and read where its use says: topics by `kdsl.declare.with_clause`."""

NAMES = tuple(name for name, c in CONNECTORS.items() if c.use != "later")
