"""Exactly-once writes as the driver sees them; what a task does is `kdsl.run.librdkafka.transactions`."""

from __future__ import annotations
