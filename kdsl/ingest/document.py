"""Ingestions as YAML: read with the line of every value and all problems at once, and written again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import yaml

from kdsl.documents import DocumentDumper, YamlDocument, write_yaml_text
from kdsl.errors import KdslError, Problem, SecretError, listing, nearest
from kdsl.ingest.definition import REFUSED_IN_PIPELINE, IngestionDef, Locations, Pipeline, Route, Transform
from kdsl.ingest.ends.end import End, Sink, Source
from kdsl.ingest.ends.kafka import KafkaTopics
from kdsl.ingest.ends.registry import Kind, end_class, end_types
from kdsl.ingest.resolve import check_parts
from kdsl.ingest.variables import escape_variables, replace_variables
from kdsl.options import Options, Spelling

Group = TypeVar("Group", bound=Options)
_SECTIONS = ("source", "sink", "transform", "route", "pipeline")
_WITH_REFERENCES = ("username",)
"""The options that may have references although they are not secrets."""
_MAPPING = "sink.tableId-to-topic.mapping"


def read_document(
    text: str, variables: Mapping[str, str], *, file: str | None = None
) -> tuple[IngestionDef | None, list[Problem]]:
    """Read an ingestion from a YAML document.

    Args:
        text: The document.
        variables: The values of ``${name}`` in it.
        file: The name of its file, for messages.

    Returns:
        The ingestion, or None if there are errors; and the problems of the document. With errors, they contain those of
        the parts that could be read, too; otherwise they are warnings, and `kdsl.ingest.resolve` finds the others.
    """
    reader = _IngestionReader(text, file, variables)
    return reader.read()


def is_ingestion_document(text: str) -> bool:
    """Whether a YAML document is an ingestion: a mapping with ``source`` or ``sink``; False if it cannot be read."""
    value = YamlDocument(text, None).value
    return isinstance(value, dict) and ("source" in value or "sink" in value)


class _IngestionReader:
    def __init__(self, text: str, file: str | None, variables: Mapping[str, str]) -> None:
        """Parse the document; what YAML does not allow is added to ``problems``."""
        self.document = YamlDocument(text, file, lambda _: True)
        self.variables = variables
        self.problems: list[Problem] = list(self.document.problems)
        self.moved: dict[str, str] = {}

    def report(self, path: str, message: str, fix: str, code: str = "document") -> None:
        """Add a problem at the location of a path."""
        self.problems.append(Problem(code, message, fix, self.document.where(path)))

    def read(self) -> tuple[IngestionDef | None, list[Problem]]:
        """Read the document, and add what is wrong with it to ``problems``; see `read_document`."""
        if self.problems:
            return None, self.problems
        value = self.document.value
        if not isinstance(value, dict):
            self.report("$", "the document is not an ingestion", "write 'source:' and 'sink:'")
            return None, self.problems
        for key in value:
            if key not in _SECTIONS:
                self.report(f"$.{key}", f"an ingestion has no section {key!r}{nearest(key, _SECTIONS)}",
                            f"use {listing(_SECTIONS)}")  # fmt: skip
        source = self.read_end(value, "source")
        sink = self.read_end(value, "sink")
        transform = self.read_rules(value, "transform", Transform)
        route = self.read_rules(value, "route", Route)
        pipeline = self.read_pipeline(value.get("pipeline", {}))
        document = self.document
        locations = Locations(Spelling.YAML, document.file, {**document.lines, **self._locate_moved()})
        has_errors = any(problem.severity == "error" for problem in self.problems)
        if not has_errors and isinstance(source, Source) and isinstance(sink, Sink):
            return IngestionDef(
                source, sink, transform=transform, route=route, pipeline=pipeline, locations=locations
            ), self.problems  # fmt: skip
        unread = {p.where.path for p in self.problems if p.code == "variable"}
        others = check_parts(source, sink, transform, route, pipeline, locations)
        return None, list(dict.fromkeys([*self.problems, *(p for p in others if p.where.path not in unread)]))

    def _locate_moved(self) -> dict[str, int]:
        """The lines of options that are declared in another section, by the path where they belong."""
        return {to: self.document.lines[path] for to, path in self.moved.items()}

    def read_end(self, value: Mapping[str, Any], kind: Kind) -> Any:
        """Read the source or the sink, and report what is wrong; None if it is missing, or its type is.

        A type that does not exist, or cannot be imported, counts as missing. A sink in Kafka gets the topic mapping
        that is declared under ``source``, and the source does not.
        """
        path = f"$.{kind}"
        if kind not in value:
            self.report("$", f"the document has no {kind}", f"write '{kind}:' with its 'type'")
            return None
        strings = self.read_options(value[kind], path, _find_end(kind, value[kind]), flattens=False)
        if kind == "sink":
            strings |= self.take_mapping(value, strings)
        if kind == "source" and isinstance(value.get("sink"), dict) and _is_kafka(value["sink"]):
            strings.pop(_MAPPING, None)
        name = strings.pop("type", None)
        if name is None:
            if isinstance(value[kind], dict):
                self.report(path, f"the {kind} has no type", f"add 'type': {listing(end_types(kind))}")
            return None
        try:
            end = end_class(kind, name)
        except KdslError as e:
            self.report(f"{path}.type", str(e), "correct the package that has it")
            return None
        if end is None:
            types = end_types(kind)
            self.report(f"{path}.type", f"there is no {kind} of the type {name!r}{nearest(name, types)}",
                        f"use {listing(types)}")  # fmt: skip
            return None
        read, wrong = end.read(strings)
        for one in wrong:
            where = self.document.where(f"{path}.{one.key}")
            self.problems.append(Problem(one.code, one.message, one.fix, where, one.severity))
        return read

    def take_mapping(self, value: Mapping[str, Any], strings: Mapping[str, str]) -> dict[str, str]:
        """Take the topic mapping that is declared under ``source``, where the sink is Kafka, and note where it was.

        Empty if there is none, or, with a report, if the sink has one, too, or it cannot be read.
        """
        source = value.get("source")
        if not isinstance(source, dict) or _MAPPING not in source or not _is_kafka(strings):
            return {}
        if _MAPPING in strings:
            self.report(f"$.source.{_MAPPING}", f"{_MAPPING!r} is declared in the source and in the sink",
                        "remove it from the source")  # fmt: skip
            return {}
        text = self.read_text(source[_MAPPING], f"$.source.{_MAPPING}", is_plain=True)
        self.moved[f"$.sink.{_MAPPING}"] = f"$.source.{_MAPPING}"
        return {} if text is None else {_MAPPING: text}

    def read_rules(self, value: Mapping[str, Any], section: str, cls: type[Group]) -> list[Group]:
        """Read a list of transforms or routes, each with what is right in it; the rest is reported.

        Empty if there is none, or, with a report, if it is not a list.
        """
        rules = value.get(section) or []
        if not isinstance(rules, list):
            self.report(f"$.{section}", f"{section} is not a list", "write '- source-table: …' under it")
            return []
        return [
            cls.from_strings(self.read_options(rule, path, cls))
            for path, rule in ((f"$.{section}[{i}]", rule) for i, rule in enumerate(rules))
        ]

    def read_pipeline(self, value: Any) -> Pipeline:
        """Read the settings of the pipeline; keys that kdsl does not support are reported, and left out.

        The same is true of values that cannot be read.
        """
        if isinstance(value, dict):
            for key in [key for key in value if key in REFUSED_IN_PIPELINE]:
                self.report(f"$.pipeline.{key}", f"{key!r} is not supported", REFUSED_IN_PIPELINE[key])
            value = {key: inner for key, inner in value.items() if key not in REFUSED_IN_PIPELINE}
        return Pipeline.from_strings(self.read_options(value if value is not None else {}, "$.pipeline", Pipeline))

    def read_options(
        self, value: Any, path: str, group: type[Options] | None, *, flattens: bool = True
    ) -> dict[str, str]:
        """Read a mapping of options to strings, each as `read_text` does; what that cannot read is left out.

        Args:
            value: The mapping; something else is reported, and gives no options.
            path: Its path.
            group: The group of the options, if it is known.
            flattens: Whether a mapping under a key with which options of the group begin is flattened.
        """
        if not isinstance(value, dict):
            self.report(path, "this is not a mapping of options", "write each as 'key: value'")
            return {}
        strings: dict[str, str] = {}
        keys = () if group is None or not flattens else tuple(a.metadata["key"] for a in group.declarations())
        for key, inner in value.items():
            at = f"{path}.{key}"
            if isinstance(inner, dict) and any(known.startswith(f"{key}.") for known in keys):
                strings |= {f"{key}.{name}": one for name, one in self.read_options(inner, at, None).items()}
            elif (text := self.read_text(inner, at, is_plain=_is_plain(group, key))) is not None:
                strings[key] = text
        return strings

    def read_text(self, value: Any, path: str, *, is_plain: bool) -> str | None:
        """Read the value of an option, and replace the variables in it; an unknown variable is reported, and stays.

        ``$${`` becomes ``${`` in plain text (`_is_plain`), and stays in other values.

        A list of scalars is joined with commas, or with semicolons if the path ends with ``.topic`` or ``.ddls``. None,
        and a report, for no value, a mapping, and a list of something else.
        """
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = ("; " if path.endswith((".topic", ".ddls")) else ", ").join(value)
        if value is None:
            self.report(path, "the option has no value", "write a value, or remove the option")
            return None
        if not isinstance(value, str):
            kind = "a mapping" if isinstance(value, dict) else "a list of something else than values"
            fix = "write each key in full, as in 'properties.bootstrap.servers: …'"
            self.report(path, f"an option is a single value or a list of values, not {kind}", fix)
            return None
        report = partial(self.report, path, code="variable")
        return replace_variables(value, self.variables, report, is_plain=is_plain)


def _find_end(kind: Kind, value: Any) -> type[End] | None:
    """The class of a source or a sink by the ``type`` in its options; None if there is none, or it cannot be loaded."""
    name = value.get("type") if isinstance(value, dict) else None
    try:
        return end_class(kind, name) if isinstance(name, str) else None
    except KdslError:  # `read_end` reports it
        return None


def _is_plain(group: type[Options] | None, key: str) -> bool:
    """Whether the value of an option is plain text; others may have references to secrets, which their readers resolve.

    Options that the group does not declare, such as client settings, may have them.
    """
    declared = () if group is None else tuple(a for a in group.declarations() if a.metadata["key"] == key)
    return any(not a.metadata["secret"] for a in declared) and key not in _WITH_REFERENCES


def _escape(group: type[Options], options: Mapping[str, str]) -> dict[str, str]:
    """The options of a group as a document has them: plain text with ``$${`` for a literal ``${``."""
    return {key: escape_variables(text) if _is_plain(group, key) else text for key, text in options.items()}


def _is_kafka(strings: Mapping[str, Any]) -> bool:
    """Whether the options of a sink are those of Kafka topics."""
    return strings.get("type") == KafkaTopics.type


def write_document(ingestion: IngestionDef) -> str:
    """Write an ingestion as YAML; see `kdsl.ingest.Ingestion.to_yaml`."""
    secrets = [f"{path}.{key}" for path, keys in _literal_secrets(ingestion) for key in keys]
    if secrets:
        raise SecretError(
            f"{listing(secrets)} cannot be written to YAML, because a secret is written out there; write a reference, "
            "such as ${env:NAME}"
        )
    document: dict[str, Any] = {}
    for kind, end in (("source", ingestion.source), ("sink", ingestion.sink)):
        document[kind] = {"type": end.type, **_escape(type(end), end.write())}
    for section, rules in (("transform", ingestion.transform), ("route", ingestion.route)):
        if rules:
            document[section] = [_escape(type(rule), rule.to_strings()) for rule in rules]
    if settings := ingestion.pipeline.to_strings():
        document["pipeline"] = _escape(Pipeline, settings)
    return write_yaml_text(document, _Dumper)


def _literal_secrets(ingestion: IngestionDef) -> Sequence[tuple[str, tuple[str, ...]]]:
    """The keys of secrets that are written out, by section: source, sink and pipeline, each perhaps without any."""
    ends: tuple[End, ...] = (ingestion.source, ingestion.sink)
    return [
        *((end.kind, end.literal_secrets()) for end in ends),
        ("pipeline", tuple(ingestion.pipeline.split()[1])),
    ]


class _Dumper(DocumentDumper):
    """Writes ``true`` and ``5`` without quotes: all values are read as they are written. Only null needs quotes."""


_Dumper.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
    ]
    for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
}
