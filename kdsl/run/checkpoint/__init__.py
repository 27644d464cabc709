"""The contents of a checkpoint: Spark's offset log, and what kdsl stores next to it."""

from __future__ import annotations
