"""Bodies of computed columns: values on rows, SQL for Spark, and both give the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs
import pytest
from pyspark.sql import Column, SparkSession, functions as F

import kdsl
from kdsl import Col, Int32, KafkaTable, Virtual, as_value, col, computed, virtual
from kdsl.declare.definition import ColumnDef, Expression
from kdsl.declare.dsl.sql_expression import SqlExpression
from kdsl.types import model as t
from kdsl.types.spark import spark_type


class Color(Enum):
    RED = "red"


@attrs.frozen
class Address:
    city: str | None


class Values(KafkaTable):
    a: Col[int]
    b: Col[int]
    small: Col[Int32]
    x: Col[float]
    price: Col[Decimal] = col(type="decimal(10,2)")
    name: Col[str]
    note: Col[str | None]
    flag: Col[bool]
    day: Col[date]
    at: Col[datetime]
    tags: Col[list[str]]
    counts: Col[dict[str, int]]
    address: Col[Address]
    odd_: Col[int] = col(name="odd `name`")
    offset: Virtual[int] = virtual("offset")


ROW = Values(
    a=7,
    b=-3,
    small=2,
    x=2.5,
    price=Decimal("10.25"),
    name="it's",
    note=None,
    flag=True,
    day=date(2025, 1, 31),
    at=datetime(2025, 1, 1, 12, tzinfo=UTC),
    tags=["p", "q"],
    counts={"k": 3},
    address=Address("Rome"),
    odd_=9,
)


def expression(body: Callable[[Any], Any]) -> Expression:
    """The expression of a body over the columns above."""

    class Table(Values):
        total = computed(body)

    *_, result = Table.definition().columns
    assert [str(p) for p in Table.definition().problems] == []
    assert result.expression is not None
    return result.expression


def annotate(kind: str, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A body with a return annotation."""
    body.__annotations__["return"] = kind
    return body


CASES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("int", lambda r: r.a + r.b * 2 - 1, "(`a` + (`b` * 2)) - 1"),
    ("int", lambda r: (r.a + r.b) * 2, "(`a` + `b`) * 2"),
    ("int", lambda r: 1 + r.a, "1 + `a`"),
    ("int", lambda r: 10 - r.a - (3 - r.b), "(10 - `a`) - (3 - `b`)"),
    ("int", lambda r: 2 * r.a, "2 * `a`"),
    ("int", lambda r: -r.a, "- `a`"),
    ("int", lambda r: abs(r.b) + +r.a, "ABS(`b`) + `a`"),
    ("int", lambda r: r.a - -5, "`a` - (-5)"),
    ("int", lambda r: r.b % 5, "PMOD(`b`, 5)"),
    ("int", lambda r: r.a % r.b, "(`a` % `b` + `b`) % `b`"),
    ("int", lambda r: 10 % r.b, "(10 % `b` + `b`) % `b`"),
    ("int", lambda r: r.small & r.a | 8, "(`small` & `a`) | 8"),
    ("int", lambda r: ~r.a, "~ `a`"),
    ("float", lambda r: r.a / r.b, "`a` / `b`"),
    ("float", lambda r: 1 / r.a, "1 / `a`"),
    ("float", lambda r: r.x * 1.5 + 1e16 - -0.5, "((`x` * 1.5D) + 1e+16D) - (-0.5D)"),
    ("float", lambda r: r.x**2, "POWER(`x`, 2)"),
    ("float", lambda r: r.x % -2, "(`x` % (-2) + (-2)) % (-2)"),
    ("Decimal", lambda r: r.price * r.a, "`price` * `a`"),
    ("Decimal", lambda r: r.price + Decimal("0.10") - Decimal(-1), "(`price` + 0.10BD) - (-1BD)"),
    ("Decimal", lambda r: -r.price % 3, "(- `price`) % 3"),
    ("bool", lambda r: r.a == 7, "`a` = 7"),
    ("bool", lambda r: r.a != r.b, "`a` <> `b`"),
    ("bool", lambda r: (r.a > 3) & (r.b <= 0), "(`a` > 3) AND (`b` <= 0)"),
    ("bool", lambda r: (r.a < 3) | r.flag, "(`a` < 3) OR `flag`"),
    ("bool", lambda r: (5 > r.a) | (5 >= r.b), "(`a` < 5) OR (`b` <= 5)"),  # noqa: SIM300
    ("bool", lambda r: True & r.flag, "TRUE AND `flag`"),
    ("bool", lambda r: r.note == None, "`note` IS NULL"),  # noqa: E711
    ("bool", lambda r: r.name != None, "`name` IS NOT NULL"),  # noqa: E711
    ("bool", lambda r: r.name == Color.RED, "`name` = 'red'"),
    ("str", lambda r: r.name + "'s \\ " + r.name, "(`name` || concat(chr(39), 's ', chr(92), ' ')) || `name`"),
    ("str", lambda r: "<" + r.name.upper() + r.name.lower(), "('<' || UPPER(`name`)) || LOWER(`name`)"),
    (
        "bool",
        lambda r: r.name.startswith("it") & r.name.endswith("s"),
        "STARTSWITH(`name`, 'it') AND ENDSWITH(`name`, 's')",
    ),
    ("bool", lambda r: r.day < date(2025, 2, 1), "`day` < DATE '2025-02-01'"),
    ("bool", lambda r: r.at >= datetime(2025, 1, 1, tzinfo=UTC), "`at` >= TIMESTAMP_LTZ '2025-01-01 00:00:00+00:00'"),
    ("datetime", lambda r: r.at + timedelta(days=1, seconds=3723), "`at` + INTERVAL '1 01:02:03.000000' DAY TO SECOND"),
    ("datetime", lambda r: r.at - timedelta(seconds=-1), "`at` - INTERVAL '-0 00:00:01.000000' DAY TO SECOND"),
    ("str", lambda r: r.tags[1], "`tags`[1]"),
    ("int", lambda r: r.counts["k"], "`counts`['k']"),
    ("str | None", lambda r: r.address.city, "`address`.`city`"),
    ("int", lambda r: r.odd_, "`odd ``name```"),
    ("int", lambda r: 5, "5"),
    ("str | None", lambda r: None, "NULL"),
    ("bytes", lambda r: b"\x01\xff", "X'01ff'"),
    ("bool", lambda r: False, "FALSE"),
    ("datetime", lambda r: datetime(2025, 1, 1, 1, tzinfo=UTC), "TIMESTAMP_LTZ '2025-01-01 01:00:00+00:00'"),
    ("float", lambda r: float("-inf"), "CAST('-inf' AS DOUBLE)"),
]


@pytest.mark.parametrize(("kind", "body", "expected"), CASES, ids=[text for _, _, text in CASES])
def test_a_body_becomes_sql(kind: str, body: Callable[[Any], Any], expected: str) -> None:
    assert expression(annotate(kind, body)) == Expression(expected)


def test_spark_returns_what_python_returns(spark: SparkSession) -> None:
    df = Values.rows([ROW])
    bodies = {f"c{i}": annotate(kind, body) for i, (kind, body, _) in enumerate(CASES)}
    table: Any = type("Table", (Values,), {name: computed(body) for name, body in bodies.items()})
    results = [c for c in table.definition().columns if c.expression is not None]

    (read,) = table.collect(df.select("*", *map(_column, results)))

    by_python = {name: body(ROW) for name, body in bodies.items()}
    by_spark = {name: getattr(read, name) for name in bodies}
    assert by_spark == by_python


def _column(column: ColumnDef) -> Column:
    assert column.expression is not None
    return F.expr(column.expression.text).cast(spark_type(column.type)).alias(column.name)


class Chained(KafkaTable):
    RATE: int = 2
    amount: Col[Decimal] = col(type="decimal(10,2)")
    name: Col[str]

    def add_tax(self, value: Any) -> Any:
        """A function that bodies use."""
        return value * Decimal("1.2")

    @staticmethod
    def halve(value: Any) -> Any:
        """Another one."""
        return value / 2

    @computed(type="decimal(12,2)")
    def gross(self) -> Decimal:
        return self.add_tax(self.amount)  # type: ignore[no-any-return]

    @computed
    def half(self) -> Decimal:
        return self.halve(self.gross) + 1  # type: ignore[no-any-return]

    @computed
    def loud(self) -> str:
        return as_value(F.upper(self.name))

    @computed
    def louder(self) -> str:
        return as_value(F.concat(self.loud, F.lit("!")))


def test_bodies_may_use_other_computed_columns_and_functions_of_the_class() -> None:
    texts = [c.expression.text for c in Chained.definition().columns if c.expression]

    assert texts == [
        "`amount` * 1.2BD",
        "(CAST(`amount` * 1.2BD AS decimal(12,2)) / 2) + 1",
        "as_value(F.upper(self.name))",
        "as_value(F.concat(self.loud, F.lit('!')))",
    ]


def test_a_body_of_pyspark_functions_creates_its_column_once_there_is_a_session(spark: SparkSession) -> None:
    df = Chained.rows([Chained(amount=Decimal(1), name="Ann")])
    by_name = {c.name: c.expression for c in Chained.definition().columns if c.expression and c.expression.column}
    results = {name: e.column() for name, e in by_name.items() if e.column is not None}

    assert [
        row.asDict() for row in df.select(results["loud"].alias("loud"), results["louder"].alias("louder")).collect()
    ] == [{"loud": "ANN", "louder": "ANN!"}]


def test_what_only_spark_can_work_out_is_not_on_new_rows() -> None:
    row = Chained(amount=Decimal(1), name="Ann")

    assert (row.gross, row.half) == (Decimal("1.2"), Decimal("1.6"))
    with pytest.raises(AttributeError) as error:
        _ = row.loud
    assert str(error.value) == (
        "Chained.loud is computed by Spark, so only rows that were read with it have it; Chained.collect(df) returns "
        "such rows if df has the column"
    )


def test_the_source_of_longer_bodies_is_stored() -> None:
    class Long(KafkaTable):
        name: Col[str]

        @computed
        def initial(self) -> str:
            """The first letter."""
            first = F.substring(self.name, 1, 1)
            return as_value(first)

    (_, result) = Long.definition().columns
    assert result.expression is not None
    assert result.expression.text == "first = F.substring(self.name, 1, 1)\nreturn as_value(first)"


def test_a_body_that_returns_no_column_is_reported_when_it_is_run(spark: SparkSession) -> None:
    class Wrong(KafkaTable):
        name: Col[str]

        @computed
        def constant(self) -> str:
            F.upper(self.name)
            return "constant"

    (_, result) = Wrong.definition().columns
    assert result.expression is not None
    assert result.expression.column is not None
    with pytest.raises(Exception, match=r"the body of Wrong.constant returns 'constant', which is not a Spark column"):
        result.expression.column()


def test_a_session_does_not_change_what_is_declared(spark: SparkSession) -> None:
    def make() -> type[KafkaTable]:
        class Table(KafkaTable):
            name: Col[str]

            @computed
            def now(self) -> datetime:
                return as_value(F.current_timestamp())

            @computed
            def first(self) -> str:
                return as_value(F.lit("x") + self.name)

        return Table

    texts = [c.expression.text for c in make().definition().columns if c.expression]

    assert texts == ["as_value(F.current_timestamp())", "as_value(F.lit('x') + self.name)"]
    assert make().definition().problems == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda r: r.tags[-1], "the body uses `tags`[-1], which has no counterpart in SQL"),
        (lambda r: r.name[0], "the body uses `name`[0], which has no counterpart in SQL"),
        (lambda r: [t for t in r.tags], "the body iterates over `tags`"),  # noqa: C416
        (
            lambda r: r.a in (1, 2),
            "the body uses a column as a condition (with if, and, or, not or in), but its value is not known yet",
        ),
        (
            lambda r: not r.flag,
            "the body uses a column as a condition (with if, and, or, not or in), but its value is not known yet",
        ),
        (lambda r: 5 // r.a, "the body divides with //, which Spark rounds differently"),
        (lambda r: str(r.a), "the body converts a column to a string"),
        (lambda r: r.a + Decimal("nan"), "the body uses Decimal('NaN') of type Decimal, which SQL has no literal for"),
        (lambda r: time(1) == r.a + {}, "the body uses {} of type dict, which SQL has no literal for"),
        (lambda r: r.rows, None),
    ],
)
def test_a_body_that_neither_can_do_is_refused(body: Callable[[Any], Any], message: str | None) -> None:
    class Table(Values):
        total = computed(annotate("int", body))

    assert [p.code for p in Table.definition().problems] == ["computed"]
    assert message is None or Table.definition().problems[0].message == message


def test_a_key_of_a_map_may_be_negative() -> None:
    assert SqlExpression("m", t.Map(t.Int(), t.STRING))[-1].text == "m[(-1)]"


def test_a_column_that_is_written_in_sql_has_only_a_declared_comment() -> None:
    class Sums(KafkaTable, topic="sums"):
        a: Col[int]
        twice: Virtual[int] = kdsl.expression("a * 2")
        half: Virtual[int] = kdsl.expression("a / 2", comment="Half of a.")

        @computed
        def third(self) -> int:
            """A third of a."""
            return self.a

    assert {c.name: c.comment for c in Sums.definition().columns} == {
        "a": None,
        "twice": None,
        "half": "Half of a.",
        "third": "A third of a.",
    }
