"""Whatever stands in a script: statements or problems with locations, never another exception."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings, strategies as st

from kdsl.ddl.load import load_sql, sql
from kdsl.ddl.script_reader import parse_script
from kdsl.ddl.tables import declare_tables
from kdsl.errors import ResolveError
from kdsl.resolve import problems
from kdsl.sql_tokens import tokenize

GOOD = """\
CREATE TEMPORARY TABLE IF NOT EXISTS c.d.`orders` (
  id BIGINT NOT NULL COMMENT 'who''s', -- a comment
  r ROW<a INT, b MAP<STRING, ARRAY<DECIMAL(10, 2)>>>,
  ts TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL,
  `day` AS CAST(ts AS DATE),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  CONSTRAINT k PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'x' PARTITIONED BY (id) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json',
  'properties.ssl.key.password' = 'geheim');
/* more */ CREATE TABLE o2 (x AS id + 1) WITH ('topic' = 'u') LIKE orders (EXCLUDING CONSTRAINTS OVERWRITING OPTIONS);
INSERT INTO o2 (id) SELECT 1; SET 'a' = 'b'; EXECUTE STATEMENT SET BEGIN INSERT INTO o2 VALUES (1); END;
EXPLAIN SELECT * FROM o2; DROP TABLE o2; CREATE VIEW v AS SELECT * FROM orders;
"""
WORDS = [GOOD[t.start : t.end] for t in tokenize(GOOD)[:-1]]
BROKEN = ("...", "'", "`", '"', "/*", "--", "\n", "(", ")", "<", ">", ";", ",", "\x00", "é", "1e", "U&'\\d800'")
PIECES = st.sampled_from([*WORDS, *BROKEN])


def check_problems(text: str) -> None:
    script = parse_script(text)
    tables, wrong = declare_tables(script)
    for problem in (*script.problems, *wrong):
        assert problem.message
        assert problem.where.line is not None
        shown, carets = (problem.where.excerpt or "").split("\n")
        assert carets.strip() == "^" * carets.count("^") != ""
        assert len(carets.rstrip("^")) <= len(shown)
    for table in tables:
        definition = table.definition()
        assert definition == table.definition()
        problems(definition, "read")
        problems(definition, "write")


@given(st.lists(PIECES, max_size=60).map(" ".join))
@settings(max_examples=150, deadline=None)
def test_words_in_any_order(text: str) -> None:
    check_problems(text)


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_string(text: str) -> None:
    check_problems(text)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_valid_script_with_a_change(data: st.DataObject) -> None:
    words = list(WORDS)
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(words) - 1))
        change = data.draw(st.sampled_from(["drop", "twice", "swap", "other", "cut"]))
        if change == "drop":
            del words[index]
        elif change == "twice":
            words.insert(index, words[index])
        elif change == "swap":
            words[index - 1], words[index] = words[index], words[index - 1]
        elif change == "other":
            words[index] = data.draw(PIECES)
        else:
            words[index] = words[index][: data.draw(st.integers(0, len(words[index])))]
    check_problems(data.draw(st.sampled_from([" ", "\n", "\n  "])).join(words))


@given(st.text(alphabet="CREATE TABLE t(a INT)WITH'=,;`-*/.", max_size=80))
@settings(max_examples=100, deadline=None)
def test_the_doors_raise_resolve_errors_only(text: str) -> None:
    with suppress(ResolveError):
        sql(text)
    with suppress(ResolveError):
        load_sql(f"{text}\n")


def test_what_is_nested_deeply_ends() -> None:
    check_problems("(" * 5000)
    check_problems("CREATE TABLE t (a " + "ARRAY<" * 3000)
    check_problems("CREATE TABLE t (a AS " + "(" * 3000 + "1" + ")" * 3000 + ")")


def test_the_valid_script_is_valid() -> None:
    assert parse_script(GOOD).problems == ()
