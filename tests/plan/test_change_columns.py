"""Plans with Spark's change columns."""

from __future__ import annotations

import pytest

from kdsl.ddl.load import sql
from kdsl.errors import ResolveError
from kdsl.plan.change_columns import add_commit_columns, change_names

SOURCE = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1'"
CHANGES = f"CREATE TABLE c (id INT, name STRING) WITH ({SOURCE}, 'format' = 'debezium-json')"
UPSERTS = (
    "CREATE TABLE u (id INT, `_change_type` STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', "
    "'topic' = 't', 'key.format' = 'json', 'value.format' = 'json', 'properties.bootstrap.servers' = 'h:1')"
)


def test_offset_and_timestamp_are_metadata_at_the_end() -> None:
    plan = add_commit_columns(sql(CHANGES).read_plan())

    assert plan.output.names == ("_row_kind", "id", "name", "_commit_version", "_commit_timestamp")
    assert [(m.column, m.key) for m in plan.metadata] == [
        ("_commit_version", "offset"),
        ("_commit_timestamp", "timestamp"),
    ]
    assert change_names(plan) == ["id", "name", "_change_type", "_commit_version", "_commit_timestamp"]


def test_all_problems_are_reported() -> None:
    with pytest.raises(ResolveError) as caught:
        add_commit_columns(sql(UPSERTS).read_plan())

    assert [p.code for p in caught.value.problems] == ["change-columns-images", "change-columns-taken"]
    assert "declare changelog='upsert' ('scan.changelog.mode')" in str(caught.value)


def test_rows_that_are_not_changes_have_none() -> None:
    with pytest.raises(ResolveError) as caught:
        add_commit_columns(sql(CHANGES.replace("debezium-json", "json")).read_plan())

    assert "each record of the table is a new row" in str(caught.value)
