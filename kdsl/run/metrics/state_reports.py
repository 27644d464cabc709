"""The size of an upsert table's state, as reported by its buckets.

Each bucket that a batch changes gives one row with the number of its keys and bytes (`kdsl.run.upsert.processor`).
Spark's ``observe`` collects them, and they appear in the progress of the query. Buckets that have not changed since
the query was started are not reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

from kdsl.spark_internals.sql_text import parse_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBSERVED = "state"


@attrs.frozen
class BucketSize:
    """The size of one bucket.

    Attributes:
        bucket: Its number.
        keys: How many keys it has.
        bytes: The bytes of their rows in Spark's state.
        nulls: How many values of the batch became NULL because neither a message nor a previous row has them.
    """

    bucket: int
    keys: int
    bytes: int
    nulls: int = 0


def observe_sizes(df: DataFrame, name: str) -> DataFrame:
    """Observe the sizes of buckets, which appear in Spark's progress under a name; the rows are unchanged.

    Args:
        df: One row for each bucket that a batch has changed, with ``bucket``, ``keys``, ``bytes`` and ``nulls``.
        name: The observation's name, unique in the query (`kdsl.run.metrics.source_reports.new_name`).
    """

    def total(position: int) -> str:
        return f"aggregate(buckets, 0L, (s, x) -> s + cast(split_part(x, ' ', {position}) as bigint))"

    # A set, because a batch that runs twice reports each bucket twice, with equal values.
    values = ", ".join(f"cast({name} as string)" for name in ("bucket", "keys", "bytes", "nulls"))
    gathered = f"collect_set(concat_ws(' ', {values}))"
    fields = f"'numKeysInState', {total(2)}, 'stateBytes', {total(3)}, 'buckets', buckets"
    summary = f"transform(array({gathered}), buckets -> named_struct({fields}))[0]"
    return df.observe(name, parse_column(summary).alias(OBSERVED))


def read_sizes(observed: Iterable[str]) -> Iterator[BucketSize]:
    """Yield the sizes in an observation: strings with the numbers of a `BucketSize` in order, with spaces between."""
    for text in observed:
        yield BucketSize(*map(int, text.split()))
