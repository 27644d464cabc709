"""Cases of what problems advise: something with a problem, and the same thing after its advice was followed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import attrs

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.errors import Problem, ProblemError, ResolveError
from kdsl.formats import Direction
from kdsl.resolve import problems
from kdsl.scripts.planner import check_script
from tests.resolve.tables import table

CLUSTER = Cluster("broker:9092")
SCRIPT = """
CREATE TABLE s (id INT, name STRING, ts TIMESTAMP(3)) WITH (
  'connector' = 'kafka', 'topic' = 's', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE m (id INT, name STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (
  'connector' = 'kafka', 'topic' = 'm', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE sink (id BIGINT, name STRING) WITH ('connector' = 'print');
CREATE TABLE upserted (id BIGINT, name STRING, PRIMARY KEY (id, name) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'u', 'key.format' = 'json', 'value.format' = 'json');
"""


class Case(Protocol):
    """What all cases have: the code of a problem, a part of its advice, and the problems before and after."""

    @property
    def code(self) -> str: ...
    @property
    def advice(self) -> str: ...
    def find_problems(self) -> Iterable[Problem]: ...
    def find_remaining(self) -> Iterable[Problem]: ...


@attrs.frozen
class Sql:
    """A statement with a problem, a part of its advice, and the statement that follows it.

    The tables of ``SCRIPT`` come before both.
    """

    code: str
    wrong: str
    advice: str
    right: str

    def find_problems(self) -> list[Problem]:
        return find_sql_problems(self.wrong)

    def find_remaining(self) -> list[Problem]:
        return find_sql_problems(self.right)


@attrs.frozen
class Declared:
    """A table with a problem, a part of its advice, and the table that follows it; see `tests.resolve.tables.table`."""

    code: str
    wrong: Mapping[str, Any]
    advice: str
    right: Mapping[str, Any]
    direction: Direction = "read"
    columns: tuple[str, ...] = ()
    right_columns: tuple[str, ...] | None = None

    def find_problems(self) -> list[Problem]:
        return list(problems(table(*self.columns, **self.wrong), self.direction))

    def find_remaining(self) -> list[Problem]:
        columns = self.columns if self.right_columns is None else self.right_columns
        return list(problems(table(*columns, **self.right), self.direction))


@attrs.frozen
class Called:
    """A call that raises a problem or returns it in a list, a part of its advice, and the call that follows it.

    Each call declares or builds something: a class, a cluster, a builder, a document.
    """

    code: str
    wrong: Callable[[], object]
    advice: str
    right: Callable[[], object]

    def find_problems(self) -> list[Problem]:
        return find_problems_of_call(self.wrong)

    def find_remaining(self) -> list[Problem]:
        return find_problems_of_call(self.right)


def find_sql_problems(statement: str) -> list[Problem]:
    try:
        return list(check_script(read_script(SCRIPT + statement), CLUSTER, checkpoint="/checkpoint")[1])
    except ResolveError as e:
        return list(e.problems)


def find_problems_of_call(call: Callable[[], object]) -> list[Problem]:
    try:
        result = call()
    except ResolveError as e:
        return list(e.problems)
    except ProblemError as e:
        return [e.problem]
    return [p for p in result if isinstance(p, Problem)] if isinstance(result, list | tuple) else []


def check_advice(case: Case) -> None:
    """Check that the problem has the advice, and that whoever follows it gets no error and not the same warning."""
    fixes = [p.fix for p in case.find_problems() if p.code == case.code]

    assert fixes
    assert all(fixes)
    assert any(case.advice in fix for fix in fixes), fixes
    assert [str(p) for p in case.find_remaining() if p.severity == "error" or p.code == case.code] == []
