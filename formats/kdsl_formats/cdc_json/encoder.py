"""Changes to messages: the JSON of each row, in the frame that says what happened."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.reference_decoder import AFTER, INSERT
from kdsl_formats.json.encoder import FEW, JsonEncoder
from kdsl_formats.json.reference_encoder import WritingRules


@attrs.frozen
class Frame:
    """What stands before and behind the JSON of a row."""

    before: bytes
    behind: bytes


def frames(dialect: Dialect, rules: WritingRules) -> tuple[Frame, Frame]:
    """The frames of a row that is there (new, or as it is after a change), and of one that is there no longer."""
    name, inserted, deleted = dialect.operation, dialect.inserts[0], dialect.delete
    match dialect.images:
        case "before and after" if rules.ignore_null_fields:
            there, gone = ('{"after":', f',"{name}":'), ('{"before":', f',"{name}":')
        case "before and after":
            there, gone = ('{"before":null,"after":', f',"{name}":'), ('{"before":', f',"after":null,"{name}":')
        case "data and old":
            there = gone = ('{"data":', f',"{name}":')
        case _:
            there = gone = ('{"data":[', f'],"{name}":')
    return (
        Frame(there[0].encode(), f'{there[1]}"{inserted}"}}'.encode()),
        Frame(gone[0].encode(), f'{gone[1]}"{deleted}"}}'.encode()),
    )


class ChangeEncoder:
    """Writes rows of one type as changes, as Flink does: each as a new row, or as one that is gone.

    Args:
        dialect: The dialect.
        row: The type; its names are those on the wire.
        rules: What the options of the format mean.
        few: Below how many rows they are written one by one.
    """

    def __init__(self, dialect: Dialect, row: t.Row, rules: WritingRules, *, few: int = FEW) -> None:
        self._rows = JsonEncoder(row, rules, few=few)
        self._there, self._gone = frames(dialect, rules)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write a struct array of rows; each is new where no kinds are given."""
        encoded = self._rows.encode(rows)
        there = np.ones(len(rows), dtype=bool)
        if kinds is not None:
            codes = np.asarray(kinds)
            there = (codes == INSERT) | (codes == AFTER)
        messages = pc.binary_join_element_wise(
            _either(there, self._there.before, self._gone.before),
            encoded.messages,
            _either(there, self._there.behind, self._gone.behind),
            pa.scalar(b"", pa.binary()),
        )
        return Encoded(messages, encoded.bad)


def _either(there: np.ndarray[tuple[int], np.dtype[np.bool_]], if_there: bytes, if_gone: bytes) -> pa.Scalar | pa.Array:
    if there.all() or if_there == if_gone:
        return pa.scalar(if_there, pa.binary())
    return pc.if_else(pa.array(there), pa.scalar(if_there, pa.binary()), pa.scalar(if_gone, pa.binary()))
