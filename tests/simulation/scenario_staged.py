"""Staged exactly-once streams: batches whose rows change when they are computed again, stored beside the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

from pyspark.sql import functions as F

from kdsl.own_columns import STAGED_WRITER
from kdsl.run.exactly_once import staged
from kdsl.run.librdkafka import datasource, options
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.offsets.stored import Offsets
from tests.simulation.exactly_once_driver import (
    CLUSTER,
    IN,
    OUT,
    PARTITIONS,
    Setup,
    driver_substitutes,
    source_document,
)
from tests.simulation.partitioned_frames import Frame, Partitions, monotonically_increasing_id, spark_partition_id
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.scenario_exactly_once import Operators, run_drivers
from tests.simulation.world import ViolationError, World


class _ChangingRows:
    """Rows that are others each time that they are computed: in their values, and in where they are.

    Attributes:
        computations: How often rows were computed.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.computations = 0

    def __call__(self, rows: Partitions) -> Partitions:
        self.computations += 1
        mark = b"|%d" % self.computations
        shift = self._world.decisions.choose(3)
        parts: Partitions = [[] for _ in range(3)]
        for part in rows:
            for at, row in enumerate(part):
                parts[(at + shift) % 3].append({"v": row["v"] + mark})
        return parts


def run(world: World) -> None:
    """Run the scenario."""
    setup = Setup(world)
    this = Operators(world, setup, "staged", staged=True, rows_of=_ChangingRows(world))
    run_drivers(this)
    if not setup.may_double:
        _check_computations(setup)


def _check_computations(setup: Setup) -> None:
    """Check that all rows of a batch come from the same computation: those of others need not fit together."""
    marked: dict[bytes, bytes] = {}
    for values in setup.broker.values(OUT).values():
        marked |= dict(value.split(b"|") for value in values if value)
    begin: Mapping[Any, int] = {(IN, p): 0 for p in range(PARTITIONS)}
    for batch in range(sum(name.startswith("offsets/") for name in setup.files)):
        ends = Offsets.from_json(source_document(setup.files[f"offsets/{batch}"])).positions
        marks = {
            marked.get(b"%d-%d" % (partition, at))
            for (topic, partition), end in ends.items()
            for at in range(begin[topic, partition], end)
        } - {None}
        if len(marks) > 1:
            raise ViolationError(f"batch {batch} has rows of the computations {sorted(map(str, marks))}")
        begin = ends


@contextmanager
def _no_settings(*_: object, **__: object) -> Iterator[None]:
    yield


def _read_options(more: Mapping[str, Any], kind: object) -> tuple[Any, Any]:
    del more, kind
    return World.current.process.values["driver"].plan, CLUSTER


def _substitutes() -> Substitutes:
    return [
        *driver_substitutes(),
        (F, "spark_partition_id", spark_partition_id),
        (F, "monotonically_increasing_id", monotonically_increasing_id),
        (staged, "map_in_arrow", lambda rows, _function, _schema: rows),
        (staged, "registry_of", lambda _cluster, _plan: None),
        (staged, "without_literal_secrets", lambda _plan, _registry: None),
        (staged, "keeps_state", lambda _rows: True),
        (staged, "change_settings", _no_settings),
        (staged, "settings_for_files", lambda _read: {}),
        (staged, "check_letters", lambda _batch: None),
        (staged, "_match_current_plan", lambda rows, _plan: rows),
        (options, "read_options", _read_options),
        (datasource, "register", lambda _spark: None),
    ]


def _send_own_writers(rows: Frame, writers: int) -> Frame:
    """J1: on an older Spark, rows of writers that the query does not have any more are not read."""
    if rows.sparkSession.version >= "4.1":
        return rows.repartitionById(writers, F.col(STAGED_WRITER))  # type: ignore[arg-type]
    of_writers = [
        rows.where(F.col(STAGED_WRITER) == number).coalesce(1)  # type: ignore[arg-type]
        for number in range(writers)
    ]
    return reduce(lambda one, other: one.unionAll(other), of_writers)


def _name_by_number(spec: TransactionSpec) -> str:
    """A2: a marker is trusted by the number of the batch."""
    return f"{spec.batch}-0.complete"


def _trust_marker(text: str | None, spec: TransactionSpec, location: str) -> str | None:
    """A2: a marker is trusted by the number of the batch."""
    del spec, location
    return None if text is None else text.partition('"rows":"')[2].partition('"')[0]


def _replace_marker(folder: Any, name: str, spec: TransactionSpec, rows_folder: str) -> str:
    """J9: a driver replaces the marker of another one."""
    folder.write(name, staged.marker_text(spec, rows_folder))
    return rows_folder


def _faults() -> dict[str, Any]:
    return {
        "J1": lambda: [(staged, "_route_staged", _send_own_writers)],
        "A2": lambda: [(staged, "marker_name", _name_by_number), (staged, "read_marker", _trust_marker)],
        "J9": lambda: [(staged, "create_marker", _replace_marker)],
    }


SCENARIO = Scenario(
    "staged",
    run,
    _substitutes,
    _faults(),
)
