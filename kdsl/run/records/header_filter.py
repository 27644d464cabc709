"""Applies the header filter: selects the matching records of a raw batch before anything is decoded.

Conditions are combined from left to right. A condition is true if any occurrence of the header has the value, encoded
in UTF-8; a null value never matches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.plan.model import HeaderCondition
from kdsl.types.arrays import Mask


def filter_records(raw: pa.RecordBatch, conditions: Collection[HeaderCondition]) -> pa.RecordBatch:
    """Return the records of a raw batch that match a filter (`match_headers`); without conditions, all records."""
    if not conditions:
        return raw
    mask = match_headers(raw.column("headers"), conditions)
    return raw if mask.all() else raw.filter(pa.array(mask))


def match_headers(headers: pa.Array, conditions: Iterable[HeaderCondition]) -> Mask:
    """Return which records match a filter, whose conditions are combined from left to right with AND and OR.

    A condition is true if any header with its name has its value; a negated one, if none has.

    Args:
        headers: The header lists of a raw batch (`kdsl.run.records.metadata.HEADERS`).
        conditions: The filter; without a condition every record matches.
    """
    count = len(headers)
    entries = headers.flatten()
    sizes = pc.fill_null(headers.value_lengths(), 0).to_numpy(zero_copy_only=False)
    record_of = np.repeat(np.arange(count), sizes)
    names, values = entries.field("key"), entries.field("value")
    matches = np.ones(count, dtype=bool)
    for condition in conditions:
        equal = pc.and_(pc.equal(names, condition.name), pc.equal(values, condition.value.encode()))
        holds = np.zeros(count, dtype=bool)
        holds[record_of[pc.fill_null(equal, False).to_numpy(zero_copy_only=False)]] = True
        if condition.negated:
            holds = ~holds
        matches = matches & holds if condition.joined == "&" else matches | holds
    return matches
