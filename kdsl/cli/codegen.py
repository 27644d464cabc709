"""``kdsl codegen`` and ``kdsl export``: schemas, DDL and topics to table classes, and tables to text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from kdsl.cli import load
from kdsl.cli.clusters import (
    Bootstrap,
    ClusterFile,
    ClusterName,
    Property,
    RegistryProperty,
    RegistryUrl,
    given_cluster,
    pairs,
)
from kdsl.cli.console import err, out, print_json, progress
from kdsl.cluster import Registry
from kdsl.codegen.model import CodegenError, ConnectorName, Draft, TopicFormat
from kdsl.codegen.source import to_python

app = typer.Typer(help="Write table classes from what is there already.", no_args_is_help=True)

Out = Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; standard output without it.")]
Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; end with 1 and a diff where the file would change.")
]
Topic = Annotated[str, typer.Option("--topic", help="The topic; by default called as the schema or the subject.")]
Name = Annotated[str, typer.Option("--name", help="The table's name; by default that of the schema.")]
Message = Annotated[str, typer.Option("--message", help="The Protobuf message, where the file has several.")]
Connector = Annotated[
    ConnectorName | None, typer.Option("--connector", help="upsert-kafka for an upsert table, kafka for none.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document: the source and the notes.")]


@app.command("avro")
def avro(
    file: Annotated[Path, typer.Argument(help="An Avro schema (.avsc).")],
    chosen: Annotated[
        Literal["avro", "avro-confluent"] | None,
        typer.Option("--format", help="The format; by default avro where it reads what the schema writes."),
    ] = None,
    topic: Topic = "",
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Write the table of an Avro schema's records."""
    from kdsl.codegen.inputs.avro import avro_draft
    from kdsl_formats.avro import Avro
    from kdsl_formats.avro.schemas import AvroTypeError, json_of
    from kdsl_formats.avro_confluent import AvroConfluent

    try:
        schema = json_of(_text(file))
    except AvroTypeError as e:
        raise CodegenError(f"{file}: {e}") from None
    given = None if chosen is None else Avro(legacy_timestamps=False) if chosen == "avro" else AvroConfluent()
    _write([avro_draft(schema, topic=topic, name=name, chosen=given)], file.name, out_file, check, as_json)


@app.command("proto")
def proto(
    file: Annotated[Path, typer.Argument(help="A .proto file.")],
    message: Message = "",
    folders: Annotated[
        list[str] | None, typer.Option("--proto-path", "-I", help="A folder of its imports; may be repeated.")
    ] = None,
    topic: Topic = "",
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Write the table of a Protobuf message; with --out, the file is found from wherever the module is imported."""
    from kdsl.codegen.inputs.protobuf import protobuf_file

    _text(file)
    beside = None if out_file is None else str(out_file.parent)
    draft = protobuf_file(
        str(file), message=message, folders=tuple(folders or ()), topic=topic, name=name, beside=beside
    )
    _write([draft], file.name, out_file, check, as_json)


@app.command("json-schema")
def json_schema(
    file: Annotated[Path, typer.Argument(help="A JSON Schema.")],
    topic: Topic = "",
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Write the table of a JSON Schema's objects."""
    import json

    from kdsl.codegen.inputs.json_schema import json_schema_draft

    try:
        schema = json.loads(_text(file))
    except (ValueError, RecursionError) as e:
        raise CodegenError(f"{file} is no JSON: {e}") from None
    if not isinstance(schema, dict):
        raise CodegenError(f"{file}: a JSON Schema is an object")
    _write([json_schema_draft(schema, topic=topic, name=name or file.stem)], file.name, out_file, check, as_json)


@app.command("ddl")
def ddl(
    file: Annotated[str, typer.Argument(help="A script with CREATE TABLE statements.")],
    tables: Annotated[list[str] | None, typer.Option("--table", help="Only this table; may be repeated.")] = None,
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Write the tables that a script of Flink's SQL declares."""
    from kdsl.codegen.inputs.ddl import ddl_drafts

    _write(ddl_drafts(file, names=tuple(tables or ())), Path(file).name, out_file, check, as_json)


@app.command("registry")
def registry(
    subject: Annotated[str, typer.Argument(help="A subject, as orders-value.")],
    url: RegistryUrl = None,
    settings: RegistryProperty = None,
    version: Annotated[int | None, typer.Option("--version", help="The version; the latest by default.")] = None,
    message: Message = "",
    connector: Connector = None,
    topic: Topic = "",
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Write the table of a subject of a schema registry: Avro, Protobuf or JSON Schema.

    An upsert table (--connector upsert-kafka) takes its key from the subject orders-key.
    """
    from kdsl.codegen.inputs.registry import registry_draft

    if url is None:
        raise typer.BadParameter("say where the schema registry is", param_hint="--registry")
    where = Registry(url, pairs(settings, "--registry-property"))
    with progress(f"asking {where.url} for {subject}"):
        draft = registry_draft(
            subject, where, version=version, message=message, topic=topic, name=name, connector=connector or "kafka"
        )
    _write([draft], f"subject {subject}", out_file, check, as_json)


@app.command("topic")
def topic_command(
    topic: Annotated[str, typer.Argument(help="A topic.")],
    records: Annotated[int, typer.Option("-n", "--records", min=1, help="How many of the last records.")] = 100,
    kind: Annotated[
        TopicFormat | None,
        typer.Option("--format", help="The value's format; by default the one that its bytes look like."),
    ] = None,
    connector: Connector = None,
    bootstrap: Bootstrap = None,
    cluster_file: ClusterFile = None,
    cluster_name: ClusterName = None,
    properties: Property = None,
    url: RegistryUrl = None,
    settings: RegistryProperty = None,
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Write a table that fits the last records of a topic.

    It is an upsert table where the topic is compacted and its records have keys, unless --connector says kafka.
    """
    from kdsl.codegen.inputs.topic import topic_draft

    cluster = given_cluster(bootstrap, cluster_file, cluster_name, properties, url, settings)
    if cluster is None:
        raise typer.BadParameter("say where the brokers are", param_hint="--bootstrap")
    with progress(f"reading the last {records} records of {topic}"):
        draft = topic_draft(topic, cluster, records=records, kind=kind, name=name, connector=connector)
    _write([draft], f"topic {topic}", out_file, check, as_json)


def export(
    form: Annotated[Literal["avro", "ddl", "yaml"], typer.Argument(help="avro, ddl or yaml")],
    target: Annotated[str, typer.Argument(help="orders.py:Orders, package.module, tables.yaml or tables.sql")],
    key: Annotated[bool, typer.Option("--key", help="avro: the schema of the message key.")] = False,
    out_file: Out = None,
    check: Check = False,
) -> None:
    """Write tables as an Avro schema, as Flink's DDL or as YAML; what the form cannot say is told."""
    from kdsl.codegen.avro_schema import to_avro
    from kdsl.codegen.ddl_text import ddl_of
    from kdsl.codegen.yaml_text import yaml_of

    notes: list[str] = []
    if form == "avro":
        text = to_avro(load.table(target).definition, side="key" if key else "value")
    else:
        if key:
            raise typer.BadParameter("only avro has a schema of the key", param_hint="--key")
        definitions = [table.definition for table in load.tables(target)]
        text, notes = ddl_of(definitions) if form == "ddl" else yaml_of(definitions)
    _put(text, out_file, check)
    _tell(notes)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as e:
        raise CodegenError(f"the file '{file}' cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise CodegenError(f"the file '{file}' is no UTF-8") from None


def _write(drafts: Sequence[Draft], origin: str, out_file: Path | None, check: bool, as_json: bool) -> None:
    several = "Tables" if len(drafts) > 1 else "The table"
    heading = f"{several} of {origin}.\n\nWritten by kdsl codegen: changes are lost when it runs again."
    source = to_python(drafts, heading=heading)
    notes = [note for draft in drafts for note in draft.notes]
    if as_json:
        if out_file is not None:
            _put(source, out_file, check)
        print_json({"tables": [d.table.name for d in drafts], "source": source, "notes": notes})
        return
    _put(source, out_file, check)
    _tell(notes)


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        err.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)


def _put(text: str, out_file: Path | None, check: bool) -> None:
    """Write a text to its file or to the output; or only compare."""
    if out_file is None:
        if check:
            raise typer.BadParameter("--check compares with the file that --out names", param_hint="--check")
        out.file.write(text)
        return
    before = _text(out_file) if out_file.is_file() else ""
    if check:
        if before == text:
            return
        diff = difflib.unified_diff(
            before.splitlines(keepends=True), text.splitlines(keepends=True), str(out_file), f"{out_file} (generated)"
        )
        out.file.writelines(diff)
        raise typer.Exit(1)
    if before != text:
        try:
            out_file.write_text(text, encoding="utf-8")
        except OSError as e:
            raise CodegenError(f"the file '{out_file}' cannot be written: {e.strerror}") from None
