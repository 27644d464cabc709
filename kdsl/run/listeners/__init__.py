"""Queries that run: what watches them on the driver."""

from __future__ import annotations
