"""The identity of the table that a query of `apply_to` writes, kept with its checkpoint.

A table that was dropped while the query runs, or between two runs, may exist again under the same name, without the
rows of earlier batches. Later batches must not continue there without a word.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kdsl.changelog.target import IdentifiedTarget, Target, explain_replaced_table, require_same_table
from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.checkpoint import FOLDER
from kdsl.run.checkpoint.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = f"{FOLDER}/target.json"
"""The file of a checkpoint with the identity of the table."""
VERSION = 1
_log = logging.getLogger(__name__)


class TableGuard:
    """Requires that all batches of a query are applied to one table.

    Targets that cannot be identified (`IdentifiedTarget`) are not guarded; nor are tables without an identity, such as
    those of most databases.

    Args:
        folder: The folder of the query's checkpoint.
        target: The table.
        adopt: Whether the first batch of this run accepts any table, and a missing one.
    """

    def __init__(self, folder: Folder, target: Target, *, adopt: bool) -> None:
        self._folder, self._target, self._adopt = folder, target, adopt
        self._known: str | None = None
        self._is_kept = self._is_first_done = False

    @property
    def adopts(self) -> bool:
        """Whether the next batch accepts the table as it is: it is the first one of a run with ``adopt``."""
        return self._adopt and not self._is_first_done

    def check(self, spark: SparkSession, number: int) -> None:
        """Check before a batch that the table is the one of earlier batches; the first batch may create it."""
        if not isinstance(self._target, IdentifiedTarget):
            return
        actual = self._target.identify(spark)
        if self.adopts:
            expected = None
            with suppress(CheckpointError):  # a damaged file is replaced
                expected = self._read(required=False)
            if expected is not None and expected != actual:
                _log.warning("%r %s; it is accepted", self._target, explain_replaced_table(expected, actual))
            return
        expected = self._known if self._is_kept else self._read(required=number > 0)
        require_same_table(repr(self._target), expected, actual)

    def keep(self, spark: SparkSession) -> None:
        """Keep the identity of the table with the checkpoint, after the first batch of a run; also that it has none."""
        self._is_first_done = True
        if self._is_kept or not isinstance(self._target, IdentifiedTarget):
            return
        self._known = self._target.identify(spark)
        self._folder.write(FILE, json.dumps({"version": VERSION, "id": self._known}) + "\n")
        self._is_kept = True

    def _read(self, *, required: bool) -> str | None:
        """Read the stored identity; None if there is none, or the table has none."""
        text = self._folder.read(FILE)
        if text is None and not required:
            return None
        try:
            document = json.loads(text or "")
            if document["version"] == VERSION:
                return None if document["id"] is None else str(document["id"])
            reason = f"has version {document['version']}, and this kdsl reads version {VERSION}"
        except (ValueError, KeyError, TypeError):
            reason = "is missing" if text is None else "cannot be read"
        raise CheckpointError(
            f"{self._folder.path(FILE)} {reason}: it says which table earlier batches were applied to; restore it from "
            "a copy of the checkpoint, or start once with adopt=True, which accepts the table as it is"
        )
