"""Kafka tables for PySpark: declare a topic once as a typed class; read it and write it."""

from __future__ import annotations
