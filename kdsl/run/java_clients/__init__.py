"""Java's Kafka clients in a Spark session: their jars, their settings as Spark options, and system properties."""

from __future__ import annotations
