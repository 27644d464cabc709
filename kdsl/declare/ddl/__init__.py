"""Flink's DDL: statements read from text, as values."""

from __future__ import annotations
