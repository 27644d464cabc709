"""The model of Delta tables does what Delta does, in random traces of batches and of what other programs do.

A trace is first run with the model. Then the same steps are made with Delta, by the same code of kdsl, and after each
its outcome, what kdsl logs, the rows, the history, and what kdsl finds of each writer must be the same.
"""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.target import Batch
from kdsl.changelog.to_delta import DeltaTarget, delta
from kdsl.errors import ChangelogError
from kdsl.spark_internals.errors import JavaError, java_message
from tests.changelog.tables import needs_delta
from tests.simulation.batch_rows import SimulatedRows
from tests.simulation.decisions import Decisions
from tests.simulation.environment import simulate_environment
from tests.simulation.scenario_delta import substitutes
from tests.simulation.streams import SimulatedSession, warnings_of
from tests.simulation.targets import DeltaLake, OtherPrograms
from tests.simulation.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITERS = ("a", "b")
OTHERS = ("insert", "edit", "empty", "overwrite", "optimize", "restore", "clean_up", "drop", "replace")
Row = tuple[str, ...]
_FILES = re.compile(r"DELTA_CONCURRENT_(APPEND|DELETE_READ|DELETE_DELETE)")
_GONE = re.compile(r"DELTA_TABLE_NOT_FOUND|FILE_NOT_EXIST|FileNotFoundException")


@attrs.frozen
class Step:
    """A step of a trace.

    Attributes:
        name: ``apply`` for a batch of kdsl, or what another program does.
        batch: The batch.
        rows: Its changes: row kind, key and value, and perhaps the value of another column.
        version: The version that is restored.
        key: The key of a row that is inserted or deleted.
        during: What happens after the merge of the batch has begun and before it commits.
    """

    name: str
    batch: Batch | None = None
    rows: Sequence[Row] = ()
    version: int = 0
    key: str = ""
    during: Step | None = None


@attrs.frozen
class Seen:
    """What is seen after a step.

    Attributes:
        outcomes: How the step, and the one during it, ended.
        warnings: What kdsl logged.
        rows: The rows.
        history: The commits that the log has: version, operation, whether they take back or edit rows, metadata.
        version: The last version.
        writers: By writer, its last transaction, and its last batch or the error.
        table: Which of the tables that have had the name it is; None without one.
    """

    outcomes: Sequence[str]
    warnings: Sequence[str]
    rows: Sequence[Row]
    history: Sequence[tuple[int, str, bool, bool, str]]
    version: int | None
    writers: Sequence[tuple[int | None, int | str | None]]
    table: int | None


class Side(ABC):
    """The model, or Delta.

    Args:
        target: The table.
        keys: The columns of its key.
    """

    def __init__(self, target: DeltaTarget, keys: Sequence[str]) -> None:
        self.target, self.keys = target, keys
        self._ids: list[str] = []

    def make(self, step: Step) -> Seen:
        """Make a step, and see what came of it."""
        outcomes = []
        with self.collect_warnings() as warnings:
            if step.name == "apply":
                outcomes = self.apply(step)
            else:
                outcomes = [self.catch(lambda: self.act(step))]
            return self.look(outcomes, warnings)

    def apply(self, step: Step) -> list[str]:
        """Apply a batch, and do what happens during that; return how both ended."""
        outcomes: list[str] = []

        def act() -> None:
            assert step.during is not None
            inner = step.during
            outcomes.append(self.catch(lambda: self.write(inner, None) if inner.name == "apply" else self.act(inner)))

        outcome = self.catch(lambda: self.write(step, act if step.during else None))
        return [outcome, *outcomes]

    def act(self, step: Step) -> None:
        """Do what another program does; what optimizes has two files more."""
        for number in "12" if step.name == "optimize" else "":
            self.do_other(Step("insert", key=step.key + number))
        self.do_other(step)

    def catch(self, function: Callable[[], object]) -> str:
        """Call a function, and return how it ended."""
        try:
            function()
        except ChangelogError as e:
            return self.name(str(e))
        except JavaError as e:
            return self.name_java_error(e)
        return "ok"

    def name(self, text: str) -> str:
        """A message without what differs between the sides."""
        return re.sub(r"\(([A-Z ]+), \d[^)]*\)", r"(\1)", text.replace(repr(self.target), "TABLE"))

    def name_java_error(self, error: Exception) -> str:
        """The kind of an error of Delta: a conflict, of which there are several names for the same, or its name."""
        text = f"{java_message(error)} {error}"
        if _FILES.search(text):
            return "the rows that were read have changed"
        if _GONE.search(text):
            return "the table is gone"
        found = re.search(r"DELTA_[A-Z_]+", text)
        assert found is not None, error
        return found.group()

    def look(self, outcomes: Sequence[str], warnings: Sequence[str]) -> Seen:
        """See the table."""
        with self.session() as session:
            table = session.open(self.target)
            history = [] if table is None else session.read_history(table)
            writers = [(session.last_transaction(table, one), self.last_batch(one)) for one in WRITERS]
            id_, version = (None, None) if table is None else (session.read_id(table), session.version(table))
        if id_ is not None and id_ not in self._ids:
            self._ids.append(id_)
        return Seen(
            outcomes,
            [self.name(text) for text in warnings],
            self.rows(),
            [(one.version, one.operation, one.takes_back_rows, one.edits_rows, one.metadata) for one in history],
            version,
            writers,
            None if id_ is None else self._ids.index(id_),
        )

    def last_batch(self, writer: str) -> int | str | None:
        """What kdsl finds of a writer's last batch."""
        try:
            return self.target.last_batch(self.spark, writer)
        except ChangelogError as e:
            return self.name(str(e))

    spark: Any
    """The session."""

    @abstractmethod
    def session(self) -> Any:
        """Delta in the session, as a context manager."""

    @abstractmethod
    def collect_warnings(self) -> Any:
        """Collect what kdsl logs as warnings, as a context manager."""

    @abstractmethod
    def write(self, step: Step, during: Callable[[], None] | None) -> None:
        """Apply a batch; call a function after its merge has begun, and before it commits."""

    @abstractmethod
    def do_other(self, step: Step) -> None:
        """Do what another program does."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """The rows of the table."""


def columns_of(step: Step) -> list[str]:
    """The columns of a batch."""
    return ["_row_kind", "id", "value", "more"][: len(step.rows[0])]


class TracedWorld(World):
    """A world in which something is done when the job of a merge runs."""

    during: Callable[[], None] | None = None

    def step(self, place: str) -> None:
        """Make a step."""
        if place == "delta job" and self.during is not None:
            during, self.during = self.during, None
            during()
        super().step(place)


class ModelSide(Side):
    """The model."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(delta("lake.rows"), keys)
        self.lake = DeltaLake()
        self.others = OtherPrograms(self.lake, self.target.table)
        self.spark = SimulatedSession(None, self.lake)  # type: ignore[arg-type]

    def session(self) -> Any:
        from kdsl.changelog import to_delta

        return to_delta.DeltaSession(self.spark).active()

    @contextmanager
    def collect_warnings(self) -> Iterator[list[str]]:
        vars(World.current)["warnings"] = warnings = list[str]()
        yield warnings

    def write(self, step: Step, during: Callable[[], None] | None) -> None:
        world: Any = World.current
        world.during = during
        columns = columns_of(step)
        rows = SimulatedRows(self.spark, columns, [dict(zip(columns, row, strict=True)) for row in step.rows])
        self.target.apply(rows, self.keys, step.batch)  # type: ignore[arg-type]

    def do_other(self, step: Step) -> None:
        table = self.lake.tables[self.target.table]
        arguments = {"restore": [step.version], "insert": [step.key], "edit": [step.key]}.get(step.name, [])
        getattr(self.others, step.name)(table, *arguments)

    def rows(self) -> list[Row]:
        table = self.lake.tables.get(self.target.table)
        if table is None:
            return []
        columns = table.last.columns
        return sorted(tuple(str(row.get(name)) for name in columns) for row in table.last.rows.values())


class DeltaSide(Side):
    """Delta.

    Args:
        spark: The session.
        folder: A folder for the table.
        keys: The columns of its key.
    """

    def __init__(self, spark: SparkSession, folder: Path, keys: Sequence[str]) -> None:
        super().__init__(delta(folder / "rows"), keys)
        self.spark, self._folder, self._count = spark, folder, 0

    def session(self) -> Any:
        return DeltaSession(self.spark).active()

    @contextmanager
    def collect_warnings(self) -> Iterator[list[str]]:
        warnings, handler = list[str](), logging.Handler(logging.WARNING)
        handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("kdsl.changelog")
        log.addHandler(handler)
        try:
            yield warnings
        finally:
            log.removeHandler(handler)

    def write(self, step: Step, during: Callable[[], None] | None) -> None:
        rows = self.spark.createDataFrame(step.rows, [f"`{name}`" for name in columns_of(step)]).toDF(*columns_of(step))
        if during is None:
            self.target.apply(rows, self.keys, step.batch)
            return
        self._count += 1
        begun, may_end = (self._folder / f"{name}-{self._count}" for name in ("begun", "may-end"))
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(self.target.apply, hold_back(rows, begun, may_end), self.keys, step.batch)
            try:
                while not (begun.exists() or result.done()):
                    time.sleep(0.02)
                if begun.exists():
                    during()
            finally:
                may_end.touch()
            result.result()

    def do_other(self, step: Step) -> None:
        log = self._folder / "rows" / "_delta_log"
        with self.session() as session:
            name, path = session.sql_name(self.target), self._folder / "rows"
            match step.name:
                case "insert":
                    columns = ["id", "value", *["more"] * (len(session.open(self.target).toDF().columns()) - 2)]
                    values = ", ".join(f"'{step.key}'" for _ in columns)
                    session.sql(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({values})")
                case "edit":
                    session.sql(f"DELETE FROM {name} WHERE id = '{step.key}'")
                case "empty":
                    session.sql(f"DELETE FROM {name}")
                case "overwrite":
                    session.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE false")
                case "optimize":
                    session.sql(f"OPTIMIZE {name}")
                case "restore":
                    session.sql(f"RESTORE TABLE {name} TO VERSION AS OF {step.version}")
                case "clean_up":
                    for file in log.iterdir():
                        os.utime(file, (time.time() - 40 * 86_400,) * 2)
                    delta_log = session.open(self.target).deltaLog()
                    snapshot = session._snapshot(session.open(self.target))
                    delta_log.checkpointAndCleanUpDeltaLog(snapshot)
                case "drop":
                    shutil.rmtree(path)
                case "replace":
                    other = delta(self._folder / f"other-{self._count}")
                    self._count += 1
                    schema = session.open(self.target).toDF().schema()
                    session.builder(other).addColumns(schema).execute()
                    shutil.rmtree(path)
                    os.rename(other.table, path)

    def rows(self) -> list[Row]:
        from pyspark.sql import DataFrame

        with self.session() as session:
            table = session.open(self.target)
            if table is None:
                return []
            return sorted(tuple(map(str, row)) for row in DataFrame(table.toDF(), session.python()).collect())


def hold_back(rows: DataFrame, begun: Path, may_end: Path) -> DataFrame:
    """Let a job that reads rows say that it has begun, and wait until it may end."""
    first, last = str(begun), str(may_end)

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        import time
        from pathlib import Path

        Path(first).touch()
        while not Path(last).exists():
            time.sleep(0.02)
        yield from batches

    return rows.coalesce(1).mapInArrow(wait, rows.schema)


def run_model(seed: int, steps: int) -> tuple[list[str], list[tuple[Step, Seen]]]:
    """Make random steps with the model; return the keys of the table, and the steps with what is seen after each."""
    chance = random.Random(seed)
    keys = ["id"] if chance.random() < 0.6 else []
    trace: list[tuple[Step, Seen]] = []

    def run() -> None:
        side = ModelSide(keys)
        steps_of = Steps(chance, side)
        for _ in range(steps):
            step = steps_of.choose()
            trace.append((step, side.make(step)))

    with simulate_environment(substitutes()):
        TracedWorld(Decisions(None)).run(run)
    return keys, trace


class Steps:
    """Chooses steps.

    Args:
        chance: Chooses.
        side: The model, to which they are applied.
    """

    def __init__(self, chance: random.Random, side: ModelSide) -> None:
        self._chance, self._side = chance, side
        self._numbers: dict[str, int] = {}
        self._values = 0

    def choose(self) -> Step:
        """Choose a step."""
        table = self._side.lake.tables.get(self._side.target.table)
        if table is None or self._chance.random() < 0.55:
            step = self._choose_batch()
            if table is not None and self._chance.random() < 0.4:
                inner = self._choose_batch() if self._chance.random() < 0.3 else self._choose_other()
                step = attrs.evolve(step, during=inner)
            return step
        return self._choose_other()

    def _choose_batch(self) -> Step:
        chance = self._chance
        writer = chance.choice(WRITERS)
        last = self._numbers.get(writer, -1)
        number = chance.choice([last + 1] * 5 + [max(last, 0)] * 2 + [max(last - 1, 0)])
        self._numbers[writer] = max(number, last)
        content = chance.choice([f"query/{number}"] * 4 + [f"other/{number}", ""])
        previous = number - 1 if number and chance.random() < 0.3 else None
        batch = Batch(writer, number, content, previous, adopt=chance.random() < 0.2)
        width = 4 if chance.random() < 0.15 else 3
        count = chance.randint(1, 3)
        rows = [self._choose_row(key, width) for key in chance.sample("1234", count)]
        return Step("apply", batch, rows)

    def _choose_row(self, key: str, width: int) -> Row:
        self._values += 1
        kind = "+I" if not self._side.keys else "-D" if self._chance.random() < 0.3 else "+U"
        return (kind, key, str(self._values), f"more {self._values}")[:width]

    def _choose_other(self) -> Step:
        chance = self._chance
        table = self._side.lake.tables[self._side.target.table]
        name = chance.choice(OTHERS)
        match name:
            case "restore":
                return Step(name, version=chance.choice([v.version for v in table.versions if v.commit is not None]))
            case "insert" | "optimize":
                self._values += 1
                return Step(name, key=f"x{self._values}")
            case "edit":
                return Step(name, key=chance.choice("1234"))
        return Step(name)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("seed", "steps"), [(0, 8), *(pytest.param(seed, 25, marks=pytest.mark.reliability) for seed in range(1, 9))]
)
def test_delta_does_the_same(spark: SparkSession, tmp_path: Path, seed: int, steps: int) -> None:
    needs_delta()
    keys, trace = run_model(seed, steps)
    side = DeltaSide(spark, tmp_path, keys)
    for number, (step, expected) in enumerate(trace):
        assert attrs.asdict(side.make(step)) == attrs.asdict(expected), [one for one, _ in trace[: number + 1]]
