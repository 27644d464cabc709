"""Change data with events that come again: what Flink made of it (``duplicates/record.py``), and what kdsl does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kdsl.ddl.load import read_definition
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.run.upsert.chunks import ChunkOutput, read_chunks
from kdsl.run.upsert.shard_changes import chunks_of
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from tests.run.upsert.kept_rows import KeptRows

ANSWERS = json.loads((Path(__file__).parent / "duplicates" / "answers.json").read_text(encoding="utf-8"))
CASES = sorted(name for name in ANSWERS if name != "refused")
KEY_CHANGE = {"+I 1", "-D 1", "+I 2"}
"""An update that gives a row another key deletes the old one; Flink drops rows before updates (differences-cdc.md)."""


def ours(kind: str, messages: list[str], size: int) -> list[list[Any]]:
    """The changes that kdsl makes of messages, in batches of some size."""
    table = read_definition(
        "CREATE TABLE changes (id BIGINT, name STRING, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ("
        f"'connector' = 'kafka', 'topic' = 't', 'format' = '{kind}', 'cdc-events-duplicate' = 'true', "
        "'scan.startup.mode' = 'earliest-offset')"
    )
    plan = read_plan(resolve(table, "read"))
    assert plan.upserts is not None
    decoder, schema = RecordDecoder(plan), arrow_schema(t.Row(plan.columns.fields[1:], nullable=False))
    last_rows = KeptRows(schema, *plan.upserts.keys)
    results: list[list[Any]] = []
    for at in range(0, len(messages), size):
        part = messages[at : at + size]
        columns: dict[str, list[Any]] = {
            "topic": ["t"] * len(part),
            "partition": [0] * len(part),
            "offset": list(range(at, at + len(part))),
            "timestamp": [0] * len(part),
            "value": [message.encode() for message in part],
        }
        packer = ChunkOutput(decoder, plan.upserts, 1)
        raw = pa.RecordBatch.from_arrays([pa.array(v, RAW[n]) for n, v in columns.items()], list(columns))
        packed = [*packer.add(raw), *packer.finish()]
        upserts = read_chunks((chunk for batch in packed for _, chunk in chunks_of(batch)), schema, events=True)
        assert upserts is not None
        results += [[kind, *row.values()] for kind, row in last_rows.run(upserts)]
    return results


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("name", [name for name in CASES if "key change" not in name])
def test_changes_are_those_of_the_reference(name: str, size: int) -> None:
    case = ANSWERS[name]

    assert ours(case["format"], case["messages"], size) == case["changes"]


@pytest.mark.parametrize("name", [name for name in CASES if "key change" in name])
def test_an_update_of_the_key_deletes_the_row_that_the_reference_leaves(name: str) -> None:
    case = ANSWERS[name]
    result = ours(case["format"], case["messages"][:2], 1000)

    assert {f"{kind} {key}" for kind, key, *_ in result} == KEY_CHANGE
    theirs = [f"{kind} {key}" for kind, key, *_ in case["changes"]]
    assert theirs == ["+I 1", "+I 2", "-D 1"], "the delete is that of the last message"


def test_the_reference_wants_a_primary_key_too() -> None:
    assert "requires the changelog sources to define a PRIMARY KEY" in ANSWERS["refused"]
