"""Records in Arrow batches: to the rows of a table and back. No broker, no Spark session."""

from __future__ import annotations
