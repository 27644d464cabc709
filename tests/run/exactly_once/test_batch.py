"""Writes of a ``foreachBatch`` as the driver judges them, without Spark and Kafka."""

from __future__ import annotations

import attrs

from kdsl.run.exactly_once.batch import LastWrite, ids_of_previous_batch
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.librdkafka.transactions.token import Writer


def test_acquired_ids_are_valid_until_the_next_batch_of_the_same_run() -> None:
    spec = TransactionSpec(Writer("q1", "totals", "Orders"), "totals-1", 1, "orders", "abc", 60_000, 4)
    before, now = LastWrite("run 1", 4, rows=7, spec=spec), LastWrite("run 1", 5, rows=8)

    assert ids_of_previous_batch(before, now) is spec
    assert ids_of_previous_batch(None, now) is None
    assert ids_of_previous_batch(before, attrs.evolve(now, batch=6)) is None
    assert ids_of_previous_batch(before, attrs.evolve(now, run="run 2")) is None
    assert ids_of_previous_batch(attrs.evolve(before, spec=None), now) is None
