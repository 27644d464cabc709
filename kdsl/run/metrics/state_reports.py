"""How large the state of an upsert table is, as its buckets tell it.

A bucket that a batch touches gives one row, with how many keys and bytes it has kept (`kdsl.run.upsert.state`).
Spark's ``observe`` gathers them, and they stand in the progress of the query. Buckets that no record has touched since
the query was started say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBSERVED = "state"


@attrs.frozen
class BucketSize:
    """What one bucket keeps.

    Attributes:
        bucket: Its number.
        keys: How many keys are there.
        bytes: The bytes of their rows, as Spark's state has them.
    """

    bucket: int
    keys: int
    bytes: int


def observed_sizes(df: DataFrame, name: str) -> DataFrame:
    """The rows as they are, whose buckets' sizes Spark's progress tells under a name.

    Args:
        df: One row for each bucket that a batch has touched, with ``bucket``, ``keys`` and ``bytes``.
        name: The observation's name, unique in the query (`kdsl.run.metrics.source_reports.new_name`).
    """
    from pyspark.sql import functions as sf

    def total(place: int) -> str:
        return f"aggregate(buckets, 0L, (s, x) -> s + cast(split_part(x, ' ', {place}) as bigint))"

    # A set, for a batch that runs twice tells each bucket twice, and alike.
    told = ", ".join(f"cast({name} as string)" for name in ("bucket", "keys", "bytes"))
    gathered = f"collect_set(concat_ws(' ', {told}))"
    fields = f"'numKeysInState', {total(2)}, 'stateBytes', {total(3)}, 'buckets', buckets"
    made = f"transform(array({gathered}), buckets -> named_struct({fields}))[0]"
    return df.observe(name, sf.expr(made).alias(OBSERVED))


def read_sizes(told: Iterable[str]) -> Iterator[BucketSize]:
    """The sizes that an observation tells."""
    for text in told:
        yield BucketSize(*map(int, text.split()))
