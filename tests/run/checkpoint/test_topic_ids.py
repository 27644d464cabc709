"""The stored ids of topics: what is read of them, and what is an error."""

from __future__ import annotations

import json

import pytest

from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.topic_ids import VERSION, _read_ids


def test_the_ids_are_read_by_read_and_topic() -> None:
    reads = {"read 1": {"orders": "id 1", "payments": "id 2"}, "read 2": {}}

    assert _read_ids(json.dumps({"version": VERSION, "reads": reads}), "cp/topics.json") == reads


@pytest.mark.parametrize("reads", [None, 7, "orders", ["orders"], {"read": 7}, {"read": ["orders"]}, {"read": None}])
def test_damaged_ids_are_an_error_of_the_checkpoint(reads: object) -> None:
    with pytest.raises(CheckpointError, match=r"cp/topics\.json cannot be read; remove it"):
        _read_ids(json.dumps({"version": VERSION, "reads": reads}), "cp/topics.json")
