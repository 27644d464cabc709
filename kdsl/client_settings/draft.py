"""The draft of a translation: the user's values, the settings they become, and all problems.

`draft_settings` reads a user's properties into a `SettingsDraft`. The rules of `to_librdkafka`, `tls` and `sasl`, or
those of `to_java`, then complete it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import attrs

from kdsl.client_settings import librdkafka
from kdsl.client_settings.bootstrap import check_servers, normalize_servers
from kdsl.client_settings.key_files import explain_unreachable
from kdsl.client_settings.model import Client, LibrdkafkaProperty, Setting
from kdsl.client_settings.settings import TABLE
from kdsl.client_settings.token_callback import TokenCallback
from kdsl.client_settings.token_errors import TokenError
from kdsl.errors import KdslError, Problem, SecretError, listing, nearest
from kdsl.secrets import has_reference, is_reference, references
from kdsl.secrets.hiding import is_secret, redact_value
from kdsl.secrets.jaas import JaasError, Login, parse_jaas
from kdsl.secrets.reference import UNRESOLVED_FIX

T = TypeVar("T")
Resolve = Callable[[str], str]
"""Replaces the references in a string; raises SecretError."""

JAAS = "sasl.jaas.config"
_PROVIDERS = "config.providers."
_BLANK_COUNTS = ("ssl.endpoint.identification.algorithm", "bootstrap.servers")
"""The settings with text for which a blank value is not the same as none: it switches off a check, or is an error."""


@attrs.define
class SettingsDraft:
    """A translation in progress.

    Attributes:
        client: The kind of client.
        java: The user's values for the settings of Java's client, normalised, by Java's names.
        librdkafka: The user's values for properties that only librdkafka has, by their canonical names.
        spellings: The names that the user wrote, by Java's names.
        unknown: The values of names that no client knows.
        login: The parsed ``sasl.jaas.config``.
        settings: The translated settings, by the names of the target client.
        defaults: Java's defaults for what the user did not set, by librdkafka's names.
        token_callback: What clients call for a token, if this process creates it.
        problems: Errors and warnings, in the order of the properties.
    """

    client: Client
    java: dict[str, str] = attrs.field(factory=dict, repr=False)
    librdkafka: dict[str, str] = attrs.field(factory=dict, repr=False)
    spellings: dict[str, str] = attrs.field(factory=dict)
    unknown: dict[str, str] = attrs.field(factory=dict, repr=False)
    login: Login | None = None
    settings: dict[str, str] = attrs.field(factory=dict, repr=False)
    defaults: dict[str, str] = attrs.field(factory=dict)
    token_callback: TokenCallback | None = attrs.field(default=None, repr=False)
    problems: list[Problem] = attrs.field(factory=list)

    def add_error(self, code: str, message: str, fix: str, property: str | None = None) -> None:  # noqa: A002
        """Add an error to `problems`, of a property by Java's name or as the user wrote it, which the error shows."""
        self.problems.append(Problem(code, message, fix, property=self.spellings.get(property or "", property)))

    def add_warning(self, code: str, message: str, fix: str, property: str | None = None) -> None:  # noqa: A002
        """Add a warning to `problems`; for the property see `add_error`."""
        spelling = self.spellings.get(property or "", property)
        self.problems.append(Problem(code, message, fix, severity="warning", property=spelling))

    def add_unreachable(self, code: str, name: str, location: str, what: str | None = None) -> bool:
        """Add an error if no machine can read the file at a location of a property; return whether that is so."""
        reason = explain_unreachable(location)
        if reason:
            fix = "copy the file to the driver and to every executor and write its path, or install a fetcher"
            self.add_error(code, f"{what or repr(name)} is {location!r}: {reason}", fix, property=name)
        return bool(reason)

    def value(self, name: str) -> str | None:
        """The user's value of a setting under this name, Java's or librdkafka's; None if it is not set under it."""
        return self.java.get(name, self.librdkafka.get(name))

    def number(self, name: str, default: int) -> int | None:
        """Read the numeric value of a setting, or the default if it is not set; nothing is recorded.

        None if it is not an integer, for example an unresolved reference.
        """
        text = self.value(name)
        return default if text is None else int(text) if re.fullmatch(r"[-+]?\d+", text) else None

    def attempt(self, step: Callable[[], T]) -> T | None:
        """Run a step on this machine, and return its result; on a KdslError or OSError, add a problem, return None."""
        try:
            return step()
        except TokenError as e:  # its message ends with what to do
            self.add_error("sasl-login", str(e), "see docs/security.md", property="sasl.mechanism")
        except (KdslError, OSError) as e:
            self.add_error("key-file", str(e), "correct the file, its location or its password")
        return None

    def is_unresolved(self, name: str) -> bool:
        """Whether the value of a setting is still a reference, so that it cannot be checked."""
        return has_reference(self.java.get(name, ""))

    def set(self, name: str, text: str, source: str) -> None:
        """Set a property of librdkafka, in `settings`, from one of Java's settings.

        If the user has set the property under librdkafka's name to another value, an error is recorded, and the value
        of Java's setting is used.
        """
        direct = self.librdkafka.get(name)
        if direct is not None and direct != text:
            self.add_conflict((source, text), (name, direct))
        self.settings[name] = text

    def add_conflict(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        """Add the error that two settings, given with their values, mean the same but differ; it shows no secrets."""
        self.add_error(
            "client-setting-twice",
            f"{one[0]!r} and {other[0]!r} mean the same, but one is set {_describe_value(*one)} and the other "
            f"{_describe_value(*other)}",
            f"keep {one[0]!r}",
            property=one[0],
        )

    def set_number(self, target: LibrdkafkaProperty, text: str, source: str) -> None:
        """Set a property that takes integers, in librdkafka's unit; a value out of range is limited, with a warning.

        The text is an integer, or a reference, which is set as it is. For a contradiction see `set`.
        """
        if has_reference(text):
            self.set(target.name, text, source)
            return
        number = target.convert(int(text)) if target.convert else int(text)
        nearest_number = max(number, number if target.low is None else target.low)
        nearest_number = min(nearest_number, nearest_number if target.high is None else target.high)
        if nearest_number != number:
            self.add_warning(
                "client-setting-range",
                f"{source!r} is {text}, outside librdkafka's range of {target.low} to {target.high}",
                f"{nearest_number} is used; write a value within the range",
                property=source,
            )
        self.set(target.name, str(nearest_number), source)


def _describe_value(name: str, text: str) -> str:
    """Describe the value of a setting for a message, without secrets."""
    return "to a secret" if is_secret(name) else f"to {redact_value(name, text)!r}"


def draft_settings(properties: Mapping[str, str], client: Client, resolve: Resolve | None) -> SettingsDraft:
    """Read properties for one kind of client; settings that only other kinds have are ignored.

    Args:
        properties: Java's or librdkafka's names and their values.
        client: The kind of client.
        resolve: Replaces references; without it they are checked but stay unchanged.

    Returns:
        The values by kind of name, and the problems of wrong and unknown ones, of refused ones that only librdkafka has
        (the translations report Java's), and of references that cannot be resolved; nothing is translated yet.
    """
    draft = SettingsDraft(client)
    for key, value in properties.items():
        row = TABLE.get(key) or TABLE.get(librdkafka.canonical(key))
        if row is not None and not row.has(client):
            continue
        text = _resolve_value(draft, key, value, resolve)
        if text is None:
            continue
        if row is not None:
            _read_java(draft, row, key, text, resolve)
        elif key in librdkafka.properties_of(client):
            draft.librdkafka[librdkafka.canonical(key)] = text.strip() if not is_secret(key) else text
        elif key in librdkafka.OWNED:
            draft.add_error(
                "client-setting-owned", f"{key!r} cannot be set: {librdkafka.OWNED[key]}", "remove it", property=key
            )
        elif key.startswith(_PROVIDERS):
            draft.problems.append(refusal(TABLE["config.providers"], key))
        elif key not in librdkafka.all_properties():
            draft.unknown[key] = text
            draft.problems.append(unknown_setting(key))
    return draft


def unknown_setting(key: str) -> Problem:
    """Return the warning about a name that no client knows."""
    names = (*TABLE, *librdkafka.all_properties())
    return Problem(
        "client-setting-unknown",
        f"{key!r} is not a setting of a Kafka client{nearest(key, names)} and has no effect",
        "write a name of Kafka's consumer or producer configuration, or remove it",
        severity="warning",
        property=key,
    )


def refusal(row: Setting, key: str | None = None) -> Problem:
    """Return the problem of a setting that is refused, by kdsl or by a transport."""
    code = "client-setting-owned" if row.act == "owned" else "client-setting-refused"
    return Problem(code, f"{key or row.name!r} cannot be set: {row.note}", row.instead, property=key or row.name)


def _resolve_value(draft: SettingsDraft, key: str, text: str, resolve: Resolve | None) -> str | None:
    """Resolve the references of a value; None, and a problem in the draft, if that fails.

    References are only parsed without ``resolve``, and in a JAAS configuration, whose options are resolved later; if
    it is a reference as a whole, that is resolved here.
    """
    try:
        if resolve is None or (key == JAAS and not is_reference(text)):
            list(references(text))
            return text
        return resolve(text)
    except SecretError as e:
        draft.add_error(
            "secret-reference", f"the value of {key!r} cannot be resolved: {e}", UNRESOLVED_FIX, property=key
        )
        return None


def _read_java(draft: SettingsDraft, row: Setting, key: str, text: str, resolve: Resolve | None) -> None:
    """Add a valid Java setting to the draft, in a normal spelling; record the problems of an invalid one instead.

    A blank string, list or class name is ignored, except those of `_BLANK_COUNTS`. Of two spellings with different
    values the first stays, and the conflict is recorded. The JAAS configuration is also parsed, as the draft's login.
    """
    blank = not text.strip()
    if blank and row.kind in ("text", "list", "class") and row.name not in _BLANK_COUNTS:
        return  # Java's default for such a setting is empty as well
    if row.name == JAAS:
        _read_login(draft, text, resolve)
    if problems := list(check_value(row, text)):
        draft.problems += problems
        return
    value = normalize_value(row, text)
    before = draft.spellings.setdefault(row.name, key)
    if draft.java.setdefault(row.name, value) != value:
        draft.add_conflict((before, draft.java[row.name]), (key, value))


def _read_login(draft: SettingsDraft, text: str, resolve: Resolve | None) -> None:
    """Parse the JAAS configuration and set the login of the draft; nothing happens if it is a reference as a whole.

    A problem is added if it cannot be parsed or resolved.
    """
    if is_reference(text):
        return
    try:
        login = parse_jaas(text)
        draft.login = login if resolve is None else login.resolve(resolve)
    except JaasError as e:
        draft.add_error(
            "jaas",
            f"{JAAS!r} cannot be parsed {e}",
            'write: LoginModuleClass required option="value" option="value";',
            property=JAAS,
        )
    except SecretError as e:
        draft.add_error(
            "secret-reference", f"the value of {JAAS!r} cannot be resolved: {e}", UNRESOLVED_FIX, property=JAAS
        )


def normalize_value(row: Setting, text: str) -> str:
    """Spell a valid value as both transports accept it; references and secrets stay as they are."""
    if has_reference(text) or row.secret:
        return text
    text = text.strip()
    if row.name == "bootstrap.servers":
        return normalize_servers(text)
    if row.values:
        spelling = next(v for v in row.values if v.lower() == text.lower())
        return "all" if (row.name, spelling) == ("acks", "-1") else spelling
    match row.kind:
        case "int":
            return str(int(text))
        case "bool":
            return text.lower()
        case "list":
            return ",".join(part.strip() for part in text.split(",") if part.strip())
        case _:
            return text


def check_value(row: Setting, text: str) -> Iterator[Problem]:
    """Report what is wrong with a single value.

    Secrets, references, and settings that are dropped or refused anyway are not checked.
    """
    if row.secret or has_reference(text) or row.act in ("dropped", "owned", "refused"):
        return
    text = text.strip()
    if row.name == "bootstrap.servers":
        yield from check_servers(text)
    elif row.values:
        if text.lower() not in [v.lower() for v in row.values]:
            fix = f"use one of {listing(row.values)}"
            if row.name == "auto.offset.reset" and text.lower().startswith("by_duration"):
                fix += "; to start at a time, use the startup mode timestamp (scan.startup.mode)"
            yield _create_value_problem(row, text, nearest(text, row.values), fix)
    elif row.kind == "bool":
        if text.lower() not in ("true", "false"):
            yield _create_value_problem(row, text, "", "use true or false")
    elif row.kind == "int":
        low, high = row.low, row.high
        span = "" if low is None else f" from {low}" if high is None else f" from {low} to {high}"
        fits = re.fullmatch(r"[-+]?\d{1,19}", text) and (low is None or low <= int(text))
        if not fits or (high is not None and int(text) > high):
            yield _create_value_problem(row, text, "", f"use an integer{span}")


def _create_value_problem(row: Setting, text: str, hint: str, fix: str) -> Problem:
    """Create the problem of a setting with a wrong value."""
    return Problem("client-setting-value", f"{row.name!r} has the value {text!r}{hint}", fix, property=row.name)
