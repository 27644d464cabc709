"""Cases of what problems advise: something with a problem, and the same thing after its advice was followed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import attrs

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.declare.config import WatermarkConfig
from kdsl.errors import Problem, ProblemError, ResolveError
from kdsl.explanations import Text
from kdsl.formats import Direction
from kdsl.resolve import problems
from kdsl.scripts.planner import check_script
from tests.resolve.tables import COLUMNS, GOOD, table

CLUSTER = Cluster("broker:9092")
QUOTE = "'"
UNITS = {"s": "SECOND", "min": "MINUTE", "h": "HOUR"}
SCRIPT = """
CREATE TABLE s (id INT, name STRING, ts TIMESTAMP(3)) WITH (
  'connector' = 'kafka', 'topic' = 's', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE m (id INT, name STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (
  'connector' = 'kafka', 'topic' = 'm', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE sink (id BIGINT, name STRING) WITH ('connector' = 'print');
CREATE TABLE upserted (id BIGINT, name STRING, PRIMARY KEY (id, name) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'u', 'key.format' = 'json', 'value.format' = 'json');
"""


@attrs.frozen
class Shown:
    """A call that declares or builds something, with the text that does so."""

    call: Callable[[], object]
    text: str
    language: str = "python"

    def __call__(self) -> object:
        return self.call()


class Case(Protocol):
    """What all cases have: the code of a problem, a part of its advice, and the problems before and after."""

    @property
    def code(self) -> str: ...
    @property
    def advice(self) -> str: ...
    def find_problems(self) -> Iterable[Problem]: ...
    def find_remaining(self) -> Iterable[Problem]: ...
    def show(self) -> tuple[Text | None, Text | None]:
        """What has the problem, and what follows the advice; None where the case does not say how a user writes it."""
        ...


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

    def show(self) -> tuple[Text, Text]:
        return Text(self.wrong.strip(), "sql"), Text(self.right.strip(), "sql")


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

    def show(self) -> tuple[Text, Text]:
        columns = self.columns if self.right_columns is None else self.right_columns
        return write_table(self.columns, **self.wrong), write_table(columns, **self.right)


@attrs.frozen
class Called:
    """A call that raises a problem or returns it in a list, a part of its advice, and the call that follows it.

    Each call declares or builds something: a class, a cluster, a builder, a document. The page of a problem that only
    a Spark session finds takes its message from here.
    """

    code: str
    wrong: Callable[[], object]
    advice: str
    right: Callable[[], object]
    message: str = ""

    def find_problems(self) -> list[Problem]:
        return find_problems_of_call(self.wrong)

    def find_remaining(self) -> list[Problem]:
        return find_problems_of_call(self.right)

    def show(self) -> tuple[Text | None, Text | None]:
        wrong, right = (
            Text(call.text, call.language) if isinstance(call, Shown) else None for call in (self.wrong, self.right)
        )
        return wrong, right


def write_table(
    columns: Iterable[str],
    options: Mapping[str, Any] | None = None,
    without: Iterable[str] = (),
    primary_key: Iterable[str] = (),
    watermark: WatermarkConfig | None = None,
) -> Text:
    """The statement that declares what `tests.resolve.tables.table` makes of the same arguments."""
    lines = list(columns) or list(COLUMNS)
    if watermark is not None:
        number, unit = watermark.delay.split()
        delay = f"INTERVAL '{number}' {UNITS.get(unit, unit)}"
        lines.append(f"WATERMARK FOR {watermark.column} AS {watermark.column} - {delay}")
    if primary_key:
        lines.append(f"PRIMARY KEY ({', '.join(primary_key)}) NOT ENFORCED")
    chosen = {key: value for key, value in {**GOOD, **(options or {})}.items() if key not in without}
    values = [f"'{key}' = '{str(value).replace(QUOTE, QUOTE * 2)}'" for key, value in chosen.items()]
    text = "CREATE TABLE orders (\n  " + ",\n  ".join(lines) + "\n) WITH (\n  " + ",\n  ".join(values) + "\n)"
    return Text(text, "sql")


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
    if isinstance(case, Called) and case.message:
        assert any(p.message.startswith(case.message.rstrip("…")) for p in case.find_problems())
    fixes = [p.fix for p in case.find_problems() if p.code == case.code]

    assert fixes
    assert all(fixes)
    assert any(case.advice in fix for fix in fixes), fixes
    assert [str(p) for p in case.find_remaining() if p.severity == "error" or p.code == case.code] == []
