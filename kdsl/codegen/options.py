"""The options of a table as the arguments of a class statement."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.codegen.imports import Imports
from kdsl.codegen.layout import INDENT, mapping, part, string_literal
from kdsl.codegen.literals import Literals
from kdsl.codegen.secret import Placeholders
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.declare.dsl.arguments import DEAD_LETTERS, TOPIC_SETTINGS
from kdsl.durations import duration_text
from kdsl.formats import Format
from kdsl.options import Options

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDARIES = ("startup", "bounded")


def read_boundary(options: KafkaOptions, side: str) -> tuple[Any, str | None]:
    """Combine the options of a start or an end to one value.

    Args:
        options: The connector's options.
        side: ``startup`` or ``bounded``.

    Returns:
        The value of ``startup=`` or ``bounded=``, and a note about omitted options, or None. The value is a time in
        UTC, offsets by partition, or a mode without ``-offset`` at its end; None for the default; and the whole mode if
        its time or offsets are missing or cannot be read.
    """
    mode = getattr(options, side)
    millis, offsets = getattr(options, f"{side}_timestamp"), getattr(options, f"{side}_offsets")
    declared = attrs.fields_dict(type(options))
    keys = {name: declared[f"{side}{name}"].metadata["key"] for name in ("_timestamp", "_offsets")}
    unused = [
        f"{keys[name]} has no effect in the mode {mode}, and was omitted"
        for name, value, of in (("_timestamp", millis, "timestamp"), ("_offsets", offsets, "specific-offsets"))
        if value is not None and mode != of
    ]
    note = "; ".join(unused) or None
    if mode == "timestamp" and millis is not None:
        return _EPOCH + timedelta(milliseconds=millis), note
    if mode == "specific-offsets" and offsets is not None:
        return (mode if isinstance(offsets, str) else dict(offsets)), note
    if mode in ("timestamp", "specific-offsets"):
        return mode, note
    return (None if mode == declared[side].default else mode.removesuffix("-offset")), note


class Arguments:
    """Writes options as arguments.

    Args:
        imports: The module's imports.
        literals: Writes values.
        placeholders: Replaces plain-text secrets.
    """

    def __init__(self, imports: Imports, literals: Literals, placeholders: Placeholders) -> None:
        self._imports, self._literals, self._placeholders = imports, literals, placeholders
        self.notes: list[str] = []

    def options(self, options: KafkaOptions) -> Iterator[str]:
        """Yield the arguments of the connector's options that differ from their defaults, except the topic.

        What was omitted is added to the notes. CodegenError if a value has no literal.
        """
        for a in options.declarations():
            value = getattr(options, a.name)
            side = a.name.partition("_")[0]
            if a.name in _BOUNDARIES:
                value, note = read_boundary(options, a.name)
                self.notes += [note] if note else []
            if a.name == "delivery" and value == a.default and options.semantic is not None:
                value = options.semantic  # its old name, which no class has
            if a.name == "dead_letter_topic" and value is not None:
                yield self._write_dead_letters(options)
            if a.name == TOPIC_SETTINGS[0]:
                yield from self._write_topic_settings(options)
            if a.name in ("topic", *DEAD_LETTERS, *TOPIC_SETTINGS) or (side in _BOUNDARIES and a.name != side):
                continue
            if a.metadata["sql_only"]:
                if a.name != "semantic" and value != a.default:
                    self.notes.append(f"{a.metadata['key']} has no effect in Spark, and was omitted")
                continue
            if value is not None and value != a.default:
                yield f"{a.name}={self._write_value(value)}"

    def _write_dead_letters(self, options: KafkaOptions) -> str:
        """Write the argument ``dead_letters=`` of options that name a topic for them, and import its class.

        Plain-text secrets are replaced, and noted in the placeholders.
        """
        parts = [string_literal(options.dead_letter_topic or "")]
        if options.dead_letter_max_count != NO_LIMIT:
            parts.append(f"max_count={options.dead_letter_max_count}")
        if options.dead_letter_batch_reads:
            parts.append("batch_reads=True")
        if options.dead_letter_properties:
            properties = self._placeholders.properties(Properties(options.dead_letter_properties))
            parts.append(f"properties={self._literals.scalar(properties)}")
        return part(f"dead_letters={self._imports.name('kdsl', 'DeadLetters')}", parts, INDENT)

    def _write_topic_settings(self, options: KafkaOptions) -> Iterator[str]:
        """Yield the argument ``topic_settings=`` of options that declare any, and import its class."""
        values = {
            "partitions": options.topic_partitions,
            "replication_factor": options.topic_replication_factor,
            "configs": Properties(options.topic_configs).reveal() or None,
        }
        parts = [f"{name}={self._literals.scalar(value)}" for name, value in values.items() if value is not None]
        if parts:
            yield part(f"topic_settings={self._imports.name('kdsl', 'TopicSettings')}", parts, INDENT)

    def topics(self, options: KafkaOptions) -> Iterator[str]:
        """Yield the argument that names the topics; none if the table has no topics but a pattern."""
        if len(options.topic) == 1:
            yield f"topic={string_literal(options.topic[0])}"
        elif options.topic:
            yield part("topic=", list(map(string_literal, options.topic)), INDENT, "[]")

    def format(self, name: str, chosen: Format | None) -> Iterator[str]:
        """Yield the argument of a format, as ``name=Json()`` with its options, and import its class; none for None."""
        if chosen is not None:
            yield self._write_format(name, chosen)

    def properties(self, properties: dict[str, str]) -> Iterator[str]:
        """Yield ``group_id=`` if the client properties name a group, and ``properties=`` if there are others.

        The dict is not changed.
        """
        rest = dict(properties)
        if rest.get("group.id"):
            yield f"group_id={string_literal(rest.pop('group.id'))}"
        if rest:
            entries = ((string_literal(key), string_literal(value)) for key, value in rest.items())
            yield mapping("properties=", entries, INDENT)

    def _write_format(self, name: str, chosen: Options) -> str:
        """Write a format with its options as an argument, and import it; plain-text secrets are replaced, and noted.

        CodegenError if a value has no literal.
        """
        cls = type(chosen)
        options = self._placeholders.options(chosen)
        parts = [f"{option}={self._write_value(value)}" for option, value in options.items()]
        return part(f"{name}={self._imports.name(_import_module(cls), cls.__name__)}", parts, INDENT)

    def _write_value(self, value: Any) -> str:
        """Write the value of an option as Python, and import the names in it; a duration becomes a string.

        CodegenError if the value has no literal.
        """
        if isinstance(value, timedelta):
            return string_literal(duration_text(value))
        return self._literals.scalar(value)


def _import_module(cls: type) -> str:
    """Return the name of the module from which a user imports a format: ``kdsl`` if it has it, else its own."""
    import kdsl

    return "kdsl" if getattr(kdsl, cls.__name__, None) is cls else cls.__module__
