"""The bench of planning without a broker."""

from __future__ import annotations

import pytest

from bench.scale_simulated import TABLES, TASKS, simulate, slope


@pytest.mark.parametrize("table", TABLES)
def test_batches_are_planned_for_every_partition(table: str) -> None:
    few, many = (simulate(table, partitions, batches=2) for partitions in (TASKS, 10 * TASKS))
    assert few.task_count == many.task_count == TASKS
    assert many.offsets_bytes > few.offsets_bytes
    assert many.task_bytes > few.task_bytes
    assert many.batch >= many.latest >= 0


def test_the_slope_of_points_on_a_line() -> None:
    assert slope([(100, 3), (200, 5), (400, 9)]) == pytest.approx(0.02)
    assert slope([(100, 3)]) == 0
