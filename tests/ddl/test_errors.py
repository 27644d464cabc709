"""Mistakes in SQL: where they are reported, what is expected there, and that no secret shows."""

from __future__ import annotations

import pytest

from kdsl.ddl.load import sql
from kdsl.ddl.script_reader import parse_script
from kdsl.errors import Problem, ResolveError
from kdsl.resolve import problems

WITH = "WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json')"


def problems_of(text: str) -> list[Problem]:
    return list(parse_script(text).problems)


def lines(problem: Problem) -> list[str]:
    return (problem.where.excerpt or "").splitlines()


def test_a_copy_of_a_table_is_not_one_declaration() -> None:
    with pytest.raises(ResolveError) as error:
        sql("CREATE TABLE t AS TABLE x")

    (problem,) = error.value.problems
    assert problem.message == "CREATE TABLE … AS TABLE copies another table, which only a script can do"


class TestLocations:
    def test_line_column_and_caret(self) -> None:
        (problem,) = problems_of(f"CREATE TABLE t (\n  id BIGNIT,\n  name STRING\n) {WITH}")

        assert (problem.where.line, problem.where.position) == (2, 6)
        assert str(problem).startswith("t.id (line 2, column 6): there is no type 'BIGNIT' (did you mean 'BIGINT'?)")
        assert lines(problem) == ["  id BIGNIT,", "     ^^^^^^"]

    def test_a_file_is_named(self) -> None:
        (problem,) = parse_script("CREATE TABEL t (id INT)", file="orders.sql").problems

        assert str(problem.where) == "orders.sql:1:8"
        assert problem.message == (
            "found 'TABEL', where TABLE, VIEW, TEMPORARY, CATALOG or DATABASE is expected (did you mean 'TABLE'?)"
        )

    def test_all_mistakes_of_a_script_at_once(self) -> None:
        actual = problems_of(
            "CREATE TABLE a (id INTT, name STRNG) WITH ('connector' = 'kafka' 'topic' = 't');\n"
            "SELEC 1;\n"
            "CREATE TABLE b (id INT) WIHT ('connector' = 'kafka');\n"
            "INSERT INTO b SELECT 1"
        )

        assert [(p.where.line, p.where.position) for p in actual] == [(1, 20), (1, 31), (1, 66), (2, 1), (3, 25)]

    def test_a_long_line_is_cut_around_the_position(self) -> None:
        columns = ", ".join(f"column_{i} STRING" for i in range(100))
        (problem,) = problems_of(f"CREATE TABLE t ({columns}, last STRIN) {WITH}")

        shown, caret = lines(problem)
        assert len(shown) <= 102
        assert shown.startswith("…")
        assert shown[caret.index("^") :].startswith("STRIN)")

    def test_problems_of_the_resolver_have_the_location_too(self) -> None:
        table = sql(
            "CREATE TABLE t (\n  id INT\n) WITH (\n  'connector' = 'kafka',\n  'topc' = 't', 'format' = 'json'\n)"
        )

        results = {p.code: p for p in problems(table.definition, "read")}
        assert (results["option-unknown"].where.line, results["option-unknown"].where.position) == (5, 3)
        assert lines(results["option-unknown"])[1].strip() == "^" * len("'topc' = 't'")

    def test_an_unknown_option_of_a_format_is_reported_at_its_location(self) -> None:
        table = sql(
            "CREATE TABLE t (id INT)\nWITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json',\n'json.x' = '1')"
        )

        (problem,) = [p for p in problems(table.definition, "read") if p.code == "option-unknown"]
        assert problem.where.line == 3


class TestWhatIsExpected:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("CREATE TABLE t (id INT METADTA) " + WITH, "found 'METADTA', where ',', ')', NOT NULL, METADATA"),
            ("CREATE TABLE t (id INT name STRING) " + WITH, "found 'name', where ',', ')'"),
            ("CREATE TABLE t (id) " + WITH, "found ')', where the type of the column 'id' or AS is expected"),
            ("CREATE TABLE t (id INT METADATA FROM timestamp) " + WITH, "found 'timestamp', where the metadata key"),
            ("CREATE TABLE t (id INT,) " + WITH, "there is a comma before ')'"),
            ("CREATE TABLE t (id INT WITH ('connector' = 'kafka')", "found 'WITH', where ',', ')'"),
            ("CREATE TABLE t (id INT) WITH ('connector' = 'kafka',)", "there is a comma before ')'"),
            ("CREATE TABLE t (id INT) WITH ('connector' 'kafka')", "found \"'kafka'\", where '=' is expected"),
            ("CREATE TABLE t (id INT) WITH (connector = 'kafka')", "found 'connector', where an option, as"),
            ("CREATE TABLE t (id INT) WITH ('connector' = kafka)", "found 'kafka', where the value of 'connector'"),
            ("CREATE TABLE t (id INT) WITH ('connector' = 'kafka'", "the statement ends here, where ',' or ')'"),
            ("CREATE TABLE t (id INT) WITH ('a' = 'b) ;", "a string begins here that does not end"),
            ("CREATE TABLE t (`id INT) " + WITH, "a name in back-quotes begins here that does not end"),
            ("CREATE TABLE t (id INT) /* " + WITH, "a comment begins here that does not end"),
            ('CREATE TABLE "t" (id INT) ' + WITH, "double quotes have no meaning in this SQL"),
            ("CREATE TABLE t (id INT) WITH (‘a’ = 'b')", "‘ is not a quote of SQL"),  # noqa: RUF001
            ("CREATE TABLE t (1st INT) " + WITH, "'1st' is neither a number nor a name"),
            ("CREATE TABLE t (`` INT) " + WITH, "a name cannot be empty"),
            ("CREATE TABLE 't' (id INT) " + WITH, "found \"'t'\", where the name of a table is expected"),
            ("CREATE TABLE a.b.c.d (id INT) " + WITH, "the name a.b.c.d has 4 parts"),
            ("CREATE TABLE t (id INT, PRIMARY KEY (id)) " + WITH, "nothing enforces the primary key"),
            ("CREATE TABLE t (id INT, PRIMARY KEY (id) ENFORCED) " + WITH, "nothing enforces the primary key"),
            ("CREATE TABLE t (id INT UNIQUE) " + WITH, "a Kafka table cannot have a UNIQUE constraint"),
            ("CREATE TABLE t (id INT, UNIQUE (id) NOT ENFORCED) " + WITH, "a Kafka table cannot have a UNIQUE"),
            ("CREATE TABLE t (id INT DEFAULT 1) " + WITH, "the column 'id' has a DEFAULT"),
            ("CREATE TABLE t (r ROW<a INT>, WATERMARK FOR r.a AS r.a) " + WITH, "a watermark is declared for a column"),
            ("CREATE TABLE t (c AS) " + WITH, "found ')', where an expression is expected"),
            ("CREATE TABLE t (id INT) COMMENT 'a' COMMENT 'b' " + WITH, "the statement has two clauses COMMENT"),
            ("CREATE TABLE t (id INT)) " + WITH, "found ')', where COMMENT"),
            ("CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED, PRIMARY KEY (id) NOT ENFORCED) " + WITH,
             "the table 't' has two primary keys"),
            ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE OR REPLACE TABLE … AS fills a table from a query"),
            ("CREATE DATABASE d", "the statement ends here, where AS DATABASE or WITH is expected"),
            ("ALTER TABLE t ADD x INT", "kdsl has no ALTER statement"),
            ("DROP TABEL t", "found 'TABEL', where TABLE, VIEW or CATALOG is expected (did you mean 'TABLE'?)"),
            ("INSERT t SELECT 1", "found 't', where INTO or OVERWRITE is expected"),
            ("INSERT INTO t", "the statement ends here, where SELECT, VALUES, WITH or '(' is expected"),
            ("EXECUTE STATEMENT SET BEGIN SELECT 1; END", "found 'SELECT', where INSERT INTO, CREATE TABLE, CREATE"),
            ("EXECUTE STATEMENT SET BEGIN END", "the statement set has no statement"),
            ("SET 'a'", "the statement ends here, where '=' is expected"),
            ("EXPLAIN", "the statement ends here, where"),
            ("INSERT INTO t SELECT ... FROM x", "... is a placeholder for something that is missing"),
        ],
    )  # fmt: skip
    def test_a_mistake(self, text: str, message: str) -> None:
        actual = problems_of(text)

        assert actual[0].message.startswith(message)
        assert actual[0].fix
        assert lines(actual[0])[-1].strip("^ ") == ""

    def test_what_follows_a_primary_key_hides_no_other_mistake(self) -> None:
        actual = problems_of(
            "CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED junk (1, 2), name STRNG, ts TIMESTAMP METADTA, "
            "PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'kafka', 'topic' 't')"
        )

        assert [p.message.partition(" (did")[0] for p in actual] == [
            "found 'junk', where ',' or ')' is expected",
            "there is no type 'STRNG'",
            "found 'METADTA', where ',', ')', NOT NULL, METADATA, COMMENT or PRIMARY KEY is expected",
            "found \"'t'\", where '=' is expected",
            "the table 't' has two primary keys",
        ]

    def test_a_missing_quote_is_searched_before_the_position(self) -> None:
        (problem, *_) = problems_of("CREATE TABLE t (id INT) WITH (\n  'connector' = 'kafka,\n  'topic' = 't'\n)")

        assert problem.fix == ("look at the string that begins in line 2, column 17: its closing quote may be missing")

    def test_a_duplicate_option_is_reported_with_both_locations(self) -> None:
        (problem,) = problems_of("CREATE TABLE t (id INT) WITH (\n  'topic' = 'a',\n  'topic' = 'b'\n)")

        assert problem.code == "option-repeated"
        assert problem.message == "the option 'topic' is set twice: in line 2, column 3, and in line 3, column 3"


class TestSecrets:
    SECRET = "geheim-4711"

    @pytest.mark.parametrize(
        "clause",
        [
            "'properties.ssl.key.password' = '{}', x",
            "'properties.ssl.key.password' '{}'",
            "'properties.ssl.key.password' = {}",
            "'properties.ssl.key.password' = '{}",
            "'properties.ssl.key.password = '{}'",
            "properties.ssl.key.password = '{}'",
            "'properties.sasl.jaas.config' = 'a.PlainLoginModule required\n username=\"u\" password=\"{}\";' x",
            '\'properties.sasl.jaas.config = \'a.PlainLoginModule required username="u" password="{}";\'',
            "'avro-confluent.url' = 'http://u:{}@registry:8081' x",
            "'avro-confluent.basic-auth.user-info' = 'u:{}' x",
            '"properties.ssl.key.password" = "{}"',
            "'a' = 'b' -- password: {}\n x",
        ],
    )
    def test_no_message_shows_one(self, clause: str) -> None:
        text = f"CREATE TABLE t (id INT) WITH ('connector' = 'kafka', {clause.format(self.SECRET)})"
        actual = problems_of(text)

        assert actual
        assert self.SECRET not in "\n".join(map(str, actual))
        assert self.SECRET not in repr(parse_script(text))

    def test_an_excerpt_hides_the_value_and_shows_the_rest(self) -> None:
        (problem,) = problems_of("CREATE TABLE t (id INT) WITH ('ssl.key.password' = 'geheim', topic = 't')")

        assert lines(problem) == [
            "CREATE TABLE t (id INT) WITH ('ssl.key.password' = '***', topic = 't')",
            " " * 58 + "^^^^^",
        ]

    def test_a_table_shows_none(self) -> None:
        table = sql(
            "CREATE TABLE t (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'jsn',\n"
            "'properties.bootstrap.servers' = 'b:1', 'properties.ssl.key.password' = 'geheim-4711', 'x' = 'y')"
        )

        with pytest.raises(ResolveError) as caught:
            table.explain()
        assert self.SECRET not in str(caught.value)
        assert self.SECRET not in repr(table)


@pytest.mark.parametrize("bracket", [*"([{}])"])
def test_a_stray_bracket_among_the_options_ends_the_reading_of_nothing(bracket: str) -> None:
    text = f"CREATE TABLE t (id INT) WITH ('connector' = a{bracket}b, 'topic' = 't'); SELEC 1;"

    problems = parse_script(text).problems

    assert len(problems) >= 2 if bracket in "}]" else problems
