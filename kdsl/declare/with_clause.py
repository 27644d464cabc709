"""The options of a ``WITH`` clause or a YAML document: connector options, formats, client properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.connector_names import AVAILABLE, CONNECTORS, NAMES
from kdsl.declare.row_rules import PREFIX as RULES, RowRuleDef, read_rule_options
from kdsl.errors import Problem, Where, closest, nearest
from kdsl.formats import Format, UnknownFormatError, format_class, format_names

PROPERTIES = "properties."
SEMANTIC = "sink.semantic"
VERSION = "property-version"
"""An option of Flink's connectors that only names the version of the options."""

_NOT_OF_UPSERTS = {
    "format": "name a 'key.format' and a 'value.format'",
    "key.fields": "remove it: the columns of the PRIMARY KEY are the message key",
    **{
        a.metadata["key"]: f"remove it: {why}"
        for a in attrs.fields(UpsertOptions)
        if (why := UpsertOptions.without.get(a.name))
    },
}


@attrs.frozen
class WithClause:
    """The parsed options.

    Attributes:
        options: The connector's options.
        key_format: The key format, if one is named.
        value_format: The value format, if one is named.
        key_fields: The key columns in order, or None.
        properties: The client properties without their prefix.
        problems: The mistakes.
        unread: The sides, ``"key"`` or ``"value"``, whose named format is unknown.
        rules: The row rules.
    """

    options: KafkaOptions
    key_format: Format | None
    value_format: Format | None
    key_fields: tuple[str, ...] | None
    properties: Mapping[str, str]
    problems: tuple[Problem, ...]
    unread: frozenset[str]
    rules: tuple[RowRuleDef, ...] = ()


def read_with_clause(options: Mapping[str, str], locations: Mapping[str, Where]) -> WithClause:
    """Divide Flink's options into those of the connector, the formats and the client.

    Of a connector whose tables are not topics only the client properties are read. Unknown options, formats and
    connectors, and mistakes in row rules, are the ``problems`` of the result; wrong values are problems of the options
    and formats in it.
    """
    reader = _WithClauseReader(dict(options), locations)
    return reader.read()


class _WithClauseReader:
    def __init__(self, options: dict[str, str], locations: Mapping[str, Where]) -> None:
        self.options = options
        self.rest = dict(options)
        self.locations = locations
        self.problems: list[Problem] = []
        self.kind: type[KafkaOptions] = KafkaOptions
        self.spaces: dict[str, type[Format]] = {}
        self.unread: set[str] = set()

    def read(self) -> WithClause:
        """Read all options, as `read_with_clause` says.

        What was read is removed from ``rest``, and ``kind`` and ``spaces`` are set; mistakes are also added to
        ``problems`` and ``unread``.
        """
        properties = {
            key.removeprefix(PROPERTIES): self.rest.pop(key) for key in self.options if key.startswith(PROPERTIES)
        }
        if not self._choose_connector():
            return self._make_unread_clause(properties)
        upserts = self.kind is UpsertOptions
        self.rest.pop(VERSION, None)
        rules, wrong = read_rule_options(
            {key: self.rest.pop(key) for key in self.options if key.startswith(RULES)}, self.locations
        )
        self.problems.extend(wrong)
        if SEMANTIC in self.rest:  # the one option that also accepts the names of Flink's constants
            self.rest[SEMANTIC] = self.rest[SEMANTIC].replace("_", "-")
        key_fields = None if upserts else self.rest.pop("key.fields", None)
        value_key = "value.format" if upserts else self._choose_value_key()
        key_format, value_format = self._take_format("key.format"), self._take_format(value_key)
        known = {a.metadata["key"] for a in self.kind.declarations()}
        spaces = tuple(key.removesuffix("*") for key in known if key.endswith(".*"))
        own = {k for k in self.rest if (k in known and not k.endswith(".*")) or k.startswith(spaces)}
        for key in [k for k in self.rest if k not in own]:
            self._report_unknown(key, known)
        return WithClause(
            options=self.kind.from_strings({k: v for k, v in self.rest.items() if k in own}),
            key_format=key_format,
            value_format=value_format,
            key_fields=None if key_fields is None else tuple(f.strip() for f in key_fields.split(";") if f.strip()),
            properties=properties,
            problems=tuple(self.problems),
            unread=frozenset(self.unread),
            rules=rules,
        )

    def _add_problem(self, code: str, key: str, message: str, fix: str) -> None:
        """Add a problem at an option."""
        self.problems.append(Problem(code, message, fix, self.locations.get(key, Where())))

    def _choose_connector(self) -> bool:
        """Take the connector from ``rest``, set ``kind`` to its class, and return whether its tables are topics.

        A missing, unknown or unsupported connector is recorded as a problem; a missing one counts as ``kafka``, a
        misspelled one as the connector with the nearest name.
        """
        name = self.rest.pop("connector", None)
        if name == UpsertOptions.connector:
            self.kind = UpsertOptions
        known = CONNECTORS.get(name or "")
        if name is None:
            self._add_problem(
                "connector", "connector", "the option 'connector' is missing", "add 'connector' = 'kafka'"
            )
        elif known is None:
            meant = CONNECTORS.get(closest(name, NAMES) or "")
            topic = meant is not None and meant.use == "topic"
            if meant is not None and meant.name == UpsertOptions.connector:
                self.kind = UpsertOptions
            message = f"there is no connector {name!r}{nearest(name, NAMES)}"
            self._add_problem("connector" if topic else "connector-unknown", "connector", message, AVAILABLE)
            return topic
        elif known.use == "later":
            self._add_problem(
                "connector-later", "connector", f"the connector {name!r} is not supported yet", known.instead
            )
        elif known.use == "script":
            message = f"tables of the connector {name!r} can only be used in SQL scripts"
            self._add_problem("connector-script", "connector", message, known.instead)
        return known is None or known.use == "topic"

    def _make_unread_clause(self, properties: Mapping[str, str]) -> WithClause:
        """Return the clause of a connector whose tables are not topics; its other options are not checked."""
        return WithClause(
            options=KafkaOptions(),
            key_format=None,
            value_format=None,
            key_fields=None,
            properties=properties,
            problems=tuple(self.problems),
            unread=frozenset({"key", "value"}),
        )

    def _choose_value_key(self) -> str:
        """Return the option that names the value format: ``value.format``, or ``format`` if only that is set.

        If both are set, the other one is dropped. If they differ, it is ``format``, and a problem is recorded.
        """
        short, long = self.options.get("format"), self.options.get("value.format")
        if short is not None and long is not None:
            del self.rest["value.format" if short != long else "format"]
            if short != long:
                message = f"'format' is {short!r} and 'value.format' is {long!r}, but a value has one format"
                self._add_problem("format-twice", "format", message, "keep one of the two options")
                return "format"
            return "value.format"
        return "format" if short is not None else "value.format"

    def _take_format(self, option: str) -> Format | None:
        """Take the format that an option names, with its own options, from the options that are left.

        The prefix of its options is added to ``spaces``. None if the option is missing, or names an unknown format.
        That is recorded as a problem, its side as unread, and its options are dropped.
        """
        name = self.rest.pop(option, None)
        if name is None:
            return None
        try:
            chosen = format_class(name)
        except UnknownFormatError as e:
            self._add_problem("format-unknown", option, f"{option!r}: {e}", "use one of these")
            self.unread.add("key" if option == "key.format" else "value")
            for key in [k for k in self.rest if k.startswith(f"{option.removesuffix('format')}{name}.")]:
                del self.rest[key]
            return None
        prefix = f"{option.removesuffix('format')}{name}."
        self.spaces[prefix] = chosen
        own = {key.removeprefix(prefix): self.rest.pop(key) for key in list(self.rest) if key.startswith(prefix)}
        return chosen.from_strings(own)

    def _report_unknown(self, key: str, known: set[str]) -> None:
        """Remove an option that nothing has taken, and record why: another format or connector has it, or none.

        ``known`` are the keys of the table's connector.
        """
        del self.rest[key]
        for prefix, chosen in self.spaces.items():
            name = f"{chosen.identifier}."
            for other in ("key." + name,) if prefix.startswith("key.") else (name, f"value.{name}"):
                if key.startswith(other) and other != prefix:
                    message = f"the option {key!r} does not belong to a format of the table"
                    self._add_problem("option-unknown", key, message, f"write {prefix + key.removeprefix(other)!r}")
                    return
        if key.startswith(tuple(f"{side}{name}." for name in format_names() for side in ("", "key.", "value."))):
            message = f"the option {key!r} belongs to a format that the table does not use"
            self._add_problem("option-unknown", key, message, "remove it, or choose that format")
            return
        upserts = self.kind is UpsertOptions
        every = [
            *sorted(known),
            *self._format_keys(),
            "connector",
            "key.format",
            "value.format",
            *([] if upserts else ["format", "key.fields"]),
        ]
        if upserts and key in _NOT_OF_UPSERTS:
            self._add_problem("option-unknown", key, f"{self.kind.title} has no option {key!r}", _NOT_OF_UPSERTS[key])
            return
        if key in {a.metadata["key"] for a in UpsertOptions.declarations()}:
            fix = f"remove it, or use the connector {UpsertOptions.connector!r}, which has it"
            self._add_problem("option-unknown", key, f"{self.kind.title} has no option {key!r}", fix)
            return
        message = f"{self.kind.title} has no option {key!r}{nearest(key, every)}"
        fix = "correct or remove it; client settings begin with 'properties.'"
        self._add_problem("option-unknown", key, message, fix)

    def _format_keys(self) -> Iterator[str]:
        """Yield the keys of all options of the table's formats."""
        for prefix, chosen in self.spaces.items():
            yield from (prefix + a.metadata["key"] for a in attrs.fields(chosen))
