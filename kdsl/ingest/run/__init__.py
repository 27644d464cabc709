"""Runs ingestions on Spark: one streaming query, whose batches are divided by table, decided, and written."""

from __future__ import annotations
