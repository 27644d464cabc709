"""A query with state whose tables change: it is predicted, explained at the start, and continued with a new checkpoint.

The steps are those of docs/upgrading.md, on a real Kafka.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import kdsl
from kdsl import Checkpoint, Col, Json, KafkaTable, Virtual, metadata, virtual
from kdsl.cluster import Cluster
from kdsl.errors import SparkJobError
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = 1_700_000_000_000
NOW: dict[str, Any] = {"availableNow": True}


def message(number: int, minute: int, **values: Any) -> Record:
    return Record(json.dumps({"id": number, **values}), None, (), 0, START + minute * 60_000)


def test_a_join_gets_a_column_and_no_row_is_lost_or_doubled(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders_topic, payments_topic, target = kdsl_topic("orders"), kdsl_topic("payments"), kdsl_topic("enriched")
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    first, second = str(tmp_path / "first"), str(tmp_path / "second")

    class Event(KafkaTable):
        id: Col[int]
        at: Col[datetime] = metadata("timestamp", watermark="10 minutes")
        partition: Virtual[int] = virtual("partition")
        offset: Virtual[int] = virtual("offset")

    class Orders(Event, topic=orders_topic, value=Json(), startup="earliest"):
        pass

    class Payments(Event, topic=payments_topic, value=Json(), startup="earliest"):
        amount: Col[int]

    class Enriched(KafkaTable, topic=target, value=Json()):
        id: Col[int]
        amount: Col[int]

    def change_tables() -> tuple[type[Event], type[KafkaTable]]:
        """The same tables with another column."""

        class Orders(Event, topic=orders_topic, value=Json(), startup="earliest"):
            note: Col[str | None]

        class Enriched(KafkaTable, topic=target, value=Json()):
            id: Col[int]
            amount: Col[int]
            note: Col[str | None]

        return Orders, Enriched

    orders_with_note, enriched_with_note = change_tables()

    def join(o: DataFrame, p: DataFrame, *more: str) -> DataFrame:
        o, p = o.alias("o"), p.alias("p")
        by_id = F.col("o.id") == F.col("p.id")
        joined = o.join(
            p, by_id & (F.col("p.at") >= F.col("o.at")) & (F.col("p.at") <= F.col("o.at") + F.expr("INTERVAL 1 HOUR"))
        )
        places = [F.col(f"{side}.{name}").alias(f"{side}_{name}") for side in "op" for name in ("partition", "offset")]
        return joined.select("o.id", "p.amount", *(f"o.{name}" for name in more), *places)

    def read(orders: type[Event], *more: str, **options: Any) -> DataFrame:
        return join(
            orders.read_stream(spark, cluster, **options), Payments.read_stream(spark, cluster, **options), *more
        )

    def write(table: type[KafkaTable], rows: DataFrame, checkpoint: str) -> None:
        rows = rows.drop("o_partition", "o_offset", "p_partition", "p_offset")
        query = table.write_stream(rows, cluster, checkpoint=checkpoint, trigger=NOW)
        assert query.awaitTermination(300)

    def read_ids() -> list[int]:
        return sorted(json.loads(m.value() or b"{}")["id"] for m in kdsl_kafka.read(target))

    def differences(*tables: Any) -> list[kdsl.Difference]:
        checkpoints = {"Enriched": first}
        return list(kdsl.diff([*tables, Payments], cluster, checkpoints=checkpoints).differences)

    kdsl_kafka.produce(orders_topic, *(message(n, n) for n in range(6)))
    kdsl_kafka.produce(payments_topic, *(message(n, n + 1, amount=n) for n in range(3)))
    write(Enriched, read(Orders), first)
    assert read_ids() == [0, 1, 2]
    assert [d for d in differences(Orders, Enriched) if d.kind == "checkpoint"] == []

    # The changed tables: 3 to 5 wait in the state of the first query.
    (difference,) = [d for d in differences(orders_with_note, enriched_with_note) if d.kind == "checkpoint"]
    assert (difference.mark, difference.what, difference.live, difference.declared) == (
        "!",
        "state of Orders",
        None,
        "note STRING",
    )
    assert "the state of the left side of a join has rows of Orders" in difference.consequence
    assert f"start_at=kdsl.Checkpoint({first!r})" in difference.consequence

    kdsl_kafka.produce(orders_topic, message(6, 20, note="new"))
    kdsl_kafka.produce(payments_topic, *(message(n, 21, amount=n) for n in range(3, 7)))
    with pytest.raises(SparkJobError, match=r"^the state in the query's checkpoint stores other columns"):
        write(enriched_with_note, read(orders_with_note, "note"), first)
    assert "the left side of a join stores not note string" in caplog.text
    assert "the right side" not in caplog.text
    old = Checkpoint(first, rewind="90 minutes")
    again = read(orders_with_note, "note", start_at=old)
    unread = orders_with_note.unread_by(spark, old, partition=F.col("o_partition"), offset=F.col("o_offset"))
    unread = unread | Payments.unread_by(spark, old, partition=F.col("p_partition"), offset=F.col("p_offset"))
    write(enriched_with_note, again.where(unread), second)
    assert read_ids() == [0, 1, 2, 3, 4, 5, 6]

    kdsl_kafka.produce(orders_topic, message(7, 22, note="last"))
    kdsl_kafka.produce(payments_topic, message(7, 23, amount=7))
    write(enriched_with_note, again.where(unread), second)
    assert read_ids() == [0, 1, 2, 3, 4, 5, 6, 7]
