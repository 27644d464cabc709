"""kdsl asks formats only what their interface declares, so that a format of another package can answer as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import attrs

from kdsl.formats import Format, format_class
from kdsl.plugins import OWN
from tests.source_trees import modules, read, walk
from tests.test_layers import imports

CLASSES = [format_class(name) for name in OWN["kdsl.formats"]]
NAMES = {parent.__name__ for one in CLASSES for parent in one.__mro__ if parent.__module__.startswith("kdsl_formats")}
OPTIONS = {a.name for one in CLASSES for a in attrs.fields(one)}

# The modules of kdsl that import a format's package, and why.
LIBRARIES = {
    "kdsl.catalog.inference": "names the JSON format that messages seem to have, in an error",
    "kdsl.cli.codegen": "generates tables of two formats from an Avro schema",
    "kdsl.codegen.avro_schema": "writes Avro schemas",
    "kdsl.diagnostics.doctor.records": "reads the schemas that Kafka Connect writes into messages",
    "kdsl.diagnostics.doctor.schemas": "explains the schemas that Kafka Connect registers",
    "kdsl.ingest.records": "names the JSON format that messages seem to have, in an error",
    "kdsl.ingest.run.sources.mysql": "converts MySQL's types, as messages of Canal name them",
    "kdsl.testing.spark_cluster": "puts the package on the path of executors",
    "kdsl.schemas": "reads schemas of Avro, Protobuf and JSON, and generates tables of the formats that read them",
}


def library_of(module: str) -> str | None:
    """The entry of `LIBRARIES` that a module belongs to."""
    return next((name for name in LIBRARIES if f"{module}.".startswith(f"{name}.")), None)


def questions(source: str) -> Iterator[str]:
    """The expressions that ask a format for its class, its name, or an option of kdsl's own formats."""
    for node in walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str() as name), *_]):
                if name in OPTIONS:
                    yield ast.unparse(node)
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]):
                if {leaf.id for leaf in ast.walk(classes) if isinstance(leaf, ast.Name)} & NAMES:
                    yield ast.unparse(node)
            case ast.MatchClass(cls=ast.Name(id=name)) if name in NAMES:
                yield ast.unparse(node)
            case ast.Compare(left=left, comparators=others):
                sides = (left, *others)
                if any(isinstance(side, ast.Attribute) and side.attr == "identifier" for side in sides) and any(
                    isinstance(side, ast.Constant | ast.Tuple) for side in sides
                ):
                    yield ast.unparse(node)


def test_kdsl_asks_formats_only_what_their_interface_declares() -> None:
    asked = {
        module: expressions
        for module, path in modules().items()
        if module.startswith("kdsl.") and not module.startswith("kdsl.schemas.")
        if (expressions := list(questions(read(path))))
    }

    assert asked == {}


def test_questions_are_detected() -> None:
    source = """
getattr(chosen, 'unavailable', 'error')
hasattr(chosen, 'schema_include')
isinstance(chosen, Json | Raw)
isinstance(chosen, Format)
chosen.identifier == 'raw'
chosen.identifier in ('avro', 'protobuf')
chosen.identifier == other
"""

    assert len(list(questions(source))) == 5


def test_only_libraries_are_imported_from_formats() -> None:
    importing = {
        library_of(module) or module
        for module, path in modules().items()
        if module.startswith("kdsl.") and any(name.split(".")[0] == "kdsl_formats" for name in imports(path))
    }

    assert importing == set(LIBRARIES)


def test_properties_are_decided_by_options_of_their_type() -> None:
    """An option decides a property of the interface, not a name that nobody asks for."""
    decided = {a.metadata["decides"] for one in CLASSES for a in attrs.fields(one)} - {None}

    assert decided == {"has_inline_schemas", "is_lenient", "on_truncate", "on_unavailable"}
    assert all(isinstance(getattr(Format, name), property) for name in decided)


def test_sources_and_sinks_name_all_of_kdsls_formats_that_fit() -> None:
    """The formats that messages and pages name are those whose attributes allow it."""
    from kdsl.ingest import KafkaFeed, KafkaTopics

    for end in (KafkaFeed, KafkaTopics):
        for side in ("key", "value"):
            assert {one.identifier for one in CLASSES if end.fits(one.identifier, side)} == set(end.formats[side])
