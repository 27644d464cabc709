"""``kdsl demo``: orders flow from a real Kafka through Spark into another topic."""

from __future__ import annotations


def demo() -> None:
    """Start a Kafka, let orders flow from one topic through Spark into another, read them back, stop the Kafka."""
    from kdsl.demo import run

    run()
