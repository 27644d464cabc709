"""JSON Schemas of kdsl's YAML documents, made from the declarations, for completion and checks in editors.

A schema is a help while typing: what it refuses kdsl refuses, too, but `kdsl check` finds more, such as columns that do
not exist. Formats, sources and sinks of other packages are in it, if they are installed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import attrs

from kdsl.client_settings.settings import TABLE as SETTINGS
from kdsl.cluster import Cluster, Registry
from kdsl.declare.config import ColumnConfig, Scalar, TableConfig, WatermarkConfig
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.row_rules import PREFIX as RULES
from kdsl.declare.with_clause import PROPERTIES, VERSION
from kdsl.formats import Format, format_class, format_names
from kdsl.ingest.definition import Pipeline, Route, Transform
from kdsl.ingest.ends import End, KafkaTopics, end_class, end_types
from kdsl.ingest.ends.kafka_end import KafkaEnd
from kdsl.option_values import describe_values, list_alternatives, write_value
from kdsl.options import Options
from kdsl.testing.cases.schema import make_case_schema

Kind = Literal["tables", "clusters", "ingestion", "cases"]
Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_BOOLEAN = "[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]"
_INTEGER = "[-+]?[0-9]+"
_VARIABLE = r"|.*\$\{.*"
"""What the strings of an ingestion may also be: the value of a variable is not known."""


def make_schema(kind: Kind) -> Schema:
    """Make the JSON Schema of a kind of documents.

    Args:
        kind: ``tables``, ``clusters``, ``ingestion`` or ``cases``.
    """
    makers = {
        "tables": _make_tables,
        "clusters": _make_clusters,
        "ingestion": _make_ingestion,
        "cases": make_case_schema,
    }
    return {"$schema": _DIALECT, "title": f"kdsl: {kind}", **makers[kind]()}


def _make_tables() -> Schema:
    """The schema of a document of tables, or of one table by itself."""
    several = _make_object({"tables": {"type": "array", "items": {"$ref": "#/$defs/table"}}}, ["tables"])
    definitions = {
        "table": _make_config(TableConfig),
        "column": _make_config(ColumnConfig),
        "watermark": _make_config(WatermarkConfig),
        "options": _make_table_options(),
    }
    return {
        "type": "object",
        "if": {"required": ["tables"]},
        "then": several,
        "else": {"$ref": "#/$defs/table"},
        "$defs": definitions,
    }


def _make_config(cls: type[attrs.AttrsInstance]) -> Schema:
    """The schema of a class of a document, with the meaning of each attribute from its docstring."""
    docs = _read_attribute_docs(cls)
    fields = {a.name: a for a in attrs.fields(attrs.resolve_types(cls))}
    members = {name: _make_member(a.type) | _describe(docs.get(name)) for name, a in fields.items()}
    return _make_object(members, [name for name, a in fields.items() if a.default is attrs.NOTHING])


def _read_attribute_docs(cls: type) -> dict[str, str]:
    """The meaning of each attribute in the docstring of a class."""
    section = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2]
    return {name: " ".join(text.split()) for name, text in re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section, re.M)}


def _make_member(kind: Any) -> Schema:
    """The schema of an attribute of a class of a document, by its type."""
    references = {ColumnConfig: "column", WatermarkConfig: "watermark", dict[str, Scalar]: "options"}
    if get_origin(kind) is list:
        return {"type": "array", "items": _make_member(get_args(kind)[0])}
    if kind in references:
        return {"$ref": f"#/$defs/{references[kind]}"}
    alternatives = list_alternatives(kind)
    if len(alternatives) > 1:
        return {"anyOf": [_make_member(one) for one in alternatives]}
    return {"type": {str: "string", bool: "boolean", NoneType: "null"}[kind]}


def _make_table_options() -> Schema:
    """The schema of the options of a table: those of both connectors, and of the formats on each side."""
    kinds: tuple[type[KafkaOptions], ...] = (KafkaOptions, UpsertOptions)
    own = {kind.connector: _make_options(kind, plain=True) for kind in kinds}
    formats = {"enum": list(format_names())}
    shared: Schema = {
        "connector": {"enum": list(own), "description": "The kind of the table."},
        VERSION: _SCALAR,
        "key.format": formats | _describe("The format of message keys."),
        "value.format": formats | _describe("The format of message values."),
    }
    only_kafka: Schema = {
        "format": formats | _describe("The format of message values."),
        "key.fields": {"type": "string", "description": "The columns of the message key, separated by ';'."},
    }
    prefixes = ("", "key.", "value.")
    own[KafkaOptions.connector]["properties"] |= only_kafka
    of_formats = [_make_format(name, prefixes, plain=True) for name in format_names()]
    free = {f"^{re.escape(PROPERTIES)}.+": _SCALAR, f"^{re.escape(RULES)}.+": _SCALAR}
    known = _merge([{"properties": shared, "patternProperties": free}, *own.values(), *of_formats])
    known["properties"] |= {f"{PROPERTIES}{name}": schema for name, schema in _make_settings().items()}
    different = [
        {
            "if": {"properties": {"connector": {"const": name}}, "required": ["connector"]},
            "then": {"properties": {key: False for other in own.values() for key in other["properties"]
                                    if key not in mine["properties"]}},
        }
        for name, mine in own.items()
    ]  # fmt: skip
    return {"type": "object", **known, "required": ["connector"], "additionalProperties": False, "allOf": different}


def _make_clusters() -> Schema:
    """The schema of a document of clusters, which may have other parts, too."""
    settings: Schema = {"type": "object", "properties": _make_settings(), "additionalProperties": _SCALAR}
    of_cluster, of_registry = _read_attribute_docs(Cluster), _read_attribute_docs(Registry)
    servers: Schema = {"type": ["string", "array"], "items": {"type": "string"}}
    servers |= _describe(of_cluster.get("bootstrap_servers"))
    names = ("bootstrap_servers", "bootstrap.servers")
    registry = _make_object(
        {
            "url": {"type": "string"} | _describe(of_registry.get("url")),
            "properties": {"type": "object", "additionalProperties": _SCALAR}
            | _describe(of_registry.get("properties")),
        },
        ["url"],
    )
    cluster: Schema = {
        **_make_object(
            {
                **dict.fromkeys(names, servers),
                "properties": settings | _describe(of_cluster.get("properties")),
                "registry": {"anyOf": [{"type": "string"}, registry]} | _describe(of_cluster.get("registry")),
            },
            (),
        ),
        "patternProperties": {f"^{re.escape(PROPERTIES)}.+": _SCALAR},
        "anyOf": [
            *({"required": [name]} for name in (*names, f"{PROPERTIES}bootstrap.servers")),
            {"properties": {"properties": {"required": ["bootstrap.servers"]}}, "required": ["properties"]},
        ],
    }
    clusters = {"type": "object", "minProperties": 1, "additionalProperties": cluster}
    return {"type": "object", "properties": {"clusters": clusters}, "required": ["clusters"]}


def _make_settings() -> dict[str, Schema]:
    """The schema of each client setting that kdsl knows; other names are allowed, too."""
    return {
        setting.name: _SCALAR | _describe(setting.note) for setting in SETTINGS.values() if setting.act != "refused"
    }


def _make_ingestion() -> Schema:
    """The schema of a document of an ingestion."""
    rules: dict[str, Schema] = {
        name: {"type": ["array", "null"], "items": {"type": "object", **_nest(_make_options(group))}}
        for name, group in (("transform", Transform), ("route", Route))
    }
    for name, group in (("transform", Transform), ("route", Route)):
        rules[name]["items"] |= {"additionalProperties": False, "required": _list_required(group)}
    pipeline = {"type": ["object", "null"], **_nest(_make_options(Pipeline)), "additionalProperties": False}
    members = {"source": _make_ends("source"), **rules, "sink": _make_ends("sink"), "pipeline": pipeline}
    return _make_object(members, ["source", "sink"])


def _make_ends(kind: Literal["source", "sink"]) -> Schema:
    """The schema of a source or a sink; which options it has depends on its type."""
    chosen = [
        {"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": _make_end(end)}
        for name in end_types(kind)
        if (end := end_class(kind, name)) is not None
    ]
    types = {"type": {"enum": list(end_types(kind)), "description": f"The kind of the {kind}."}}
    return {"type": "object", "properties": types, "required": ["type"], "allOf": chosen}


def _make_end(end: type[End]) -> Schema:
    """The schema of the options of a source or a sink; one that reads its options itself may have others."""
    known = _make_options(end)
    if issubclass(end, KafkaEnd):
        for side, prefix in (("key", "key."), ("value", "")):
            names = [name for name in format_names() if end.fits(name, side)]  # type: ignore[arg-type]
            known["properties"][f"{side}.format"] |= {"anyOf": [{"enum": names}, {"pattern": f"^{_VARIABLE[1:]}$"}]}
            known = _merge([known, *(_make_format(name, (prefix,)) for name in names)])
            if side == "value":
                for key in end.of_format:
                    known["properties"] |= {f"{name}.{key}": known["properties"][key] for name in names}
        for key in end.of_format:
            del known["properties"][key]
        known["properties"] |= {f"{PROPERTIES}{name}": schema for name, schema in _make_settings().items()}
        known["patternProperties"] |= {f"^{re.escape(PROPERTIES)}.+": _SCALAR}
    known["properties"]["type"] = True
    if end.kind == "source":  # which a sink in Kafka takes
        mapping = next(a for a in KafkaTopics.declarations() if a.name == "mapping")
        known["properties"][mapping.metadata["key"]] = _make_option(mapping)
    reads_itself = not issubclass(end, KafkaEnd) and end.read.__func__ is not End.read.__func__  # type: ignore[attr-defined]
    return {**known, "required": _list_required(end), "additionalProperties": reads_itself}


def _make_format(name: str, prefixes: Iterable[str], *, plain: bool = False) -> Schema:
    """The schema of the options of a format, with each of some prefixes before its name."""
    kind: type[Format] = format_class(name)
    return _merge([_make_options(kind, f"{prefix}{name}.", plain=plain) for prefix in prefixes])


def _make_options(group: type[Options], prefix: str = "", *, plain: bool = False) -> Schema:
    """The schema of the options of a group under their keys and older keys.

    Args:
        group: The group.
        prefix: What their keys have before them.
        plain: Whether values are single, and have no variables, as those of tables.
    """
    known: Schema = {"properties": {}, "patternProperties": {}}
    for a in group.declarations():
        schema = _make_option(a, plain=plain)
        for key in (a.metadata["key"], *a.metadata["aliases"]):
            if key.endswith(".*"):
                known["patternProperties"][f"^{re.escape(prefix + key[:-1])}.+"] = schema
            else:
                known["properties"][prefix + key] = schema
    return known


def _make_option(a: attrs.Attribute[Any], *, plain: bool = False) -> Schema:
    """The schema of the values of an option, with its meaning and its default."""
    meaning = _describe(f"{a.metadata['doc']} Values: {describe_values(a)}.")
    if isinstance(a.default, str | int | bool):
        meaning["default"] = a.default if isinstance(a.default, bool | int) else write_value(a.default)
    if a.metadata["key"].endswith(".*"):
        return _SCALAR | meaning
    variable = "" if plain else _VARIABLE
    kinds = {one for one in list_alternatives(a.type) if one is not NoneType}
    literals = [text for one in kinds if get_origin(one) is Literal for text in get_args(one)]
    if a.metadata["codec"] is None and kinds <= {bool}:
        return {"type": ["boolean", "string"], "pattern": rf"^(\s*({_BOOLEAN})\s*{variable})$"} | meaning
    if a.metadata["codec"] is None and kinds <= {int}:
        return {"type": ["integer", "string"], "pattern": rf"^(\s*{_INTEGER}\s*{variable})$"} | meaning
    if a.metadata["codec"] is None and literals and len(kinds) == 1:
        other = "|".join(_ignore_case(text) if a.metadata["ignore_case"] else re.escape(text) for text in literals)
        return {"anyOf": [{"enum": literals}, {"type": "string", "pattern": f"^({other}{variable})$"}]} | meaning
    if plain:
        return _SCALAR | meaning
    return {"type": ["string", "number", "boolean", "array"], "items": _SCALAR} | meaning


def _ignore_case(literal: str) -> str:
    """A regular expression of a string in any letter case; ``-`` stands for ``_``, too, as in Flink's constants."""
    return "".join(
        f"[{c.upper()}{c.lower()}]" if c.isalpha() else "[-_]" if c in "-_" else re.escape(c) for c in literal
    )


def _nest(known: Schema) -> Schema:
    """Add what a document may write as mappings: ``schema.change: {behavior: …}`` for ``schema.change.behavior``."""
    nested: dict[str, Schema] = {}
    for key, schema in known["properties"].items():
        parts = key.split(".")
        for i in range(1, len(parts)):
            nested.setdefault(".".join(parts[:i]), {})[".".join(parts[i:])] = schema
    more = {
        name: {"anyOf": [known["properties"][name], inner]} if name in known["properties"] else inner
        for name, members in nested.items()
        for inner in [{"type": "object", "properties": members}]
    }
    return {**known, "properties": known["properties"] | more}


def _list_required(group: type[Options]) -> list[str]:
    """The keys of the options of a group that have no default."""
    return [a.metadata["key"] for a in group.declarations() if a.default is attrs.NOTHING]


def _merge(schemas: Iterable[Schema]) -> Schema:
    """Put the members of several schemas into one."""
    merged: Schema = {"properties": {}, "patternProperties": {}}
    for schema in schemas:
        for part in merged:
            merged[part] |= schema.get(part, {})
    return merged


def _make_object(members: Mapping[str, Any], required: Iterable[str]) -> Schema:
    """The schema of a mapping with these members only."""
    return {"type": "object", "properties": dict(members), "required": list(required), "additionalProperties": False}


def _describe(text: str | None) -> Schema:
    """A description, for hovering; nothing without one."""
    return {"description": text} if text else {}
