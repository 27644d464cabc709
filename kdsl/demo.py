"""The main job as a demonstration: orders flow from a real Kafka through Spark into another topic and are read back."""

from __future__ import annotations

import inspect
import tempfile
from datetime import datetime
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table as Grid

from kdsl import Cluster, Col, Json, KafkaTable, Key, Virtual, col, metadata, virtual
from kdsl.run.session import start_local_session
from kdsl.testing import LocalKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
MESSAGES = (
    '{"order_id":"202103241000000001", "order_channel":"webShop", "order_time":"2021-03-24 10:00:00", '
    '"pay_amount":"100.00", "real_pay":"100.00", "pay_time":"2021-03-24 10:02:03", "user_id":"0001", '
    '"user_name":"Alice", "area_id":"330106"}',
    '{"order_id":"202103241606060001", "order_channel":"appShop", "order_time":"2021-03-24 16:06:06", '
    '"pay_amount":"200.00", "real_pay":"180.00", "pay_time":"2021-03-24 16:10:06", "user_id":"0001", '
    '"user_name":"Alice", "area_id":"330106"}',
    '{"order_id":"202103251202020001", "order_channel":"miniAppShop", "order_time":"2021-03-25 12:02:02", '
    '"pay_amount":"60.00", "real_pay":"60.00", "pay_time":"2021-03-25 12:03:00", "user_id":"0002", '
    '"user_name":"Bob", "area_id":"330110"}',
)


class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest"):
    """Orders as the shop writes them."""

    order_id: Col[str]
    order_channel: Col[str]
    order_time: Col[datetime] = col(type="TIMESTAMP(3)")
    pay_amount: Col[float]
    user_name: Col[str]
    event_time: Col[datetime] = metadata("timestamp")
    partition: Virtual[int] = virtual("partition")
    offset: Virtual[int] = virtual("offset")


class BigOrders(
    KafkaTable, topic="big-orders", key=Json(), value=Json(), value_fields="EXCEPT_KEY", startup="earliest"
):
    """Orders of 100 and more by channel, with the partition and offset that each came from."""

    order_channel: Key[str]
    order_id: Col[str]
    pay_amount: Col[float]
    came_from: Col[str]
    event_time: Col[datetime] = metadata("timestamp")
    partition: Virtual[int] = virtual("partition")
    offset: Virtual[int] = virtual("offset")


def run(console: Console | None = None) -> None:
    """Run the demonstration: start Kafka and Spark, run the job, show what it did, stop both.

    Kafka is downloaded if this machine does not have it yet. An active Spark session is used, and stopped.

    Args:
        console: Where to show it; the output of this process if None.
    """
    console = console or Console()
    console.print(Panel(Syntax(inspect.getsource(Orders), "python", background_color="default"), title="a table"))
    with (
        console.status("starting Kafka (the first time it is fetched, about 45 MB)") as status,
        LocalKafka(topics={"orders": PARTITIONS, "big-orders": PARTITIONS}) as kafka,
    ):
        console.print(f"[green]✓[/] a real Kafka listens on {kafka.bootstrap_servers}", highlight=False)
        kafka.produce("orders", *MESSAGES)
        console.print(f"[green]✓[/] {len(MESSAGES)} orders written to the topic 'orders'", highlight=False)
        status.update("starting Spark")
        spark = session()
        try:
            status.update("running the job")
            job(spark, Cluster(kafka.bootstrap_servers), console)
        finally:
            status.update("stopping")
            spark.stop()
    console.print("[green]✓[/] Spark and Kafka are stopped", highlight=False)


def session() -> SparkSession:
    """Return the active Spark session, or start one on this machine that listens on loopback only; set it to UTC."""
    return start_local_session("kdsl demo", {"spark.sql.session.timeZone": "UTC"})


def job(spark: SparkSession, cluster: Cluster, console: Console) -> None:
    """Write the orders of 100 and more to the other topic with a stream until it has caught up.

    Then read both topics, and show some columns of their rows on the console. The checkpoint is a temporary folder.
    Errors are those of `Table.read_stream`, `Table.write_stream` and `Table.read`, and Spark's.
    """
    from pyspark.sql import functions as F

    orders = Orders.read_stream(spark, cluster)
    big = orders.where(Orders.pay_amount >= 100).select(
        Orders.order_channel,
        Orders.order_id,
        Orders.pay_amount,
        F.format_string("orders-%d@%d", Orders.partition, Orders.offset).alias("came_from"),
        Orders.event_time,
    )
    with tempfile.TemporaryDirectory(prefix="kdsl-demo-") as checkpoint:
        query = BigOrders.write_stream(big, cluster, checkpoint=checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
    read = Orders.read(spark, cluster)
    few = read.select(Orders.order_id, Orders.order_time, Orders.pay_amount, Orders.partition, Orders.offset)
    show(console, "Orders.read(spark, cluster)", few.orderBy(Orders.order_id))
    written = BigOrders.read(spark, cluster)
    few = written.select(BigOrders.order_channel, BigOrders.order_id, BigOrders.came_from, BigOrders.event_time)
    show(console, "BigOrders.read(spark, cluster), from the second topic", few.orderBy(BigOrders.order_id))


def show(console: Console, title: str, df: DataFrame) -> None:
    """Run a small DataFrame, and show its rows as a table, with the types of its columns and times to the second."""
    grid = Grid(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for field in df.schema.fields:
        grid.add_column(f"{field.name}\n[dim]{field.dataType.simpleString()}[/]")
    for row in df.collect():
        grid.add_row(*(f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value) for value in row))
    console.print(grid)
