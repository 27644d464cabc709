"""Merges what several decoders read, each some of the messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import BadRecord, Decoded
from kdsl_formats._columns.arrays import Indices


def merge_decoded(parts: Sequence[tuple[Indices | None, Decoded]], bad: Sequence[BadRecord], empty: Decoded) -> Decoded:
    """Merge the results of several decoders in the order of the messages, with more bad records.

    A single result of all messages is returned as it is if there are no more bad records.

    Args:
        parts: The results, each with the indices of the messages that were decoded (None for all).
        bad: The messages that were not decoded.
        empty: No rows, with the kinds and metadata that results have.
    """
    if len(parts) == 1 and parts[0][0] is None and not bad:
        return parts[0][1]
    failed = list(bad)
    truncates: list[int] = []
    owners: list[Indices] = []
    for indexes, one in parts:
        rows = np.arange(len(one.rows)) if one.messages is None else np.asarray(one.messages).astype(np.int64)
        owners.append(rows if indexes is None else indexes[rows])
        truncates += one.truncates if indexes is None else indexes[list(one.truncates)].tolist()
        failed += one.bad if indexes is None else (attrs.evolve(b, index=int(indexes[b.index])) for b in one.bad)
    failed.sort(key=lambda record: record.index)
    if not parts:
        return attrs.evolve(empty, messages=pa.array([], pa.int64()), bad=tuple(failed))
    results = [one for _, one in parts]
    owner = np.concatenate(owners)
    order = pa.array(np.argsort(owner, kind="stable"))

    def merge(arrays: list[pa.Array]) -> pa.Array:
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays).take(order)

    def zeros(one: Decoded, kind: pa.DataType) -> pa.Array:
        return pa.array(np.zeros(len(one.rows), dtype=np.int8)).cast(kind)

    without_kinds = all(one.kinds is None for one in results)
    names = dict.fromkeys(name for one in results for name in one.unavailable)
    return Decoded(
        merge([one.rows for one in results]),
        pa.array(np.sort(owner), pa.int64()),
        tuple(failed),
        None
        if without_kinds
        else merge([zeros(one, pa.int8()) if one.kinds is None else one.kinds for one in results]),
        {key: merge([one.metadata[key] for one in results]) for key in results[0].metadata},
        infinite=sum(one.infinite for one in results),
        unavailable={
            name: merge([one.unavailable.get(name, zeros(one, pa.bool_())) for one in results]) for name in names
        },
        undeclared=sum((Counter(one.undeclared) for one in results), Counter()),
        truncates=tuple(sorted(truncates)),
        lossy=sum((Counter(one.lossy) for one in results), Counter()),
    )
