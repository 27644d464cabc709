"""Protobuf: messages of a ``.proto`` file as rows, enums as names, timestamps as instants, nested messages as rows.

Run it with ``python examples/protobuf_parcels.py host:port``; it writes parcels to ``parcels``, and shows where each
one was last. The ``.proto`` file is read on the driver alone, which needs kdsl-kafka[protobuf] or protoc for it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl import Cluster, Col, Int32, KafkaTable, Protobuf, col

PROTO = Path(__file__).parent / "schemas" / "parcel.proto"


@dataclass(frozen=True)
class Stop:
    """A stop of a parcel: its place and time."""

    place: str | None
    at: datetime | None


PARCEL = Protobuf(message_class_name="post.Parcel", proto_file=str(PROTO))


class Parcels(KafkaTable, topic="parcels", value=PARCEL, startup="earliest"):
    """Parcels; columns have the names of the message's fields, and can be a subset of them."""

    number: Col[str | None]
    state: Col[str | None]
    stops: Col[list[Stop | None] | None]
    grams: Col[Int32 | None] = col(default=None)


def run(spark: SparkSession, cluster: Cluster) -> DataFrame:
    """Write parcels, and read the place of each."""
    start = datetime(2026, 11, 21, 8, tzinfo=UTC)
    stops = [Stop(place, start + timedelta(hours=i)) for i, place in enumerate(("Bremen", "Hannover", "Berlin"))]
    rows = [
        Parcels(number="A1", state="DELIVERED", stops=[*stops], grams=750),
        Parcels(number="A2", state="ACCEPTED", stops=[]),
    ]
    Parcels.write(Parcels.rows(rows, spark=spark), cluster)

    last = F.try_element_at(F.col("stops"), F.lit(-1))["place"].alias("place")
    return Parcels.read(spark, cluster).select("number", "state", "grams", last).orderBy("number")


if __name__ == "__main__":
    run(SparkSession.builder.getOrCreate(), Cluster(sys.argv[1])).show()
