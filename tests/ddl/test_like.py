"""LIKE by Flink's rules: what is taken over, what wins, what clashes."""

from __future__ import annotations

import pytest

from kdsl.ddl.load import declare_script_tables
from kdsl.ddl.script_reader import read_script
from kdsl.ddl.tables import DeclaredTable

BASE = """\
CREATE TABLE base (
  id INT,
  name STRING,
  ts TIMESTAMP(3) METADATA FROM 'timestamp',
  c AS id + 1,
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND,
  PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'base' PARTITIONED BY (id) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'debezium-json');
"""


def like(columns: str = "", features: str = "", options: str = "WITH ('topic' = 'u')", more: str = "") -> DeclaredTable:
    columns, features = (f"({part})" if part else "" for part in (columns, features))
    script = read_script(f"{BASE}CREATE TABLE made {columns} {more} {options} LIKE base {features};")
    return declare_script_tables(script)[1]


def codes(table: DeclaredTable) -> list[str]:
    return [p.code for p in table.problems]


def names(table: DeclaredTable) -> list[str]:
    return [c.name for c in table.columns]


def test_by_default_all_comes_along_and_options_are_overwritten() -> None:
    table = like("x INT")

    assert codes(table) == []
    assert names(table) == ["id", "name", "ts", "c", "x"]
    assert table.options == {"connector": "kafka", "topic": "u", "format": "debezium-json"}
    assert [w.column for w in table.watermarks] == ["ts"]
    assert table.statement.primary_key is not None
    assert table.statement.partitioned_by == ("id",)
    assert table.statement.comment is None


def test_physical_columns_are_always_copied() -> None:
    table = like(features="EXCLUDING ALL")

    assert names(table) == ["id", "name"]
    assert table.options == {"topic": "u"}
    assert (table.watermarks, table.statement.primary_key) == ((), None)


def test_what_was_never_null_stays_so_without_its_key() -> None:
    table = like(features="EXCLUDING CONSTRAINTS")

    assert [c.type.nullable for c in table.columns[:2]] == [False, True]


def test_one_part_is_set_and_the_others_follow_all() -> None:
    table = like(features="EXCLUDING ALL INCLUDING GENERATED")

    assert names(table) == ["id", "name", "c"]


@pytest.mark.parametrize(
    ("columns", "features"),
    [
        ("c AS id + 2", "OVERWRITING GENERATED"),
        ("ts TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL", "OVERWRITING METADATA"),
        ("WATERMARK FOR ts AS ts", "OVERWRITING WATERMARKS"),
        ("PRIMARY KEY (name) NOT ENFORCED", "EXCLUDING CONSTRAINTS"),
        ("c INT", "EXCLUDING GENERATED"),
    ],
)
def test_what_is_overwritten_or_excluded_may_come_again(columns: str, features: str) -> None:
    table = like(columns, features)

    assert codes(table) == []
    assert sorted(names(table)) == ["c", "id", "name", "ts"]


def test_overwritten_columns_keep_their_position() -> None:
    table = like("c AS id + 2", "OVERWRITING GENERATED")

    assert names(table) == ["id", "name", "ts", "c"]
    assert "2" in (table.columns[3].expression or pytest.fail("no expression")).text


@pytest.mark.parametrize(
    ("columns", "features", "code"),
    [
        ("name STRING", "", "like-column"),
        ("name STRING", "EXCLUDING ALL", "like-column"),
        ("name AS id + 2", "OVERWRITING GENERATED", "like-column"),
        ("c INT", "OVERWRITING GENERATED", "like-column"),
        ("ts AS id", "OVERWRITING GENERATED", "like-column"),
        ("c AS id + 2", "", "like-both"),
        ("ts TIMESTAMP(3) METADATA FROM 'timestamp'", "", "like-both"),
        ("WATERMARK FOR ts AS ts", "", "like-both"),
        ("PRIMARY KEY (name) NOT ENFORCED", "", "like-both"),
        ("", "INCLUDING ALL", "like-both"),
        ("", "INCLUDING OPTIONS", "like-both"),
        ("", "OVERWRITING ALL", "like-overwriting"),
        ("", "OVERWRITING CONSTRAINTS", "like-overwriting"),
        ("", "INCLUDING METADATA EXCLUDING METADATA", "like-twice"),
    ],
)
def test_what_clashes(columns: str, features: str, code: str) -> None:
    (problem,) = like(columns, features).problems

    assert problem.code == code
    assert problem.where.line == 9


def test_partitions_twice() -> None:
    assert codes(like(more="PARTITIONED BY (name)")) == ["like-both"]
    assert codes(like(features="EXCLUDING PARTITIONS", more="PARTITIONED BY (name)")) == []
    assert codes(like(more="PARTITIONED BY (nme)", features="EXCLUDING PARTITIONS")) == ["partition-column"]


def test_a_column_of_the_other_table_can_be_computed_with() -> None:
    table = like("d AS id + 5")

    assert codes(table) == []
    assert str(table.columns[-1].type) == "INT NOT NULL"


def test_an_unknown_table() -> None:
    (table,) = declare_script_tables(read_script("CREATE TABLE made LIKE nowhere"))

    (problem,) = table.problems
    assert problem.code == "like-table"
    assert (problem.where.line, problem.where.position) == (1, 24)


def test_a_table_by_a_longer_name() -> None:
    script = read_script(f"{BASE.replace('TABLE base', 'TABLE c.d.base')}CREATE TABLE made LIKE d.base;")

    assert names(declare_script_tables(script)[1]) == ["id", "name", "ts", "c"]


def test_like_of_like() -> None:
    script = read_script(f"{BASE}CREATE TABLE a (x INT) LIKE base; CREATE TABLE b (y INT) LIKE a;")

    assert names(declare_script_tables(script)[2]) == ["id", "name", "ts", "c", "x", "y"]
