"""Chooses by a sample of keys whether all records of a key are in one partition, and by which partitioner.

With the routing ``partition``, the task that reads a partition computes the changes of its keys; with the routing
``key``, rows are first distributed by the hash of their key.

A key that is not where a partitioner puts it excludes that partitioner. A wrong one puts a key into the right one of n
partitions with the probability 1/n. There must be enough different keys for all wrong ones together to pass with a
probability below `CHANCE`: 22 for 2 partitions, 7 for 12, and 4 for 100.
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.cluster import Registry
from kdsl.errors import KdslError, listing, pluralize
from kdsl.formats import Use
from kdsl.plan.model import KeyPartitioner, ReadPlan, RoutingChoice
from kdsl.registry.errors import RegistryError
from kdsl.run.upsert.partitioned_keys import key_encoder
from kdsl.run.upsert.partitioners import PARTITIONERS, TITLES, choose_partitions
from kdsl.types import model as t
from kdsl.types.arrays import Integers

CHANCE = 1e-6
"""The probability with which a wrong partitioner may seem to be the right one."""
HASHING: tuple[KeyPartitioner, ...] = tuple(name for name in PARTITIONERS if name != "single")


@attrs.frozen(eq=False)
class KeySample:
    """Keys of a topic.

    Attributes:
        keys: The bytes of the keys of some records; null for a record without a key.
        numbers: The partition of each record.
        partitions: How many partitions the topic has.
    """

    keys: pa.BinaryArray
    numbers: Integers
    partitions: int


def explain_by_key(plan: ReadPlan) -> str | None:
    """Return why the plan of a read alone requires the routing by key, as a clause; None if the topic's keys decide."""
    assert plan.upserts is not None
    if plan.topics.pattern is not None or len(set(plan.topics.names)) > 1:
        return "a key may be in several topics"
    if plan.key is None or set(plan.key.columns) != set(plan.upserts.keys):
        key = listing(plan.key.columns) if plan.key is not None and plan.key.columns else "not declared"
        return f"the message key is {key}, and the primary key {listing(plan.upserts.keys)}"
    if any(_has_floats(field.type) for field in plan.key.row.fields):
        return "equal floating-point numbers, such as 0.0 and -0.0, may be written as different keys"
    return None


def _has_floats(kind: t.DataType) -> bool:
    """Return whether a type is FLOAT or DOUBLE, or contains one at any depth."""
    match kind:
        case t.Float() | t.Double():
            return True
        case t.Array(element=element) | t.Multiset(element=element):
            return _has_floats(element)
        case t.Map(key=key, value=value):
            return _has_floats(key) or _has_floats(value)
        case t.Row(fields=fields):
            return any(_has_floats(field.type) for field in fields)
        case _:
            return False


def choose_routing(plan: ReadPlan, sample: KeySample, registry: Registry | None = None) -> RoutingChoice:
    """Choose the routing of a read by a sample of the keys of its topic; errors are those of the registry.

    Args:
        plan: What is read; `explain_by_key` has no reason against the routing by partition.
        sample: The keys. Those that the table's key format cannot read do not count, as the read reports them.
        registry: The registry of the schemas that keys name.
    """
    partitions = sample.partitions
    if partitions == 1:
        return RoutingChoice("partition", "the topic has one partition", 1, "single")
    count = len(sample.keys)
    if sample.keys.null_count:
        without = f"{sample.keys.null_count} of {pluralize(count, 'sampled record')}"
        return RoutingChoice("key", f"{without} {'has' if sample.keys.null_count == 1 else 'have'} no key", partitions)
    if not count:
        return RoutingChoice(None, "the topic has no records yet", partitions)
    assert plan.key is not None
    use = Use(side="key", topics=plan.topics.names, registry=registry)
    decoded = plan.key.format.decoder(plan.key.row, use).decode(sample.keys)
    readable = np.arange(count) if decoded.messages is None else np.asarray(decoded.messages)
    if not len(readable):
        return RoutingChoice(None, f"none of {pluralize(count, 'sampled key')} can be read", partitions)
    form = plan.key.format.find_form(sample.keys[int(readable[0])].as_py())
    try:
        encoded = key_encoder(plan, form, registry).encode(decoded.rows)
    except RegistryError:
        raise
    except KdslError as e:
        return RoutingChoice("key", f"the bytes of keys cannot be computed from their columns: {e}", partitions)
    if encoded.bad:
        return RoutingChoice("key", f"{pluralize(len(encoded.bad), 'sampled key')} cannot be written again", partitions)
    return _compare(encoded.messages, sample.numbers[readable], partitions, form)


def _compare(keys: pa.BinaryArray, numbers: Integers, partitions: int, form: str) -> RoutingChoice:
    """Choose the routing by the bytes of keys and their partitions; at least one."""
    codes = keys.dictionary_encode()
    different = len(codes.dictionary)
    pairs = np.unique(np.asarray(codes.indices, dtype=np.int64) * partitions + numbers)
    in_several = int((np.unique(pairs // partitions, return_counts=True)[1] > 1).sum())
    sampled = f"{pluralize(different, 'sampled key')} of {pluralize(len(np.unique(numbers)), 'partition')}"
    if in_several:
        verb = "is" if in_several == 1 else "are"
        return RoutingChoice("key", f"of {sampled}, {in_several} {verb} in several partitions", partitions)
    agree = {name: choose_partitions(keys, partitions, name) == numbers for name in HASHING}
    fitting: list[KeyPartitioner] = [name for name in HASHING if agree[name].all()]
    if not fitting:
        name = max(HASHING, key=lambda one: int(agree[one].sum()))
        near = pc.count_distinct(keys.filter(pa.array(agree[name]))).as_py()
        return RoutingChoice(
            "key",
            f"of {sampled}, {near} are where the partitioner of {TITLES[name]} puts them, and those of other clients "
            "put fewer there: the producers choose partitions or write keys in different ways",
            partitions,
        )
    if len(HASHING) * float(partitions) ** -different >= CHANCE:
        return RoutingChoice(
            None, f"{sampled} do not tell by which partitioner they are there, more are needed", partitions
        )
    name = fitting[0]  # if several fit that many keys, they are the same for this number of partitions
    reason = f"all {sampled} are where the partitioner of {TITLES[name]} puts them"
    return RoutingChoice("partition", reason, partitions, name, form)
