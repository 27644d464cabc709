"""The header filter at work: which records of a raw batch match, before anything of them is decoded (seed 000).

Conditions are put together from left to right. One holds where any occurrence of the header has the value, as UTF-8
text; a header whose value is null has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.plan.model import HeaderCondition
from kdsl.run.arrays import Flags


def matched(raw: pa.RecordBatch, conditions: Collection[HeaderCondition]) -> pa.RecordBatch:
    """The records of a raw batch that match a filter; without a condition all, whatever fields the batch has."""
    if not conditions:
        return raw
    mask = matching(raw.column("headers"), conditions)
    return raw if mask.all() else raw.filter(pa.array(mask))


def matching(headers: pa.Array, conditions: Iterable[HeaderCondition]) -> Flags:
    """Which records match a filter.

    Args:
        headers: The header lists of a raw batch (`kdsl.run.records.metadata.HEADERS`).
        conditions: The filter; without a condition every record matches.
    """
    count = len(headers)
    entries = headers.flatten()
    sizes = pc.fill_null(headers.value_lengths(), 0).to_numpy(zero_copy_only=False)
    record_of = np.repeat(np.arange(count), sizes)
    names, values = entries.field("key"), entries.field("value")
    found = np.ones(count, dtype=bool)
    for condition in conditions:
        equal = pc.and_(pc.equal(names, condition.name), pc.equal(values, condition.value.encode()))
        holds = np.zeros(count, dtype=bool)
        holds[record_of[pc.fill_null(equal, False).to_numpy(zero_copy_only=False)]] = True
        if condition.negated:
            holds = ~holds
        found = found & holds if condition.joined == "&" else found | holds
    return found
