"""The JSON Schemas of YAML documents: they take the documents of examples and pages, and refuse what kdsl refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from typer.testing import CliRunner

from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.document import read_tables
from kdsl.document_schemas import Kind, make_schema
from kdsl.errors import ResolveError
from kdsl.formats import format_class, format_names
from kdsl.ingest import Ingestion
from kdsl.ingest.ends import end_class, end_types
from kdsl.options import Options
from kdsl.testing.cases.document import read_cases

ROOT = Path(__file__).parents[1]
KINDS: tuple[Kind, ...] = ("tables", "clusters", "ingestion", "cases")
OTHER_PACKAGES = ("pairs", "sqlite")
"""What docs/extending.md adds to kdsl."""


@cache
def validator(kind: Kind) -> Draft202012Validator:
    return Draft202012Validator(make_schema(kind))


def mistakes(kind: Kind, document: Any) -> list[str]:
    """What the schema refuses."""
    return [f"{error.json_path}: {error.message}" for error in validator(kind).iter_errors(document)]


def kind_of(document: Any) -> Kind | None:
    """The kind of a document; None for other YAML."""
    if not isinstance(document, dict):
        return None
    if "cases" in document:
        return "cases"
    if "source" in document and "sink" in document:
        return "ingestion"
    if "clusters" in document:
        return "clusters"
    return "tables" if "tables" in document or document.keys() >= {"columns", "options"} else None


def documents() -> Mapping[str, tuple[Kind, Any]]:
    """The documents of the examples, of the tests of plans, and of the pages, by a name."""
    files = [*ROOT.glob("examples/**/*.y*ml"), *ROOT.glob("tests/ingest/**/*.yaml"), *ROOT.glob("tests/plan/**/*.yaml")]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        texts |= {f"{page.relative_to(ROOT)}-{i}": text for i, text in enumerate(blocks)}
    return {
        name: (kind, document)
        for name, text in sorted(texts.items())
        if not any(f": {other}" in text for other in OTHER_PACKAGES)
        and (document := parse(text))
        and (kind := kind_of(document))
    }


def parse(text: str) -> Any:
    """The value of a YAML document; None for one that is wrong on purpose."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


DOCUMENTS = documents()


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_a_json_schema(kind: Kind) -> None:
    Draft202012Validator.check_schema(make_schema(kind))


def test_there_are_documents_of_each_kind() -> None:
    assert {kind for kind, _ in DOCUMENTS.values()} == set(KINDS)
    assert len(DOCUMENTS) > 15


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_of_examples_and_pages_are_right(name: str) -> None:
    kind, document = DOCUMENTS[name]

    assert mistakes(kind, document) == []


TABLES = {
    "tables": [
        {
            "name": "orders",
            "columns": [
                {"name": "id", "type": "INT"},
                {"name": "at", "type": "TIMESTAMP_LTZ(3)", "metadata": "timestamp"},
            ],
            "watermark": {"column": "at"},
            "primary_key": ["id"],
            "options": {"connector": "kafka", "topic": "orders", "format": "json"},
        }
    ]
}
CLUSTERS = {"clusters": {"a": {"bootstrap_servers": ["kafka:9092"], "registry": {"url": "http://registry"}}}}
INGESTION = {
    "source": {"type": "kafka", "properties.bootstrap.servers": "kafka:9092", "topic": ["a", "b"]},
    "sink": {"type": "delta", "path": "/lake"},
    "transform": [{"source-table": "a", "primary-keys": ["id"]}],
    "route": [{"source-table": "a", "sink-table": "b"}],
    "pipeline": {"schema.change.behavior": "lenient", "parallelism": 4},
}
CASES = {
    "table": "orders.py:Orders",
    "schemas": [{"id": 1, "subject": "a-value", "schema": {"type": "string"}}],
    "cases": [
        {"name": "read", "messages": [{"key": "a", "value": {"id": 1}, "offset": 5}], "expect": {"rows": [{"id": 1}]}},
        {"name": "write", "rows": [{"id": 1}], "expect": {"messages": [{"value": None}]}},
    ],
}
READ: Mapping[Kind, Callable[[Path], Any]] = {
    "tables": lambda path: [table for table in read_tables(path.read_text()) if table.problems or check_options(table)],
    "clusters": Cluster.from_yaml,
    "ingestion": lambda path: Ingestion.from_yaml(path, {"parallelism": "4"}).plan(),
    "cases": read_cases,
}
BASES: Mapping[Kind, Any] = {"tables": TABLES, "clusters": CLUSTERS, "ingestion": INGESTION, "cases": CASES}


def check_options(table: Any) -> list[Any]:
    """The problems of the options of a table and of its formats."""
    groups = (table.options, table.key_format, table.value_format)
    return [problem for group in groups if group is not None for problem in group.problems()]


def is_refused(kind: Kind, document: Any, folder: Path) -> bool:
    """Whether kdsl refuses a document."""
    path = folder / "document.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    try:
        result = READ[kind](path)
    except ResolveError:
        return True
    return kind == "tables" and result != []


def change(kind: Kind, keys: tuple[str | int, ...], value: Any) -> Any:
    """A right document with another value; without the key, if the value is None."""
    document = deepcopy(BASES[kind])
    part = document
    for key in keys[:-1]:
        part = part[key]
    if value is None:
        del part[keys[-1]]
    else:
        part[keys[-1]] = value
    return document


OPTIONS = ("tables", 0, "options")
RIGHT: tuple[tuple[Kind, tuple[str | int, ...], Any], ...] = (
    ("tables", (*OPTIONS, "json.ignore-parse-errors"), "TRUE"),
    ("tables", (*OPTIONS, "json.ignore-parse-errors"), True),
    ("tables", (*OPTIONS, "scan.startup.mode"), "Earliest-Offset"),
    ("tables", (*OPTIONS, "scan.startup.timestamp-millis"), "1000"),
    ("tables", (*OPTIONS, "properties.group.id"), 5),
    ("tables", (*OPTIONS, "scan.expect.positive"), "id > 0"),
    ("tables", (*OPTIONS, "topic.config.retention.ms"), 1000),
    ("tables", ("tables", 0, "comment"), "text"),
    ("clusters", ("clusters", "a", "properties"), {"acks": "all", "linger.ms": 5, "my.own": True}),
    ("clusters", ("clusters", "a", "registry"), "http://registry"),
    ("clusters", ("clusters", "a", "properties.acks"), "all"),
    ("clusters", ("others",), {"a": 1}),
    ("ingestion", ("pipeline", "parallelism"), "${parallelism}"),
    ("ingestion", ("pipeline", "schema.change.behavior"), "IGNORE"),
    ("ingestion", ("pipeline",), {"schema.change": {"behavior": "ignore"}}),
    ("ingestion", ("source", "debezium-json.schema-include"), "true"),
    ("ingestion", ("transform", 0, "primary-keys"), "id"),
    ("cases", ("cases", 0, "name"), 5),
    ("cases", ("cases", 0, "ordered"), "false"),
    ("cases", ("cases", 0, "messages"), {"a": [{"headers": [{"a": "b"}, {"a": None}]}]}),
    ("cases", ("cases", 0, "messages", 0, "offset"), "5"),
    ("cases", ("cases", 0, "messages", 0, "timestamp"), 1000),
    ("cases", ("cases", 0, "expect"), {"dead_letters": [{"offset": 1}]}),
    ("cases", ("cases", 0, "expect"), {"fails": "text"}),
)
WRONG: tuple[tuple[Kind, tuple[str | int, ...], Any], ...] = (
    ("tables", ("tabels",), []),
    ("tables", ("tables",), {}),
    ("tables", ("tables", 0, "name"), None),
    ("tables", ("tables", 0, "name"), 5),
    ("tables", ("tables", 0, "column"), []),
    ("tables", ("tables", 0, "columns", 0, "type"), None),
    ("tables", ("tables", 0, "columns", 0, "typ"), "INT"),
    ("tables", ("tables", 0, "columns", 0, "virtual"), "yes"),
    ("tables", ("tables", 0, "primary_key"), "id"),
    ("tables", ("tables", 0, "watermark"), "at"),
    ("tables", (*OPTIONS, "connector"), None),
    ("tables", (*OPTIONS, "connector"), "kafak"),
    ("tables", (*OPTIONS, "format"), "jsn"),
    ("tables", (*OPTIONS, "topik"), "orders"),
    ("tables", (*OPTIONS, "json.ignore-parse-error"), True),
    ("tables", (*OPTIONS, "json.ignore-parse-errors"), "maybe"),
    ("tables", (*OPTIONS, "scan.startup.mode"), "erliest"),
    ("tables", (*OPTIONS, "scan.parallelism"), "many"),
    ("tables", (*OPTIONS, "sink.buffer-flush.max-rows"), 5),
    ("tables", (*OPTIONS, "properties"), {"group.id": "a"}),
    ("clusters", ("clusters",), {}),
    ("clusters", ("clusters", "a"), "kafka:9092"),
    ("clusters", ("clusters", "a", "bootstrap_servers"), None),
    ("clusters", ("clusters", "a", "bootstrap_servers"), 9092),
    ("clusters", ("clusters", "a", "servers"), "kafka:9092"),
    ("clusters", ("clusters", "a", "properties"), {"acks": ["all"]}),
    ("clusters", ("clusters", "a", "registry", "url"), None),
    ("clusters", ("clusters", "a", "registry", "urls"), "http://registry"),
    ("ingestion", ("sink",), None),
    ("ingestion", ("sinks",), {}),
    ("ingestion", ("sink", "type"), None),
    ("ingestion", ("sink", "type"), "detla"),
    ("ingestion", ("sink", "paht"), "/lake"),
    ("ingestion", ("sink",), {"type": "jdbc"}),
    ("ingestion", ("source", "properties.bootstrap.servers"), None),
    ("ingestion", ("source", "value.format"), "protobuf"),
    ("ingestion", ("source", "ingestion.ignore-errors"), "perhaps"),
    ("ingestion", ("source", "distributed-tables"), True),
    ("ingestion", ("transform",), {"source-table": "a"}),
    ("ingestion", ("transform", 0, "source-table"), None),
    ("ingestion", ("route", 0, "sink_table"), "b"),
    ("ingestion", ("pipeline", "parallelism"), "four"),
    ("ingestion", ("pipeline", "schema.change.behavior"), "EVOLV"),
    ("ingestion", ("pipeline", "model"), "m"),
    ("cases", ("tabel",), "orders.py"),
    ("cases", ("table",), None),
    ("cases", ("script",), "a.sql"),
    ("cases", ("cases",), {}),
    ("cases", ("cases", 0, "name"), None),
    ("cases", ("cases", 0, "steps"), []),
    ("cases", ("cases", 0, "ordered"), "maybe"),
    ("cases", ("cases", 0, "messages"), "text"),
    ("cases", ("cases", 0, "messages", 0, "vlaue"), 1),
    ("cases", ("cases", 0, "messages", 0, "offset"), -1),
    ("cases", ("cases", 0, "messages", 0, "partition"), "one"),
    ("cases", ("cases", 0, "expect", "row"), []),
    ("cases", ("cases", 0, "expect"), {"errors": [{}]}),
    ("cases", ("cases", 0, "expect"), {"schema_changes": []}),
    ("cases", ("schemas", 0, "id"), None),
    ("cases", ("schemas", 0, "type"), "XML"),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_cases_change_is_right(kind: Kind, tmp_path: Path) -> None:
    assert mistakes(kind, BASES[kind]) == []
    assert not is_refused(kind, BASES[kind], tmp_path)


@pytest.mark.parametrize(("kind", "keys", "value"), RIGHT)
def test_what_kdsl_takes_is_right(kind: Kind, keys: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    document = change(kind, keys, value)

    assert mistakes(kind, document) == []
    assert not is_refused(kind, document, tmp_path)


@pytest.mark.parametrize(("kind", "keys", "value"), WRONG)
def test_what_kdsl_refuses_is_wrong(kind: Kind, keys: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    document = change(kind, keys, value)

    assert mistakes(kind, document)
    assert is_refused(kind, document, tmp_path)


def list_keys(group: type[Options]) -> list[str]:
    """The keys of the options of a group, one for those that stand for many."""
    return [a.metadata["key"].replace(".*", ".a") for a in group.declarations()]


@pytest.mark.parametrize("options", [KafkaOptions, UpsertOptions])
def test_a_table_may_have_each_option_of_its_connector_and_no_other(options: type[KafkaOptions]) -> None:
    kinds: tuple[type[KafkaOptions], ...] = (KafkaOptions, UpsertOptions)
    every = {key for kind in kinds for key in list_keys(kind)}
    document = change("tables", OPTIONS, {"connector": options.connector, **{key: [key] for key in every}})
    errors = [error for error in validator("tables").iter_errors(document) if error.schema is False]

    assert {error.instance[0] for error in errors} == every - {*list_keys(options)}


@pytest.mark.parametrize("name", format_names())
def test_a_table_may_have_each_option_of_a_format(name: str) -> None:
    keys = [f"{prefix}{name}.{key}" for key in list_keys(format_class(name)) for prefix in ("", "key.", "value.")]
    document = change("tables", OPTIONS, {"connector": "kafka", **{key: [] for key in keys}})
    errors = list(validator("tables").iter_errors(document))

    assert {error.path[-1] for error in errors} == {*keys}  # of each, the value is wrong


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_each_end_may_have_its_options(kind: Any) -> None:
    for name in end_types(kind):
        end = end_class(kind, name)
        assert end is not None
        of_format = getattr(end, "of_format", ())
        keys = [f"json.{key}" if key in of_format else key for key in list_keys(end)]
        document = {**INGESTION, kind: {"type": name, **{key: {} for key in keys}}}
        errors = list(validator("ingestion").iter_errors(document))

        assert {error.path[-1] for error in errors} == {*keys}  # of each, the value is wrong


def test_options_have_their_meaning_and_default() -> None:
    options = make_schema("tables")["$defs"]["options"]["properties"]

    assert options["sink.parallelism"]["description"].startswith("The number of tasks that write")
    assert (options["scan.bounded.mode"]["default"], options["json.ignore-parse-errors"]["default"]) == (
        "unbounded",
        False,
    )
    assert "latest-offset" in options["scan.bounded.mode"]["anyOf"][0]["enum"]
    assert make_schema("tables")["$defs"]["column"]["properties"]["type"]["description"].startswith(
        "Its type in Flink's SQL"
    )


def test_the_command_writes_a_file_or_prints(tmp_path: Path) -> None:
    file = tmp_path / "schemas" / "tables.json"
    done = CliRunner().invoke(app, ["document-schema", "tables", "--out", str(file)])
    printed = CliRunner().invoke(app, ["document-schema", "tables"])

    assert (done.exit_code, printed.exit_code) == (0, 0)
    assert json.loads(file.read_text(encoding="utf-8")) == json.loads(printed.stdout) == make_schema("tables")
    assert CliRunner().invoke(app, ["document-schema", "table"]).exit_code == 2
