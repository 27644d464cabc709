"""Kafka client settings: users write the names of Java's clients, and both transports follow them.

`settings` is the table of all settings. `to_librdkafka` translates properties for librdkafka, `to_java` for Java's
clients, and `kdsl_settings` reads the settings that kdsl keeps for itself. All of them are pure: a process that creates
a client passes a function that resolves references to secrets.
"""

from __future__ import annotations
