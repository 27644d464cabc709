"""``kdsl document-schema``: the JSON Schema of a kind of YAML documents, for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from kdsl.cli.console import write_document


def document_schema(
    kind: Annotated[
        Literal["tables", "clusters", "ingestion", "cases"], typer.Argument(help="What the documents declare.")
    ],
    file: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; standard output without it.")
    ] = None,
) -> None:
    """Write the JSON Schema of YAML documents of tables, clusters, an ingestion or cases, for editors.

    Begin a document with the line `# yaml-language-server: $schema=FILE`. Options of formats, sources and sinks of
    other packages are in the schema if they are installed where the command runs.
    """
    from kdsl.document_schemas import make_schema

    write_document(json.dumps(make_schema(kind), ensure_ascii=False, indent=1) + "\n", file)
