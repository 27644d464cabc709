"""Flink SQL queries as Spark SQL: SELECT, joins, groups, windows, and groups of changelogs."""

from __future__ import annotations
