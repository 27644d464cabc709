"""A few random histories of a topic, its letters and replays; `tests/reliability/test_replays.py` has many."""

from __future__ import annotations

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.diagnostics.replay_model import run_steps


@pytest.mark.parametrize("seed", range(4))
def test_replays_do_what_the_model_says(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    run_steps(kdsl_kafka, kdsl_topic, monkeypatch, seed, count=8)
