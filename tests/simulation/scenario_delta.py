"""Changelogs into Delta: a query's batches, in apply_to and in a foreachBatch of the user's own.

The table must have the changes of the source, each once, or an error says that rows were taken from it, or that another
batch has the number. Drivers die between any two effects, run at the same time, and continue an older or a copied
checkpoint; other programs restore, empty, overwrite, edit, drop and create the table, and clean up its history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdsl.changelog import delta_session, same_table, target, to_delta
from kdsl.changelog.delta_history import LostRows, read_contents
from kdsl.changelog.delta_session import read_number
from kdsl.changelog.target import Batch
from kdsl.changelog.to_delta import delta
from tests.simulation.changelogs import ChangelogScenario, common_substitutes
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.streams import CollectedLog, warnings_of
from tests.simulation.targets import DeltaLake, OtherPrograms, SimulatedDeltaSession, build_merge
from tests.simulation.world import World

TABLE = "lake.rows"
_HARMLESS = ("optimize", "clean_up", "edit", "restore", "empty", "overwrite")
_ACTIONS = (*_HARMLESS, "drop", "replace")
EDITS, UNKNOWN = "other programs have edited rows", "took back rows is not known"
"""What warnings say of rows that other programs edited, and of commits that were cleaned up."""


def run(world: World) -> None:
    """Run a query into a Delta table."""
    DeltaScenario(world).run()


class DeltaScenario(ChangelogScenario):
    """One run.

    Args:
        world: The world.
    """

    def __init__(self, world: World) -> None:
        self.lake = DeltaLake()
        super().__init__(world, self.lake)
        self.others = OtherPrograms(self.lake, TABLE)

    def act(self) -> None:
        """Do what other programs do, now and then."""
        world = self.world
        for _ in range(1 + world.decisions.choose(3)):
            world.sleep(0.1 * 8 ** world.decisions.choose(4))
            world.step("others")
            # In a foreachBatch of the user's own nothing knows which table earlier batches were applied to.
            self.others.act(_ACTIONS if self.style == "apply_to" else _HARMLESS)

    def open_target(self) -> Any:
        """Name the table."""
        return delta(TABLE)

    def append(self, into: Any, rows: Any, batch: int) -> None:
        """Append the rows of a batch."""
        into.append(rows, Batch("loader", batch))

    def read_rows(self) -> list[tuple[str, str]]:
        """The rows of the table."""
        table = self.lake.tables.get(TABLE)
        return [] if table is None else [(row["id"], row["value"]) for row in table.last.rows.values()]

    def has_causes(self) -> bool:
        """Whether the checkpoint was changed, or other programs were there."""
        return bool(self.causes or self.others.done)

    def is_excused(self) -> bool:
        """Whether a driver accepted the table, or a warning says that rows were edited or commits are missing."""
        if self.adopted and self.has_causes():
            return True
        warnings, done = " ".join(warnings_of(self.world)), {*self.others.done}
        return (EDITS in warnings and "edit" in done) or (UNKNOWN in warnings and "clean_up" in done)


def substitutes() -> Substitutes:
    """What the models replace."""
    log = CollectedLog()
    return [
        (to_delta, "DeltaSession", SimulatedDeltaSession),
        (to_delta, "_merge", build_merge),
        (to_delta, "check_jvm_target", lambda *_: None),
        *common_substitutes(),
        *((module, "_log", log) for module in (to_delta, target, same_table, delta_session)),
    ]


def forget_lost_rows() -> Substitutes:
    """J2: nothing looks for commits that take back rows."""
    return [(to_delta, "find_lost_rows", lambda *_: LostRows(())), (target, "_require_previous", lambda *_: None)]


def _find_last_in_history(
    self: SimulatedDeltaSession, table: Any, batch: Batch, transaction: int | None
) -> Batch | None:
    """Find the last batch as before J3: only the history has its content."""
    if transaction is None:
        return None
    number = read_number(transaction)
    if number < batch.number or not batch.content:
        return Batch(batch.writer, number)
    commits = [commit.metadata for commit in self.read_history(table)]
    return Batch(batch.writer, number, dict(read_contents(commits, batch.writer)).get(number, ""))


def _is_applied_repeatably(name: str, batch: Batch, last: Batch | None, *, repeatable: bool = True) -> bool:
    """Whether a table has a batch, as before J3: one whose content is not known is applied again, with a key or not."""
    del repeatable
    return target.is_applied(name, batch, last, repeatable=True)


def append_again() -> Substitutes:
    """J3: a batch whose commit was cleaned up is appended again."""
    return [
        (SimulatedDeltaSession, "find_last", _find_last_in_history),
        (to_delta, "is_applied", _is_applied_repeatably),
    ]


FAULTS: Mapping[str, Any] = {"J2": forget_lost_rows, "J3": append_again}
SCENARIO = Scenario("delta", run, substitutes, FAULTS)
