"""The pages of the Python API: which public object is on which page, and each as Markdown from its docstrings.

The site renders the objects with mkdocstrings; the Markdown of a page (for ``llms.txt``) is written here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import attrs

import kdsl
from kdsl.errors import KdslError
from kdsl.formats import Format

_FIRST = [
    f"kdsl.{name}"
    for name in (
        "KafkaTable",
        "UpsertTable",
        "Table",
        "Cluster",
        "Registry",
        "Col",
        "Key",
        "PrimaryKey",
        "Virtual",
        "col",
    )
]
"""What readers look for first; the other names follow in the order of the alphabet."""


@attrs.frozen
class ApiPage:
    """A page of the API.

    Attributes:
        name: The name of the page's file, without a suffix.
        title: The title.
        about: What it has, in a phrase.
        names: The objects, by their full names.
    """

    name: str
    title: str
    about: str
    names: tuple[str, ...]


def api_pages() -> list[ApiPage]:
    """The pages, which together have every public name of `kdsl` and of the modules that users import."""
    groups: dict[str, list[str]] = {"tables": [], "formats": [], "errors": [], "datastream": []}
    for name in sorted(_public_names("kdsl"), key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST)):
        groups[_group(getattr(kdsl, name.removeprefix("kdsl.")))].append(name)
    return [
        ApiPage("tables", "Tables and clusters", "what `from kdsl import …` has", tuple(groups["tables"])),
        ApiPage("formats", "Formats", "the classes for `key=` and `value=`", tuple(groups["formats"])),
        ApiPage("errors", "Errors", "what is raised, and when", tuple(groups["errors"])),
        ApiPage(
            "datastream", "Builders", "sources and sinks as in Flink's DataStream API", tuple(groups["datastream"])
        ),
        *(
            ApiPage(module, f"kdsl.{module}", about, _public_names(f"kdsl.{module}"))
            for module, about in (
                ("changelog", "changelogs into Delta, Iceberg, a database or memory"),
                ("ingest", "ingestions in Python"),
                ("pipelines", "tables in Spark Declarative Pipelines"),
                ("testing", "a real Kafka, registry and Spark cluster for tests"),
            )
        ),
    ]


def _group(thing: Any) -> str:
    if isinstance(thing, type) and issubclass(thing, KdslError):
        return "errors"
    if isinstance(thing, type) and issubclass(thing, Format):
        return "formats"
    return "datastream" if str(getattr(thing, "__module__", "")).startswith("kdsl.datastream") else "tables"


def _public_names(module: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in import_module(module).__all__)


def site_text(page: ApiPage) -> str:
    """The source of a page for mkdocstrings."""
    return "\n\n".join([f"# {page.title}", *(f"::: {name}" for name in page.names)]) + "\n"


def markdown_text(page: ApiPage) -> str:
    """A page as Markdown: signatures and docstrings."""
    return "\n\n".join([f"# {page.title}", *(part for name in page.names for part in _describe(name))]) + "\n"


def _describe(name: str) -> Iterator[str]:
    """Yield the heading, the signature and the docstring of an object, and those of its public methods."""
    module, _, attribute = name.rpartition(".")
    thing = getattr(import_module(module), attribute)
    yield f"## {name}"
    yield from _signature_and_docstring(attribute, thing)
    if isinstance(thing, type):
        for member, value in vars(thing).items():
            function = getattr(value, "__func__", value)
            # `Ref` puts functions around methods of its base `str` when the first one is made.
            if (
                not member.startswith("_")
                and inspect.isfunction(function)
                and inspect.isfunction(inspect.unwrap(function))
            ):
                yield f"### {attribute}.{member}"
                yield from _signature_and_docstring(member, function)


def _signature_and_docstring(name: str, thing: Any) -> Iterator[str]:
    if inspect.isfunction(thing):
        yield f"```python\n{name}{inspect.signature(thing)}\n```"
    if isinstance(thing, type) or inspect.isfunction(thing):
        yield inspect.getdoc(thing) or ""
