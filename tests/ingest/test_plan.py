"""Plans of ingestions: what becomes of the columns of a table, and the text of a plan."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kdsl.declare.definition import ColumnDef
from kdsl.errors import Problem, ResolveError
from kdsl.ingest import Ingestion, Transform
from kdsl.ingest.initial_schemas import read_initial_schemas
from kdsl.ingest.projection import TransformedTable, TransformRule, transform_table
from kdsl.own_columns import EVENT
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.widening import TableSchema

EXAMPLES = Path(__file__).parent / "plans"
TABLE = ("shop", "orders")
SCHEMA = TableSchema(
    (t.Field("id", t.BigInt(nullable=False)), t.Field("country", t.STRING), t.Field("amount", t.Decimal(10, 2))),
    ("id",),
)
OFFSET = (ColumnDef("offset", t.BigInt(nullable=False), "metadata", virtual=True),)


def transform(
    rule: Transform | None, *, schema: TableSchema = SCHEMA, allow_trimming: bool = False
) -> tuple[TransformedTable | None, tuple[Problem, ...]]:
    rules = [] if rule is None else [TransformRule.parse(rule)]
    return transform_table(TABLE, schema, rules, OFFSET, allow_trimming=allow_trimming)


def transform_without_problems(
    rule: Transform | None, *, schema: TableSchema = SCHEMA, allow_trimming: bool = False
) -> TransformedTable:
    table, wrong = transform(rule, schema=schema, allow_trimming=allow_trimming)
    assert wrong == ()
    assert table is not None
    return table


def columns(table: TransformedTable) -> dict[str, str]:
    return {c.name: c.sql for c in table.columns}


def names(rule: Transform | None) -> list[str]:
    return list(columns(transform_without_problems(rule)))


def of(projection: str | None = None, *, filter_: str | None = None, keys: tuple[str, ...] = ()) -> Transform:
    return Transform(r"\.*.\.*", projection=projection, filter=filter_, primary_keys=keys)


class TestColumns:
    def test_without_a_transform_all_columns_pass_and_metadata_is_appended(self) -> None:
        table = transform_without_problems(None)

        assert list(columns(table)) == ["id", "country", "amount", "offset"]
        assert (table.primary_key, table.fixed) == (("id",), False)

    @pytest.mark.parametrize("star", [r"\*", "*"])
    def test_a_star_passes_columns_and_expressions_are_added(self, star: str) -> None:
        table = transform_without_problems(of(f"{star}, UPPER(country) AS code"))

        assert list(columns(table)) == ["id", "country", "amount", "code", "offset"]
        assert columns(table)["code"] == "upper(`country`)"
        assert table.schema.columns[3].type == t.STRING

    def test_the_order_is_that_of_the_projection(self) -> None:
        assert names(of("amount * 2 AS double_amount, *")) == ["double_amount", "id", "country", "amount", "offset"]

    def test_columns_keep_their_comments_also_under_another_name(self) -> None:
        schema = TableSchema((t.Field("id", t.BigInt(), "the number"), t.Field("n", t.STRING, "a name")), ("id",))
        table = transform_without_problems(of("id, n AS name, UPPER(n) AS code, n"), schema=schema)

        assert [c.comment for c in table.columns] == ["the number", "a name", None, "a name"]

    def test_members_of_a_row_are_named_as_in_flink_cdc(self) -> None:
        table = transform_without_problems(of("id, ROW(id, country) AS pair"))

        assert str(table.columns[1].type.as_nullable()) == "ROW<`f0` BIGINT NOT NULL, `f1` STRING>"
        assert table.columns[1].sql == "named_struct('f0', `id`, 'f1', `country`)"

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("big + CAST(1 AS DECIMAL(1, 0))", "DECIMAL(19, 2)"),
            ("big * CAST(2 AS DECIMAL(1, 0))", "DECIMAL(19, 2)"),
            ("big / CAST(2 AS DECIMAL(1, 0))", "DECIMAL(19, 2)"),
            ("small / CAST(2 AS DECIMAL(1, 0))", "DECIMAL(16, 6)"),
            ("small + CAST(1 AS DECIMAL(1, 0))", "DECIMAL(11, 0)"),
            ("ABS(big)", "DECIMAL(19, 2)"),
            ("CEIL(big)", "DECIMAL(19, 0)"),
            ("ARRAY[big + CAST(1 AS DECIMAL(1, 0))]", "ARRAY<DECIMAL(19, 2)>"),
            ("big", "DECIMAL(20, 2)"),
        ],
    )
    def test_decimals_of_expressions_have_19_digits_if_the_pipeline_says_so(
        self, expression: str, expected: str
    ) -> None:
        schema = TableSchema(
            (t.Field("id", t.BigInt()), t.Field("small", t.Decimal(10, 0)), t.Field("big", t.Decimal(20, 2))), ("id",)
        )
        rules = [TransformRule.parse(of(f"id, {expression} AS c"))]
        table, problems = transform_table(TABLE, schema, rules, max_precision=19)

        assert problems == ()
        assert table is not None
        column = table.columns[1]
        assert str(column.type) == expected
        assert column.sql.startswith("TRY_CAST(") == (expression != "big")

    def test_an_expression_replaces_a_column_of_the_star(self) -> None:
        table = transform_without_problems(of("*, TRIM(country) AS country"))

        assert list(columns(table)) == ["id", "country", "amount", "offset"]
        assert "trim" in columns(table)["country"]

    def test_without_a_star_the_columns_are_fixed_and_metadata_must_be_named(self) -> None:
        table = transform_without_problems(of("id, amount, `offset` AS place"))

        assert list(columns(table)) == ["id", "amount", "place"]
        assert table.fixed

    def test_the_names_of_the_table_and_the_kind_of_the_row_are_columns(self) -> None:
        table = transform_without_problems(of("id, __table_name__ AS t, __schema_name__ AS s, __namespace_name__ n, "
                               "__data_event_type__ AS kind"))  # fmt: skip

        assert list(columns(table).values())[1:] == [
            "CAST('orders' AS STRING)", "CAST('shop' AS STRING)", "CAST(NULL AS STRING)", f"`{EVENT}`",
        ]  # fmt: skip

    def test_a_wider_column_gives_a_wider_expression(self) -> None:
        wider = TableSchema((t.Field("id", t.BigInt(nullable=False)), t.Field("amount", t.Double())), ("id",))
        rule = of("id, amount + 1 AS more")

        assert transform_without_problems(rule).schema.columns[1].type == t.Decimal(13, 2)
        assert transform_without_problems(rule, schema=wider).schema.columns[1].type == t.Double()

    def test_only_the_first_transform_that_fits_counts(self) -> None:
        rules = [TransformRule.parse(Transform(*one)) for one in (("other.x",), ("SHOP.orders",), (r"\.*.\.*",))]

        table, _ = transform_table(TABLE, SCHEMA, [rules[0], rules[1]])

        assert table is not None
        assert list(columns(table)) == ["id", "country", "amount"]


class TestAddedColumns:
    def add(self, text: str, projection: str | None = None) -> list[str]:
        return names(Transform(r"\.*.\.*", projection=projection, add_columns=text))

    def test_they_stand_where_they_say(self) -> None:
        text = "a AS UPPER(country) AFTER id, b AS 1 COMMENT 'c' FIRST, c AS 'x, y', d AS 2 AFTER a"

        assert self.add(text) == ["b", "id", "a", "d", "country", "amount", "offset", "c"]
        assert self.add("a AS amount + 1 AFTER id", "id, country") == ["id", "a", "country"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("id AS 1", "the column 'id' that is added exists already"),
            ("x AS 1 AFTER idd", "there is no such column (did you mean 'id'?)"),
            ("x AS UPPER(amount)", "add-columns"),
        ],
    )
    def test_mistakes(self, text: str, message: str) -> None:
        _, (problem,) = transform(Transform(r"\.*.\.*", add_columns=text))

        assert message in problem.message
        assert problem.where.path == "$.transform[0].add-columns[0]"

    @pytest.mark.parametrize("text", ["x", "x AS", "x AS UPPER(", "x AS 1 y"])
    def test_what_cannot_be_read(self, text: str) -> None:
        ingestion = Ingestion.read(f"""source: {{type: kafka, properties.bootstrap.servers: "a:1", topic: t}}
sink: {{type: memory}}
transform:
  - source-table: t
    add-columns: {text!r}
""")[0]  # fmt: skip
        assert ingestion is not None

        (problem,) = ingestion.problems()
        assert (problem.code, problem.where.path) == ("ingest-expression", "$.transform[0].add-columns")


class TestDeclaredColumns:
    def test_a_star_has_them_in_their_order(self) -> None:
        tables, wrong = read_initial_schemas(
            """CREATE TABLE shop.orders (twice AS amount * 2, amount DECIMAL(10, 2), place BIGINT NOT NULL METADATA FROM
            'offset', id BIGINT NOT NULL)"""
        )
        declared = tables[TABLE].columns
        metadata = [c for c in declared if c.role == "metadata"]
        rule = TransformRule.parse(
            Transform(r"\.*.\.*", primary_keys=("place",), add_columns="thrice AS twice + amount AFTER twice")
        )
        table, problems = transform_table(TABLE, SCHEMA, [rule], [*metadata, *OFFSET], declared)

        assert (wrong, problems) == ([], ())
        assert table is not None
        assert list(columns(table)) == ["twice", "thrice", "amount", "place", "id", "country", "offset"]
        assert columns(table)["thrice"].count("`amount`") == 2
        assert table.primary_key == ("place",)

    def test_an_expression_that_cannot_be_translated_is_a_problem(self) -> None:
        declared = read_initial_schemas("CREATE TABLE shop.orders (x AS UPPER(nothing))")[0][TABLE].columns
        _, problems = transform_table(TABLE, SCHEMA, [], (), declared)

        assert [p.code for p in problems] == ["ingest-expression"]


class TestKeys:
    def test_the_key_of_the_transform_is_not_null(self) -> None:
        table = transform_without_problems(of("*", keys=("id", "country")))

        assert table.primary_key == ("id", "country")
        assert not table.schema.columns[1].type.nullable

    def test_a_key_column_may_not_be_left_out(self) -> None:
        _, wrong = transform(of("country"))

        assert [(p.where.path, p.code) for p in wrong] == [("$.transform[0].projection", "ingest-transform")]
        assert "transform.allow.trimming.pk-columns" in wrong[0].fix

    def test_unless_it_is_allowed(self) -> None:
        assert transform_without_problems(of("country"), allow_trimming=True).primary_key == ()


class TestFilter:
    def test_it_uses_columns_and_the_names_of_the_projection(self) -> None:
        table = transform_without_problems(of("*, UPPER(country) AS code", filter_="code = 'DE' AND amount > 1.5"))

        assert table.filter is not None
        assert "upper(`country`) = 'DE'" in table.filter

    def test_a_name_of_the_projection_comes_before_the_column(self) -> None:
        assert "trim" in str(
            transform_without_problems(of("*, TRIM(country) AS country", filter_="country = 'x'")).filter
        )


@pytest.mark.parametrize(
    ("rule", "path", "message"),
    [
        (of("*, UPER(country) AS c"), "projection", "there is no function 'UPER' that can be translated (did you mean"),
        (of("*, contry"), "projection", "there is no column 'contry' (did you mean 'country'?)"),
        (of("*, amount + 1"), "projection", "has no name"),
        (of("*, NULL AS x"), "projection", "has the type NULL"),
        (of("id, amount AS a, country AS a"), "projection", "two columns 'a'"),
        (of("*, UPPER(country) AS a, a AS b"), "projection", "there is no column 'a'"),
        (of("*, SUM(amount) AS s"), "projection", "SUM is an aggregate"),
        (of(filter_="country"), "filter", "must be true or false"),
        (of(filter_="nix > 1"), "filter", "there is no column 'nix'"),
        (of(keys=("no",)), "primary-keys", "there is no column 'no'"),
        (Transform("shop.orders", partition_keys=("day",)), "partition-keys", "there is no column 'day'"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_reported_with_its_path(rule: Transform, path: str, message: str) -> None:
    table, wrong = transform(rule)

    assert table is None
    assert [p.where.path for p in wrong] == [f"$.transform[0].{path}"]
    assert message in wrong[0].message


def test_a_metadata_column_with_the_name_of_a_column_is_reported() -> None:
    _, wrong = transform(None, schema=TableSchema((t.Field("offset", parse_type("INT")),)))

    assert "value.fields-prefix" in wrong[0].fix


NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def example(name: str) -> Ingestion:
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    ingestion, wrong = Ingestion.read(text, {"kafka.bootstrap": "a:9092"}, file=f"{name}.yaml")
    assert [p for p in wrong if p.severity == "error"] == []
    assert ingestion is not None
    return ingestion


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_plan(name: str) -> None:
    assert example(name).explain() == (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_written_and_read_again(name: str) -> None:
    again, _ = Ingestion.read(example(name).to_yaml(), {})

    assert again == example(name)


def test_a_plan_is_equal_to_that_of_an_equal_ingestion_and_can_be_pickled() -> None:
    plan = example("kafka-to-delta").plan()

    assert plan == example("kafka-to-delta").plan()
    assert pickle.loads(pickle.dumps(plan)).source == plan.source


def test_a_plan_says_what_becomes_of_a_table_that_appears_later() -> None:
    plan = example("kafka-to-delta").plan()

    table, wrong = plan.table(("shop", "items_7"), SCHEMA)

    assert wrong == ()
    assert table is not None
    assert table.targets == (("lake", "items"),)
    assert plan.targets(("shop", "users")) == (("lake", "users"),)


def test_an_ingestion_with_mistakes_is_not_planned() -> None:
    ingestion = example("kafka-to-delta")

    with pytest.raises(ResolveError) as error:
        Ingestion(ingestion.source, ingestion.sink, transform=[of("FIRST("), of("nix")]).plan()

    assert error.value.problems[0].where.path == "$.transform[0].projection"


def test_a_route_whose_group_matches_nothing_is_a_problem_of_the_plan() -> None:
    _, problems = Ingestion.read("""
source:
  type: kafka
  properties.bootstrap.servers: localhost:9092
  topic: t
  scan.value.initial-schemas.ddls: "CREATE TABLE shop.orders (id INT, PRIMARY KEY (id) NOT ENFORCED)"
sink: {type: memory}
route:
  - source-table: shop.(x)*orders
    sink-table: ods.$1
""")

    (problem,) = problems
    assert (problem.code, problem.where.line) == ("ingest-route", 8)
    assert "the table 'shop.orders': a route gives its sink table a name that cannot be one: 'ods.'" in problem.message
