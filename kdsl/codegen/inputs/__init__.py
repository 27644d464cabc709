"""What code is generated from: schemas of Avro, Protobuf and JSON, a registry, Flink DDL, a topic's records."""

from __future__ import annotations
