"""Flink SQL turned into Spark SQL: scalar expressions and whole queries, typed, with everything unknown refused."""

from __future__ import annotations
