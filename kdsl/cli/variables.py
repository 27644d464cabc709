"""The variables of ingestion files, from ``--var`` and ``--vars``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kdsl.cli.clusters import parse_pairs
from kdsl.documents import read_text
from kdsl.secrets import read_properties

Variables = Annotated[
    list[str] | None,
    typer.Option("--var", help="A variable of an ingestion file as NAME=VALUE, for ${NAME}. May be repeated."),
]
VariableFiles = Annotated[
    list[Path] | None,
    typer.Option("--vars", help="A file of variables, one NAME=VALUE in each line. May be repeated."),
]


def read_variables(values: Sequence[str] | None, files: Sequence[Path] | None) -> dict[str, str]:
    """The variables by name; those of ``--var`` override those of files, and later files earlier ones."""
    variables: dict[str, str] = {}
    for file in files or ():
        try:
            variables |= read_properties(read_text(file, "file of variables", "variables"))
        except OSError as e:
            raise typer.BadParameter(f"{file} cannot be read: {e.strerror}", param_hint="--vars") from e
    return variables | parse_pairs(values, "--var")
