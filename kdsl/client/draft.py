"""A translation while it is made: the values that were given, what becomes of them, every problem on the way.

`read` takes a user's properties to a `Draft`; the rules of `translate`, `tls` and `sasl` then fill it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import attrs

from kdsl.client import librdkafka
from kdsl.client.bootstrap import server_problems, servers
from kdsl.client.hiding import is_secret, shown
from kdsl.client.jaas import JaasError, Login, parse
from kdsl.client.model import Client, Setting, Target
from kdsl.client.settings import TABLE
from kdsl.errors import KdslError, Problem, Severity, listing, nearest
from kdsl.secrets import SecretError, has_reference, is_reference, references

T = TypeVar("T")
Resolve = Callable[[str], str]
"""Replaces the references in a text; raises SecretError."""

JAAS = "sasl.jaas.config"
_PROVIDERS = "config.providers."


@attrs.define
class Draft:
    """What is known of a translation so far.

    Attributes:
        client: The kind of client.
        given: The values of Java's settings that this client has, normalised.
        own: The values of librdkafka's own properties, by their canonical names.
        spelled: The names that the user wrote, by Java's.
        unknown: The values of names that no client knows.
        login: The parsed ``sasl.jaas.config``.
        settings: What the user chose, by librdkafka's names.
        defaults: What Java has where the user chose nothing, by librdkafka's names.
        problems: What is wrong and what is told, in the order of the properties.
    """

    client: Client
    given: dict[str, str] = attrs.field(factory=dict, repr=False)
    own: dict[str, str] = attrs.field(factory=dict, repr=False)
    spelled: dict[str, str] = attrs.field(factory=dict)
    unknown: dict[str, str] = attrs.field(factory=dict, repr=False)
    login: Login | None = None
    settings: dict[str, str] = attrs.field(factory=dict, repr=False)
    defaults: dict[str, str] = attrs.field(factory=dict)
    problems: list[Problem] = attrs.field(factory=list)

    def tell(self, code: str, message: str, fix: str, severity: Severity = "error") -> None:
        """Record a problem."""
        self.problems.append(Problem(code, message, fix, severity=severity))

    def warn(self, code: str, message: str, fix: str) -> None:
        """Record a warning."""
        self.tell(code, message, fix, "warning")

    def value(self, name: str) -> str | None:
        """What the user gave for a setting, by Java's name or by librdkafka's."""
        return self.given.get(name, self.own.get(name))

    def number(self, name: str, default: int) -> int | None:
        """The number that holds for a setting; None when a reference hides it."""
        text = self.value(name)
        return default if text is None else int(text) if re.fullmatch(r"[-+]?\d+", text) else None

    def tried(self, step: Callable[[], T]) -> T | None:
        """What a step on this machine gives; what it raises becomes a problem, and nothing is given."""
        try:
            return step()
        except KdslError as e:
            self.tell("key-file", str(e), "correct the file, its place or its password")
            return None

    def hidden(self, name: str) -> bool:
        """Whether a setting's value is still a reference, so that nothing can be said about it."""
        return has_reference(self.given.get(name, ""))

    def put(self, name: str, text: str, source: str) -> None:
        """Set a property of librdkafka from one of Java's settings.

        librdkafka's own name for the same thing may be given beside it, with the same value.
        """
        own = self.own.get(name)
        if own is not None and own != text:
            self.twice((source, text), (name, own))
        self.settings[name] = text

    def twice(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        """Record that two settings, each with its value, set one thing to different values."""
        self.tell(
            "client-setting-twice",
            f"{one[0]!r} and {other[0]!r} set one thing, {_told(*one)} and {_told(*other)}",
            f"keep {one[0]!r}",
        )

    def put_number(self, target: Target, text: str, source: str) -> None:
        """Set a property that takes whole numbers, in librdkafka's unit and range."""
        if has_reference(text):
            self.put(target.name, text, source)
            return
        wanted = target.convert(int(text)) if target.convert else int(text)
        held = max(wanted, wanted if target.low is None else target.low)
        held = min(held, held if target.high is None else target.high)
        if held != wanted:
            self.warn(
                "client-setting-range",
                f"{source!r} is {text}, outside of librdkafka's range of {target.low} to {target.high}",
                f"it gets {held}; write a value within the range",
            )
        self.put(target.name, str(held), source)


def _told(name: str, text: str) -> str:
    return "to a secret" if is_secret(name) else f"to {shown(name, text)!r}"


def read(properties: Mapping[str, str], client: Client, resolve: Resolve | None) -> Draft:
    """Read properties for one kind of client; settings of other kinds are passed over.

    Args:
        properties: Java's or librdkafka's names and their texts.
        client: The kind of client.
        resolve: Replaces references; without it they are looked at but stay as they are.
    """
    draft = Draft(client)
    for key, written in properties.items():
        row = TABLE.get(key) or TABLE.get(librdkafka.canonical(key))
        if row is not None and not row.has(client):
            continue
        text = _resolved(draft, key, written, resolve)
        if text is None:
            continue
        if row is not None:
            _read_java(draft, row, key, text, resolve)
        elif key in librdkafka.properties_of(client):
            draft.own[librdkafka.canonical(key)] = text.strip() if not is_secret(key) else text
        elif key in librdkafka.OWNED:
            draft.tell("client-setting-owned", f"{key!r} cannot be set: {librdkafka.OWNED[key]}", "remove it")
        elif key.startswith(_PROVIDERS):
            draft.problems.append(refusal(TABLE["config.providers"], key))
        elif key not in librdkafka.all_properties():
            draft.unknown[key] = text
            draft.problems.append(unknown(key))
    return draft


def unknown(key: str) -> Problem:
    """The warning about a name that no client knows."""
    names = (*TABLE, *librdkafka.all_properties())
    return Problem(
        "client-setting-unknown",
        f"{key!r} is no setting of a Kafka client{nearest(key, names)} and changes nothing",
        "write a name of Kafka's consumer or producer configuration, or remove it",
        severity="warning",
    )


def refusal(row: Setting, key: str | None = None) -> Problem:
    """The problem of a setting that is refused, by kdsl or by a transport."""
    code = "client-setting-owned" if row.act == "owned" else "client-setting-refused"
    return Problem(code, f"{key or row.name!r} cannot be set: {row.note}", row.instead)


def _resolved(draft: Draft, key: str, text: str, resolve: Resolve | None) -> str | None:
    try:
        if resolve is None or (key == JAAS and not is_reference(text)):
            list(references(text))
            return text
        return resolve(text)
    except SecretError as e:
        draft.tell("secret-reference", f"the value of {key!r} cannot be had: {e}", "correct the reference")
        return None


def _read_java(draft: Draft, row: Setting, key: str, text: str, resolve: Resolve | None) -> None:
    blank = not text.strip()
    if blank and row.kind in ("text", "list", "class") and row.name != "ssl.endpoint.identification.algorithm":
        return  # Java's default of such a setting is empty, too
    if row.name == JAAS:
        _read_login(draft, text, resolve)
    if wrong := list(value_problems(row, text)):
        draft.problems += wrong
        return
    value = normal(row, text)
    before = draft.spelled.setdefault(row.name, key)
    if draft.given.setdefault(row.name, value) != value:
        draft.twice((before, draft.given[row.name]), (key, value))


def _read_login(draft: Draft, text: str, resolve: Resolve | None) -> None:
    if is_reference(text):
        return
    try:
        login = parse(text)
        draft.login = login if resolve is None else login.resolved(resolve)
    except JaasError as e:
        draft.tell(
            "jaas",
            f"{JAAS!r} cannot be read {e}",
            'write: LoginModuleClass required option="value" option="value";',
        )
    except SecretError as e:
        draft.tell("secret-reference", f"the value of {JAAS!r} cannot be had: {e}", "correct the reference")


def normal(row: Setting, text: str) -> str:
    """A value in the spelling that both transports take; the value has no problem."""
    if has_reference(text) or row.secret:
        return text
    text = text.strip()
    if row.name == "bootstrap.servers":
        return servers(text)
    if row.values:
        found = next(v for v in row.values if v.lower() == text.lower())
        return "all" if (row.name, found) == ("acks", "-1") else found
    match row.kind:
        case "int":
            return str(int(text))
        case "bool":
            return text.lower()
        case "list":
            return ",".join(part.strip() for part in text.split(",") if part.strip())
        case _:
            return text


def value_problems(row: Setting, text: str) -> Iterator[Problem]:
    """What is wrong with a value by itself."""
    if row.secret or has_reference(text) or row.act in ("dropped", "owned", "refused"):
        return
    text = text.strip()
    if row.name == "bootstrap.servers":
        yield from server_problems(text)
    elif row.values:
        if text.lower() not in [v.lower() for v in row.values]:
            fix = f"give one of {listing(row.values)}"
            if row.name == "auto.offset.reset" and text.lower().startswith("by_duration"):
                fix += "; to begin at a time, start the table in the mode timestamp (scan.startup.mode)"
            yield _wrong(row, text, nearest(text, row.values), fix)
    elif row.kind == "bool":
        if text.lower() not in ("true", "false"):
            yield _wrong(row, text, "", "give true or false")
    elif row.kind == "int":
        low, high = row.low, row.high
        span = "" if low is None else f" from {low}" if high is None else f" from {low} to {high}"
        fits = re.fullmatch(r"[-+]?\d{1,19}", text) and (low is None or low <= int(text))
        if not fits or (high is not None and int(text) > high):
            yield _wrong(row, text, "", f"give a whole number{span}")


def _wrong(row: Setting, text: str, hint: str, fix: str) -> Problem:
    return Problem("client-setting-value", f"{row.name!r} has the value {text!r}{hint}", fix)
