"""The parts of Spark and of its JVM that have no public API in Python; no other package touches them."""

from __future__ import annotations
