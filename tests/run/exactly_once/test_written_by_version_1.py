"""What the version before wrote about some tables is that of the same tables now: plans, digests, tokens, ids of reads.

``version_1/written.json`` was written by that version's own code (commit 11ad1c1), for a table of each kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from kdsl import load_tables
from kdsl.cluster import Cluster
from kdsl.declare.definition import TableDef
from kdsl.errors import CheckpointError
from kdsl.plan.build import read_plan, write_plan
from kdsl.plan.model import WritePlan
from kdsl.resolve import resolve
from kdsl.run.checkpoint.manifest import read_manifest
from kdsl.run.checkpoint.topic_ids import _read_ids
from kdsl.run.librdkafka.transactions.spec import TransactionSpec, records_digest, records_digest_1
from kdsl.run.librdkafka.transactions.token import Writer, read_token
from kdsl.run.listeners.reads import read_id

WRITTEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "version_1" / "written.json").read_text(encoding="utf-8")
)


@pytest.fixture(params=WRITTEN)
def written(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WRITTEN[request.param]


@pytest.fixture
def table(written: dict[str, Any], tmp_path: Path) -> TableDef:
    document = tmp_path / "tables.yaml"
    document.write_text(written["table"], encoding="utf-8")
    (table,) = load_tables(document)
    return table.definition


@pytest.fixture
def plan(table: TableDef) -> WritePlan:
    return write_plan(resolve(table, "write"))


def test_a_query_goes_on_with_its_manifest_and_its_changes_are_seen(written: dict[str, Any], plan: WritePlan) -> None:
    manifest = read_manifest(written["write.json"], "checkpoint")

    assert manifest.check_change(plan, "checkpoint", False) == []
    assert manifest.id == "5f1c0a4e8f5d4d0cb1f6f0a1c2d3e4f5"
    assert (manifest.routing is not None) is (plan.transactions is not None)
    if manifest.routing is not None:
        assert (manifest.routing.writers, manifest.routing.basis) == (8, ("8", "1000", "20000"))
    others = attrs.evolve(plan.topics, names=("others",))
    with pytest.raises(CheckpointError, match="the records go to other topics"):
        manifest.check_change(attrs.evolve(plan, topics=others), "checkpoint", False)


@pytest.mark.parametrize(("kind", "batch"), [("foreachBatch", 4), ("write_id", 0)])
def test_its_tokens_are_those_of_the_same_records(
    kind: str, batch: int, written: dict[str, Any], plan: WritePlan
) -> None:
    token = read_token(written[f"token of {kind}"], 7)
    assert token is not None
    now = Writer(token.writer.query, token.writer.sink, "orders", kind=token.writer.kind)
    work = TransactionSpec(now, "tx", 1, "orders", records_digest(plan), 60_000, former=records_digest_1(plan))

    assert (token.batch, token.number) == (batch, 7)
    assert token.plan == records_digest_1(plan)
    assert work.has_records(token.plan)
    other = attrs.evolve(plan, topics=attrs.evolve(plan.topics, names=("others",)))
    assert not attrs.evolve(work, plan=records_digest(other), former=records_digest_1(other)).has_records(token.plan)


def test_its_ids_of_topics_are_found_under_the_read(written: dict[str, Any], table: TableDef) -> None:
    read = read_id(read_plan(resolve(table, "read")), Cluster("broker:9092"))

    assert _read_ids(written["topics.json"], "topics.json") == {read: {"orders": "u1"}}
