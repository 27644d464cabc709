"""What collectors write of records that cannot be read: whose files they are, and what letters say of keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kdsl.changelog.target import Batch
from kdsl.cluster import Cluster
from kdsl.ingest import Ingestion, KafkaFeed, Memory, Transform
from kdsl.ingest.run.collectors import _replaces_rows, batch_folder
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json

BATCHES = st.builds(Batch, st.sampled_from(["", "a", "b"]), st.integers(0, 3), st.sampled_from(["", "a/1", "b/1"]))
NAMES = st.sampled_from(["", "a", "a/b", "../a", "ä b"])


@given(st.tuples(NAMES, BATCHES), st.tuples(NAMES, BATCHES))
def test_no_two_ingestions_or_batches_share_a_folder(one: tuple[str, Batch], other: tuple[str, Batch]) -> None:
    folders = batch_folder(*one), batch_folder(*other)

    assert (folders[0] == folders[1]) == (one == other)
    assert all(".." not in folder and folder.count("/") == 2 for folder in folders)


@pytest.mark.parametrize(
    ("options", "transforms", "keyed"),
    [
        ({"value": DebeziumJson()}, [], True),
        ({"value": CanalJson()}, [], True),
        ({"value": Json()}, [], False),
        ({"value": Json()}, [Transform(r"\.*", filter="id > 1")], False),
        ({"value": Json()}, [Transform(r"\.*", primary_keys=("id",))], True),
        (
            {
                "value": Json(),
                "initial_schemas": "CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED)",
            },
            [],
            True,
        ),
        (
            {
                "value": Json(),
                "initial_schemas": "CREATE TABLE t (id INT, PRIMARY -- the key\n KEY (id) NOT ENFORCED)",
            },
            [],
            True,
        ),
        ({"value": Json(), "initial_schemas": "CREATE TABLE t (id INT COMMENT 'no primary key')"}, [], False),
    ],
)
def test_letters_say_whether_rows_may_replace_each_other(
    options: dict[str, Any], transforms: list[Transform], keyed: bool
) -> None:
    feed = KafkaFeed(Cluster("x:1"), topic=("t",), ignore_errors=True, **options)

    assert _replaces_rows(Ingestion(feed, Memory(), transform=transforms)) == keyed
