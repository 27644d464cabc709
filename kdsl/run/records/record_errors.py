"""What becomes of records that cannot be read: an error that names the first one, or dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from kdsl.errors import KdslError, RecordError
from kdsl.formats import BadRecord, Side, Use
from kdsl.plan.model import ReadPlan
from kdsl.run.records.alternatives import find_alternative
from kdsl.run.records.frame_headers import join_frame_headers
from kdsl.run.records.rejections import DeadLetterOutput, RejectedSide, Rejection


class DecodeError(KdslError):
    """A format's decoder returned something else than it should; this is a fault of the format."""


class RejectedError(Exception):
    """Some records of a batch are rejected; the others are decoded again without them."""

    def __init__(self, rejections: Sequence[Rejection]) -> None:
        super().__init__()
        self.rejections = rejections


class RecordErrors:
    """Creates the errors for records of a plan that cannot be read.

    Args:
        plan: What is read.
        uses: What the decoders of its keys and values are for.

    Attributes:
        dead_letters: Takes rejected records; None means that such records are errors.
    """

    def __init__(self, plan: ReadPlan, uses: Mapping[Side, Use]) -> None:
        self.dead_letters: DeadLetterOutput | None = None
        self._plan, self._uses = plan, uses

    def reject(
        self,
        raw: pa.RecordBatch,
        records: Iterable[int],
        reason: str,
        side: RejectedSide,
        column: str,
        fix: str,
        *,
        source: Side | None = None,
        detail: str = "",
    ) -> Exception:
        """Return what to raise for records that have the same fault: their rejections, or the error of the first one.

        Args:
            raw: The records.
            records: The indices of those with the fault.
            reason: The fault.
            side: The part of the record that is at fault.
            column: The column that is at fault.
            fix: What to do.
            source: The message that the error shows; None for none.
            detail: What the error adds to the reason.
        """
        indices = sorted(set(map(int, records)))
        if self.dead_letters is not None:
            return RejectedError([Rejection(index, reason, side, column) for index in indices])
        return self.describe(raw, source, BadRecord(indices[0], reason + detail), len(indices) - 1, fix)

    def reject_messages(self, raw: pa.RecordBatch, side: Side, bad: Sequence[BadRecord]) -> Exception:
        """Return what to raise for messages that cannot be decoded: their rejections, or the error of the first one."""
        if self.dead_letters is not None:
            return RejectedError([Rejection(one.index, one.marked_reason, side) for one in bad])
        return self.describe(raw, side, min(bad, key=lambda one: one.index), len(bad) - 1)

    def describe(
        self, raw: pa.RecordBatch, source: Side | None, bad: BadRecord, more: int, fix: str = ""
    ) -> RecordError:
        """Create the error for a record, with its coordinates if ``raw`` has them.

        Args:
            raw: The records.
            source: The field with the faulty message, ``key`` or ``value``; None if the error is about neither.
            bad: The index of the record, and the reason.
            more: How many further records have an error.
            fix: What to do; if empty, `_suggest_options`.
        """
        coordinates = {
            name: raw.column(name)[bad.index].as_py() if name in raw.schema.names else None
            for name in ("topic", "partition", "offset")
        }
        data = raw.column(source)[bad.index].as_py() if source else None
        reason = f"the {source} cannot be decoded: {bad.reason}" if source and not fix else bad.reason
        if not fix and source is not None and data is not None:
            fix = self._suggest_options(source, raw, bad.index)
        return RecordError("read", self._plan.table, reason, data=data, more=more, fix=fix, **coordinates)

    def _suggest_options(self, source: Side, raw: pa.RecordBatch, index: int) -> str:
        """Return advice that names options of the format with which the batch can be read (`find_alternative`).

        It is empty if there are none.
        """
        part = self._plan.key if source == "key" else self._plan.value
        if part is None:
            return ""
        messages = join_frame_headers(raw, source, part)[0]
        if not messages[index].is_valid:  # its header cannot be read, which no option changes
            return ""
        other = find_alternative(part.format, part.row, self._uses[source], messages, index)
        if other is None:
            return ""
        prefix = f"{'key.' if source == 'key' else ''}{other.identifier}."
        arguments, options = part.format.spell_changes(other, prefix)
        purpose = "if it deletes its row" if messages[index].as_py() == other.tombstone else "to read it"
        return f"write {type(other).__name__}({arguments}) {purpose}, in SQL and YAML {options}"
