"""Run by test_no_secret_shows: uses kdsl in every way with secrets of every kind, and prints whatever can be printed.

Arguments: a JSON file with the declarations, and a folder for the event log and the checkpoints.
"""

from __future__ import annotations

import json
import logging
import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kdsl import AvroConfluent, Cluster, Col, Json, KafkaTable, Registry
from kdsl.plan.show import show
from kdsl.plan.text import plan_text
from kdsl.table import Table, load_tables
from tests.registry.front import Answer, Front, Request

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
logging.getLogger("py4j").setLevel(logging.INFO)  # at DEBUG it traces every call into the JVM, with its arguments
document = json.loads(Path(sys.argv[1]).read_text())
folder = Path(sys.argv[2])


def print_result(step: Callable[[], object]) -> None:
    """Print what a step gives, or all that its error says."""
    try:
        print(step())
    except Exception as e:  # noqa: BLE001
        traceback.print_exc()
        print(repr(e), str(e), getattr(e, "problems", ""))
        with suppress(Exception):
            print(pickle.dumps(e))


def print_everything(name: str, cluster: Cluster, table: type[KafkaTable]) -> None:
    """What can be printed without Spark."""
    print("==", name)
    definition = table.definition()
    for thing in (cluster, cluster.properties, cluster.problems(), definition, Table(definition), table):
        print(repr(thing), str(thing))
    detached, _ = cluster.split_literals()
    print(pickle.dumps(detached), repr(detached))
    print_result(lambda: pickle.dumps(cluster))
    print_result(lambda: table.explain(cluster=cluster))
    print_result(lambda: table.explain("write", cluster=cluster))
    for make in (lambda: Table(definition).read_plan(cluster=cluster), lambda: Table(definition).write_plan(cluster)):
        print_result(lambda make=make: [(plan_text(make()), show(make()), repr(make()))])  # type: ignore[misc]
        print_result(lambda make=make: pickle.dumps(make()))  # type: ignore[misc]
    for item in (cluster.java("consumer"), cluster.java("producer")):
        print(repr(item), item.problems)


def run(spark: SparkSession, name: str, cluster: Cluster, table: type[KafkaTable], checkpoint: Path) -> None:
    """Write, read and stream; look at plans and progress."""
    table.write(table.rows([table(id=1)], spark=spark), cluster)  # type: ignore[call-arg]
    rows = table.read(spark, cluster)
    rows.explain("extended")
    execution: Any = rows._jdf
    print(execution.queryExecution().toString(), execution.queryExecution().stringWithStats())
    print(rows.collect(), repr(rows))
    if name in document["streams"]:
        query = table.write_stream(
            table.read_stream(spark, cluster), cluster, checkpoint=str(checkpoint), trigger={"availableNow": True}
        )
        assert query.awaitTermination(600)
        query.explain(True)
        print(query.recentProgress, query.lastProgress, query.status, query.exception())


def registry(spark: SparkSession, servers: str, secret: str) -> None:
    """The secrets of a schema registry: in a format's options, and in the cluster's."""
    schemas: list[str] = []

    def answers(request: Request) -> Answer:
        if "Authorization" not in request.headers or not request.headers["Authorization"].startswith("B"):
            return 401, {"error_code": 401, "message": "no"}
        if request.method == "POST":
            schemas.append(request.document["schema"])
            return 200, {"id": 1}
        return 200, {"schema": schemas[0]}

    with Front(answers) as front:
        address = front.url.replace("://", f"://me:{secret}@")
        own = AvroConfluent(url=front.url, basic_auth_user_info=f"me:{secret}", properties={"a.secret": secret})
        formats = {"own": own, "token": AvroConfluent(url=front.url, bearer_auth_token=secret)}
        formats |= {"address": AvroConfluent(url=address), "cluster": AvroConfluent()}
        for name, item in formats.items():

            class Typed(KafkaTable, topic="secret-registry", value=item, startup="earliest"):
                id: Col[int]

            cluster = Cluster(servers, registry=Registry(address, {"bearer.auth.logical.cluster": "c"}), name=name)
            print_everything(f"registry {name}", cluster, Typed)
            run(spark, name, cluster, Typed, folder / f"checkpoint-registry-{name}")
            print_result(partial(Typed.decode, spark.createDataFrame([(b"",)], "value binary"), cluster.registry))
        for name, wrong in {
            "refused": AvroConfluent(url=front.url, properties={"basic.auth.user.inf": secret}),
            "gone": AvroConfluent(url=f"http://me:{secret}@127.0.0.1:9", properties={"max.retries": 0}),
            "both": AvroConfluent(url=address, bearer_auth_token=secret),
            "odd": AvroConfluent(url=f"me:{secret}@registry"),
        }.items():

            class Failing(KafkaTable, topic="failing-registry", value=wrong, startup="earliest"):
                id: Col[int]

            cluster = Cluster(servers, name=name)
            print_everything(f"registry {name}", cluster, Failing)
            frame = spark.createDataFrame([(1,)], "id long")
            print_result(lambda c=cluster, t=Failing, f=frame: t.write(f, c))  # type: ignore[misc]
    print("ok registry")


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "INFO").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.compress", "false")
    builder = builder.config("spark.eventLog.dir", (folder / "events").as_uri())
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    for number, (name, (servers, properties)) in enumerate(document["clusters"].items()):

        class Orders(KafkaTable, topic=f"secret-{number}", value=Json(), startup="earliest", properties=properties):
            id: Col[int]

        cluster = Cluster(servers, properties=properties, name=name)
        print_everything(name, cluster, Orders)
        run(spark, name, cluster, Orders, folder / f"checkpoint-{number}")
        print("ok", name)
    for number, (name, (servers, properties)) in enumerate(document["failing"].items()):

        class Failing(KafkaTable, topic=f"failing-{number}", value=Json(), startup="earliest"):
            id: Col[int]

        cluster = Cluster(servers, properties=properties, name=name)
        print_everything(name, cluster, Failing)
        frame = Failing.rows([Failing(id=1)], spark=spark)
        print_result(lambda c=cluster, t=Failing: t.read(spark, c).collect())  # type: ignore[misc]
        print_result(lambda c=cluster, t=Failing, f=frame: t.write(f, c))  # type: ignore[misc]
    for number, text in enumerate(document["yaml"]):
        path = folder / "given" / f"{number}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print_result(lambda p=path: [repr(table) + table.explain() for table in load_tables(p)])  # type: ignore[misc]
        print_result(lambda p=path: Cluster.from_yaml(p))  # type: ignore[misc]
        path.unlink()
    registry(spark, document["plaintext"], document["registry"])
    spark.stop()
    print("all done")


if __name__ == "__main__":
    main()
