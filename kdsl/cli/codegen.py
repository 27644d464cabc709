"""``kdsl codegen`` and ``kdsl export``: table classes from schemas, DDL and topics, and tables as schemas or DDL."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from kdsl import load
from kdsl.cli.clusters import RegistryProperty, RegistryUrl, parse_pairs, require_brokers, with_cluster
from kdsl.cli.console import out, print_json, print_status, progress
from kdsl.cluster import Cluster, Registry
from kdsl.codegen.source import to_python
from kdsl.errors import pluralize
from kdsl.schemas.model import CodegenError, ConnectorName, TableDraft, TopicFormat

app = typer.Typer(help="Generate table classes from schemas, DDL or topics.", no_args_is_help=True)

Out = Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; standard output without it.")]
Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; exit with 1 and print a diff if the file would change.")
]
Topic = Annotated[str, typer.Option("--topic", help="The topic; by default named after the schema or the subject.")]
Name = Annotated[str, typer.Option("--name", help="The table's name; by default that of the schema.")]
Message = Annotated[str, typer.Option("--message", help="The Protobuf message, if the file has several.")]
Connector = Annotated[
    ConnectorName | None,
    typer.Option("--connector", help="upsert-kafka for an upsert table, else kafka."),
]
LegacyTimestamps = Annotated[
    bool,
    typer.Option(
        "--legacy-timestamps",
        help="Avro: make timestamp-millis a TIMESTAMP, as Flink does; by default it is a TIMESTAMP_LTZ, an instant.",
    ),
]
WithAddress = Annotated[
    bool,
    typer.Option(
        "--with-address",
        help="Write the address of the registry into the table; by default it is that of the cluster.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document: the source and the notes.")]


@app.command("avro")
def avro(
    file: Annotated[Path, typer.Argument(help="An Avro schema (.avsc).")],
    chosen: Annotated[
        Literal["avro", "avro-confluent"] | None,
        typer.Option("--format", help="The format; by default avro if it can read the schema."),
    ] = None,
    legacy_timestamps: LegacyTimestamps = False,
    topic: Topic = "",
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Generate the table for an Avro schema; exit with 1 if the file is not one, or not the schema of a table.

    With --check, exits with 1 if the file of --out differs, and with 2 without --out, unless --json is given.
    """
    from kdsl.schemas.avro import avro_draft
    from kdsl_formats.avro import Avro
    from kdsl_formats.avro.schemas import AvroTypeError, json_of
    from kdsl_formats.avro_confluent import AvroConfluent

    try:
        schema = json_of(_read_file(file))
    except AvroTypeError as e:
        raise CodegenError(f"{file}: {e}") from None
    if chosen is None and legacy_timestamps:
        raise typer.BadParameter("name the format: --format avro or avro-confluent", param_hint="--legacy-timestamps")
    formats = {"avro": Avro, "avro-confluent": AvroConfluent}
    format_ = None if chosen is None else formats[chosen](legacy_timestamps=legacy_timestamps)
    _write([avro_draft(schema, topic=topic, name=name, chosen=format_)], file.name, out_file, check, as_json)


@app.command("proto")
def proto(
    file: Annotated[Path, typer.Argument(help="A .proto file.")],
    message: Message = "",
    folders: Annotated[
        list[str] | None, typer.Option("--proto-path", "-I", help="A folder to import from; may be repeated.")
    ] = None,
    topic: Topic = "",
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Generate the table for a Protobuf message; exit with 1 if the file cannot be compiled or lacks the message.

    With --out, the module finds the .proto file wherever it is imported from.
    With --check, exits with 1 if the file of --out differs, and with 2 without --out, unless --json is given.
    """
    from kdsl.schemas.protobuf import protobuf_draft

    _read_file(file)
    beside = None if out_file is None else str(out_file.parent)
    draft = protobuf_draft(
        str(file), message=message, folders=tuple(folders or ()), topic=topic, name=name, beside=beside
    )
    _write([draft], file.name, out_file, check, as_json)


@app.command("json-schema")
def json_schema(
    file: Annotated[Path, typer.Argument(help="A JSON Schema.")],
    topic: Topic = "",
    name: Annotated[
        str, typer.Option("--name", help="The table's name; by default the schema's title, or else the file's name.")
    ] = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Generate the table for a JSON Schema; exit with 1 if it cannot be read or does not describe objects.

    With --check, exits with 1 if the file of --out differs, and with 2 without --out, unless --json is given.
    """
    import json

    from kdsl.schemas.json_schema import json_schema_draft

    try:
        schema = json.loads(_read_file(file))
    except (ValueError, RecursionError) as e:
        raise CodegenError(f"{file} is not valid JSON: {e}") from None
    if not isinstance(schema, dict):
        raise CodegenError(f"{file}: a JSON Schema must be an object")
    name = name or _name_of_title(schema.get("title")) or file.stem
    _write([json_schema_draft(schema, topic=topic, name=name)], file.name, out_file, check, as_json)


def _name_of_title(title: object) -> str:
    """The name of a table after the title of its JSON Schema, or after the last part of a URL.

    The words of a title that cannot be a name are joined. Empty for a title without letters and digits.
    """
    from kdsl.codegen.names import class_name

    last = title.rstrip("/").rpartition("/")[2] if isinstance(title, str) else ""
    if not re.search(r"[^\W_]", last):
        return ""
    return last if re.fullmatch(r"[\w.-]+", last) else class_name(last, (), "Table")


@app.command("ddl")
def ddl(
    file: Annotated[str, typer.Argument(help="A script with CREATE TABLE statements.")],
    tables: Annotated[list[str] | None, typer.Option("--table", help="Only this table; may be repeated.")] = None,
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Generate the tables that a Flink SQL script declares; exit with 1 if it is missing, has errors or lacks a table.

    With --check, exits with 1 if the file of --out differs, and with 2 without --out, unless --json is given.
    """
    from kdsl.schemas.ddl import ddl_drafts

    _write(ddl_drafts(file, names=tuple(tables or ())), Path(file).name, out_file, check, as_json)


@app.command("registry")
def registry(
    subject: Annotated[str, typer.Argument(help="A subject, as orders-value.")],
    url: RegistryUrl = None,
    settings: RegistryProperty = None,
    version: Annotated[int | None, typer.Option("--version", help="The version; the latest by default.")] = None,
    message: Annotated[
        str,
        typer.Option("--message", help="The Protobuf message, or the record type of an Avro union, if it has several."),
    ] = "",
    legacy_timestamps: LegacyTimestamps = False,
    with_address: WithAddress = False,
    connector: Connector = None,
    topic: Topic = "",
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Generate the table for a subject of a schema registry: Avro, Protobuf or JSON Schema.

    The key of an upsert table (--connector upsert-kafka) comes from the subject with the suffix -key. Exits with 1 if
    the registry does not answer or lacks the subject, or its schema is not one of a table, and with 2 if no registry is
    named. With --check, exits with 1 if the file of --out differs, and with 2 without --out, unless --json is given.
    """
    from kdsl.schemas.registry import registry_draft

    if url is None:
        raise typer.BadParameter("name the schema registry, as https://HOST:PORT", param_hint="--registry")
    where = Registry(url, parse_pairs(settings, "--registry-property"))
    with progress(f"asking {where.url} for {subject}"):
        draft = registry_draft(
            subject,
            where,
            version=version,
            message=message,
            topic=topic,
            name=name,
            connector=connector or "kafka",
            legacy_timestamps=legacy_timestamps,
            with_address=with_address,
        )
    _write([draft], f"subject {subject}", out_file, check, as_json)


@app.command("topic")
@with_cluster()
def topic_command(
    topic: Annotated[str, typer.Argument(help="A topic.")],
    records: Annotated[
        int, typer.Option("-n", "--records", min=1, help="How many of the last records of each partition to read.")
    ] = 100,
    kind: Annotated[
        TopicFormat | None,
        typer.Option("--format", help="The format of the value; by default it is detected."),
    ] = None,
    connector: Connector = None,
    cluster: Cluster | None = None,
    with_address: WithAddress = False,
    name: Name = "",
    out_file: Out = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Generate a table that fits the last records of a topic.

    It is an upsert table if the topic is compacted and its records have keys, unless --connector is kafka. Exits with 1
    if the topic is empty, cannot be read or does not fit the options, and with 2 if no brokers are named.
    With --check, exits with 1 if the file of --out differs, and with 2 without --out, unless --json is given.
    """
    from kdsl.schemas.topic import topic_draft

    cluster = require_brokers(cluster)
    with progress(f"reading the last {pluralize(records, 'record')} of each partition of {topic}"):
        draft = topic_draft(
            topic, cluster, records=records, kind=kind, name=name, connector=connector, with_address=with_address
        )
    _write([draft], f"topic {topic}", out_file, check, as_json)


def export(
    form: Annotated[Literal["avro", "ddl", "yaml"], typer.Argument(help="avro, ddl or yaml")],
    target: Annotated[str, typer.Argument(help="orders.py:Orders, package.module, tables.yaml or tables.sql")],
    key: Annotated[bool, typer.Option("--key", help="avro: the schema of the message key.")] = False,
    out_file: Out = None,
    check: Check = False,
) -> None:
    """Write a table as an Avro schema, or tables as Flink DDL or YAML, with a note about what cannot be expressed.

    Exits with 1 if there is no such table, a table has errors, or the form cannot express it at all, and with 2 for
    --key without avro. With --check, exits with 1 if the file of --out differs, and with 2 without --out.
    """
    from kdsl.codegen.avro_schema import to_avro
    from kdsl.codegen.ddl_text import write_ddl
    from kdsl.codegen.yaml_text import write_yaml

    notes: list[str] = []
    if form == "avro":
        text = to_avro(load.table(target).definition, side="key" if key else "value")
    else:
        if key:
            raise typer.BadParameter("only avro has a schema for the key", param_hint="--key")
        definitions = [table.definition for table in load.tables(target)]
        text, notes = write_ddl(definitions) if form == "ddl" else write_yaml(definitions)
    _write_output(text, out_file, check)
    _print_notes(notes)


def _read_file(file: Path) -> str:
    """Read a file as UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as e:
        raise CodegenError(
            f"the file '{file}' cannot be read: {e.strerror}; check the path and its permissions"
        ) from None
    except UnicodeDecodeError:
        raise CodegenError(f"the file '{file}' is not UTF-8") from None


def _write(drafts: Sequence[TableDraft], origin: str, out_file: Path | None, check: bool, as_json: bool) -> None:
    """Write the generated source to a file or the standard output, or compare it with the file, as `_write_output`.

    Then print the notes on the standard error, or with ``as_json`` one document of source and notes on the standard
    output, in place of the source there; without a file, ``check`` is then ignored.
    """
    several = "Tables" if len(drafts) > 1 else "The table"
    heading = f"{several} of {origin}.\n\nWritten by kdsl codegen: changes are lost when it runs again."
    source = to_python(drafts, heading=heading)
    notes = [note for draft in drafts for note in draft.notes]
    if as_json:
        if out_file is not None:
            _write_output(source, out_file, check)
        print_json({"tables": [d.table.name for d in drafts], "source": source, "notes": notes})
        return
    _write_output(source, out_file, check)
    _print_notes(notes)


def _print_notes(notes: Sequence[str]) -> None:
    """Print notes on the standard error, each after ``note:``."""
    for note in notes:
        print_status(f"note: {note}")


def _write_output(text: str, out_file: Path | None, check: bool) -> None:
    """Write text to a file, unless it has it, or to the standard output; with ``--check`` only print the diff."""
    if out_file is None:
        if check:
            raise typer.BadParameter("needs --out, the file to compare with", param_hint="--check")
        out.file.write(text)
        return
    before = _read_file(out_file) if out_file.is_file() else ""
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
