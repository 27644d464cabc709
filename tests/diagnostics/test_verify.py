"""`kdsl.diagnostics.verify`: what became of the records of one topic in another."""

from __future__ import annotations

import pytest

from kdsl.cluster import Cluster
from kdsl.diagnostics.verify import Comparison, Example, Side, VerifyError, compare
from kdsl.plan.model import HeaderCondition, ReadPlan
from kdsl.resolve import Topics
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t
from tests.run.read_plans import part, read_plan

NOTHING = t.Row((), nullable=False)


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def side(topic: str, cluster: Cluster) -> Side:
    return Side(ReadPlan(topic, Topics((topic,)), NOTHING, NOTHING), cluster)


def record(value: str | None, key: str | None = None, partition: int = 0, header: str = "") -> Record:
    return Record(value, key, [("id", header.encode())] if header else [], partition)


def test_a_copy_is_equal(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    one, other = kdsl_topic(partitions=2), kdsl_topic(partitions=3)
    records = [record(f"v{i}", f"k{i % 7}", i % 2) for i in range(100)]
    kdsl_kafka.produce(one, *records)
    kdsl_kafka.produce(other, *(record(f"v{i}", f"k{i % 7}", i % 7 % 3) for i in range(100)))

    result = compare(side(one, cluster), side(other, cluster))

    assert result == Comparison(read=100, written=100, lost=0, duplicated=0, foreign=0, reordered=0)
    assert result.equal


def test_each_difference_is_counted_with_examples(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    one, other = kdsl_topic(), kdsl_topic()
    kdsl_kafka.produce(one, *(record(v, "k") for v in ("a", "b", "b", "c", "d", "e")))
    kdsl_kafka.produce(other, *(record(v, "k") for v in ("a", "a", "b", "d", "c", "x")))

    result = compare(side(one, cluster), side(other, cluster))

    assert result == Comparison(
        read=6,
        written=6,
        lost=2,
        duplicated=1,
        foreign=1,
        reordered=1,
        examples={
            "lost": (Example(one, 0, 2), Example(one, 0, 5)),
            "duplicated": (Example(other, 0, 1),),
            "foreign": (Example(other, 0, 5),),
            "reordered": (Example(other, 0, 3),),
        },
    )
    assert not result.equal


def test_records_of_different_keys_have_no_order(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    one, other = kdsl_topic(), kdsl_topic()
    kdsl_kafka.produce(one, record("1", "a"), record("2", "b"), record("3", "a"))
    kdsl_kafka.produce(other, record("2", "b"), record("1", "a"), record("3", "a"))

    assert compare(side(one, cluster), side(other, cluster)).equal


def test_without_keys_the_order_of_a_partition_counts(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    one, other = kdsl_topic(partitions=2), kdsl_topic()
    kdsl_kafka.produce(one, record("1"), record("2"), record("3", None, 1))
    kdsl_kafka.produce(other, record("3"), record("2"), record("1"))

    assert compare(side(one, cluster), side(other, cluster)).reordered == 1


def test_a_null_is_not_an_empty_string(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    one, other = kdsl_topic(), kdsl_topic()
    kdsl_kafka.produce(one, record(None, "a"), record("", "b"))
    kdsl_kafka.produce(other, record("", "a"), record("", "b"))

    result = compare(side(one, cluster), side(other, cluster))

    assert (result.lost, result.foreign) == (1, 1)


@pytest.mark.parametrize(("by", "lost"), [("key", 0), ("value", 1), ("record", 1)])
def test_records_are_identified_by_what_is_requested(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, by: str, lost: int
) -> None:
    one, other = kdsl_topic(), kdsl_topic()
    kdsl_kafka.produce(one, record("1", "a"), record("2", "b"))
    kdsl_kafka.produce(other, record("1", "a"), record("two", "b"))

    assert compare(side(one, cluster), side(other, cluster), by=by).lost == lost


def test_by_a_header(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    one, other = kdsl_topic(), kdsl_topic()
    kdsl_kafka.produce(one, record("1", header="x"), record("2", header="y"))
    kdsl_kafka.produce(other, record("one", header="x"), record("zwei", header="z"))

    result = compare(side(one, cluster), side(other, cluster), header="id")

    assert (result.lost, result.foreign) == (1, 1)


def test_by_columns_of_tables(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    one, other = kdsl_topic(), kdsl_topic()
    kdsl_kafka.produce(one, '{"id": 1, "n": 1}', '{"id": 2}')
    kdsl_kafka.produce(other, '{"id": 1, "n": 2}', '{"id": 3}')
    value = part("json", {"id": "INT"})

    sides = [Side(read_plan(topic, value=value), cluster) for topic in (one, other)]
    result = compare(*sides, by=["id"])

    assert (result.lost, result.foreign) == (1, 1)
    with pytest.raises(VerifyError, match="Orders has no column 'nr'; its columns are 'id'"):
        compare(*sides, by=["nr"])


@pytest.mark.parametrize(
    ("records", "offset", "rows"),
    [(("1\n", "2\n3\n"), 1, "2 rows"), (("1\n2\n", ""), 0, "2 rows"), (("",), 0, "no row")],
)
def test_columns_cannot_identify_a_record_without_exactly_one_row(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, records: tuple[str, ...], offset: int, rows: str
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *(record(value) for value in records))
    lines = Side(read_plan(topic, value=part("raw", {"line": "STRING"}, line_delimiter="\n")), cluster)

    message = (
        f"Orders: the record at topic {topic}, partition 0, offset {offset} has {rows}, so columns cannot identify"
    )
    with pytest.raises(VerifyError, match=message):
        compare(lines, lines, by=["line"])
    assert compare(lines, lines).equal


def test_what_a_header_filter_leaves_out_is_not_lost(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    one, other = kdsl_topic(), kdsl_topic()
    kdsl_kafka.produce(one, record("a", header="x"), record("b"), record("c", header="x"))
    kdsl_kafka.produce(other, record("a"), record("c"))
    filtered = Side(read_plan(one, headers=(HeaderCondition("id", "x"),)), cluster)

    assert compare(filtered, side(other, cluster)).equal
    assert compare(filtered, Side(read_plan(other), cluster), by=["text"]).equal
