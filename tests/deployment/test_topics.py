"""Topics on a real Kafka: each hand-made drift is one line, and apply makes those that only widen."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import kdsl
from kdsl import Cluster, Col, Json, KafkaTable, TopicSettings
from kdsl.cli.app import app
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.deployment.setup import list_values, only, snapshot, table

RETENTION = "topic_config_retention_ms"


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def test_nothing_differs_where_a_topic_is_as_declared(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic(partitions=3, config={"retention.ms": "3600000"})

    diff = kdsl.diff(table(topic, topic_partitions=3, topic_config_retention_ms="3600000"), cluster)

    assert not diff
    assert str(diff) == "nothing differs."


def test_a_missing_topic_is_created_with_its_settings(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    name = f"{kdsl_topic()}-new"
    declared = table(name, topic_partitions=3, topic_config_retention_ms=60000, topic_replication__factor=1)

    missing = only(kdsl.diff(declared, cluster))
    applied = kdsl.apply(declared, cluster)

    assert (missing.mark, missing.kind, missing.name) == ("+", "topic", name)
    assert missing.declared == "3 partitions, replication 1, retention.ms=60000"
    assert "there is no such topic" in missing.consequence
    assert applied.done == (missing,)
    assert not kdsl.diff(declared, cluster)
    assert kdsl.apply(declared, cluster).done == ()
    assert len(kdsl_kafka.end_offsets(name)) == 3
    kdsl_kafka.delete_topic(name)


def test_a_missing_topic_without_settings_is_created_with_those_of_the_brokers(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    name = f"{kdsl_topic()}-new"

    assert (
        kdsl.apply(table(name), cluster).done[0].declared
        == "the brokers' number of partitions, the brokers' replication"
    )

    assert not kdsl.diff(table(name), cluster)
    kdsl_kafka.delete_topic(name)


def test_partitions_are_raised_and_those_of_keyed_records_only_if_that_is_allowed(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    plain, keyed = kdsl_topic("plain", partitions=2), kdsl_topic("keyed", partitions=2)
    tables = [
        table(plain, topic_partitions=4),
        table(keyed, name="Users", topic_partitions=4, key_format="json", key_fields="id"),
    ]

    before = kdsl.diff(tables, cluster)
    applied = kdsl.apply(tables, cluster)
    rest = kdsl.diff(tables, cluster)
    allowed = kdsl.apply(tables, cluster, allow=["partitions"])

    assert list_values(before) == [("~", "partitions", "2", "4")] * 2
    assert "keys move: rows of one key stand in two partitions" in before.differences[1].consequence
    assert [d.name for d in applied.done] == [plain]
    assert [d.name for d in applied.not_allowed] == [keyed]
    assert [d.name for d in rest.differences] == [d.name for d in allowed.done] == [keyed]
    assert not kdsl.diff(tables, cluster)
    assert [len(kdsl_kafka.end_offsets(name)) for name in (plain, keyed)] == [4, 4]


def test_fewer_partitions_are_refused(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    difference = only(kdsl.diff(table(kdsl_topic(partitions=3), topic_partitions=2), cluster))

    assert (difference.mark, difference.live, difference.declared) == ("!", "3", "2")
    assert "Kafka cannot take partitions away" in difference.consequence


def test_a_longer_retention_is_set_and_other_configs_stay(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    topic = kdsl_topic(config={"retention.ms": "60000", "max.message.bytes": "100000", "segment.ms": "70000"})
    declared = table(
        topic, topic_config_retention_ms="-1", topic_config_max_message_bytes=100000, topic_config_segment_ms=70000
    )
    before = snapshot(kdsl_kafka.admin(), [topic])[topic]

    difference = only(kdsl.diff(declared, cluster))
    kdsl.apply(declared, cluster)

    assert (difference.mark, difference.what, difference.values) == ("~", "retention.ms", "60000 → -1")
    assert "keeps records longer" in difference.consequence
    assert not kdsl.diff(declared, cluster)
    after = snapshot(kdsl_kafka.admin(), [topic])[topic]
    assert isinstance(before, tuple)
    assert isinstance(after, tuple)
    assert after[2] == {**before[2], "retention.ms": "-1"}


@pytest.mark.parametrize(
    ("live", "option", "value", "consequence"),
    [
        ({"retention.ms": "-1"}, RETENTION, "60000", "narrows"),
        ({"retention.ms": "60000"}, RETENTION, "50000", "narrows"),
        ({"max.message.bytes": "2000000"}, "topic_config_max_message_bytes", "1000000", "narrows"),
        ({"cleanup.policy": "compact"}, "topic_config_cleanup_policy", "delete", "which records are deleted"),
        ({"cleanup.policy": "delete"}, "topic_config_cleanup_policy", "compact,delete", "which records are deleted"),
        ({"compression.type": "lz4"}, "topic_config_compression_type", "zstd", "may not only widen"),
    ],
)
def test_what_may_narrow_is_refused_with_the_command(
    kdsl_topic: MakeTopic,
    kdsl_kafka: RunningKafka,
    cluster: Cluster,
    live: dict[str, str],
    option: str,
    value: str,
    consequence: str,
) -> None:
    topic = kdsl_topic(config=live)
    declared = table(topic, **{option: value})
    before = snapshot(kdsl_kafka.admin(), [topic])

    difference = only(kdsl.diff(declared, cluster))
    applied = kdsl.apply(declared, cluster)

    name = option.removeprefix("topic_config_").replace("_", ".")
    assert (difference.mark, difference.what) == ("!", name)
    assert (difference.live, difference.declared) == (live[name], value)
    assert consequence in difference.consequence
    spelled = f"[{value}]" if "," in value else value
    assert f"--alter --topic {topic} --add-config " in difference.consequence
    assert f"{name}={spelled}" in difference.consequence
    assert applied.done == ()
    assert snapshot(kdsl_kafka.admin(), [topic]) == before


def test_a_topic_that_is_not_compacted_is_wrong_for_an_upsert_table(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    upserts = kdsl.sql(
        f"CREATE TABLE Users (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', "
        f"'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json')"
    )

    difference = only(kdsl.diff([table(topic), upserts], cluster))

    assert (difference.what, difference.live, difference.declared) == ("cleanup.policy", "delete", "compact")
    assert "Users (line 1) is an upsert table" in difference.consequence
    assert "kafka-configs --bootstrap-server " in difference.consequence
    assert not kdsl.diff(upserts_on(kdsl_topic(config={"cleanup.policy": "compact,delete"})), cluster)


def upserts_on(topic: str) -> kdsl.Table:
    return kdsl.sql(
        f"CREATE TABLE Users (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', "
        f"'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json')"
    )


def test_a_missing_topic_of_an_upsert_table_is_created_compacted(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    name = f"{kdsl_topic()}-new"

    (created,) = kdsl.apply(upserts_on(name), cluster).done

    assert created.declared is not None
    assert created.declared.endswith("cleanup.policy=compact")
    assert not kdsl.diff(upserts_on(name), cluster)
    kdsl_kafka.delete_topic(name)


def test_replicas_are_not_moved(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    difference = only(kdsl.diff(table(kdsl_topic(), topic_replication__factor=3), cluster))

    assert (difference.mark, difference.what, difference.values) == ("!", "replication factor", "1 → 3")
    assert "kafka-reassign-partitions" in difference.consequence


def test_an_unknown_config_names_the_nearest(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    difference = only(kdsl.diff(table(kdsl_topic(), topic_config_retentoin_ms=1), cluster))

    assert (difference.mark, difference.live, difference.declared) == ("!", "no such config", "1")
    assert "did you mean 'retention.ms'" in difference.consequence


def test_a_config_that_is_set_and_not_declared_is_shown_and_stays(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    topic = kdsl_topic(config={"retention.ms": "60000", "segment.ms": "90000"})
    declared = table(topic, topic_config_retention_ms=60000)
    before = snapshot(kdsl_kafka.admin(), [topic])

    difference = only(kdsl.diff(declared, cluster))
    kdsl.apply(declared, cluster)

    assert (difference.mark, difference.what, difference.live, difference.declared) == (
        "!",
        "segment.ms",
        "90000",
        None,
    )
    assert f"--topic {topic} --delete-config segment.ms" in difference.consequence
    assert snapshot(kdsl_kafka.admin(), [topic]) == before
    assert not kdsl.diff(table(topic, topic_partitions=1), cluster)


def test_dead_letter_topics_are_created_like_the_topic(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=2)
    declared = table(topic, topic_partitions=2, scan_dead__letter_topic=f"{topic}.dead")

    difference = only(kdsl.diff(declared, cluster))
    kdsl.apply(declared, cluster)

    assert (difference.mark, difference.name) == ("+", f"{topic}.dead")
    assert difference.declared == "2 partitions, the brokers' replication"
    assert "records for it cannot be written" in difference.consequence
    assert not kdsl.diff(declared, cluster)
    assert len(kdsl_kafka.end_offsets(f"{topic}.dead")) == 2
    kdsl_kafka.delete_topic(f"{topic}.dead")


def test_tables_that_contradict_each_other_change_nothing(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    tables = [table(topic, topic_partitions=2), table(topic, name="Users", topic_partitions=4)]
    missing = [table(f"{topic}-new", topic_partitions=2), table(f"{topic}-new", name="Users", topic_partitions=4)]

    difference = only(kdsl.diff(tables, cluster))

    assert (difference.mark, difference.what, difference.values) == ("!", "partitions", "1 → 2 and 4")
    assert "Orders (line 1) and Users (line 1) contradict each other" in difference.consequence
    assert kdsl.apply(tables, cluster).done == ()
    assert len(kdsl_kafka.end_offsets(topic)) == 1
    refused = only(kdsl.diff(missing, cluster))
    assert (refused.mark, refused.live, refused.declared) == ("!", "no topic", "partitions 2 and 4")
    assert kdsl.apply(missing, cluster).done == ()


def test_an_upsert_table_contradicts_a_declared_policy(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()

    difference = only(kdsl.diff([table(topic, topic_config_cleanup_policy="delete"), upserts_on(topic)], cluster))

    assert (difference.mark, difference.what, difference.declared) == ("!", "cleanup.policy", "delete and compact")


def test_settings_of_a_pattern_are_those_of_every_topic_that_it_matches(
    kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    one = kdsl_topic("shard", partitions=1)
    other = kdsl_topic("shard", partitions=2)
    pattern = f"{one}|{other}"
    declared = table(None, topic__pattern=pattern, topic_partitions=2)

    assert [(d.name, d.values) for d in kdsl.diff(declared, cluster, direction="read").differences] == [(one, "1 → 2")]
    nothing = only(kdsl.diff(table(None, topic__pattern="nosuch.*x"), cluster, direction="read"))
    assert (nothing.mark, nothing.name, nothing.values) == ("!", "nosuch.*x", "none → at least one")


def test_a_cluster_that_does_not_answer_is_one_line_and_the_other_is_compared(
    kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    far = table("far", properties_bootstrap_servers="127.0.0.1:1", properties_default_api_timeout_ms="2000")
    topics = [kdsl_topic(), kdsl_topic()]
    own = {"properties_bootstrap_servers": cluster.bootstrap_servers}
    near = [table(name, name=f"T{i}", topic_partitions=2, **own) for i, name in enumerate(topics)]

    diff = kdsl.diff([far, *near])

    assert [d.mark for d in diff.differences] == ["?", "~", "~"]
    assert diff.differences[0].kind == "cluster"
    assert "127.0.0.1:1" in diff.differences[0].consequence


def test_the_command_shows_the_line_of_the_declaration_and_its_exit_code(
    kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
) -> None:
    topic = kdsl_topic(partitions=2)
    path = tmp_path / "diff_orders.py"
    path.write_text(
        "from kdsl import Col, Json, KafkaTable, Key, TopicSettings\n\n"
        f"class Orders(KafkaTable, topic={topic!r}, key=Json(), value=Json(),\n"
        "             topic_settings=TopicSettings(partitions=4)):\n"
        "    id: Key[int]\n    note: Col[str]\n",
        encoding="utf-8",
    )
    servers = ("--bootstrap", cluster.bootstrap_servers)

    result = CliRunner().invoke(app, ["diff", str(path), *servers])
    coded = CliRunner().invoke(app, ["diff", str(path), *servers, "--exit-code", "--json"])
    refused = CliRunner().invoke(app, ["apply", str(path), *servers, "--allow", "partitions"])
    held = CliRunner().invoke(app, ["apply", str(path), *servers, "--yes"])
    applied = CliRunner().invoke(app, ["apply", str(path), *servers, "--yes", "--allow", "partitions"])
    after = CliRunner().invoke(app, ["diff", str(path), *servers, "--exit-code"])

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"topic {topic}  declared ")
    assert lines[0].endswith("diff_orders.py:4")
    assert lines[1].startswith("  ~ partitions  2 → 4  keys move")
    assert lines[-1] == "1 to change."
    assert coded.exit_code == 1
    assert refused.exit_code == 2
    assert "nobody can be asked" in refused.output
    assert held.exit_code == 1
    assert "not done, needs --allow partitions: ~ topic" in held.stdout
    assert applied.exit_code == 0, applied.output
    assert f"done: ~ topic {topic}  partitions  2 → 4" in applied.stdout
    assert after.exit_code == 0
    assert after.stdout.strip() == "nothing differs."


def test_settings_mean_the_same_in_python_and_sql(kdsl_topic: MakeTopic) -> None:
    class Orders(
        KafkaTable,
        topic="orders",
        value=Json(),
        topic_settings=TopicSettings(partitions=4, replication_factor=3, configs={"retention.ms": 60000}),
    ):
        id: Col[int]

    declared = table("orders", topic_partitions=4, topic_replication__factor=3, topic_config_retention_ms=60000)

    assert Orders.definition().options == declared.definition.options


def test_what_the_brokers_refuse_ends_the_changes(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    name = f"{kdsl_topic()}-new"
    tables = [
        table(f"{name}-{i}", name=f"T{i}", topic_replication__factor=factor, topic_partitions=1)
        for i, factor in enumerate((1, 7, 1))
    ]

    applied = kdsl.apply(tables, cluster)

    assert [d.name for d in applied.done] == [f"{name}-0"]
    assert applied.failed is not None
    assert (applied.failed.name, [d.name for d in applied.left]) == (f"{name}-1", [f"{name}-2"])
    assert "cannot be created on " in applied.error
    assert [d.name for d in kdsl.diff(tables, cluster).differences] == [f"{name}-1", f"{name}-2"]
    kdsl_kafka.delete_topic(f"{name}-0")
