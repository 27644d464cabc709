"""Which changes of a declaration a checkpoint allows."""

from __future__ import annotations

from typing import Any

import pytest

from kdsl.errors import CheckpointError
from kdsl.ingest import Route, Transform
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.restart import check_restart, write_declaration
from kdsl.ingest.state import IngestState, Note
from tests.ingest.test_decision import Run, delta, plan, show

KEYED = Transform("t", primary_keys=("id",))


def state_after(planned: IngestPlan) -> IngestState:
    run = Run(planned)
    run.batch(show(delta(0, id="BIGINT", name="STRING")))
    return run.state.add(Note(0, declared=write_declaration(planned)))


def test_the_same_declaration_continues() -> None:
    planned = plan(transform=[KEYED], route=[Route("t", "lake.t")])

    check_restart(planned, state_after(planned), (), "c")


def test_rules_that_take_nothing_from_sink_tables_are_allowed() -> None:
    before = state_after(plan(transform=[KEYED]))
    more = Transform("t", projection="*, UPPER(name) AS big", primary_keys=("id",))

    check_restart(plan(transform=[more], route=[Route("u", "v")]), before, (), "c")


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ({"transform": [KEYED], "route": [Route("t", "other")]}, "another route: no table would go into t"),
        ({"transform": []}, "another transform: the primary key of t would change from id to none"),
        (
            {"transform": [Transform("t", projection="id", primary_keys=("id",))]},
            "t would get no more values for 'name'",
        ),
    ],
)
def test_rules_that_take_something_are_refused_unless_they_are_allowed(after: dict[str, Any], message: str) -> None:
    before = state_after(plan(transform=[KEYED]))

    with pytest.raises(CheckpointError, match=message):
        check_restart(plan(**after), before, (), "c")
    check_restart(plan(**after), before, ("route", "transform"), "c")


def test_declared_columns_that_sink_tables_have_cannot_be_removed() -> None:
    ddl = "CREATE TABLE t (id BIGINT, name STRING, place BIGINT METADATA FROM 'offset', loud AS UPPER(name))"
    before = state_after(plan(source={"initial_schemas": ddl}))
    fewer = ddl.replace(", place BIGINT METADATA FROM 'offset'", "")

    check_restart(plan(source={"initial_schemas": ddl.replace("UPPER", "LOWER")}), before, (), "c")
    for declared in (fewer, None):
        with pytest.raises(
            CheckpointError, match=r"another initial-schemas: t would get no more values for .*'place'"
        ) as e:
            check_restart(plan(source={"initial_schemas": declared}), before, (), "c")
        assert "--allow" not in str(e.value)


def test_the_order_of_changes_cannot_change() -> None:
    before = state_after(plan())

    with pytest.raises(CheckpointError, match="another distributed-tables"):
        check_restart(plan(source={"distributed_tables": True}), before, ("route", "transform"), "c")
