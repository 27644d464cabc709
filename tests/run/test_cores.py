from __future__ import annotations

import os

import pytest

from kdsl.run.session import count_cores


@pytest.mark.parametrize(
    ("settings", "seen", "expected"),
    [
        ({}, 8, 8),
        ({"spark.master": "local[3]"}, 0, 3),
        ({"spark.master": "local[3,2]"}, 0, 3),
        ({"spark.master": "yarn", "spark.executor.instances": "10", "spark.executor.cores": "4"}, 2, 40),
        ({"spark.executor.instances": "10", "spark.executor.cores": "4", "spark.task.cpus": "2"}, 2, 20),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "6",
                "spark.executor.instances": "1",
            },
            2,
            6,
        ),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "2147483647"}, 2, 2),
        ({"spark.cores.max": "24"}, 2, 24),
        ({"spark.default.parallelism": "5"}, 0, 5),
    ],
)
def test_requested_cores_count_before_they_are_available(settings: dict[str, str], seen: int, expected: int) -> None:
    assert count_cores(settings.get, seen) == expected


def test_a_session_without_information_has_the_cores_of_this_machine() -> None:
    assert count_cores({"spark.master": "local[*]"}.get) == os.cpu_count()
