"""How a simulated query reads: its plan and its cluster, which are made once in a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any

import attrs

from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan, Watermark
from kdsl.resolve.model import Start, Stop, Topics
from kdsl.run.librdkafka.options import PLAN
from kdsl.run.librdkafka.read_task import PARALLELISM, OptionItems
from kdsl.run.skipped_reports import OPTION as SKIPPED
from tests.run.read_plans import read_plan

TOPIC = "orders"
GROUP = "orders-group"
RESETS = ("none", "earliest", "latest")
LIMITS = (None, 4, 3)
_EARLY = 1_750_000_001_000  # a second after a run begins
_LATE = 1_750_000_006_000
_STARTS = {
    "earliest": Start("earliest"),
    "latest": Start("latest"),
    "timestamp": Start("timestamp", timestamp=_EARLY),
    "specific-offsets": Start("specific-offsets", offsets=((TOPIC, 0, 1),)),
    "specific-marks": Start("specific-offsets", offsets=((TOPIC, 0, -2), (TOPIC, 1, -1))),
    "specific-others": Start("specific-offsets", offsets=((TOPIC, 0, 1), (TOPIC, 7, 0), ("other", 0, 0))),
    "group-offsets": Start("group-offsets"),
}
_STOPS = {
    "unbounded": Stop(),
    "latest": Stop("latest"),
    "timestamp": Stop("timestamp", timestamp=_LATE),
    "specific-offsets": Stop("specific-offsets", offsets=((TOPIC, 0, 3),)),
    "specific-marks": Stop("specific-offsets", offsets=((TOPIC, 0, -1),)),
    "group-offsets": Stop("group-offsets"),
}


@attrs.frozen
class Settings:
    """How a query reads; some of it may change from start to start.

    Attributes:
        committed: Whether only committed records are read.
        reset: What happens to offsets that are gone.
        limit: The most records of a batch; None without a limit.
        each: The most records of a partition in a batch, if there is a limit.
        by_time: Whether a limit is divided by the times of the records.
        discovery: Whether new partitions are looked for with every batch.
        start: Where the read starts.
        stop: Where it ends.
        pattern: Whether the topic is cluster_settings by a pattern.
        chosen: Whether only the first partition is read.
        old: Whether Spark does not say where a batch starts when it asks for its end.
    """

    committed: bool
    reset: str
    limit: int | None
    each: int | None
    by_time: bool
    discovery: bool
    start: str
    stop: str
    pattern: bool
    chosen: bool
    old: bool

    @classmethod
    def choose(cls, choose: Callable[[int], int]) -> Settings:
        """Choose settings.

        Args:
            choose: Chooses a number below another one; 0 is what most queries have.
        """
        pattern = choose(4) == 3
        start = _choose_mode(choose, list(_STARTS))
        stop = _choose_mode(choose, list(_STOPS))
        return cls(
            committed=not choose(2),
            reset=RESETS[choose(3)],
            limit=LIMITS[choose(3)],
            each=(None, None, 2)[choose(3)],
            by_time=choose(4) == 3,
            discovery=not choose(2),
            start="earliest" if pattern and start.startswith("specific") else start,
            stop="latest" if pattern and stop.startswith("specific") else stop,
            pattern=pattern,
            chosen=not pattern and choose(6) == 5,
            old=choose(6) == 5,
        )

    @property
    def bounded(self) -> bool:
        """Whether the read ends by itself."""
        return self.stop != "unbounded"

    @property
    def reads_all(self) -> bool:
        """Whether a batch reads all records of the topic."""
        return self.start == "earliest" and self.stop in ("unbounded", "latest") and not self.chosen


def _choose_mode(choose: Callable[[int], int], modes: list[str]) -> str:
    """Choose the first mode in two of three cases."""
    return modes[choose(len(modes))] if choose(3) == 2 else modes[0]


@cache
def _cluster_of(committed: bool, reset: str) -> Cluster:
    properties = {
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": reset,
        "default.api.timeout.ms": "10000",
    }
    return Cluster("simulated:9092", properties=properties)


@cache
def _plan_of(settings: Settings) -> ReadPlan:
    plan = read_plan(
        *(() if settings.pattern else (TOPIC,)),
        pattern=f"{TOPIC}.*" if settings.pattern else None,
        group_id=GROUP,
        start=_STARTS[settings.start],
        stop=_STOPS[settings.stop],
        max_records=settings.limit,
        max_records_per_partition=settings.each,
        discovery=timedelta(0) if settings.discovery else None,
        watermark=Watermark("at", "1 s") if settings.by_time else None,
    )
    if settings.chosen:
        return attrs.evolve(plan, topics=Topics((TOPIC,), partitions=((TOPIC, 0),)))
    return plan


_settings: dict[str, Settings] = {}


@cache
def options_of(settings: Settings, parallelism: int) -> OptionItems:
    """The options of a read; the text of the plan is a key, because to read a plan takes as long as a run."""
    key = repr(settings)
    _settings[key] = settings
    return ((PLAN, key), (PARALLELISM, str(parallelism)), (SKIPPED, "0"))


def read_plan_and_cluster(options: OptionItems) -> tuple[ReadPlan, Cluster]:
    """Return the plan and the cluster of `options_of`."""
    settings = _settings[options[0][1]]
    return _plan_of(settings), _cluster_of(settings.committed, settings.reset)


_original = Cluster.consumer
_resolved: dict[int, dict[str, Any]] = {}


def consumer_settings(cluster: Cluster, sizes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of a consumer, which are resolved once for each cluster: that takes as long as a whole run."""
    cluster_settings = _resolved.get(id(cluster))
    if cluster_settings is None:
        cluster_settings = _resolved[id(cluster)] = _original(cluster)
    return {**(sizes or {}), **cluster_settings}
