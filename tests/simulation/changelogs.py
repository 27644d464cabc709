"""Changelogs into a target: what the scenarios of Delta and of databases share."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pyspark.sql.functions

from kdsl.changelog import changes, content, same_table, target
from kdsl.changelog.changes import Changelog
from kdsl.changelog.target import Batch
from kdsl.errors import ChangelogError, CheckpointError
from kdsl.own_columns import STATE_HASH
from kdsl.run.checkpoint import checkpoint
from tests.simulation.batch_rows import FUNCTIONS, SimulatedRows, last_changes
from tests.simulation.environment import PerProcess
from tests.simulation.scenario import Substitutes
from tests.simulation.streams import (
    ConcurrentUpdateError,
    SimulatedJavaError,
    SimulatedSession,
    SimulatedStream,
    TargetScenario,
    start_query,
)
from tests.simulation.world import ViolationError, World

COLUMNS = ("_row_kind", "id", "value")
EXPECTED = (ChangelogError, CheckpointError, SimulatedJavaError, ConcurrentUpdateError)


@attrs.define
class Source:
    """The changes that are put in.

    Attributes:
        changes: The changes, in order.
        keyed: Whether they have a key; otherwise all are inserts.
    """

    keyed: bool
    changes: list[dict[str, Any]] = attrs.field(factory=list)

    def add(self, world: World, number: int) -> None:
        """Add some changes."""
        for _ in range(number):
            key = str(1 + world.decisions.choose(3)) if self.keyed else str(len(self.changes))
            kind = "-D" if self.keyed and world.decisions.happens(0.2) else "+U" if self.keyed else "+I"
            self.changes.append({"_row_kind": kind, "id": key, "value": str(len(self.changes))})

    def rows(self) -> list[tuple[str, str]]:
        """The rows that a table with all changes has."""
        if not self.keyed:
            return [(one["id"], one["value"]) for one in self.changes]
        rows: dict[str, str] = {}
        for one in self.changes:
            rows.pop(one["id"], None)
            if one["_row_kind"] != "-D":
                rows[one["id"]] = one["value"]
        return sorted(rows.items())


class ChangelogScenario(TargetScenario):
    """A run of a changelog into a table.

    Args:
        world: The world.
        targets: The tables, as the session reaches them.

    Attributes:
        style: How it is applied: with ``apply_to``, or in a foreachBatch of the user's own, as rows that are appended
            (``append``) or with a key (``own``).
        source: The changes.
    """

    def __init__(self, world: World, targets: Any) -> None:
        super().__init__(world, EXPECTED)
        self._targets = targets
        self.style = ("apply_to", "append", "own")[world.decisions.choose(3)]
        self.source = Source(self.style != "append")
        self.tampers = world.decisions.choose(2) == 1

    def begin(self) -> None:
        """Put one to three changes into the source."""
        self.source.add(self.world, 1 + self.world.decisions.choose(3))

    def add_last(self) -> None:
        """Put one or two changes into the source."""
        self.source.add(self.world, 1 + self.world.decisions.choose(2))

    def start(self, number: int) -> None:
        """Start a driver; before it, the checkpoint may be set back, or the driver gets a copy of it."""
        world, location = self.world, "checkpoint"
        if number > 0:
            fate = world.decisions.choose(7, 0.3)
            location = self.move_checkpoint(fate)
            if fate == 5:
                self.damage_identity()
            self.source.add(world, world.decisions.choose(3))
        adopt = number > 0 and self.style == "apply_to" and world.decisions.happens(0.1)
        self.adopted |= adopt
        world.tell("starts %s with %d changes%s", self.style, len(self.source.changes), ", adopts" if adopt else "")
        session = SimulatedSession(self.storage, self._targets)
        stream: Any = SimulatedStream(session, COLUMNS, self.source.changes)
        into = self.open_target()
        if world.decisions.happens(0.05):
            refuse_misuse(stream, into)
        if self.style == "apply_to":
            Changelog(stream, keys=["id"]).apply_to(into, checkpoint=location, trigger={"largest": 3}, adopt=adopt)
            return

        def function(rows: Any, batch: int) -> None:
            if self.style == "append":
                self.append(into, rows, batch)
            else:
                Changelog(rows, keys=["id"]).apply_to(into, batch=Batch("loader", batch))

        stream.foreachBatch(function).run(location, 3)

    def damage_identity(self) -> None:
        """Damage the file of the checkpoint which says to which table earlier batches were applied."""
        path = f"checkpoint/{same_table.FILE}"
        if path in self.storage.files:
            self.note_cause("identity damaged")
            self.storage.files[path] = ("", "{}", '{"version": 99, "id": null}')[self.world.decisions.choose(3)]

    def check(self, error: BaseException | None) -> None:
        """Check that the table has each change once, or that an error or a warning says why not."""
        rows = self.read_rows()
        doubled = [row for row, count in Counter(rows).items() if count > 1]
        if doubled:
            raise ViolationError(f"the table has rows twice: {doubled}")
        if error is not None:
            if isinstance(error, (ChangelogError, CheckpointError)) and self.has_causes():
                self.world.note("end", "error")
                return
            raise error
        self.world.note("end", "success")
        wanted = self.source.rows()
        if sorted(rows) != sorted(wanted) and not self.is_excused():
            raise ViolationError(f"the table has {sorted(rows)}, and not {sorted(wanted)}; {self.causes}")

    @abstractmethod
    def open_target(self) -> Any:
        """Name the target."""

    @abstractmethod
    def append(self, into: Any, rows: Any, batch: int) -> None:
        """Append the rows of a batch to the target."""

    @abstractmethod
    def read_rows(self) -> list[tuple[str, str]]:
        """The rows of the table, each with its key and its value."""

    @abstractmethod
    def has_causes(self) -> bool:
        """Whether something has happened for which a driver may refuse to go on."""

    @abstractmethod
    def is_excused(self) -> bool:
        """Whether the table may have other rows, because kdsl has logged that, or a driver accepted it."""


def refuse_misuse(stream: Any, into: Any) -> None:
    """Check that wrong arguments are refused, and change nothing."""
    changelog, batch = Changelog(stream, keys=["id"]), Batch("loader", 0)
    rows = Changelog(SimulatedRows(stream.sparkSession, stream.columns, []), keys=["id"])
    calls: list[Callable[[], object]] = [
        lambda: Changelog(stream, keys=["nothing"]),
        lambda: Changelog(SimulatedRows(stream.sparkSession, ["id", STATE_HASH], []), keys=["id"]),
        changelog.dedupe,
        lambda: changelog.apply_to(into),  # type: ignore[call-overload]
        lambda: changelog.apply_to(into, checkpoint="checkpoint", batch=batch),  # type: ignore[call-overload]
        lambda: changelog.apply_to(into, checkpoint="checkpoint", output_mode="complete"),
        lambda: rows.apply_to(into, checkpoint="checkpoint"),
    ]
    for call in calls:
        try:
            call()
        except ChangelogError:
            continue
        raise ViolationError("a wrong argument is accepted")


def common_substitutes() -> Substitutes:
    """What models replace around a target, in changelogs that are applied by a query."""
    return [
        (changes, "check_spark", lambda _: None),
        (changes, "warn_of_repeated_events", lambda *_: None),
        (changes, "warn_of_changed_rows", lambda *_: None),
        (changes, "check_letters", lambda _: None),
        (changes, "aggregates", lambda _: False),
        (changes, "last_changes", last_changes),
        (changes, "start_query", start_query),
        (content, "is_connect", lambda _: False),
        (content, "query_of", lambda rows: rows.sparkSession.query),
        (checkpoint, "open_folder", lambda spark, location: spark.storage.open(location)),
        (target, "_edited", PerProcess("edited", set)),
        *((pyspark.sql.functions, name, function) for name, function in FUNCTIONS.items()),
    ]
