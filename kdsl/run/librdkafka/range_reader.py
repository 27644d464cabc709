"""Reads offset ranges with a pooled consumer, and checks that their records are those for which they were planned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import attrs
import pyarrow as pa

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError
from kdsl.plan.model import ReadPlan
from kdsl.run.librdkafka.consumers import SIZES, PooledConsumer, borrow_consumer, choose_size, discard, return_consumer
from kdsl.run.librdkafka.fetch import Fetcher
from kdsl.run.librdkafka.topic_check import TopicCheck
from kdsl.run.librdkafka.truncation import EpochCheck
from kdsl.run.metrics.statistics import INTERVAL, client_id
from kdsl.run.offsets.stored import Range

R = TypeVar("R")


@attrs.frozen(eq=False)
class RangeReader:
    """Reads some ranges once.

    Attributes:
        fetcher: Fetches the records.
        consumer: The consumer that it uses.
        check: Compares the topics with the planned ones.
    """

    fetcher: Fetcher
    consumer: PooledConsumer
    check: TopicCheck
    _ranges: Sequence[Range]

    def decode(self, decode: Callable[[pa.RecordBatch], Iterable[R]]) -> Iterator[R]:
        """Fetch the records and decode them; yield what that returns once the topics were verified."""
        return self.check.decode(self.fetcher.read(self._ranges), decode)


@contextmanager
def open_fetcher(
    plan: ReadPlan, cluster: Cluster, needs: Collection[str], *, name: str, large: bool = False
) -> Iterator[Fetcher]:
    """Create a consumer for the body, which looks at records in this process, and close it at the end.

    Args:
        plan: The read.
        cluster: The cluster of the table.
        needs: The needed fields of a raw batch.
        name: The client id, and the group id if the plan has none.
        large: Whether whole topics are read.
    """
    size = SIZES[-1 if large else 0]
    settings = cluster.consumer({"client.id": name, "group.id": plan.group_id or name, **size.settings})
    consumer = PooledConsumer(settings, cluster.bootstrap_servers)
    try:
        yield Fetcher(consumer, plan.table, needs, cluster.kdsl_settings.api_timeout_ms / 1000)
    finally:
        consumer.close()


def client_names(plan: ReadPlan, cluster: Cluster, ranges: Sequence[Range]) -> dict[str, str]:
    """Return the default client id and group id of the consumer of some ranges, at least one."""
    size = choose_size(max(map(len, ranges)))
    return {
        "client.id": client_id(cluster.kdsl_settings.client_id_prefix or f"kdsl-{plan.table}", f"consumer-{size.name}"),
        "group.id": plan.group_id or f"kdsl-{plan.table}",
    }


@contextmanager
def open_ranges(
    plan: ReadPlan,
    cluster: Cluster,
    cluster_key: str,
    needs: Collection[str],
    ranges: Sequence[Range],
    ids: Mapping[str, str],
    epochs: Mapping[TopicPartition, int],
    *,
    statistics: bool = False,
    keeps_rows: bool = False,
) -> Iterator[RangeReader]:
    """Lend a consumer to the body that reads some ranges.

    It returns to the pool also if the body is a generator that is closed; after an error it is closed.

    Args:
        plan: What is read.
        cluster: Where it is read.
        cluster_key: Distinguishes clusters and tables in the pools: the options from which the cluster was read.
        needs: The needed fields of a raw batch.
        ranges: The ranges, at least one.
        ids: The planned id of each topic.
        epochs: The epochs of the leaders that reported the ends of the ranges.
        statistics: Whether the client emits statistics.
        keeps_rows: Whether the task has states of the partitions.
    """
    names = client_names(plan, cluster, ranges)
    own = {"statistics.interval.ms": str(INTERVAL)} if statistics else {}
    consumer = borrow_consumer(cluster, cluster_key, choose_size(max(map(len, ranges))), {**names, **own})
    fetcher = Fetcher(consumer, plan.table, needs, cluster.kdsl_settings.api_timeout_ms / 1000)
    check = TopicCheck(cluster, cluster_key, plan.table, ids)
    fetcher.on_short_log = check.verify
    fetcher.epochs = EpochCheck(cluster, plan.table, names["group.id"], epochs, keeps_rows=keeps_rows)
    try:
        yield RangeReader(fetcher, consumer, check, ranges)
    except GeneratorExit:  # no more rows are needed
        return_consumer(consumer)
        raise
    except KafkaReadError as e:
        discard(consumer)
        check.explain(e)
        raise
    except BaseException:
        discard(consumer)
        raise
    return_consumer(consumer)
