"""Reads and writes of tables as Arrow batches in this process, without Spark and Java."""

from __future__ import annotations
