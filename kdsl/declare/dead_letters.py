"""Where the records go that a table cannot read: the value of the argument ``dead_letters=``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.client_settings.properties import Properties, Value

NO_LIMIT = -1
"""The ``max_count`` of a table that may have any number of dead letters."""


@attrs.frozen(repr=False)
class DeadLetters:
    """A topic for the records that a table cannot read, which are then left out of its rows.

    A letter is the record with its key, value, headers and timestamp unchanged, and with headers that say where it
    was and why it was rejected. See docs/dead-letters.md.

    Args:
        topic: The topic of the letters. It must exist, and the table must not read it.
        max_count: How many letters a stream may write in all, and each action of a batch read; with more the read
            fails. -1 (the default) means any number.
        batch_reads: Whether batch reads write letters, too. By default (False) only streams do: each action on the
            DataFrame of a batch read (a ``count()``, a ``show()``) reads the records again, and would write their
            letters again. The records are left out of the rows in any case, and counted and logged.
        properties: Settings of the Kafka client that writes the letters, by the names that Kafka's Java client uses.
            With ``bootstrap.servers`` the topic is on that cluster, and the cluster of the table is not used; without
            it they override the settings of the table's cluster.
    """

    topic: str
    max_count: int = NO_LIMIT
    batch_reads: bool = attrs.field(default=False, kw_only=True)
    properties: Mapping[str, Value] = attrs.field(factory=dict)

    def options(self) -> dict[str, Any]:
        """The options of the connector for which this stands, by Python name.

        The topic and the greatest number are always among them, the others only where they are set.
        """
        return {
            "dead_letter_topic": self.topic,
            "dead_letter_max_count": self.max_count,
            **({"dead_letter_batch_reads": True} if self.batch_reads else {}),
            **({"dead_letter_properties": self.properties} if self.properties else {}),
        }

    def __repr__(self) -> str:
        """Return the arguments that are not the defaults, without the secrets among the properties."""
        limit = "" if self.max_count == NO_LIMIT else f", max_count={self.max_count!r}"
        batches = ", batch_reads=True" if self.batch_reads else ""
        properties = f", properties={Properties(self.properties).redact()!r}" if self.properties else ""
        return f"DeadLetters({self.topic!r}{limit}{batches}{properties})"
