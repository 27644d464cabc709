"""``kdsl init``: a new project from a template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdsl.cli.console import print_status, print_text
from kdsl.errors import pluralize
from kdsl.projects.create import Names, Template, create_project, suggest_table


def init(
    folder: Annotated[Path, typer.Argument(help="The folder of the project; it may exist.")] = Path(),
    template: Annotated[Template, typer.Option(help="What the project begins with.")] = Template.JOB,
    name: Annotated[str | None, typer.Option(help="The name of the project, else that of the folder.")] = None,
    topic: Annotated[str, typer.Option(help="The topic to read.")] = "orders",
    table: Annotated[str | None, typer.Option(help="The class of its table, else named after the topic.")] = None,
) -> None:
    """Create a project: declarations, what runs, tests, a CI workflow, a dashboard and alert rules.

    The tests pass as they are; they start a local Kafka. No file is overwritten, and to repeat it is safe: files that
    exist with the same content are left.

    Exits with 1, and writes nothing, if a name is invalid or a file exists with another content.
    """
    names = Names(name or folder.resolve().name, topic, table or suggest_table(topic))
    creation = create_project(folder, template, names)
    for file in creation.written:
        print_text(f"  {folder / file}")
    if creation.unchanged:
        print_status(f"{pluralize(len(creation.unchanged), 'file was', 'files were')} there already, unchanged")
    change = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    print_text(f"next: {change}python -m venv .venv && . .venv/bin/activate && pip install -e '.[dev]' && pytest")
