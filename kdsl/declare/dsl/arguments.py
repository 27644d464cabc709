"""The arguments of a class statement as options, formats and client properties.

Mistakes become problems, in the spelling of Python; declaring never fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

import attrs

from kdsl.callbacks import FunctionError, import_name
from kdsl.client_settings.properties import check_property_type
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.dead_letters import DeadLetters
from kdsl.declare.start_and_end import start_or_end_options
from kdsl.declare.topic_settings import TopicSettings
from kdsl.durations import parse_duration
from kdsl.errors import Problem, Where, listing, nearest
from kdsl.formats import Format, UnknownFormatError, format_class

# One argument sets several options; `dead_letters` and `topic_settings` those after the boundaries.
STARTUP = ("startup", "startup_timestamp", "startup_offsets")
BOUNDED = ("bounded", "bounded_timestamp", "bounded_offsets")
DEAD_LETTERS = ("dead_letter_topic", "dead_letter_max_count", "dead_letter_batch_reads", "dead_letter_properties")
TOPIC_SETTINGS = ("topic_partitions", "topic_replication_factor", "topic_configs")
OTHER = ("name", "comment", "key", "value", "key_fields", "primary_key", "group_id", "properties")
OWN = ("name", "comment")
"""Arguments that a table class does not inherit."""
_DURATIONS = ("discovery", "watermark_drift", "watermark_max_ahead", "state_ttl", "buffer_interval")
_WITHOUT_EFFECT = ("watermark_emit", "watermark_update", "watermark_idle", "transaction_naming")
_FIXES = {
    **dict.fromkeys(_WITHOUT_EFFECT, "remove it: the option has no effect in Spark"),
    "startup_timestamp": "set startup= to an aware datetime",
    "startup_offsets": "set startup= to the offsets, such as {0: 42, 1: 300}",
    "bounded_timestamp": "set bounded= to an aware datetime",
    "bounded_offsets": "set bounded= to the offsets, such as {0: 42, 1: 300}",
    **dict.fromkeys(DEAD_LETTERS, "use dead_letters=DeadLetters('orders.dead', max_count=1000)"),
    **dict.fromkeys(
        (*TOPIC_SETTINGS, "partitions", "replication_factor", "configs"),
        "use topic_settings=TopicSettings(partitions=12, configs={'retention.ms': 604800000})",
    ),
    "semantic": "use delivery=",
    "format": "use value=",
    "bootstrap_servers": "pass the cluster when you read or write the table: Cluster('host:port')",
    "bootstrap": "pass the cluster when you read or write the table: Cluster('host:port')",
}
_NOT_OF_UPSERTS = {
    **{name: f"remove it: {why}" for name, why in UpsertOptions.without.items() if why},
    "key_fields": "remove it: the columns marked PrimaryKey are the message key, in the order of the class",
}
_OPTION_KEYS = {
    "key": ("key.format",),
    "value": ("value.format", "format"),
    "properties": ("properties",),
    "key_fields": ("key.fields",),
    "group_id": ("properties.group.id",),
}


@attrs.frozen
class Argument:
    """An argument of a class statement with its location."""

    value: Any
    where: Where


@attrs.define
class Arguments:
    """The parsed arguments of a class statement, together with the inherited ones.

    Attributes:
        options: The options of the connector.
        key: The format of the message key.
        value: The format of the message value.
        properties: The settings of the Kafka client.
        option_locations: The location of each option, by its Flink key.
        name: The table's name, if it is not that of the class.
        comment: What the table means, if the docstring does not say it.
        key_fields: The columns of the message key in order, if that is not the order of the marked ones.
        primary_key: The columns of the primary key, if marks do not define them.
        problems: The mistakes in the arguments.
        unread: The sides, ``"key"`` or ``"value"``, whose named format is unknown.
    """

    options: KafkaOptions = attrs.field(factory=KafkaOptions)
    key: Format | None = None
    value: Format | None = None
    properties: dict[str, Any] = attrs.field(factory=dict)
    option_locations: dict[str, Where] = attrs.field(factory=dict)
    name: str | None = None
    comment: str | None = None
    key_fields: tuple[str, ...] | None = None
    primary_key: tuple[str, ...] | None = None
    problems: list[Problem] = attrs.field(factory=list)
    unread: frozenset[str] = frozenset()


def arguments(kind: type[KafkaOptions]) -> tuple[str, ...]:
    """The names of the arguments that the class statement of a connector's table (its options' class) accepts."""
    keywords = (a.name for a in kind.declarations() if not a.metadata["sql_only"])
    options = (name for name in keywords if name not in (*STARTUP[1:], *BOUNDED[1:], *DEAD_LETTERS, *TOPIC_SETTINGS))
    return (
        *options,
        "dead_letters",
        "topic_settings",
        *(name for name in OTHER if name != "key_fields" or kind is not UpsertOptions),
    )


def read_arguments(located: Mapping[str, Argument], kind: type[KafkaOptions] = KafkaOptions) -> Arguments:
    """Read the arguments of a class statement; what cannot be read becomes a problem of the result and is left out.

    Values of options are mostly not checked here. Of ``properties=`` only the wrong ones are left out.

    Args:
        located: The arguments with their locations.
        kind: The class of the connector's options.
    """
    arguments_read = Arguments()
    values: dict[str, Any] = {}
    known = attrs.fields_dict(kind)
    valid = arguments(kind)
    for name, argument in located.items():
        for key in _OPTION_KEYS.get(name) or [known[n].metadata["key"] for n in _options_of(name) if n in known]:
            arguments_read.option_locations[key] = argument.where
        try:
            if name not in valid:
                raise _explain_unknown(name, valid)
            if name in ("key", "value"):
                setattr(arguments_read, name, _read_format(name, argument.value))
            elif name in ("key_fields", "primary_key"):
                setattr(arguments_read, name, _read_column_names(name, argument.value))
            elif name in OWN:
                setattr(arguments_read, name, _read_string(name, argument.value))
            elif name == "properties":
                _set_properties(arguments_read, argument)
            elif name != "group_id" and argument.value is not None:
                values.update(_read_option(name, argument.value))
        except _StatementError as wrong:
            arguments_read.unread |= {name} & {"key", "value"}
            arguments_read.problems.append(attrs.evolve(wrong.problem, where=argument.where))
    if "group_id" in located and located["group_id"].value is not None:
        _set_group(arguments_read, located["group_id"])
    arguments_read.options = kind(**values)
    return arguments_read


class _StatementError(Exception):
    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.problem = Problem(code, message, fix)


def _options_of(name: str) -> tuple[str, ...]:
    """Return the attributes of the options that an argument sets."""
    several = {
        "startup": STARTUP, "bounded": BOUNDED, "dead_letters": DEAD_LETTERS, "topic_settings": TOPIC_SETTINGS
    }  # fmt: skip
    return several.get(name, (name,))


def _explain_unknown(name: str, valid: Collection[str]) -> _StatementError:
    """Create, not raise, the error for an argument that the class does not have, with the reason or a hint."""
    if name in _NOT_OF_UPSERTS and name in arguments(KafkaOptions):
        return _StatementError("argument-unknown", f"an upsert table has no argument {name}=", _NOT_OF_UPSERTS[name])
    if name in arguments(UpsertOptions) and name not in valid:
        fix = "remove it, or declare an UpsertTable, which has it"
        return _StatementError("argument-unknown", f"a KafkaTable has no argument {name}=", fix)
    fix = _FIXES.get(name) or f"the arguments are {listing(sorted(valid))}"
    hint = "" if name in _FIXES else nearest(name, valid)
    return _StatementError("argument-unknown", f"a table class has no argument {name}={hint}", fix)


def _read_format(side: str, value: Any) -> Format | None:
    """Return the format that an argument names or is; None if it is None."""
    if value is None or isinstance(value, Format):
        return value
    if isinstance(value, type) and issubclass(value, Format):
        message = f"{side}= is the class {value.__name__}, not a format"
        raise _StatementError("argument-format", message, f"write {side}={value.__name__}()")
    if not isinstance(value, str):
        message = f"{side}= is {value!r}, which is not a format"
        raise _StatementError("argument-format", message, f"write {side}=Json(), or another format, or its name")
    try:
        return format_class(value)()
    except UnknownFormatError as e:
        raise _StatementError(
            "format-unknown", f"{side}= cannot be read: {e}", "name one of them, or write the format itself"
        ) from None


def _read_column_names(name: str, value: Any) -> tuple[str, ...] | None:
    """Return the column names of an argument; None if it is None."""
    names = None if value is None or isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else ()
    if value is not None and (not names or not all(isinstance(column, str) for column in names)):
        message = f"{name}= is {value!r}, which is not a list of column names"
        raise _StatementError("argument-value", message, f"write {name}=('user_id', 'item_id'), the names of columns")
    return names


def _read_string(name: str, value: Any) -> str | None:
    """Return the string of an argument; None if it is None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise _StatementError("argument-value", f"{name}= has the value {value!r}", f"set {name}= to a string")
    return value


def _read_properties(value: Any) -> dict[str, Any]:
    """Return a copy of the client settings of ``properties=``."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        message = f"properties= is a {type(value).__name__}, but it must map names of Kafka client settings to values"
        raise _StatementError("argument-value", message, "write properties={'max.poll.records': 500}")
    prefixed = [key for key in value if key.startswith("properties.")]
    if prefixed:
        message = f"properties= names {listing(prefixed)} with the prefix that they have in SQL"
        raise _StatementError(
            "argument-value", message, f"write {listing(k.removeprefix('properties.') for k in prefixed)}"
        )
    return dict(value)


def _set_properties(arguments_read: Arguments, argument: Argument) -> None:
    """Set the properties with values of the types that they may have; for others add problems, which show no values."""
    for key, value in _read_properties(argument.value).items():
        wrong = [attrs.evolve(p, where=argument.where) for p in check_property_type(key, value)]
        arguments_read.problems.extend(wrong)
        if not wrong:
            arguments_read.properties[key] = value


def _set_group(arguments_read: Arguments, argument: Argument) -> None:
    """Set ``group.id`` among the client settings to ``group_id=``.

    An invalid one is recorded as a problem and not set; one that contradicts ``properties=`` is recorded and replaces
    that.
    """
    if not isinstance(argument.value, str) or not argument.value:
        message = f"group_id= has the value {argument.value!r}"
        arguments_read.problems.append(Problem("argument-value", message, "set group_id= to a string", argument.where))
        return
    other = arguments_read.properties.get("group.id", argument.value)
    if other != argument.value:
        message = f"group_id= is {argument.value!r}, but properties= has 'group.id' {other!r}"
        arguments_read.problems.append(Problem("argument-value", message, "remove one of them", argument.where))
    arguments_read.properties["group.id"] = argument.value


def _read_option(name: str, value: Any) -> dict[str, Any]:
    """Return the options, by attribute, that an argument sets; most values are not checked here."""
    match name:
        case "topic":
            return {"topic": _read_topics(value)}
        case "partitioner" if callable(value):
            return {"partitioner": _read_partitioner(value)}
        case "dead_letters":
            if not isinstance(value, DeadLetters):
                message = f"dead_letters= is {value!r}, which is not DeadLetters"
                raise _StatementError("argument-value", message, "write dead_letters=DeadLetters('orders.dead')")
            return value.options()
        case "topic_settings":
            if not isinstance(value, TopicSettings):
                message = f"topic_settings= is {value!r}, which is not TopicSettings"
                raise _StatementError("argument-value", message, "write topic_settings=TopicSettings(partitions=12)")
            return value.options()
        case "startup" | "bounded":
            read = start_or_end_options(value, name)
            if isinstance(read, Problem):
                raise _StatementError(read.code, read.message, read.fix)
            return read
        case _ if name in _DURATIONS and isinstance(value, str):
            try:
                return {name: parse_duration(value)}
            except ValueError as e:
                message = f"{name}= is {value!r}: {e}"
                raise _StatementError("argument-value", message, "write '5 min', or a timedelta") from None
        case _ if name in _DURATIONS and not isinstance(value, timedelta):
            message = f"{name}= is {value!r}, which is not a duration"
            raise _StatementError("argument-value", message, "write '5 min', or a timedelta")
        case _:
            return {name: value}


def _read_partitioner(function: Any) -> str:
    """Return the import name of a partitioner function, which is what a plan stores."""
    try:
        return import_name(function)
    except FunctionError as e:
        message = f"partitioner= is a function that executors cannot import: {e.reason}"
        raise _StatementError("argument-value", message, e.fix) from None


def _read_topics(value: Any) -> tuple[str, ...]:
    """Return the topics of ``topic=``: the string, or each string of a list, split at semicolons, stripped of blanks.

    Empty parts stay.
    """
    topics = (value,) if isinstance(value, str) else value
    try:
        return tuple(part.strip() for text in topics for part in text.split(";"))
    except (TypeError, AttributeError):
        message = f"topic= is {value!r}, which is not a topic name or a list of them"
        raise _StatementError("argument-value", message, "write topic='orders', or a list of names") from None
