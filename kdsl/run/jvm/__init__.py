"""The transport ``jvm``: the same plans over Spark's own Kafka connector, whose jars are attached at run time."""

from __future__ import annotations
