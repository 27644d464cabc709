"""`kdsl.diagnostics.doctor.schemas` on a real registry, and on what stands in its place."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest

from kdsl import AvroConfluent, Col, JsonSchemaConfluent, KafkaTable, ProtobufConfluent
from kdsl.cluster import Cluster, Registry
from kdsl.diagnostics.doctor.schemas import check_schemas
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.registry import RegisteredSchema
from kdsl.table import Table
from kdsl.testing import LocalRegistry
from tests.registry.front import Answer, Front, Request, forward

PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'


@pytest.fixture
def topic() -> str:
    return f"doctor-{uuid.uuid4().hex[:8]}"


def orders(topic: str, value: Any = None) -> Table:
    class Orders(KafkaTable, topic=topic, value=value or AvroConfluent(), startup="earliest"):
        id: Col[int]
        note: Col[str | None]

    return Table(Orders.definition())


def cluster(registry: str | Registry) -> Cluster:
    return Cluster("nobody:9092", registry=registry)


def read(table: Table, where: Cluster) -> list[tuple[str, str, str]]:
    return [(f.check, f.state, f.message) for f in check_schemas(where, [table.read_plan(cluster=where)])]


def write(table: Table, where: Cluster) -> list[tuple[str, str, str]]:
    return [(f.check, f.state, f.message) for f in check_schemas(where, [table.write_plan(where)])]


def record(**fields: Any) -> RegisteredSchema:
    members = [{"name": name, "type": kind} for name, kind in fields.items()]
    return RegisteredSchema(json.dumps({"type": "record", "name": "record", "fields": members}))


class TestSubjects:
    def test_a_sink_registers_its_schema_later_and_nothing_is_registered_now(
        self, kdsl_registry: LocalRegistry, topic: str
    ) -> None:
        here = cluster(kdsl_registry.url)

        result = write(orders(topic), here)

        assert [state for _, state, _ in result] == ["ok", "ok", "ok"]
        assert result[-1] == (
            f"subject {topic}-value",
            "ok",
            "the first write of Orders will register its schema there",
        )
        assert f"{topic}-value" not in kdsl_registry.client().subjects()

    def test_a_schema_that_is_already_registered(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        number = kdsl_registry.client().register(f"{topic}-value", self.schema(topic, kdsl_registry))

        result = write(orders(topic), cluster(kdsl_registry.url))[-1]

        assert result[1:] == ("ok", f"the schema of Orders is registered there (version 1, id {number})")

    def test_a_schema_that_the_subject_does_not_take(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        kdsl_registry.client().register(f"{topic}-value", record(id="string"))

        _, state, message = write(orders(topic), cluster(kdsl_registry.url))[-1]

        assert state == "error"
        assert "the registry would refuse the schema of Orders: " in message

    def test_a_schema_that_is_not_registered_and_must_be(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        result = write(orders(topic, AvroConfluent(auto_register=False)), cluster(kdsl_registry.url))[-1]

        assert result[:2] == (f"subject {topic}-value", "error")
        assert "does not have this schema under the subject" in result[2]

    def test_the_latest_schema_must_exist_and_fit_the_rows(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        table, here = orders(topic, AvroConfluent(use_latest_version=True)), cluster(kdsl_registry.url)

        missing = write(table, here)[-1]
        kdsl_registry.client().register(f"{topic}-value", record(id="long"))
        unfit = write(table, here)[-1]

        assert missing[:2] == unfit[:2] == (f"subject {topic}-value", "error")
        assert "does not have the version latest" in missing[2]
        assert "does not fit the rows of Orders: " in unfit[2]

    def test_a_source_without_a_subject_is_warned(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        result = read(orders(topic), cluster(kdsl_registry.url))[-1]

        assert result[:2] == (f"subject {topic}-value", "warning")

    def test_a_source_reads_the_latest_schema_or_cannot(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        client, here = kdsl_registry.client(), cluster(kdsl_registry.url)
        number = client.register(f"{topic}-value", record(id="int", more="string"))
        client.register(f"{topic}-other", record(id="string"))

        fine = read(orders(topic), here)[-1]
        unfit = read(orders(topic, AvroConfluent(subject=f"{topic}-other")), here)[-1]

        assert fine[1:] == ("ok", f"the latest schema (version 1, id {number}) fits the columns of Orders")
        assert unfit[:2] == (f"subject {topic}-other", "error")
        assert "cannot be read into the rows of Orders: id" in unfit[2]

    def test_nulls_that_arrive_as_defaults_are_warned_of(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        """A converter of Kafka Connect writes the default of a nullable field in place of NULL."""
        number = {"type": "int", "connect.default": 5}
        fields = [{"name": "id", "type": "int"}, {"name": "n", "type": [number, "null"], "default": 5}]
        schema = {"type": "record", "name": "Value", "fields": fields, "connect.name": "shop.Value"}
        kdsl_registry.client().register(f"{topic}-value", RegisteredSchema(json.dumps(schema)))

        class Orders(KafkaTable, topic=topic, value=AvroConfluent(), startup="earliest"):
            id: Col[int]
            n: Col[int | None]

        finding = read(Table(Orders.definition()), cluster(kdsl_registry.url))[-1]

        assert finding[1] == "warning"
        assert "but NULL may arrive as the default in n (5)" in finding[2]

    def test_those_of_a_json_schema_are_warned_of_too(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        number = {"type": "integer", "connect.type": "int64", "default": 5}
        members = {
            "id": {"type": "integer", "connect.type": "int64"},
            "n": {"oneOf": [{"type": "null"}, number], "connect.index": 1},
        }
        schema = {"type": "object", "title": "Value", "properties": members}
        kdsl_registry.client().register(f"{topic}-value", RegisteredSchema(json.dumps(schema), "JSON"))

        class Orders(KafkaTable, topic=topic, value=JsonSchemaConfluent(), startup="earliest"):
            id: Col[int]
            n: Col[int | None]

        finding = read(Table(Orders.definition()), cluster(kdsl_registry.url))[-1]

        assert finding[1] == "warning"
        assert "but NULL may arrive as the default in n (5)" in finding[2]

    def test_protobuf(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        here = cluster(kdsl_registry.url)
        kdsl_registry.client().register(f"{topic}-value", RegisteredSchema(PROTO, "PROTOBUF"))

        named = read(orders(topic, ProtobufConfluent(message_class_name="Order")), here)[-1]
        other = read(orders(topic, ProtobufConfluent(message_class_name="Payment")), here)[-1]
        avro = read(orders(topic), here)[-1]

        assert named[1] == "ok"
        assert (other[1], avro[1]) == ("error", "error")
        assert "it has no message Payment, but Order" in other[2]
        assert "of the type PROTOBUF" in avro[2]

    def test_a_pattern_of_topics_names_no_subjects(self, kdsl_registry: LocalRegistry) -> None:
        class Orders(KafkaTable, topic_pattern="orders-.*", value=AvroConfluent(), startup="earliest"):
            id: Col[int]

        assert read(Table(Orders.definition()), cluster(kdsl_registry.url))[-1][1] == "skipped"

    def schema(self, topic: str, registry: LocalRegistry) -> RegisteredSchema:
        part = orders(topic).write_plan(cluster(registry.url)).value
        assert part is not None
        assert isinstance(part.format, AvroConfluent)
        return part.format.sink_schema(part.row, registry.client())[1]


class TestRegistries:
    def test_no_server_listens(self, topic: str) -> None:
        (rows,) = read(orders(topic), cluster("http://127.0.0.1:1"))

        assert rows[:2] == ("registry http://127.0.0.1:1", "error")
        assert "asked once" in rows[2]

    @pytest.mark.parametrize(
        ("answer", "states", "message"),
        [
            ((401, {"error_code": 401, "message": "who?"}), ["ok", "error"], "does not know who asks"),
            ((500, {"error_code": 50001, "message": "store"}), ["error"], "does not answer, asked once .*store"),
            ((200, b"<html>Sign in</html>"), ["error"], "check that this is the address of a schema registry"),
            ((302, b""), ["error"], "HTTP 302"),
        ],
    )
    def test_different_failures_are_distinguished(
        self, answer: Answer, states: list[str], message: str, topic: str
    ) -> None:
        with Front(lambda _: answer) as front:
            rows = read(orders(topic), cluster(front.url))

        assert [state for _, state, _ in rows] == states
        assert re.search(message, rows[-1][2])

    def test_who_may_not_list_subjects_may_still_have_one(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        def allows(request: Request) -> int:
            return 403 if request.path == "/subjects" else 200

        with Front(forward(kdsl_registry.url, allows)) as front:
            result = write(orders(topic), cluster(front.url))

        assert [state for _, state, _ in result] == ["ok", "ok", "ok"]

    def test_a_subject_that_this_user_may_not_see(self, kdsl_registry: LocalRegistry, topic: str) -> None:
        with Front(forward(kdsl_registry.url, lambda r: 403 if "value" in r.path else 200)) as front:
            rows = read(orders(topic), cluster(front.url))

        assert [state for _, state, _ in rows] == ["ok", "ok", "error"]
        assert rows[-1][0] == f"subject {topic}-value"

    @pytest.mark.parametrize("direction", ["read", "write"])
    def test_a_subject_that_cannot_be_checked_does_not_end_the_others(self, topic: str, direction: str) -> None:
        def answers(request: Request) -> Answer:
            if request.path == "/subjects":
                return 200, b"[]"
            if "broken" in request.path:
                return 200, b"<html>Sign in</html>"
            return 404, {"error_code": 40401, "message": "Subject not found"}

        with Front(answers) as front:
            where = cluster(front.url)
            tables = [orders(f"broken-{topic}"), orders(topic)]
            plans: list[ReadPlan | WritePlan] = [
                table.read_plan(cluster=where) if direction == "read" else table.write_plan(where) for table in tables
            ]
            findings = list(check_schemas(where, plans))

        last = "warning" if direction == "read" else "ok"
        assert [(f.check, f.state) for f in findings[2:]] == [
            (f"subject broken-{topic}-value", "error"),
            (f"subject {topic}-value", last),
        ]
        assert "answers HTTP 200" in findings[2].message
        assert findings[2].fix == "check the schemas of this subject, and what answers in place of the registry"

    def test_a_schema_that_refers_to_a_missing_one_does_not_end_the_others(self, topic: str) -> None:
        def answers(request: Request) -> Answer:
            if request.path == "/subjects":
                return 200, b"[]"
            if f"broken-{topic}" not in request.path:
                return 404, {"error_code": 40401, "message": "Subject not found"}
            reference = {"name": "Place", "subject": "places", "version": 1}
            schema = record(id="int", place="Place").text
            return 200, {"subject": "s", "version": 1, "id": 7, "schema": schema, "references": [reference]}

        with Front(answers) as front:
            where = cluster(front.url)
            tables = [orders(f"broken-{topic}"), orders(topic)]
            findings = list(check_schemas(where, [table.read_plan(cluster=where) for table in tables]))

        assert [f.state for f in findings] == ["ok", "ok", "error", "warning"]
        assert findings[2].message.startswith("the latest schema (version 1, id 7) cannot be read into the rows of Or")
        assert "does not have the version 1" in findings[2].message

    def test_settings_that_are_wrong(self, topic: str) -> None:
        where = cluster(Registry("http://localhost:1", {"basic-auth.credentials-source": "USER_INFO"}))

        assert [(f.check, f.state) for f in check_schemas(where, [])] == [("registry", "error")]

    def test_nothing_is_examined_without_a_registry(self) -> None:
        assert list(check_schemas(Cluster("nobody:9092"), [])) == []
