"""Topics told by their ids, for queries that read through Spark's Kafka source, whose checkpoints know names alone.

A topic that was deleted and made again has other records at the same offsets, and Spark reads on in the middle of them.
So the ids are kept beside the checkpoint, where kdsl starts the query, and looked at with every start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdsl.run.checkpoint.kept import CheckpointError, folder_of
from kdsl.run.cluster.errors import TopicRecreatedError
from kdsl.run.cluster.subscription import Subscription
from kdsl.run.frames.analyzed import analyzed, items, kind_of
from kdsl.run.jvm.admin import brokers_of
from kdsl.run.queries.reads import READ_OPTION, Read, find
from kdsl.run.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "kdsl/topics.json"
VERSION = 1


def keep_topic_ids(df: DataFrame, checkpoint: str) -> None:
    """Look at the ids of the topics that a query reads on the transport ``jvm``, and keep them beside its checkpoint.

    On Spark Connect nothing is looked at: what a query reads is known on the server only.

    Args:
        df: What the query writes.
        checkpoint: The folder of its progress.

    Raises:
        TopicRecreatedError: A topic was deleted and made again since the query ran the last time.
        CheckpointError: What was kept cannot be read.
    """
    reads = {} if is_connect(df.sparkSession) else {read.id: read for read in _reads(df)}
    if not reads:
        return
    folder = folder_of(df.sparkSession, checkpoint)
    text = folder.read(NAME)
    kept = {} if text is None else _kept(text, folder.path(NAME))
    found = {}
    for read in reads.values():
        brokers = brokers_of(df.sparkSession, read.cluster, read.plan.table)
        now = {name: topic.id for name, topic in Subscription(read.plan, read.cluster, brokers).topics().items()}
        before = kept.get(read.id, {})
        for name, id_ in now.items():
            if id_ and before.get(name, id_) != id_:
                raise TopicRecreatedError(
                    f"{read.plan.table}: the topic {name!r} was deleted and made again: the checkpoint was written for "
                    f"id {before[name]}, the topic now has id {id_}; the offsets mean other records, so start with a "
                    "new checkpoint"
                )
        found[read.id] = {**before, **{name: id_ for name, id_ in now.items() if id_}}
    if {**kept, **found} != kept:
        folder.write(NAME, json.dumps({"version": VERSION, "reads": {**kept, **found}}, sort_keys=True) + "\n")


def _kept(text: str, place: str) -> dict[str, dict[str, str]]:
    try:
        document = json.loads(text)
        version, reads = document["version"], dict(document["reads"])
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{place} cannot be read; remove it to go on without looking at topic ids once") from None
    if version != VERSION:
        raise CheckpointError(
            f"{place} has version {version}, and this kdsl reads version {VERSION}; use the newer kdsl"
        )
    return reads


def _reads(df: DataFrame) -> Iterator[Read]:
    """The reads of this process whose source is in a query."""
    for leaf in items(analyzed(df).collectLeaves()):
        if kind_of(leaf) == "StreamingRelationV2":
            read = find(leaf.extraOptions().getOrDefault(READ_OPTION, ""))
            if read is not None:
                yield read
