"""What stands in a checkpoint: Spark's offset log, and what kdsl keeps beside it."""

from __future__ import annotations
