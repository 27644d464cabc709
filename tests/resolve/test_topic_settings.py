"""The settings of topics that a table declares: what is wrong with them, and their form in other spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

import kdsl
from kdsl.codegen import to_ddl, to_python, to_yaml
from kdsl.load import tables
from kdsl.resolve import problems


def declare(*options: str, upserts: bool = False) -> kdsl.Table:
    key = ", PRIMARY KEY (id) NOT ENFORCED" if upserts else ""
    kind = "'upsert-kafka', 'key.format' = 'json'" if upserts else "'kafka'"
    return kdsl.sql(
        f"CREATE TABLE Orders (id BIGINT{key}) WITH ('connector' = {kind}, 'topic' = 'orders', "
        f"'value.format' = 'json', {', '.join(options)})"
    )


@pytest.mark.parametrize(
    ("option", "message", "fix"),
    [
        ("'topic.partitions' = '0'", "'topic.partitions' has the value 0", "greater than 0"),
        ("'topic.replication-factor' = '40000'", "has the value 40000", "from 1 to 32767"),
        ("'topic.config.num.partitions' = '3'", "a setting of brokers and not of topics", "set 'topic.partitions'"),
        ("'topic.config.retention.ms' = ''", "no value for 'retention.ms'", "write the value"),
    ],
)
def test_wrong_settings_are_errors_at_their_place(option: str, message: str, fix: str) -> None:
    for direction in ("read", "write"):
        (problem,) = problems(declare(option, "'scan.startup.mode' = 'earliest-offset'").definition, direction)

        assert message in problem.message
        assert fix in problem.fix
        assert problem.where.position is not None
        assert problem.severity == "error"


def test_an_upsert_table_whose_topic_should_delete_is_a_warning() -> None:
    found_problems = problems(declare("'topic.config.cleanup.policy' = 'delete'", upserts=True).definition, "read")
    compacted = declare("'topic.config.cleanup.policy' = 'compact,delete'", upserts=True).definition

    assert [(p.code, p.severity) for p in found_problems] == [("topic-config", "warning")]
    assert "leave the topic" in found_problems[0].message
    assert problems(compacted, "read") == []


def test_settings_survive_the_way_to_yaml_to_sql_and_to_a_class(tmp_path: Path) -> None:
    definition = declare("'topic.partitions' = '3'", "'topic.config.retention.ms' = '-1'").definition
    (tmp_path / "tables.yaml").write_text(to_yaml(definition), encoding="utf-8")
    (tmp_path / "settings_orders.py").write_text(to_python(definition), encoding="utf-8")

    assert kdsl.load_tables(tmp_path / "tables.yaml")[0].definition.options == definition.options
    assert kdsl.sql(to_ddl(definition)).definition.options == definition.options
    assert "topic_settings=TopicSettings(" in to_python(definition)
    assert tables(str(tmp_path / "settings_orders.py"))[0].definition.options == definition.options
