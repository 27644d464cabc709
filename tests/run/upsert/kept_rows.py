"""The last rows of keys from one batch to the next, as a stream keeps them, in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kdsl.formats import ROW_KIND
from kdsl.run.upsert.changes import KeyedRows
from kdsl.run.upsert.keyed_state import KeyedState
from kdsl.run.upsert.state import UnavailableRule
from kdsl.run.upsert.state_changes import StateChanges

RULE = UnavailableRule()


class KeptRows:
    """The last rows of keys.

    Args:
        schema: The columns of the rows.
        keys: The columns of the key.
        net: Whether changes are computed for a whole batch.
    """

    def __init__(self, schema: pa.Schema, *keys: str, net: bool = False) -> None:
        self.state, self._keys, self._net = KeyedState("Users", schema, keys, None, None, 0), keys, net
        self.nulls = 0

    def run(self, upserts: KeyedRows, rule: UnavailableRule = RULE) -> list[tuple[str, dict[str, Any]]]:
        """The changes of a batch: the kind and the row of each."""
        changes = StateChanges(self.state, self._keys, net=self._net, repeats=False)
        batches = [*changes.apply(upserts, rule), *changes.finish()]
        self.nulls += changes.nulls
        return [(row.pop(ROW_KIND), row) for batch in batches for row in batch.to_pylist()]

    def list(self) -> list[dict[str, Any]]:
        """The rows, in no order."""
        return [row for stored in self.state.list_rows() for row in stored.rows.to_pylist()]
