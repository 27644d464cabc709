"""Applies row rules to the rows of a batch: which rows violate them, and which rows and changes remain.

Rules judge the row after a change (``+I``, ``+U``). What remains when a row is left out depends on the table:

- Without changes, the other rows.
- If changes are applied by key (upsert tables, normalized change data), the change is ignored: the last valid row of
  the key stays. Deletes are never left out.
- In other change data, the table consists of the rows that meet the rules. An update from a valid row to one that is
  left out deletes the row (``-D``), one in the other direction inserts it (``+I``), and rows before changes that were
  left out are left out, too: so every row that is taken back was there before.

A row for which a condition cannot be computed (an overflow, a division by zero) violates the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import RecordError
from kdsl.flink_sql.conditions.compiler import compile_condition
from kdsl.formats import ROW_KINDS, kind_column
from kdsl.plan.model import RowRule
from kdsl.run.records.drops import key_of_rule
from kdsl.run.records.rejections import Rejection
from kdsl.types import model as t
from kdsl.types.arrays import Indices, Mask
from kdsl.types.arrow import arrow_type, cast_array

MOST_LOCATIONS = 5
"""How many rows an error locates."""
_INSERT, _BEFORE, _AFTER, _DELETE = (ROW_KINDS.index(kind) for kind in ("+I", "-U", "+U", "-D"))


@attrs.frozen(eq=False)
class Violation:
    """The rows of a batch that violate a rule.

    Attributes:
        rule: The rule.
        rows: Which rows, also those before a change.
        failed: Why the condition could not be computed for some of them; empty if it was false for all.
    """

    rule: RowRule
    rows: Mask
    failed: str = ""

    @property
    def reason(self) -> str:
        """The rule that a row violates, its condition, and why that cannot be computed; without the row's values."""
        failed = f", which cannot be computed for it: {self.failed}" if self.failed else ""
        return f"the row violates the rule {self.rule.name}: {' '.join(self.rule.condition.split())}{failed}"


@attrs.frozen(eq=False)
class Remaining:
    """What remains of the rows of a batch.

    Attributes:
        mask: Which rows remain; None for all.
        kinds: The row kinds of all rows, where some have changed; None otherwise.
        letters: The rejections of records, by the number of the record.
    """

    mask: Mask | None = None
    kinds: pa.Array | None = None
    letters: Mapping[int, Rejection] = attrs.field(factory=dict)


class RowRules:
    """The row rules of a plan; created once per worker.

    Args:
        rules: The rules.
        columns: The columns of the rows.
        by_key: Whether changes are applied by key, so that only rows after a change are left out.
        whole_deletes: Whether the rows before changes, and deleted rows, have all their values.
        changelog: Whether the rows are changes, with a column of the row kind.
    """

    def __init__(
        self,
        rules: Sequence[RowRule],
        columns: t.Row,
        *,
        by_key: bool = False,
        whole_deletes: bool = True,
        changelog: bool = False,
    ) -> None:
        types = {f.name: f.type for f in columns.fields}
        self._rules = [(rule, compile_condition(rule.condition, types)) for rule in rules]
        self._types = {name: arrow_type(types[name]) for rule in rules for name in rule.columns}
        self._by_key, self._judges_before = by_key, whole_deletes and not by_key
        self._changes = changelog

    def __bool__(self) -> bool:
        """Return whether there are rules."""
        return bool(self._rules)

    def find_violations(self, rows: pa.RecordBatch) -> list[Violation]:
        """Return a violation for each rule that rows violate: its condition is false, or cannot be computed, for them.

        A condition that is NULL is not violated.
        """
        columns = {name: cast_array(rows.column(name), kind) for name, kind in self._types.items()}
        violations = []
        for rule, condition in self._rules:
            wrong, failures = condition.find_violations(columns, rows.num_rows)
            for failure in failures:
                wrong = failure.rows if wrong is None else wrong | failure.rows
            if wrong is not None and wrong.any():
                violations.append(Violation(rule, wrong, failures[0].reason if failures else ""))
        return violations

    def apply(
        self,
        rows: pa.RecordBatch,
        messages: Indices | None,
        counts: MutableMapping[str, int],
        fail: Callable[[Violation, Indices], Exception],
        left_out: Mask | None = None,
    ) -> Remaining:
        """Apply the rules to the rows of a batch.

        Of changes only ``+I`` and ``+U`` count as violations, fail or become dead letters. If deletes have whole rows,
        and changes are not applied by key, ``drop`` and ``dead_letter`` also leave out deletes and rows before a change
        that violate the rule. Rules with other actions only count.

        Args:
            rows: The rows.
            messages: The record of each row; None if they correspond one to one, in order.
            counts: The counts of violations, which are increased (`kdsl.run.records.drops.key_of_rule`).
            fail: Creates the error for a rule with the action ``fail`` from the violation and the indices of its rows.
            left_out: Rows that are left out for another reason; rules do not judge them. None for none.

        Returns:
            What remains; without a mask all rows. If a row makes its record a dead letter, all rows of that record are
            left out, except deletes and rows before a change.
        """
        violations = self.find_violations(rows)
        if not violations and left_out is None:
            return Remaining()
        kinds = self._kinds_of(rows)
        after = None if kinds is None else (kinds == _INSERT) | (kinds == _AFTER)
        gone = np.zeros(rows.num_rows, dtype=bool) if left_out is None else left_out.copy()
        letters: dict[int, Rejection] = {}
        for violation in violations:
            judged = violation.rows if after is None else violation.rows & after
            if left_out is not None:
                judged &= ~left_out
            if judged.any():
                self._count(violation, judged, counts, fail)
            if violation.rule.on_fail not in ("drop", "dead_letter"):
                continue
            gone |= violation.rows if self._judges_before else judged
            if violation.rule.on_fail == "dead_letter":
                used = violation.rule.columns
                column = used[0] if len(used) == 1 else None
                for message in np.flatnonzero(judged) if messages is None else np.unique(messages[judged]):
                    rejection = Rejection(int(message), violation.reason, column=column, stage="TRANSFORMATION")
                    letters.setdefault(int(message), rejection)
        if letters and messages is not None:  # a letter contains all rows of its record
            of_letters = np.isin(messages, list(letters))
            gone |= of_letters if after is None else of_letters & after
        if not gone.any():
            return Remaining()
        return Remaining(~gone, self._adjust_kinds(kinds, gone, messages), letters)

    def _kinds_of(self, rows: pa.RecordBatch) -> Indices | None:
        """The row kinds as indices into `ROW_KINDS`, unknown ones as ``+U``; None if the rows are not changes."""
        kind = kind_column(rows.schema.names)
        if not self._changes or kind not in rows.schema.names:
            return None
        kinds = pc.index_in(rows.column(kind), value_set=pa.array(ROW_KINDS))
        indices: Indices = pc.fill_null(kinds, _AFTER).to_numpy(zero_copy_only=False)  # the encoder reports other kinds
        return indices

    def _count(
        self,
        violation: Violation,
        judged: Mask,
        counts: MutableMapping[str, int],
        fail: Callable[[Violation, Indices], Exception],
    ) -> None:
        """Add the ``judged`` rows of a violation to ``counts``."""
        if violation.rule.on_fail == "fail":
            raise fail(violation, np.flatnonzero(judged))
        key = key_of_rule(violation.rule.on_fail, violation.rule.name)
        counts[key] = counts.get(key, 0) + int(judged.sum())

    def _adjust_kinds(self, kinds: Indices | None, gone: Mask, messages: Indices | None) -> pa.Array | None:
        """Return the kinds of all rows; where one row of an update is ``gone``, the other becomes ``-D`` or ``+I``.

        None if none of them changes, as always where changes are applied by key.
        """
        if kinds is None or self._by_key or len(kinds) < 2:
            return None
        pairs = (kinds[:-1] == _BEFORE) & (kinds[1:] == _AFTER)
        if messages is not None:
            pairs &= messages[:-1] == messages[1:]
        deleted = np.flatnonzero(pairs & ~gone[:-1] & gone[1:])
        inserted = np.flatnonzero(pairs & gone[:-1] & ~gone[1:]) + 1
        if not len(deleted) and not len(inserted):
            return None
        adjusted = kinds.copy()
        adjusted[deleted], adjusted[inserted] = _DELETE, _INSERT
        return pa.array(ROW_KINDS).take(pa.array(adjusted))


def select_rows(rows: pa.RecordBatch, remaining: Remaining) -> pa.RecordBatch:
    """Return the rows of a batch that remain, with the new row kinds if these have changed."""
    if remaining.kinds is not None:
        index = rows.schema.get_field_index(kind_column(rows.schema.names))
        rows = rows.set_column(index, rows.schema.field(index), remaining.kinds)
    return rows if remaining.mask is None else rows.filter(pa.array(remaining.mask))


def read_error(table: str, raw: pa.RecordBatch, violation: Violation, messages: Indices) -> RecordError:
    """The error for records that violate a rule with the action ``fail``; it locates the first of them.

    Args:
        table: The table's name.
        raw: The records.
        violation: The violation.
        messages: The indices of the records, ascending.
    """
    names = [name for name in ("topic", "partition", "offset") if name in raw.schema.names]
    located = [{name: raw.column(name)[int(i)].as_py() for name in names} for i in messages[:MOST_LOCATIONS]]
    also = ""
    if len(located) > 1 and len(names) == 3:
        also = "; so do " + ", ".join(f"{at['topic']}[{at['partition']}] at {at['offset']}" for at in located[1:])
    reason = violation.reason + also
    return RecordError("read", table, reason, more=len(messages) - 1, fix=fix_of("drop' or 'dead_letter"), **located[0])


def fix_of(other: str) -> str:
    """Return advice for rows that violate a rule with the action ``fail``: declare it with the action ``other``."""
    return f"correct the data, or declare the rule with on_fail='{other}'"
