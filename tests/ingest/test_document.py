"""Ingestions in YAML: all problems at once with path, line and fix; variables; round trips with Python."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner, Result

import kdsl
from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.errors import Problem, ResolveError, SecretError
from kdsl.ingest import (
    Blackhole,
    DeltaChanges,
    DeltaTables,
    Ingestion,
    JdbcSnapshot,
    JdbcTables,
    KafkaFeed,
    KafkaTopics,
    Memory,
    MySqlSnapshot,
    Pipeline,
    Print,
    Route,
    Sink,
    Transform,
)
from kdsl.ingest.document import is_ingestion_document
from kdsl.ingest.ends import end_types
from kdsl.ingest.ends.end import WrongOption
from kdsl.options import option
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.csv import Csv
from kdsl_formats.json import Json
from tests.installed_plugins import InstallPlugins

SOURCE = {"type": "kafka", "properties.bootstrap.servers": "a:9092", "topic": "t"}
SINK = {"type": "memory"}


def document(source: dict[str, str] | None = None, sink: dict[str, str] | None = None, rest: str = "") -> str:
    def section(name: str, options: dict[str, str]) -> str:
        return f"{name}:\n" + "".join(f"  {key}: {value}\n" for key, value in options.items())

    return section("source", SOURCE | (source or {})) + section("sink", SINK | (sink or {})) + rest


def problems(text: str, variables: dict[str, str] | None = None) -> list[Problem]:
    return [*Ingestion.read(text, variables or {}, file="f.yaml")[1]]


def rows(*entries: str, section: str = "transform") -> str:
    return f"{section}:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)


# Each document has two mistakes: their lines, and a part of each message with its fix.
WRONG = [
    ("unknown section and option", document({"topics": "x"}, rest="sinks: {}\n"),
     {5: "has no option 'topics' (did you mean 'topic'?)", 8: "no section 'sinks' (did you mean 'sink'?)"}),
    ("no type, no sink", "source:\n  topic: t\n", {1: "the document has no sink", 2: None}),
    ("unknown types", document({"type": "kafak"}, {"type": "detla"}),
     {2: "there is no source of the type 'kafak' (did you mean 'kafka'?)", 6: "(did you mean 'delta'?)"}),
    ("values of a wrong type", document({"scan.max.pre.fetch.records": "many", "ingestion.ignore-errors": "yes"}),
     {5: "set scan.max.pre.fetch.records to an integer", 6: "set ingestion.ignore-errors to true or false"}),
    ("formats", document({"value.format": "avro", "key.format": "csv"}),
     {5: "declared one by one with KafkaTable", 6: "the key format of the source 'kafka' cannot be 'csv'"}),
    ("options of formats", document({"value.format": "json", "json.infer-schema.fixed-type": "id INT",
                                     "canal-json.table.include": "x"}),
     {6: "(did you mean 'infer-schema.fixed-types'?)", 7: "it belongs to a format that is not used"}),
    ("topic and pattern, static without a schema",
     document({"topic-pattern": "x.*", "schema.inference.strategy": "static", "scan.max.pre.fetch.records": "0"}),
     {5: "topic and topic-pattern are both set", 6: "nothing says the columns"}),
    ("prefixes, metadata", document({"key.format": "json", "key.fields-prefix": "a", "value.fields-prefix": "ab",
                                     "metadata.list": "offset, ofset"}),
     {7: "begin with one another", 8: "'ofset' (did you mean 'offset'?)"}),
    ("start", document({"scan.startup.mode": "timestamp", "scan.startup.specific-offsets": "partition:0"}),
     {5: "add scan.startup.timestamp-millis", 6: "scan.startup.specific-offsets"}),
    ("pattern of topics, errors",
     document({"topic": "", "topic-pattern": "(", "ingestion.error-tolerance.max-count": "-2"}),
     {5: "is not a regular expression", 6: "use a number from 0 on"}),
    ("ignored twice", document({"value.format": "json", "json.ignore-parse-errors": "true",
                                "ingestion.ignore-errors": "true", "topic": "t;u", "discover": "1"}),
     {6: "keep one of the two", 8: "has no option 'discover'"}),
    ("initial schemas", document({"scan.value.initial-schemas.ddls": '"CREATE TABLE a (id INTT); DROP TABLE a"',
                                  "key.fields-prefix": "k"}),
     {5: "INTT", 6: "has no effect without key.format"}),
    ("mapping, header", document(sink={"type": "kafka", "properties.bootstrap.servers": "b:1",
                                       "sink.tableId-to-topic.mapping": "a.b", "sink.custom-header": "x"}),
     {8: "with one colon", 9: "without a name and a colon"}),
    ("topics", document(sink={"type": "kafka", "properties.bootstrap.servers": "b:1", "topic": "a b",
                              "sink.delivery-guarantee": "exactly-once"}),
     {8: "has characters other than", 9: "needs sink.transactional-id-prefix"}),
    ("options that need debezium", document(sink={"type": "kafka", "properties.bootstrap.servers": "b:1",
                                                  "value.format": "canal-json",
                                                  "canal-json.include-schema.enabled": "true",
                                                  "partition.strategy": "by-key"}),
     {9: "only the format debezium-json has", 10: "'all-to-zero' or 'hash-by-key'"}),
    ("option of a format without the format", document({"distributed-tables": "true"}, {"foo": "1"}),
     {5: "write it as 'debezium-json.distributed-tables'", 8: "the sink 'memory' has no option 'foo'"}),
    ("delta", document(sink={"type": "delta", "include.schema.changes": "[add.column, add.colum]"}),
     {5: "add path", 7: "'add.colum' (did you mean 'add.column'?)"}),
    ("a star without quotes", document(rest="transform:\n  - source-table: t\n    projection: *, a\n"),
     {9: "a value that begins with '*' or '&' is not the name of an anchor; put it in quotes"}),
    ("no epoch", document({"transport": "jvm", "metadata.list": "offset, leader-epoch", "nme": "x"}),
     {6: "which the transport 'jvm' does not provide", 7: "(did you mean 'name'?)"}),
    ("no folder", document(sink={"type": "delta", "path": '""', "foo": "1"}), {7: "add path", 8: "no option 'foo'"}),
    ("jdbc", document(sink={"type": "jdbc", "url": "postgresql://x", "schema.change.lock-timeout": "soon"}),
     {7: "write jdbc:postgresql://host/database", 8: "a duration"}),
    ("transforms", document(rest=rows("projection: '*'", "source-table: 'a.b.c.d'")),
     {8: "source-table is required", 9: "has 4 names"}),
    ("expressions", document(rest=rows("source-table: a, projection: 'UPER(x'", "source-table: b, filter: 'x >'")),
     {8: "projection", 9: "filter"}),
    ("converter, table options",
     document(rest=rows("source-table: a, converter-after-transform: SOFT", "source-table: b, table-options: x")),
     {8: "'SOFT_DELETE'", 9: "without '='"}),
    ("order of transforms", document(rest=rows(r"source-table: '\.*.\.*.\.*'", "source-table: b, filtr: x")),
     {9: "the transform is never used"}),
    ("columns twice, a class that does not end",
     document(rest=rows("source-table: a, primary-keys: 'id, id'", "source-table: 'b[', projection: x")),
     {8: "primary-keys names 'id' twice", 9: "write one that a whole name must match"}),
    ("routes", document(rest=rows("source-table: 'a.(b', sink-table: c", "source-table: a, sink-table: $1",
                                  section="route")),
     {8: "regular expression", 9: "the pattern has 0 groups"}),
    ("routes without tables", document(rest=rows("sink-table: c", "source-table: a", section="route")),
     {8: "source-table is required", 9: "sink-table is required"}),
    ("pipeline", document(rest="pipeline:\n  model: x\n  user-defined-function: []\n"),
     {8: "'model' is not supported", 9: "'user-defined-function' is not supported"}),
    ("behavior, zone", document(rest="pipeline:\n  schema.change.behavior: evole\n  local-time-zone: Mars\n"),
     {8: "did you mean 'EVOLVE'?", 9: "use the name of a time zone"}),
    ("zone without an offset", document(rest="pipeline:\n  local-time-zone: GMT+abc\n"),
     {8: "use the name of a time zone"}),
    ("numbers", document(rest="pipeline:\n  max-tables: 0\n  trigger: 10 parsecs\n"),
     {8: "max-tables has the value 0; use a number greater than 0", 9: "trigger"}),
    ("collector", document(rest="pipeline:\n  dirty-data.collector:\n    type: kafka\n    topik: x\n"),
     {9: "needs dirty-data.collector.topic", 10: "(did you mean 'dirty-data.collector.topic'?)"}),
    ("collector into the source", document({"ingestion.ignore-errors": "true", "topic": "dead", "nme": "x"},
                                           rest="pipeline: {dirty-data.collector: {type: kafka, topic: dead}}\n"),
     {6: "(did you mean 'name'?)", 9: "into which dead letters are written"}),
    ("variables", document({"topic": "${topic}"}, {"name": "${tpoic}"}),
     {4: "there is no variable 'topic'", 7: "there is no variable 'tpoic'"}),
    ("neither variable nor reference", document({"topic": "${a b}"}, {"name": "${env:}"}),
     {4: "neither a variable nor a reference", 7: "neither a variable nor a reference"}),
    ("shapes", document(rest="transform: x\nroute: {a: b}\n"),
     {7: "transform is not a list", 8: "route is not a list"}),
    ("shapes of options", document({"properties": "{sasl.mechanism: PLAIN}", "topic-pattern": ""}),
     {5: "write each key in full", 6: "the option has no value"}),
    ("shapes of sections", "source: x\nsink: [y]\n",
     {1: "not a mapping of options", 2: "not a mapping of options"}),
    ("repeated keys", "source:\n  type: kafka\n  type: kafka\nsink:\n  a: 1\n  a: 2\n",
     {3: "'type' is declared twice", 6: "'a' is declared twice"}),
    ("binlog, missing options", "source:\n  type: mysql\n  hostname: h\nsink:\n  type: print\n  x: y\n",
     {1: "MySQL's binlog, which kdsl does not read", 6: "has no option 'x'"}),
    ("snapshot", "source:\n  type: jdbc\n  url: http://x\nsink:\n  type: blackhole\n",
     {1: "tables is required", 3: "write jdbc:"}),
    ("change feed", "source:\n  type: delta\n  starting-version: first\nsink:\n  type: kafka\n",
     {3: "use a number, or latest", 4: "properties.bootstrap.servers is required"}),
    ("hologres", document(sink={"type": "hologres", "endpoint": "h:80", "sink.type-normalize-strategy": "WIDE"}),
     {5: "dbname is required", 8: "'STANDARD' or 'BROADEN'"}),
    ("keys of known tables",
     document({"scan.value.initial-schemas.ddls": "CREATE TABLE t (id INT, n STRING, PRIMARY KEY (id) NOT ENFORCED)"},
              rest=rows("source-table: t, projection: n, primary-keys: no")),
     {9: "leaves out 'id' of the primary key"}),
]  # fmt: skip


def test_there_are_at_least_40_wrong_documents() -> None:
    assert len(WRONG) >= 40


@pytest.mark.parametrize(("text", "expected"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_every_mistake_is_reported_with_its_line_and_fix(text: str, expected: dict[int, str | None]) -> None:
    reported = problems(text)

    assert all(p.fix and p.message for p in reported)
    for line, part in expected.items():
        of_line = [f"{p.message}; {p.fix}" for p in reported if p.where.line == line]
        assert part is None or any(part in text for text in of_line), (line, part, list(map(str, reported)))
    assert len([p for p in reported if p.where.line in expected]) >= min(2, len(expected))


class TestVariables:
    def test_they_are_replaced_in_values_and_not_in_comments(self) -> None:
        text = document({"topic": "${a}-${b.c}  # ${unknown}"})

        ingestion, wrong = Ingestion.read(text, {"a": "x", "b.c": "y"})

        assert wrong == ()
        assert ingestion is not None
        assert ingestion.source == KafkaFeed(Cluster("a:9092"), topic=("x-y",))

    def test_references_to_secrets_stay(self) -> None:
        text = document(sink={"type": "jdbc", "url": "jdbc:postgresql://h/d", "username": "${env:USER}",
                              "password": '"${secret_values.pg.password}"'})  # fmt: skip

        ingestion, _ = Ingestion.read(text, {})

        assert ingestion is not None
        assert ingestion.sink == JdbcTables(
            "jdbc:postgresql://h/d", username="${env:USER}", password="${secret_values.pg.password}"
        )

    def test_an_unknown_one_names_the_nearest(self) -> None:
        assert "did you mean 'kafka.topic'?" in str(
            problems(document({"topic": "${kafka.topc}"}), {"kafka.topic": "x"})
        )


FEED = KafkaFeed(Cluster("a:9092"), topic=("t",))
INGESTIONS = {
    "all of Kafka": Ingestion(
        KafkaFeed(
            Cluster("a:1,b:2", properties={"group.id": "g", "sasl.jaas.config": "${file:/run/jaas}"}),
            name="in",
            topic_pattern=r"shop\..*",
            value=Json(infer_flatten=True, table_id_fields="app,event", timestamp_format="ISO-8601"),
            key=Json(),
            key_prefix="k_",
            value_prefix="v_",
            startup="timestamp",
            startup_timestamp=1_700_000_000_000,
            inference="static",
            prefetch=0,
            metadata=("offset", "__raw_key__"),
            initial_schemas=["CREATE TABLE a.b (id BIGINT, a STRING, day DATE, PRIMARY KEY (id) NOT ENFORCED);",
                             "CREATE TABLE c (id INT, a STRING, day DATE)"],
            ignore_errors=True,
            max_errors=7,
            max_records_per_trigger=5,
            distributed_tables=True,
            key_is_primary_key=False,
            table="a.<topic>",
        ),
        KafkaTopics(
            Cluster("b:1", properties={"acks": "all"}),
            key=Csv(field_delimiter=";"),
            partition_strategy="hash-by-key",
            mapping=r"web.\.*:web;app.click,app.tap:taps",
            delivery="exactly-once",
            transactional_id_prefix="copy",
            table_id_headers=True,
            custom_headers="a:b",
            include_schema=True,
            full_table_id=True,
            include_changes=("column",),
            exclude_changes=("drop",),
            type_normalization="BROADEN",
        ),
        transform=[
            Transform(r"\.*.\.*", projection="*, UPPER(a) AS b", filter="a > 'x'", primary_keys=("id",),
                      partition_keys=("day",), table_options="a=1;b=2", table_options_delimiter=";",
                      converter="SOFT_DELETE", description="all", add_columns="x AS UPPER(a) AFTER a, y AS 1 FIRST"),
            Transform("null", projection="true AS x"),
        ],
        route=[Route(r"db_(\d+).t", "lake.t$1"), Route("a,b", "<>", replace_symbol="<>", description="yes")],
        pipeline=Pipeline(name="1.10", schema_change="TRY_EVOLVE", route_mode="FIRST_MATCH", parallelism=3,
                          checkpoint="/c", collector="kafka", collector_topic="dead", runtime_mode="BATCH",
                          collector_properties={"acks": "1"}, time_zone="Europe/Berlin", sink_concurrency=1),
    ),
    "canal to delta": Ingestion(
        KafkaFeed(Cluster("a:1"), topic=("a", "b"),
                  value=CanalJson(infer_strategy="MYSQL_TYPE", mysql_timestamp_as_datetime=False,
                                  mysql_tinyint1_as_boolean=False, database_include="a|b")),
        DeltaTables("/lake", rewrite_max_bytes=5),
    ),
    "jdbc": Ingestion(
        JdbcSnapshot(url="jdbc:postgresql://${env:HOST}/d", tables=("a", "b"), driver="x.Y", password="${env:P}"),
        JdbcTables("jdbc:postgresql://h/d", username="u", password="${env:P}"),
    ),
    "change feed": Ingestion(DeltaChanges("/t", change_feed=True, starting_version="latest"), Print()),
    "mysql": Ingestion(
        MySqlSnapshot(hostname="h", username="u", password="${env:P}", tables=("a.b",), startup="snapshot"),
        Blackhole(name="none"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INGESTIONS)
def test_python_to_yaml_to_python(name: str) -> None:
    ingestion = INGESTIONS[name]

    again, wrong = Ingestion.read(ingestion.to_yaml(), {})

    assert [p for p in wrong if p.severity == "error"] == []
    assert again == ingestion
    assert again is not None
    assert again.to_yaml() == ingestion.to_yaml()


_PIECES = st.sampled_from(
    ["${", "}", "$", "$$", "{", "\\", "'", '"', ": ", "#", "a", " ", "\n", "*", "${env:A}", "${x}"]
)
_TEXTS = st.lists(_PIECES | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), min_size=1).map("".join)


@given(texts=st.lists(_TEXTS.map(lambda text: f"{text}."), min_size=5, max_size=5))
def test_any_text_survives_yaml(texts: list[str]) -> None:
    projection, condition, remark, options, name = texts
    projection = projection.replace(r"\*", "*")  # which is how a document writes a star that begins a value
    ingestion = Ingestion(
        KafkaFeed(Cluster("a:9092"), topic=("t",), value=Json(), name=name),
        Memory(name=remark),
        transform=[Transform("a", projection=projection, filter=condition, description=remark, table_options=options)],
        pipeline=Pipeline(name=projection),
    )

    again, wrong = Ingestion.read(ingestion.to_yaml(), {"x": "a variable"})

    assert [p for p in wrong if p.code in ("document", "variable")] == []
    assert again == ingestion


def test_a_literal_in_plain_text_and_in_text_with_references() -> None:
    text = document({"properties.client.id": "$${a}b ${env:PW}"}, rest=rows("source-table: a, filter: \"n = '$${x}'\""))

    ingestion, wrong = Ingestion.read(text, {"x": "a variable"})

    assert [p for p in wrong if p.severity == "error"] == []
    assert ingestion is not None
    assert ingestion.transform[0].filter == "n = '${x}'"
    assert "$${a}b ${env:PW}" in ingestion.to_yaml()


@pytest.mark.parametrize("name", INGESTIONS)
def test_these_have_no_errors(name: str) -> None:
    assert [str(p) for p in INGESTIONS[name].problems() if p.severity == "error"] == []


def test_an_empty_declaration_is_short() -> None:
    assert Ingestion(FEED, Memory()).to_yaml() == (
        "source:\n  type: kafka\n  properties.bootstrap.servers: a:9092\n  topic: t\nsink:\n  type: memory\n"
    )


class Orders(kdsl.KafkaTable, topic="shop.orders", value=Json()):
    """A table of these tests."""

    id: kdsl.Col[int]
    note: kdsl.Col[str | None]


def test_a_table_class_is_an_initial_schema() -> None:
    feed = KafkaFeed(Cluster("a:1"), topic=("shop.orders",), initial_schemas=[Orders])

    assert feed.initial_schemas == "CREATE TABLE `shop.orders` (`id` BIGINT NOT NULL, `note` STRING)"
    assert [*feed.check()] == []


def test_lists_and_flat_keys_mean_the_same_as_strings_and_mappings() -> None:
    one = document({"topic": "[a, b]"}, rest="pipeline: {dirty-data.collector: {type: file, path: /x}}\n")
    other = document({"topic": "a;b"}, rest="pipeline:\n  dirty-data.collector.type: file\n"
                                            "  dirty-data.collector.path: /x\n")  # fmt: skip

    assert Ingestion.read(one)[0] == Ingestion.read(other)[0]


class TestSecrets:
    FEED = KafkaFeed(
        Cluster("a:1", properties={"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
                                   "sasl.jaas.config": 'x.PlainLoginModule required username="u" password="hunter2";'}),
        topic=("t",),
    )  # fmt: skip
    SINK = JdbcTables("jdbc:postgresql://u:hunter2@h/d", password="hunter2")

    def test_one_that_is_written_out_is_a_warning_and_is_never_shown(self) -> None:
        ingestion = Ingestion(self.FEED, self.SINK)

        warnings = [p for p in ingestion.problems() if p.code == "secret-literal"]

        assert len(warnings) == 3
        assert all(p.severity == "warning" for p in warnings)
        shown = [repr(ingestion), str(ingestion.problems()), ingestion.explain(), repr(ingestion.plan())]
        assert not any("hunter2" in text for text in shown)

    @pytest.mark.parametrize(
        ("properties", "path"),
        [
            ({}, "$.source.properties.sasl.jaas.config"),
            ({"sasl.jaas.config": "${env:JAAS}"}, None),
            ({"bootstrap.servers": "b:1"}, None),
            (
                {"bootstrap.servers": "b:1", "ssl.keystore.password": "hunter2"},
                "$.pipeline.dirty-data.collector.properties.ssl.keystore.password",
            ),
        ],
    )
    def test_one_that_the_tasks_of_dead_letters_would_get_in_plain_text_is_refused(
        self, properties: dict[str, str], path: str | None
    ) -> None:
        feed = attrs.evolve(self.FEED, ignore_errors=True)  # type: ignore[misc]
        pipeline = Pipeline(collector="kafka", collector_topic="dead", collector_properties=properties)

        errors = [p for p in Ingestion(feed, Memory(), pipeline=pipeline).problems() if p.severity == "error"]

        assert [(p.code, p.where.path) for p in errors] == ([] if path is None else [("secret-literal", path)])
        assert "hunter2" not in str(errors)

    def test_a_plan_can_be_pickled_and_has_no_secret(self) -> None:
        assert b"hunter2" not in pickle.dumps(Ingestion(self.FEED, self.SINK).plan().source)

    def test_it_is_not_written_to_yaml(self) -> None:
        with pytest.raises(SecretError, match=r"source[.]properties[.]sasl[.]jaas[.]config") as error:
            Ingestion(self.FEED, self.SINK).to_yaml()

        assert "hunter2" not in str(error.value)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


class TestCommands:
    def test_check_reports_problems_with_file_and_line(self, tmp_path: Path) -> None:
        file = tmp_path / "shop.yaml"
        file.write_text(document({"topics": "x"}, {"type": "detla"}))

        done = run("check", str(file))

        assert done.exit_code == 1
        assert f"{file}:5" in done.stdout
        assert f"{file}:7" in done.stdout
        assert done.stdout.splitlines()[-1] == "1 ingestion checked: 2 errors"

    def test_check_and_plan_take_variables(self, tmp_path: Path) -> None:
        file, variables = tmp_path / "shop.yaml", tmp_path / "vars"
        file.write_text(document({"topic": "${topic}", "properties.bootstrap.servers": "${servers}"}))
        variables.write_text("topic=orders\nservers: nowhere:1\n")
        options = ("--vars", str(variables), "--var", "servers=b:2")

        assert run("check", str(file), *options).stdout == "1 ingestion checked: no problems\n"
        assert "source kafka b:2 topic orders" in run("plan", str(file), *options).stdout

    def test_from_yaml_raises_all_problems(self, tmp_path: Path) -> None:
        file = tmp_path / "shop.yaml"
        file.write_text(document({"topic": "${topic}", "scan.max.pre.fetch.records": "-1"}))

        with pytest.raises(ResolveError) as error:
            Ingestion.from_yaml(file)

        assert [p.where.line for p in error.value.problems] == [4, 5]

    def test_a_document_of_tables_is_not_an_ingestion(self) -> None:
        assert [is_ingestion_document(t) for t in ("tables: []", "name: x", document(), "[", "")] == [
            False, False, True, False, False,
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "sink", "expected"),
    [
        ({"value.format": "canal-json", "canal-json.table.include": "(",
          "canal-json.mysql.treat-tinyint1-as-boolean.enabled": "false"}, {},
         ["which is not a regular expression", "which only infer-schema.strategy 'MYSQL_TYPE' uses"]),
        ({}, {"type": "kafka", "properties.bootstrap.servers": "b:1", "debezium-json.schema-include": "true"},
         ["writes no schema into its messages"]),
    ],
)  # fmt: skip
def test_combinations_of_the_options_of_formats_are_checked(
    source: dict[str, str], sink: dict[str, str], expected: list[str]
) -> None:
    messages = [p.message for p in problems(document(source, sink))]

    assert [part for part in expected if not any(part in message for message in messages)] == []


@pytest.mark.parametrize(
    ("prefix", "message", "fix"),
    [
        ("x" * 64_001, "has 64,001 characters", "use at most 64,000 characters"),
        (" copy ", "is ' copy ', with surrounding blanks", "write sink.transactional-id-prefix: copy"),
        ("\n", "with surrounding blanks or invisible characters", "write sink.transactional-id-prefix: ingest-1"),
        ("", "transactional_id_prefix= has the value ''", "write a string, or remove the option"),
    ],
)
def test_a_transactional_id_prefix_that_cannot_be_is_a_problem(prefix: str, message: str, fix: str) -> None:
    sink = KafkaTopics(Cluster("b:1"), delivery="exactly-once", transactional_id_prefix=prefix)

    every = Ingestion(KafkaFeed(Cluster("a:1"), topic=("t",)), sink).problems()

    assert [p.fix for p in every if message in p.message] == [fix]


class TestPython:
    def test_values_of_wrong_types_are_problems_and_not_exceptions(self) -> None:
        wrong: Any = {"cluster": "a:1", "value": "json", "key": 5, "topic": 7, "prefetch": "x", "metadata": "offset"}
        ingestion = Ingestion(
            KafkaFeed(**wrong),
            DeltaTables(**dict.fromkeys(["path", "nix"], 1)),  # type: ignore[arg-type]
            transform=[Transform(1, primary_keys="id")],  # type: ignore[arg-type]
            route=[Route(None, 2)],  # type: ignore[arg-type]
            pipeline=Pipeline(trigger="10 s", max_tables=None),  # type: ignore[arg-type]
        )

        messages = "\n".join(map(str, ingestion.problems()))

        for name in (*wrong, "path", "source_table", "primary_keys", "sink_table", "trigger", "max_tables"):
            assert f"{name}= has the value" in messages, name
        assert "no option nix=" in messages

    def test_options_without_a_position_are_refused_by_position(self) -> None:
        with pytest.raises(TypeError, match="takes by position"):
            Route("a", "b", "c")  # type: ignore[call-arg]


class Shout(Sink):
    """A sink of another package."""

    type: ClassVar[str] = "shout"
    loud: bool = option("loud", "Whether it is loud.", default=False)


def test_ends_of_other_packages_are_found_by_their_entry_points(install_plugins: InstallPlugins) -> None:
    install_plugins({"kdsl.sinks": {"shout": f"{__name__}:Shout", "odd": "os:path"}})

    ingestion, wrong = Ingestion.read(document(sink={"type": "shout", "loud": "true"}))

    assert wrong == ()
    assert ingestion is not None
    assert ingestion.sink == Shout(loud=True)
    assert "shout" in end_types("sink")
    assert "is not a subclass of kdsl.ingest.Sink" in str(problems(document(sink={"type": "odd"})))


def test_a_format_that_cannot_be_loaded_is_one_problem_of_several(install_plugins: InstallPlugins) -> None:
    install_plugins({"kdsl.formats": {"morse": "no_such_module:Morse"}})
    source = {"type": "kafka", "properties.bootstrap.servers": "localhost:9092", "topic": "t", "value.format": "morse"}

    messages = list(map(str, problems(document(source=source, sink={"type": "prnt"}))))

    assert any("the format 'morse'" in message and "No module named" in message for message in messages)
    assert any("'prnt'" in message for message in messages)


class Whisper(Sink):
    """A sink of another package, which warns of an option that it ignores."""

    type: ClassVar[str] = "whisper"

    @classmethod
    def read(cls, strings: Mapping[str, str]) -> tuple[Whisper, list[WrongOption]]:
        wrong = [WrongOption("whisper", key, f"{key} has no effect", "remove it", "warning") for key in strings]
        return cls(), wrong


def test_an_ingestion_with_warnings_of_an_end_is_read(install_plugins: InstallPlugins, tmp_path: Path) -> None:
    install_plugins({"kdsl.sinks": {"whisper": f"{__name__}:Whisper"}})
    file = tmp_path / "shop.yaml"
    file.write_text(document(sink={"type": "whisper", "loud": "true"}), encoding="utf-8")

    ingestion, wrong = Ingestion.read(file.read_text(encoding="utf-8"))

    assert ingestion == Ingestion.from_yaml(file)
    assert [(problem.message, problem.severity) for problem in wrong] == [("loud has no effect", "warning")]
    assert wrong[0].where.line == 7


def test_the_two_examples_of_the_page_are_the_same_ingestion() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ingest.md").read_text(encoding="utf-8")
    blocks = {kind: page.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("yaml", "python")}
    names: dict[str, Ingestion] = {}

    exec(blocks["python"], names)  # of our own page
    ingestion, wrong = Ingestion.read(blocks["yaml"], {"kafka.bootstrap": "localhost:9092"})

    assert wrong == ()
    assert names["shop"] == ingestion


def test_debezium_is_the_default_format() -> None:
    assert FEED.value == DebeziumJson()


def test_a_database_whose_tables_cannot_be_created_is_a_problem() -> None:
    text = document(sink={"type": "jdbc", "url": "jdbc:db2://h/d"})
    ingestion, wrong = Ingestion.read(text)

    assert ingestion is not None
    assert [(p.code, p.where.line is not None) for p in wrong] == [("ingest-jdbc", True)]
    assert "the tables of 'db2'" in wrong[0].message
