"""The model of Spark's driver, tried with a source that counts and a sink that keeps rows by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.simulation.decisions import Decisions
from tests.simulation.scenario import Scenario, run_once
from tests.simulation.spark_driver import Batch, Checkpoint, Session, SparkError, StreamingQuery
from tests.simulation.world import Killed, World

TOTAL = 12
LIMIT = 4


class Numbers:
    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        World.current.step("latestOffset")
        return {"at": min(TOTAL, start["at"] + limit)}

    def getDefaultReadLimit(self) -> int:
        return LIMIT

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        return [range(start["at"], end["at"])[at::2] for at in range(2)]

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def stop(self) -> None:
        pass


def run_numbers(world: World, events: Counter[str]) -> None:
    sink: dict[int, list[int]] = {}
    checkpoint = Checkpoint()

    def run_batch(batch: Batch) -> None:
        def read(task: int, attempt: int) -> list[int]:
            del attempt
            world.step("read")
            return list(batch.partitions[task][1])

        results = batch.session.run_job(read, len(batch.partitions))
        world.step("write")
        if batch.number in sink:
            events["repeated"] += 1
        sink[batch.number] = sorted(number for result in results for number in result)

    for start in range(10):
        world.calm = start == 9
        session = Session(world, f"driver{start}", cores=1 + start % 2)
        query = StreamingQuery(
            session,
            checkpoint,
            [Numbers],
            run_batch,
            available_now=True,
            listener=lambda kind, _: events.update([kind]),
        )
        driver = session.start("query", query.run)
        world.wait(lambda driver=driver: driver.done)  # type: ignore[misc]
        session.end()
        events[type(driver.error).__name__] += 1
        if driver.error is None:
            break
        assert isinstance(driver.error, Killed | SparkError)
    assert [number for _, numbers in sorted(sink.items()) for number in numbers] == list(range(TOTAL))


def test_a_perfect_sink_has_each_row_once_whatever_dies() -> None:
    events: Counter[str] = Counter()
    scenario = Scenario("numbers", lambda world: run_numbers(world, events), lambda: ())
    for seed in range(500):
        _, error = run_once(scenario, Decisions(seed))
        assert error is None, seed
    assert events.keys() >= {"Killed", "SparkError", "NoneType", "repeated", "start", "progress", "end"}


def test_a_checkpoint_is_set_back_and_copied() -> None:
    World(Decisions(None))
    checkpoint = Checkpoint()
    for batch in range(3):
        checkpoint.add_offsets(batch, [f'{{"at":{batch}}}', None])
    checkpoint.add_commit(0)
    checkpoint.add_commit(1)
    assert checkpoint.offsets(2) == ['{"at":2}', None]
    copied = checkpoint.copy()
    checkpoint.set_back(2)
    assert (checkpoint.last("offsets"), checkpoint.last("commits")) == (0, 0)
    assert (copied.last("offsets"), copied.last("commits")) == (2, 1)
