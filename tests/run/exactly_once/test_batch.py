"""Writes of a ``foreachBatch`` as the driver judges them, without Spark and Kafka."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from kdsl.run.exactly_once import batch as batches
from kdsl.run.exactly_once.batch import LastWrite, ids_of_previous_batch, must_have_token
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


@pytest.mark.parametrize(
    ("batch", "done_before", "age", "expected"),
    [
        (0, False, 50, False),  # nothing need be written yet
        (0, False, 150, True),  # the brokers may have forgotten the token since
        (3, False, 50, True),  # another run has started the batch
        (3, True, 500, False),  # the first write under a new write_id
    ],
)
def test_a_token_is_missed_where_it_may_have_been_there(
    batch: int, done_before: bool, age: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "token_admin_of", lambda *_: None)
    monkeypatch.setattr(batches, "read_limits", lambda *_: (60_000, 100.0))
    query: Any = SimpleNamespace(has_done_batch_before=lambda _: done_before)
    checkpoint: Any = SimpleNamespace(read_planned_time=lambda _: time.time() - age)
    plan: Any = SimpleNamespace(table="Orders")
    cluster: Any = SimpleNamespace(kdsl_settings=SimpleNamespace(transaction_timeout_ms=None))

    assert must_have_token(query, checkpoint, plan, cluster, batch) == expected
