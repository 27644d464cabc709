"""Encodes changes: the JSON of each row, in a frame with its operation."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.reference_decoder import AFTER, INSERT
from kdsl_formats.json.encoder import MIN_BATCH, JsonEncoder
from kdsl_formats.json.reference_encoder import WritingRules


@attrs.frozen
class ChangeFrame:
    """The JSON before and after the JSON of a row."""

    before: bytes
    after: bytes


def change_frames(dialect: Dialect, rules: WritingRules) -> tuple[ChangeFrame, ChangeFrame]:
    """The frames of an existing row (inserted, or after an update) and of a deleted row.

    Where a dialect has before- and after-images, the other one is null, or absent if the rules leave out null fields.
    """
    name, inserted, deleted = dialect.operation, dialect.inserts[0], dialect.delete
    match dialect.images:
        case "before and after" if rules.ignore_null_fields:
            present_parts, deleted_parts = ('{"after":', f',"{name}":'), ('{"before":', f',"{name}":')
        case "before and after":
            present_parts, deleted_parts = (
                ('{"before":null,"after":', f',"{name}":'),
                ('{"before":', f',"after":null,"{name}":'),
            )
        case "data and old":
            present_parts = deleted_parts = ('{"data":', f',"{name}":')
        case _:
            present_parts = deleted_parts = ('{"data":[', f'],"{name}":')
    return (
        ChangeFrame(present_parts[0].encode(), f'{present_parts[1]}"{inserted}"}}'.encode()),
        ChangeFrame(deleted_parts[0].encode(), f'{deleted_parts[1]}"{deleted}"}}'.encode()),
    )


class ChangeEncoder:
    """Encodes rows of one type as changes, as Flink does: each as an inserted or a deleted row.

    Args:
        dialect: The dialect.
        row: The type, with names on the wire.
        rules: The options of the format.
        min_batch: Fewer rows are written one by one.
    """

    def __init__(self, dialect: Dialect, row: t.Row, rules: WritingRules, *, min_batch: int = MIN_BATCH) -> None:
        self._rows = JsonEncoder(row, rules, min_batch=min_batch)
        self._present_frame, self._deleted_frame = change_frames(dialect, rules)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows: inserts and rows after an update as inserted rows, all others as deleted ones.

        Without kinds, all rows are inserts. Rows that cannot be written become null messages and bad records.
        """
        encoded = self._rows.encode(rows)
        present = np.ones(len(rows), dtype=bool)
        if kinds is not None:
            codes = np.asarray(kinds)
            present = (codes == INSERT) | (codes == AFTER)
        messages = pc.binary_join_element_wise(
            _choose(present, self._present_frame.before, self._deleted_frame.before),
            encoded.messages,
            _choose(present, self._present_frame.after, self._deleted_frame.after),
            pa.scalar(b"", pa.binary()),
        )
        return Encoded(messages, encoded.bad)


def _choose(
    present: np.ndarray[tuple[int], np.dtype[np.bool_]], if_there: bytes, if_gone: bytes
) -> pa.Scalar | pa.Array:
    """One value for present rows and another for deleted ones; a scalar if all are present or both values are equal."""
    if present.all() or if_there == if_gone:
        return pa.scalar(if_there, pa.binary())
    return pc.if_else(pa.array(present), pa.scalar(if_there, pa.binary()), pa.scalar(if_gone, pa.binary()))
