"""Change data in scripts: what ``SET`` and the option say of events that come again, without Spark."""

from __future__ import annotations

import pytest

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.errors import Problem
from kdsl.plan.model import Upserts
from kdsl.scripts.planner import check_script, plan_script
from kdsl.scripts.script_plan import ScriptPlan

CLUSTER = Cluster("broker:9092")
OPTIONS = (
    "'connector' = 'kafka', 'topic' = 't', 'format' = 'debezium-json', 'scan.startup.mode' = 'earliest-offset', "
    "'scan.bounded.mode' = 'latest-offset'"
)
TABLES = f"""
CREATE TABLE changes (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({OPTIONS});
CREATE TABLE without_key (id BIGINT, name STRING) WITH ({OPTIONS});
CREATE TABLE normalized (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  {OPTIONS}, 'cdc-events-duplicate' = 'true');
CREATE TABLE rows (id BIGINT, name STRING) WITH (
  'connector' = 'kafka', 'topic' = 'r', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE shown (name STRING, total BIGINT) WITH ('connector' = 'print');
"""
SET = "SET 'table.exec.source.cdc-events-duplicate' = 'true';"


def plan_statements(text: str) -> ScriptPlan:
    return plan_script(read_script(TABLES + text, file="job.sql"), CLUSTER)


def problems_of(text: str) -> list[Problem]:
    return list(check_script(read_script(TABLES + text, file="job.sql"), CLUSTER)[1])


def upserts_of(plan: ScriptPlan) -> list[Upserts | None]:
    """How each table that is read keeps rows."""
    return [t.topic.read_plan().upserts for job in plan.insert_jobs for t in job.tables.values() if t.topic is not None]


KEPT = Upserts(("id",), events=True)


def test_set_applies_to_the_statements_after_it() -> None:
    plan = plan_statements(f"SELECT * FROM changes; {SET} SELECT * FROM changes; RESET; SELECT * FROM changes")

    assert upserts_of(plan) == [None, KEPT, None]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM normalized",
        f"{SET} SELECT * FROM changes",
        f"{SET} SELECT * FROM changes /*+ OPTIONS('scan.parallelism' = '2') */",
        f"CREATE VIEW v AS SELECT * FROM changes; {SET} SELECT * FROM v",
        f"{SET} CREATE VIEW v AS SELECT * FROM changes; SELECT * FROM v",
        "SELECT * FROM changes /*+ OPTIONS('cdc-events-duplicate' = 'true') */",
    ],
)
def test_a_table_is_compared_with_state_however_it_is_declared(query: str) -> None:
    assert upserts_of(plan_statements(query)) == [KEPT]


def test_the_primary_key_is_not_null_then() -> None:
    (job,) = plan_statements(f"{SET} SELECT id, name FROM changes").insert_jobs

    assert [str(c.type) for c in job.columns] == ["BIGINT NOT NULL", "STRING"]


def test_a_table_that_declares_otherwise_is_unchanged() -> None:
    plan = plan_statements(f"{SET} SELECT * FROM without_key /*+ OPTIONS('cdc-events-duplicate' = 'false') */")

    assert upserts_of(plan) == [None]


def test_tables_of_new_rows_are_unchanged() -> None:
    assert upserts_of(plan_statements(f"{SET} SELECT * FROM rows")) == [None]


def test_a_table_of_change_data_without_a_primary_key_is_refused() -> None:
    """As in Flink, where it is read; a table that nobody reads is not one of them."""
    (problems,) = problems_of(f"{SET} SELECT * FROM without_key")

    assert (problems.code, problems.severity) == ("cdc-duplicate-key", "error")
    assert "'table.exec.source.cdc-events-duplicate' is true" in problems.message
    assert problems.message.endswith("PRIMARY KEY, and without_key declares none")
    assert "PRIMARY KEY (...) NOT ENFORCED" in problems.fix
    assert problems_of(f"{SET} SELECT * FROM changes") == []


class TestGroups:
    """A group over change data counts each event, also those that come again."""

    @pytest.mark.parametrize("table", ["changes", "without_key"])
    def test_it_is_warned_of_once_with_what_to_declare(self, table: str) -> None:
        query = f"INSERT INTO shown SELECT name, COUNT(*) FROM {table} GROUP BY name;"
        results = [p for p in problems_of(query + query) if p.code == "cdc-duplicate"]

        assert [p.severity for p in results] == ["warning"]
        assert results[0].where.line is not None
        assert "are counted twice" in results[0].message
        assert ("declare a PRIMARY KEY" in results[0].fix) == (table == "without_key")
        assert "'cdc-events-duplicate' = 'true'" in results[0].fix

    @pytest.mark.parametrize(
        "query",
        [
            "INSERT INTO shown SELECT name, COUNT(*) FROM normalized GROUP BY name",
            f"{SET} INSERT INTO shown SELECT name, COUNT(*) FROM changes GROUP BY name",
            "INSERT INTO shown SELECT name, id FROM changes",
        ],
    )
    def test_nothing_is_reported_if_rows_are_compared_or_not_counted(self, query: str) -> None:
        assert [p for p in problems_of(query) if p.code == "cdc-duplicate"] == []
