"""Leases: one writer per prefix of transactional ids, one reader per consumer group."""

from __future__ import annotations
