"""The functions of kdsl.pipelines in a session of Spark Connect that refuses what a pipeline refuses."""

from __future__ import annotations

import json
from pathlib import Path

from tests.connect import ConnectServer

SCRIPT = '''
from unittest.mock import patch

from pyspark import pipelines as dp
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.sql.connect.client import SparkConnectClient

from kdsl import Cluster, Col, DebeziumJson, Json, KafkaTable, PrimaryKey, UpsertTable, computed, load_sql
from kdsl import pipelines as kp
from kdsl.errors import KdslError, ResolveError

shop = Cluster("127.0.0.1:1")


class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest-offset"):
    """An order."""

    order_id: Col[int]
    amount: Col[float | None]

    @computed
    def double(self) -> int:
        return self.order_id * 2


class Users(
    UpsertTable, topic="users", key=Json(), value=Json(), changelog_state="key", state_location="/mnt/states"
):
    user_id: PrimaryKey[int]
    name: Col[str | None]


class LastUsers(UpsertTable, topic="users", key=Json(), value=Json(), changelog="upsert"):
    user_id: PrimaryKey[int]
    name: Col[str | None]


class Changes(KafkaTable, topic="changes", value=DebeziumJson(), startup="earliest-offset", primary_key=["id"]):
    id: Col[int]
    name: Col[str | None]


(Times, Instants) = load_sql(
    """CREATE TABLE times (
      at TIMESTAMP(3), id INT, day AS CAST(at AS DATE), WATERMARK FOR at AS at - INTERVAL '5' SECOND)
    WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
    CREATE TABLE instants (at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', id INT,
      WATERMARK FOR at AS at - INTERVAL '5' SECOND)
    WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');"""
)


class Graph(GraphElementRegistry):
    """Calls the functions of flows as Spark does, and keeps what they define."""

    def __init__(self):
        self.outputs, self.frames, self.cdc = {}, {}, []

    def register_output(self, output):
        self.outputs[output.name] = output

    def register_flow(self, flow):
        frame = flow.func()
        frame._plan.plan(spark.client)
        self.frames[flow.name] = frame

    def register_auto_cdc_flow(self, flow):
        self.cdc.append(flow)

    def register_sql(self, sql_text, file_path):
        raise NotImplementedError


def refuse(self, *arguments, **named):
    raise AssertionError(f"a flow asked Spark: {arguments} {named}")


graph = Graph()
errors = []
with (
    graph_element_registration_context(graph),
    block_session_mutations(),
    patch.object(SparkConnectClient, "_analyze", refuse),
    patch.object(SparkConnectClient, "execute_command", refuse),
):
    kp.table(Orders, shop, name="orders", format="delta")
    kp.table(Orders, shop, name="ids", columns=["order_id"])
    kp.table(Users, shop, name="changes_of_users")
    kp.view(LastUsers, shop, name="last_users", change_columns=True)
    kp.table(Changes, shop, name="changes", change_columns=True)
    kp.table(Times, shop)
    kp.table(Instants, shop)
    kp.auto_cdc(Users, shop, target="users", format="delta")
    kp.auto_cdc(Changes, shop, target="rows")
    kp.sink(LastUsers, shop, name="sink")

    @dp.table(name="by_hand")
    def by_hand():
        return Orders.read_stream(spark, shop).select("order_id")

    wrong = (
        lambda: kp.auto_cdc(Orders, shop),
        lambda: kp.table(Users, shop, name="x", change_columns=True),
        lambda: kp.auto_cdc(Users, shop, target="y", columns=["name"], sequence_by="_comit_version"),
    )
    for call in wrong:
        try:
            call()
        except ResolveError as e:
            errors += [p.code for p in e.problems]
            messages = str(e)

try:
    kp.table(Orders, shop)
except KdslError as e:
    errors.append(str(e))

print(json.dumps({
    "columns": {name: frame.columns for name, frame in graph.frames.items()},
    "streams": all(frame.isStreaming for frame in graph.frames.values()),
    "outputs": sorted(graph.outputs),
    "comment": graph.outputs["orders"].comment,
    "sink": [graph.outputs["sink"].format, graph.outputs["sink"].options["match"]],
    "cdc": [[f.target, f.source, str(f.keys), str(f.sequence_by), str(f.apply_as_deletes)] for f in graph.cdc],
    "nullable": [f.nullable for f in graph.frames["users_changes"].schema.fields],
    "errors": errors,
    "messages": messages,
}))
spark.stop()
'''


def test_flows_ask_spark_nothing(connect: ConnectServer, tmp_path: Path) -> None:
    shown = json.loads(connect.run(SCRIPT, folder=tmp_path).splitlines()[-1])

    cdc = ["_commit_version", "_commit_timestamp"]
    assert shown["columns"] == {
        "orders": ["order_id", "amount", "double"],
        "ids": ["order_id"],
        "changes_of_users": ["_row_kind", "user_id", "name"],
        "last_users": ["user_id", "name", "_change_type", *cdc],
        "changes": ["id", "name", "_change_type", *cdc],
        "times": ["at", "id", "day"],
        "instants": ["at", "id"],
        "users_changes": ["_row_kind", "user_id", "name", *cdc],
        "rows_changes": ["_row_kind", "id", "name", *cdc],
        "by_hand": ["order_id"],
    }
    assert shown["streams"]
    assert {"users", "users_changes", "rows", "rows_changes", "sink"} <= set(shown["outputs"])
    assert shown["comment"] == "An order."
    assert shown["sink"] == ["kdsl", "by-name"]
    assert [flow[:2] for flow in shown["cdc"]] == [["users", "users_changes"], ["rows", "rows_changes"]]
    assert "user_id" in shown["cdc"][0][2]
    assert "_commit_version" in shown["cdc"][0][3]
    assert "-D" in shown["cdc"][0][4]
    assert shown["nullable"] == [False, False, True, False, False]
    assert shown["errors"][:4] == ["auto-cdc", "change-columns-images", "auto-cdc-key", "auto-cdc-sequence"]
    assert "finds the rows of its target by 'user_id', which 'columns' leaves out; add all columns" in shown["messages"]
    assert "'_comit_version', which is not a column of the changes (did you mean '_commit_" in shown["messages"]
    assert "no pipeline loads this file" in shown["errors"][4]
    assert not {"y", "y_changes"} & set(shown["outputs"])
