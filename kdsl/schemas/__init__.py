"""Declares tables from schemas: of Avro, Protobuf and JSON, of a registry, of Flink DDL, and of a topic's records."""

from __future__ import annotations
