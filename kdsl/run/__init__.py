"""Run plans: everything that touches Spark, Kafka or a registry."""

from __future__ import annotations
