"""Shows the messages of a topic that no table declares, in the format that they are recognized to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, decode_text
from kdsl.formats import ROW_KINDS, Decoded, Side, Use
from kdsl.plan.model import Part
from kdsl.run.records.frame_headers import join_frame_headers
from kdsl.schemas.topic import InferredSide, find_frames, infer_side
from kdsl.types import model as t
from kdsl.types.arrow_values import python_values

Content = str | list[dict[str, Any]] | None
"""A message: its text, the rows that it has by its schema, or None if it is null."""


@attrs.frozen
class DecodedSide:
    """The keys or the values of some records.

    Attributes:
        format: The format that they have; empty if all are null.
        contents: The messages, in the order of the records. Bytes that are neither UTF-8 nor readable by the format are
            ``0x`` and hexadecimal digits. The rows of change data have their kind as the member ``op``.
        notes: What a reader should know, such as why messages could not be decoded.
    """

    format: str
    contents: tuple[Content, ...]
    notes: tuple[str, ...] = ()


def decode_side(topic: str, records: pa.RecordBatch, cluster: Cluster, side: Side) -> DecodedSide:
    """Decode the keys or the values of records by the schema in the registry that they name; others are text.

    Args:
        topic: The topic of the records.
        records: Raw records, with the column of the side and their headers, which may name schemas.
        cluster: The cluster of the topic, with its registry.
        side: Which messages.
    """
    messages: list[bytes | None] = records.column(side).to_pylist()
    texts = tuple(map(decode_text, messages))
    present = [message for message in messages if message is not None]
    if not present:
        return DecodedSide("", texts)
    frames = find_frames(records.to_pylist(), side)
    try:
        inferred = infer_side(present, cluster, None, side, frames=frames)
        if not inferred.format.needs_registry:
            return DecodedSide(inferred.format.identifier, texts, inferred.notes if any(frames) else ())
        decoded = _decode(inferred, records, Use(side=side, topics=(topic,), registry=cluster.registry))
    except KdslError as e:
        return DecodedSide("raw", texts, (f"shown as bytes: {e}",))
    contents = _contents(decoded, len(messages))
    reasons = {bad.index: bad.reason for bad in decoded.bad}
    shown = tuple(contents.get(i, text) if text is not None else None for i, text in enumerate(texts))
    notes = tuple(f"record {i + 1} is shown as bytes: {reason}" for i, reason in reasons.items())
    return DecodedSide(inferred.format.identifier, shown, notes)


def _decode(inferred: InferredSide, records: pa.RecordBatch, use: Use) -> Decoded:
    """Decode messages by the columns that were inferred."""
    row = t.Row(tuple(t.Field(column.name, column.type) for column in inferred.columns), nullable=False)
    messages, bad = join_frame_headers(records, use.side, Part(inferred.format, row, row.names))
    decoded = inferred.format.decoder(row, use).decode(messages.cast(pa.binary()))
    return attrs.evolve(decoded, bad=(*decoded.bad, *bad))


def _contents(decoded: Decoded, count: int) -> Mapping[int, list[dict[str, Any]]]:
    """Return the rows of each message that can be decoded, by its index; those of change data with ``op``."""
    bad = {one.index for one in decoded.bad}
    rows: dict[int, list[dict[str, Any]]] = {i: [] for i in range(count) if i not in bad}
    values = python_values(decoded.rows)
    indices = range(len(values)) if decoded.messages is None else decoded.messages.to_pylist()
    kinds = [None] * len(values) if decoded.kinds is None else decoded.kinds.to_pylist()
    for index, kind, value in zip(indices, kinds, values, strict=True):
        rows[index].append(value if kind is None else {"op": ROW_KINDS[kind], **value})
    return rows
