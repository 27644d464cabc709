"""Write and read a topic without Spark and Java: ``python examples/without_spark.py host:port``."""

from __future__ import annotations

import sys
from collections import Counter

from kdsl import Cluster, Col, Json, KafkaTable, Key


class Visits(KafkaTable, topic="visits", key=Json(), value=Json(), group_id="visit-counts", startup="earliest"):
    """Pages that users have visited."""

    user: Key[str]
    page: Col[str]


def count_visits(cluster: Cluster) -> Counter[str]:
    """Count the visits of each page; a group's offsets are committed when the next batch is asked for."""
    counts: Counter[str] = Counter()
    with Visits.iter_batches(cluster, columns=[Visits.page]) as batches:
        for batch in batches:
            counts.update(batch.column("page").to_pylist())
    return counts


def main() -> None:
    """Run against the brokers that the command line names."""
    cluster = Cluster(sys.argv[1])
    Visits.produce([Visits(user="ann", page="/"), {"user": "bob", "page": "/"}, {"user": "bob", "page": "/a"}], cluster)
    print(Visits.to_arrow(cluster).to_pylist())
    print(count_visits(cluster))


if __name__ == "__main__":
    main()
