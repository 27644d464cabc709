"""Kafka client settings: users write Java's names, both transports obey.

`settings` is the table, `translate` turns properties into librdkafka's, `java` into those of Java's clients, and
`connector` reads what is kdsl's own. All of them are pure: references to secrets are resolved by a function that the
process hands in, when it makes a client.
"""

from __future__ import annotations
