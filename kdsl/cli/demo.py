"""``kdsl demo``: orders flow from a real Kafka through Spark into another topic."""

from __future__ import annotations


def demo() -> None:
    """Start a Kafka, let orders flow from one topic through Spark into another, read them back, stop the Kafka.

    The first time Kafka is downloaded. Exits with 1 if it cannot be downloaded or started, or the job fails.
    """
    from kdsl.demo import run

    run()
