"""The routing that is chosen by a sample of keys, and the proof that keys belong where they are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kdsl import Avro, Col, DebeziumJson, Json, KafkaTable, PrimaryKey, UpsertTable
from kdsl.errors import KdslError
from kdsl.formats import Format
from kdsl.plan.build import read_plan
from kdsl.plan.model import KeyPartitioner, ReadPlan, RoutingChoice
from kdsl.resolve import resolve
from kdsl.run.upsert.key_routing import HASHING, KeySample, choose_routing, explain_by_key
from kdsl.run.upsert.partitioned_keys import KeyPlacement
from kdsl.run.upsert.partitioners import TITLES, choose_partitions

PARTITIONS = 4


def users(key: Format, **options: Any) -> ReadPlan:
    class Users(UpsertTable, topic="users", key=key, value=Json(), **options):
        user_id: PrimaryKey[int]
        name: Col[str | None]

    return read_plan(resolve(Users.definition(), "read"))


PLAN = users(Json())


def json_keys(count: int, form: bytes = b'{"user_id":%d}') -> list[bytes]:
    return [form % user for user in range(count)]


def place(keys: list[bytes], partitioner: KeyPartitioner = "murmur2", partitions: int = PARTITIONS) -> KeySample:
    """The keys in the partitions in which a producer puts them."""
    array = pa.array(keys, pa.binary())
    return KeySample(array, choose_partitions(array, partitions, partitioner), partitions)


class TestChoice:
    @pytest.mark.parametrize("partitions", [3, 4, 12, 100])
    @pytest.mark.parametrize("partitioner", HASHING)
    def test_the_partitioner_of_all_keys_is_found(self, partitioner: KeyPartitioner, partitions: int) -> None:
        choice = choose_routing(PLAN, place(json_keys(200), partitioner, partitions))

        assert choice.reason.startswith("all 200 sampled keys of ")
        assert choice.reason.endswith(f"are where the partitioner of {TITLES[partitioner]} puts them")
        assert (choice.routing, choice.partitioner, choice.key_form) == ("partition", partitioner, "")
        assert choice.partitions == partitions

    def test_of_partitioners_that_are_the_same_for_two_partitions_the_first_is_named(self) -> None:
        """The remainders of a number and of its absolute value by two are equal."""
        choice = choose_routing(PLAN, place(json_keys(200), "fnv1a-masked", 2))

        assert (choice.routing, choice.partitioner) == ("partition", "fnv1a")

    def test_a_single_partition_needs_no_keys(self) -> None:
        assert choose_routing(PLAN, place([], partitions=1)) == RoutingChoice(
            "partition", "the topic has one partition", 1, "single"
        )

    def test_a_mixture_of_producers_is_by_key(self) -> None:
        keys = json_keys(200)
        mixed = place(keys[:150]), place(keys[150:], "crc32")
        numbers = np.concatenate([one.numbers for one in mixed])

        choice = choose_routing(PLAN, KeySample(pa.array(keys), numbers, PARTITIONS))

        assert (choice.routing, choice.partitioner) == ("key", None)
        assert choice.reason.startswith("of 200 sampled keys of 4 partitions, 1")
        assert "are where the partitioner of Java's client (murmur2) puts them" in choice.reason

    def test_one_foreign_key_is_enough(self) -> None:
        sample = place(json_keys(200))
        sample.numbers[77] = (sample.numbers[77] + 1) % PARTITIONS

        assert choose_routing(PLAN, sample).routing == "key"

    def test_a_key_in_two_partitions_is_by_key(self) -> None:
        keys = [*json_keys(200), b'{"user_id":7}']
        numbers = np.append(place(keys[:200]).numbers, 0)
        numbers[200] = (numbers[7] + 1) % PARTITIONS

        choice = choose_routing(PLAN, KeySample(pa.array(keys), numbers, PARTITIONS))

        assert choice.reason == "of 200 sampled keys of 4 partitions, 1 is in several partitions"
        assert choice.routing == "key"

    @pytest.mark.parametrize(("partitions", "enough"), [(2, 22), (4, 11), (12, 7), (100, 4)])
    def test_few_different_keys_do_not_tell_how_often_they_occur(self, partitions: int, enough: int) -> None:
        few = choose_routing(PLAN, place(json_keys(enough - 1) * 50, partitions=partitions))
        more = choose_routing(PLAN, place(json_keys(enough), partitions=partitions))

        assert (few.routing, few.partitioner) == (None, None)
        assert few.reason.startswith(f"{enough - 1} sampled keys of ")
        assert (more.routing, more.partitioner) == ("partition", "murmur2")

    def test_few_keys_that_no_partitioner_puts_there_are_by_key(self) -> None:
        keys = json_keys(6)
        nowhere = next(
            n
            for n in range(PARTITIONS)
            if all((choose_partitions(pa.array(keys), PARTITIONS, one) != n).any() for one in HASHING)
        )

        choice = choose_routing(PLAN, KeySample(pa.array(keys), np.full(6, nowhere), PARTITIONS))

        assert choice.routing == "key"

    def test_an_empty_topic_does_not_tell(self) -> None:
        assert choose_routing(PLAN, place([])) == RoutingChoice(None, "the topic has no records yet", PARTITIONS)

    def test_records_without_a_key_are_by_key(self) -> None:
        sample = place(json_keys(200))
        keys = pa.array([None, *sample.keys.to_pylist()[1:]], pa.binary())

        choice = choose_routing(PLAN, KeySample(keys, sample.numbers, PARTITIONS))

        assert (choice.routing, choice.reason) == ("key", "1 of 200 sampled records has no key")

    def test_keys_that_cannot_be_read_do_not_count(self) -> None:
        sample = place([b"{", *json_keys(200)])

        assert choose_routing(PLAN, sample).reason.startswith("all 200 sampled keys")
        assert choose_routing(PLAN, place([b"{"] * 30)).reason == "none of 30 sampled keys can be read"

    def test_keys_that_are_written_with_spaces_are_by_key(self) -> None:
        choice = choose_routing(PLAN, place(json_keys(200, b'{"user_id": %d}')))

        assert choice.routing == "key"

    def test_keys_of_another_format_are_found_as_well(self) -> None:
        plan = users(Avro())
        assert plan.key is not None
        rows = pa.array([{"user_id": user} for user in range(200)], pa.struct([pa.field("user_id", pa.int64(), False)]))
        keys = plan.key.format.encoder(plan.key.row).encode(rows).messages.to_pylist()

        assert choose_routing(plan, place(keys, "crc32")).partitioner == "crc32"


class TestPlan:
    def test_the_keys_decide_for_one_topic_whose_message_key_is_the_primary_key(self) -> None:
        assert explain_by_key(PLAN) is None

    def test_several_topics_are_by_key(self) -> None:
        class Users(UpsertTable, topic=["a", "b"], key=Json(), value=Json()):
            user_id: PrimaryKey[int]

        plan = read_plan(resolve(Users.definition(), "read"))

        assert explain_by_key(plan) == "a key may be in several topics"

    def test_change_data_without_a_message_key_is_by_key(self) -> None:
        class Changed(
            KafkaTable,
            topic="users",
            value=DebeziumJson(),
            cdc_events_duplicate=True,
            primary_key=["user_id"],
            startup="earliest",
        ):
            user_id: Col[int]
            name: Col[str | None]

        plan = read_plan(resolve(Changed.definition(), "read"))

        assert explain_by_key(plan) == "the message key is not declared, and the primary key 'user_id'"


SCHEMA = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "user_id"}], "name": "s.t.Key"}


class TestSchemasInKeys:
    """Keys of Debezium with their schema, which has names that the columns do not tell."""

    def keys(self, **schema: Any) -> list[bytes]:
        written = json.dumps({**SCHEMA, **schema}, separators=(",", ":")).encode()
        return [b'{"schema":%s,"payload":{"user_id":%d}}' % (written, user) for user in range(200)]

    def test_the_schema_is_the_form_of_the_keys(self) -> None:
        plan = users(Json(schema_include=True))

        choice = choose_routing(plan, place(self.keys()))

        assert (choice.routing, choice.partitioner) == ("partition", "murmur2")
        assert choice.key_form.startswith('{"schema":{"type":"struct"')
        assert choice.key_form.endswith(',"payload":')
        assert "0" not in choice.key_form.partition("payload")[2]

    def test_two_schemas_are_by_key(self) -> None:
        plan = users(Json(schema_include=True))

        choice = choose_routing(plan, place([*self.keys()[:100], *self.keys(name="u.t.Key")[100:]]))

        assert choice.routing == "key"

    def test_keys_belong_where_the_form_puts_them(self) -> None:
        plan = users(Json(schema_include=True))
        sample = place(self.keys(), "fnv1a")
        choice = choose_routing(plan, sample)
        assert choice.partitioner is not None
        placement = KeyPlacement(plan, PARTITIONS, choice.partitioner, choice.key_form)
        rows = pa.record_batch({"user_id": pa.array(range(200), pa.int64())})

        belong = np.stack([placement.belong(rows, partition) for partition in range(PARTITIONS)])

        assert belong.sum(axis=0).tolist() == [1] * 200
        assert belong.argmax(axis=0).tolist() == sample.numbers.tolist()


class TestPlacement:
    rows = pa.record_batch({"user_id": pa.array(range(50), pa.int64())})

    @pytest.mark.parametrize("partitioner", HASHING)
    def test_keys_belong_where_the_partitioner_puts_them(self, partitioner: KeyPartitioner) -> None:
        placement = KeyPlacement(PLAN, PARTITIONS, partitioner)

        belong = np.stack([placement.belong(self.rows, partition) for partition in range(PARTITIONS)])

        assert belong.argmax(axis=0).tolist() == place(json_keys(50), partitioner).numbers.tolist()
        assert f"the partitioner of {TITLES[partitioner]}" in placement.reason

    def test_all_keys_belong_to_a_single_partition_until_there_are_more(self) -> None:
        assert KeyPlacement(PLAN, 1, "single").belong(self.rows, 0).all()
        assert not KeyPlacement(PLAN, 2, "single").belong(self.rows, 0).any()

    def test_a_key_with_the_id_of_an_unknown_schema_is_an_error(self) -> None:
        from kdsl import AvroConfluent

        with pytest.raises(KdslError, match="contains the id of its schema, and it is not known which one"):
            KeyPlacement(users(AvroConfluent()), PARTITIONS)


def test_floating_point_keys_are_found_by_key() -> None:
    """0.0 and -0.0 are one key, and a partitioner puts their bytes into different partitions."""

    class Rates(UpsertTable, topic="t", key=Json(), value=Json()):
        rate: PrimaryKey[float]

    reason = explain_by_key(read_plan(resolve(Rates.definition(), "read")))
    assert reason is not None
    assert "0.0 and -0.0" in reason
