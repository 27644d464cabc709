"""The default transport: a Python data source of Spark over librdkafka, without jars."""

from __future__ import annotations
