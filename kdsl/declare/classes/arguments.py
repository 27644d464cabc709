"""The arguments of a class statement as options, formats and client properties.

Whatever is wrong with them is recorded as a problem, in the spelling of Python; declaring never fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

import attrs

from kdsl.client.properties import value_problems
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.moments import moment_options
from kdsl.durations import parse_duration
from kdsl.errors import Problem, Where, listing, nearest
from kdsl.formats import Format, UnknownFormatError, format_class
from kdsl.functions import FunctionError, name_of

# One argument stands for three options.
STARTUP = ("startup", "startup_timestamp", "startup_offsets")
BOUNDED = ("bounded", "bounded_timestamp", "bounded_offsets")
OTHER = ("name", "comment", "key", "value", "key_fields", "primary_key", "group_id", "properties")
OWN = ("name", "comment")
"""What a table does not take over from a class that it inherits from."""
_DURATIONS = ("discovery", "watermark_drift", "watermark_update", "watermark_idle", "buffer_interval")
_MEANT = {
    "startup_timestamp": "startup= takes the time itself, as an aware datetime",
    "startup_offsets": "startup= takes the offsets themselves, as {0: 42, 1: 300}",
    "bounded_timestamp": "bounded= takes the time itself, as an aware datetime",
    "bounded_offsets": "bounded= takes the offsets themselves, as {0: 42, 1: 300}",
    "semantic": "write delivery=",
    "format": "write value=",
    "bootstrap_servers": "say where a table lives when you read or write it: Cluster(bootstrap=...)",
    "bootstrap": "say where a table lives when you read or write it: Cluster(bootstrap=...)",
}
_NOT_OF_UPSERTS = {
    **{name: f"leave it out: {why}" for name, why in UpsertOptions.without.items() if why},
    "key_fields": "leave it out: the columns marked PrimaryKey are the message key, in the order of the class",
}
_PLACES = {
    "key": ("key.format",),
    "value": ("value.format", "format"),
    "properties": ("properties",),
    "key_fields": ("key.fields",),
    "group_id": ("properties.group.id",),
}


@attrs.frozen
class Argument:
    """An argument of a class statement, and where it stands."""

    value: Any
    where: Where


@attrs.define
class Arguments:
    """What the arguments of a class statement, and those of the tables that it inherits from, say.

    Attributes:
        options: The options of the connector.
        key: The format of the message key.
        value: The format of the message value.
        properties: The settings of the Kafka client.
        places: The place of each option, by its Flink key.
        name: The table's name, where it is not that of the class.
        comment: What the table means, where no docstring says it.
        key_fields: The columns of the message key in its order, where the order of the marked ones is another.
        primary_key: The columns of the primary key, where marks do not say them.
        problems: What is wrong.
    """

    options: KafkaOptions = attrs.field(factory=KafkaOptions)
    key: Format | None = None
    value: Format | None = None
    properties: dict[str, Any] = attrs.field(factory=dict)
    places: dict[str, Where] = attrs.field(factory=dict)
    name: str | None = None
    comment: str | None = None
    key_fields: tuple[str, ...] | None = None
    primary_key: tuple[str, ...] | None = None
    problems: list[Problem] = attrs.field(factory=list)


def arguments(kind: type[KafkaOptions]) -> tuple[str, ...]:
    """The arguments of a class statement of a connector's tables."""
    options = (a.name for a in kind.declared() if a.name not in (*STARTUP[1:], *BOUNDED[1:], "semantic"))
    return (*options, *(name for name in OTHER if name != "key_fields" or kind is not UpsertOptions))


def read_arguments(given: Mapping[str, Argument], kind: type[KafkaOptions] = KafkaOptions) -> Arguments:
    """Read the arguments of a class statement.

    Args:
        given: The arguments.
        kind: The options of the connector.
    """
    made = Arguments()
    values: dict[str, Any] = {}
    known = attrs.fields_dict(kind)
    valid = arguments(kind)
    for name, argument in given.items():
        for key in _PLACES.get(name) or [known[n].metadata["key"] for n in _stands_for(name) if n in known]:
            made.places[key] = argument.where
        try:
            if name not in valid:
                raise _unknown(name, valid)
            if name in ("key", "value"):
                setattr(made, name, _format(name, argument.value))
            elif name in ("key_fields", "primary_key"):
                setattr(made, name, _names(name, argument.value))
            elif name in OWN:
                setattr(made, name, _text(name, argument.value))
            elif name == "properties":
                _set_properties(made, argument)
            elif name != "group_id" and argument.value is not None:
                values.update(_option(name, argument.value))
        except _WrongError as wrong:
            made.problems.append(attrs.evolve(wrong.problem, where=argument.where))
    if "group_id" in given and given["group_id"].value is not None:
        _set_group(made, given["group_id"])
    made.options = kind(**values)
    return made


class _WrongError(Exception):
    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.problem = Problem(code, message, fix)


def _stands_for(name: str) -> tuple[str, ...]:
    return {"startup": STARTUP, "bounded": BOUNDED}.get(name, (name,))


def _unknown(name: str, valid: Collection[str]) -> _WrongError:
    if name in _NOT_OF_UPSERTS and name in arguments(KafkaOptions):
        return _WrongError("argument-unknown", f"an upsert table has no argument {name}=", _NOT_OF_UPSERTS[name])
    if name in arguments(UpsertOptions) and name not in valid:
        fix = "leave it out, or declare an UpsertTable, to which it belongs"
        return _WrongError("argument-unknown", f"a KafkaTable has no argument {name}=", fix)
    fix = _MEANT.get(name) or f"the arguments are {listing(sorted(valid))}"
    hint = "" if name in _MEANT else nearest(name, valid)
    return _WrongError("argument-unknown", f"a table class has no argument {name}={hint}", fix)


def _format(side: str, given: Any) -> Format | None:
    if given is None or isinstance(given, Format):
        return given
    if isinstance(given, type) and issubclass(given, Format):
        message = f"{side}= is the class {given.__name__}, not a format"
        raise _WrongError("argument-format", message, f"write {side}={given.__name__}()")
    if not isinstance(given, str):
        message = f"{side}= is {given!r}, which is no format"
        raise _WrongError("argument-format", message, f"write {side}=Json(), or another format, or its name")
    try:
        return format_class(given)()
    except UnknownFormatError as e:
        raise _WrongError(
            "format-unknown", f"{side}= cannot be read: {e}", "name one of them, or write the format itself"
        ) from None


def _names(name: str, given: Any) -> tuple[str, ...] | None:
    names = None if given is None or isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if given is not None and (not names or not all(isinstance(column, str) for column in names)):
        message = f"{name}= is {given!r}, which names no columns"
        raise _WrongError("argument-value", message, f"write {name}=('user_id', 'item_id'), the names of columns")
    return names


def _text(name: str, given: Any) -> str | None:
    if given is not None and (not isinstance(given, str) or not given):
        raise _WrongError("argument-value", f"{name}= has the value {given!r}", f"give {name}= a text")
    return given


def _properties(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        message = f"properties= is a {type(given).__name__}, but the settings of the Kafka client go by their names"
        raise _WrongError("argument-value", message, "write properties={'max.poll.records': 500}")
    prefixed = [key for key in given if key.startswith("properties.")]
    if prefixed:
        message = f"properties= names {listing(prefixed)} with the prefix that they have in SQL"
        raise _WrongError(
            "argument-value", message, f"write {listing(k.removeprefix('properties.') for k in prefixed)}"
        )
    return dict(given)


def _set_properties(made: Arguments, argument: Argument) -> None:
    """Take the properties whose values can be read; the others are problems, whose values never show."""
    for key, value in _properties(argument.value).items():
        wrong = [attrs.evolve(p, where=argument.where) for p in value_problems(key, value)]
        made.problems.extend(wrong)
        if not wrong:
            made.properties[key] = value


def _set_group(made: Arguments, argument: Argument) -> None:
    if not isinstance(argument.value, str) or not argument.value:
        message = f"group_id= has the value {argument.value!r}"
        made.problems.append(Problem("argument-value", message, "give group_id= a text", argument.where))
        return
    other = made.properties.get("group.id", argument.value)
    if other != argument.value:
        message = f"group_id= is {argument.value!r}, but properties= has 'group.id' {other!r}"
        made.problems.append(Problem("argument-value", message, "say it once", argument.where))
    made.properties["group.id"] = argument.value


def _option(name: str, value: Any) -> dict[str, Any]:
    match name:
        case "topic":
            return {"topic": _topics(value)}
        case "partitioner" if callable(value):
            return {"partitioner": _partitioner(value)}
        case "startup" | "bounded":
            read = moment_options(value, name)
            if isinstance(read, Problem):
                raise _WrongError(read.code, read.message, read.fix)
            return read
        case _ if name in _DURATIONS and isinstance(value, str):
            try:
                return {name: parse_duration(value)}
            except ValueError as e:
                message = f"{name}= is {value!r}: {e}"
                raise _WrongError("argument-value", message, "write '5 min', or a timedelta") from None
        case _ if name in _DURATIONS and not isinstance(value, timedelta):
            message = f"{name}= is {value!r}, which is no duration"
            raise _WrongError("argument-value", message, "write '5 min', or a timedelta")
        case _:
            return {name: value}


def _partitioner(function: Any) -> str:
    """The name of a partitioner that is given as the function itself: a plan is text."""
    try:
        return name_of(function)
    except FunctionError as e:
        message = f"partitioner= is a function that executors cannot import: {e.reason}"
        raise _WrongError("argument-value", message, e.fix) from None


def _topics(value: Any) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value
    try:
        return tuple(part.strip() for text in given for part in text.split(";"))
    except (TypeError, AttributeError):
        message = f"topic= is {value!r}, which names no topics"
        raise _WrongError("argument-value", message, "write topic='orders', or a list of names") from None
