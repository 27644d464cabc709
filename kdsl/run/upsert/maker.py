"""What a source task makes of raw records: rows, or packets of rows where records are upserts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from kdsl.plan.model import ReadPlan
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.upsert.packets import PACKETS, Packer
from kdsl.types import model as t


class Maker(Protocol):
    """Makes what a source gives."""

    def make(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take some records."""
        ...

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Give what was kept back."""
        ...


class _Rows:
    def __init__(self, decoder: RecordDecoder) -> None:
        self._decoder = decoder

    def make(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = self._decoder.decode(raw)
        if rows.num_rows:
            yield rows

    def rest(self) -> Iterator[pa.RecordBatch]:
        yield from ()


def maker_of(decoder: RecordDecoder, plan: ReadPlan) -> Maker:
    """What makes a plan's rows, or packets, in one task."""
    if plan.upserts is None:
        return _Rows(decoder)
    return Packer(decoder, plan.upserts, event_time(plan))


def event_time(plan: ReadPlan) -> str | None:
    """The column of event time that packets tell of; None where there is no watermark, or it can be made behind.

    It is a column of the records: another one is refused while planning (`kdsl.resolve.upserts.event_time`).
    """
    return None if plan.watermark is None or plan.upserts is None or not plan.upserts.images else plan.watermark.column


def source_row(plan: ReadPlan) -> t.Row:
    """The columns that a source gives."""
    return plan.columns if plan.upserts is None else PACKETS
