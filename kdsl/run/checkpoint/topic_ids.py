"""Topic ids beside the checkpoint of queries that read through Spark's Kafka source.

Spark's own checkpoint stores topics by name. When a topic was deleted and created again, other records have the same
offsets, and Spark continues in the middle of them. Therefore kdsl stores the ids of topics beside the checkpoint when
it starts a query, and compares them at each start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdsl.errors import CheckpointError
from kdsl.run.admin.errors import topic_recreated
from kdsl.run.admin.java_admin import open_admin
from kdsl.run.checkpoint.checkpoint import FOLDER, Checkpoint
from kdsl.run.listeners.reads import READ_OPTION, Read, find
from kdsl.run.offsets.subscription import Subscription
from kdsl.spark_internals.plans import plan_of
from kdsl.spark_internals.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = f"{FOLDER}/topics.json"
VERSION = 1


def check_topic_ids(df: DataFrame, checkpoint: Checkpoint) -> None:
    """Check the ids of the topics that a query reads over the transport ``jvm``, and store them in its checkpoint.

    Ids of new topics are added, and those of topics that are gone stay. Nothing is done if the query reads none, and on
    Spark Connect. Topics of brokers without topic ids only have to exist. The session may change as by `open_admin`.
    """
    reads = {} if is_connect(df.sparkSession) else {read.id: read for read in _reads_of(df)}
    if not reads:
        return
    folder = checkpoint.folder
    text = folder.read(NAME)
    stored = {} if text is None else _read_ids(text, folder.path(NAME))
    ids = {}
    for read in reads.values():
        admin = open_admin(df.sparkSession, read.cluster, read.plan.table)
        now = {name: topic.id for name, topic in Subscription(read.plan, read.cluster, admin).topics().items()}
        before = stored.get(read.id, {})
        for name, id_ in now.items():
            if id_ and before.get(name, id_) != id_:
                raise topic_recreated(read.plan.table, name, before[name], id_)
        ids[read.id] = {**before, **{name: id_ for name, id_ in now.items() if id_}}
    if {**stored, **ids} != stored:
        folder.write(NAME, json.dumps({"version": VERSION, "reads": {**stored, **ids}}, sort_keys=True) + "\n")


def _read_ids(text: str, location: str) -> dict[str, dict[str, str]]:
    """Parse the stored topic ids, by read and topic."""
    try:
        document = json.loads(text)
        version = document["version"]
        reads = {read: dict(ids.items()) for read, ids in document["reads"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"{location} cannot be read; remove it to continue once without a check of topic ids"
        ) from None
    if version != VERSION:
        raise CheckpointError(
            f"{location} has version {version}, and this kdsl reads version {VERSION}; use the newer kdsl"
        )
    return reads


def _reads_of(df: DataFrame) -> Iterator[Read]:
    """Yield the reads that this process registered and whose source is in a query; none on Spark Connect."""
    plan = plan_of(df)
    for leaf in () if plan is None else plan.leaves():
        if leaf.class_name == "StreamingRelationV2":
            read = find(leaf.source_option(READ_OPTION) or "")
            if read is not None:
                yield read
