"""Client properties as librdkafka's settings: a pure function, which reports all problems.

The input has Java's names and defaults. The result holds the user's settings, Java's defaults where librdkafka's
differ, and the settings that kdsl fixes. A process merges them with its own sizes when it creates a client
(`LibrdkafkaSettings.client_config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from kdsl.client_settings import librdkafka
from kdsl.client_settings.draft import Resolve, SettingsDraft, draft_settings, refusal
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.model import MAX_INT, Client, LibrdkafkaProperty
from kdsl.client_settings.sasl import KERBEROS, asks_for_kerberos, translate_sasl
from kdsl.client_settings.settings import settings_of
from kdsl.client_settings.tls import translate_tls
from kdsl.client_settings.token_callback import TokenCallback
from kdsl.errors import Problem
from kdsl.secrets import has_reference
from kdsl.secrets.hiding import redact

_MESSAGE = 1_000_000
TOKEN_CALLBACK = "oauth_cb"  # noqa: S105
"""confluent-kafka's name for a callback that returns a token."""

FIXED: Mapping[Client, Mapping[str, str]] = {
    # A task whose position is gone must fail; librdkafka's default would continue at the end of the partition.
    "consumer": {"auto.offset.reset": "error", "enable.auto.commit": "false", "enable.auto.offset.store": "false"},
    "producer": {},
    # librdkafka's admin client requests metadata as a producer does, which could create the topic.
    "admin": {"allow.auto.create.topics": "false"},
}
"""What kdsl sets for each kind of client, whatever the user sets."""


def _frozen(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """A copy of a mapping that cannot be changed."""
    return MappingProxyType(dict(mapping))


@attrs.frozen
class LibrdkafkaSettings:
    """Client properties as librdkafka's settings.

    Attributes:
        settings: The user's settings, by librdkafka's names.
        defaults: Java's defaults, where librdkafka's differ and the user set nothing.
        fixed: What kdsl sets, whatever the user sets.
        problems: Everything that is wrong (errors) or ignored (warnings).
        token_callback: What clients call for a token, if this process creates it.
    """

    settings: Mapping[str, str] = attrs.field(converter=_frozen, repr=lambda m: repr(redact(m)))
    defaults: Mapping[str, str] = attrs.field(converter=_frozen)
    fixed: Mapping[str, str] = attrs.field(converter=_frozen)
    problems: tuple[Problem, ...] = ()
    token_callback: TokenCallback | None = attrs.field(default=None, repr=False)

    def client_config(self, sizes: Mapping[str, str | int] | None = None) -> dict[str, Any]:
        """Merge defaults, preferences, the user's and the fixed settings to those with which a client is created.

        Each overrides those before it. If ``fetch.max.bytes`` is below 1000000, an unset ``message.max.bytes`` is set
        to the same, but at least 1000. All values are strings, except a callback for tokens (`TOKEN_CALLBACK`).

        Args:
            sizes: The caller's preferences by librdkafka's names; they override defaults but not the user's settings.
        """
        chosen = {librdkafka.canonical(name): str(value) for name, value in (sizes or {}).items()}
        config: dict[str, Any] = {**self.defaults, **chosen, **self.settings, **self.fixed}
        fetch = config.get("fetch.max.bytes", "")
        if fetch.isdecimal() and int(fetch) < _MESSAGE:
            config.setdefault("message.max.bytes", str(max(int(fetch), 1000)))  # must not exceed a fetch
        if self.token_callback is not None:
            config[TOKEN_CALLBACK] = self.token_callback
        return config


def librdkafka_settings(
    properties: Mapping[str, str], client: Client, resolve: Resolve | None = None, machine: Machine | None = None
) -> LibrdkafkaSettings:
    """Translate client properties for a client of librdkafka; mistakes become problems of the result.

    Args:
        properties: Java's names (or librdkafka's) and their values, without the prefix ``properties.``.
        client: The kind of client.
        resolve: Replaces references to secrets, in the process that creates the client. Without it references stay
            unchanged, and settings that depend on them are not checked.
        machine: Finds key files, reads Java's stores, creates tokens; without it none of that is done.
    """
    draft = draft_settings(properties, client, resolve)
    draft.settings.update(draft.librdkafka)
    _translate_rows(draft)
    _translate_reconnect(draft)
    if client == "consumer":
        _translate_fetch(draft)
    elif client == "producer":
        _translate_idempotence(draft)
        _translate_delivery(draft)
        _translate_compression(draft)
        _translate_partitioner(draft)
    translate_tls(draft, machine)
    translate_sasl(draft, machine)
    defaults = {name: text for name, text in draft.defaults.items() if name not in draft.settings}
    return LibrdkafkaSettings(draft.settings, defaults, FIXED[client], tuple(draft.problems), draft.token_callback)


def _translate_rows(draft: SettingsDraft) -> None:
    """Set librdkafka's properties for the settings of the client; report settings that it drops or refuses.

    For a setting that the user did not set, the default is Java's if librdkafka has another. Settings that are derived
    from several, and those that kdsl reads itself, are skipped; so are Kerberos settings of a login with Kerberos. Of a
    setting that becomes several properties, those that the user has set directly stay.
    """
    letter = draft.client[0]
    for row in settings_of(draft.client):
        text = draft.java.get(row.name)
        targets = [t for t in row.targets if not t.clients or letter in t.clients]
        if text is not None:
            match row.act:
                case "dropped" if row.name.startswith(KERBEROS) and asks_for_kerberos(draft):
                    pass  # the login is refused, with the advice to use the transport jvm, which has both
                case "dropped":
                    draft.add_warning(
                        "client-setting-dropped",
                        f"{row.name!r} has no effect: {row.note}",
                        "remove it",
                        property=row.name,
                    )
                case "refused" | "owned":
                    draft.problems.append(refusal(row))
                case "same" | "renamed":
                    for target in targets:
                        # If a setting becomes several properties, the user may have set one of them directly.
                        if not (len(targets) > 1 and target.name in draft.librdkafka):
                            _set_property(draft, target, text, row.name)
        elif default := row.default.get(letter):
            for target in targets:
                draft.defaults[target.name] = default


def _set_property(draft: SettingsDraft, target: LibrdkafkaProperty, text: str, source: str) -> None:
    """Set a property of librdkafka: a number with a range as `set_number` does, other values as `set` does."""
    if target.low is None:
        draft.set(target.name, text, source)
    else:
        draft.set_number(target, text, source)


def _translate_reconnect(draft: SettingsDraft) -> None:
    """Keep the reconnect backoff within its maximum: an unset maximum is raised, otherwise the backoff is lowered."""
    first, longest = draft.number("reconnect.backoff.ms", 50), draft.number("reconnect.backoff.max.ms", 1000)
    if first is None or longest is None or first <= longest:
        return
    if draft.value("reconnect.backoff.max.ms") is None:
        draft.defaults["reconnect.backoff.max.ms"] = draft.settings["reconnect.backoff.ms"]
    else:
        name = "reconnect.backoff.ms"
        (draft.settings if name in draft.settings else draft.defaults)[name] = str(longest)


def _translate_fetch(draft: SettingsDraft) -> None:
    """Set the default timeout of requests to a second more than a broker may wait, at least 30 s and at most 300 s.

    Nothing is set if that wait is an unresolved reference.
    """
    wait = draft.number("fetch.max.wait.ms", draft.number("fetch.wait.max.ms", 500) or 500)
    if wait is not None:
        # The timeout of a request must exceed the time for which a broker may delay the answer.
        draft.defaults["socket.timeout.ms"] = str(min(max(30_000, wait + 1000), 300_000))


def _translate_idempotence(draft: SettingsDraft) -> None:
    """Apply Java's rules for acks and retries that do not allow idempotence.

    They switch it off, with a warning; if it was set to true, they are recorded as errors. More than 5 requests in
    flight with idempotence are an error, too. Without idempotence the default is one request in flight. Nothing is done
    if one of these settings is an unresolved reference.
    """
    name, flight = "enable.idempotence", "max.in.flight.requests.per.connection"
    asked = draft.java.get(name)
    acks, retries, requests = draft.value("acks") or "all", draft.number("retries", 1), draft.number(flight, 5)
    if has_reference(f"{asked}{acks}") or retries is None or requests is None:
        return
    against = [] if acks in ("all", "-1") else [f"'acks' is {acks!r}"]
    against += ["'retries' is '0'"] if retries == 0 else []
    on = asked != "false"
    if on and against and asked == "true":
        draft.add_error(
            "producer-idempotence",
            f"{name!r} is 'true', but {' and '.join(against)}",
            "write acks=all and retries above 0, or enable.idempotence=false",
            property=name,
        )
    elif on and against:
        on = False
        draft.defaults[name] = "false"
        draft.add_warning(
            "producer-idempotence",
            f"{' and '.join(against)}, which turns idempotence off: a retry may write a record twice",
            "write acks=all and retries above 0, or enable.idempotence=false if that is intended",
            property="retries" if retries == 0 else "acks",
        )
    if on and requests > 5:
        draft.add_error(
            "producer-idempotence",
            f"{flight!r} is {requests}, but idempotence allows at most 5",
            f"write {flight}=5 or less, or enable.idempotence=false",
            property=flight,
        )
    if not on:
        draft.defaults[flight] = "1"


def _translate_delivery(draft: SettingsDraft) -> None:
    """Set the default delivery timeout: 120 s, or linger plus request timeout if longer; report a shorter one."""
    name = "delivery.timeout.ms"
    linger, request = draft.number("linger.ms", 5), draft.number("request.timeout.ms", 30_000)
    timeout = draft.number(name, -1)
    if linger is None or request is None or timeout is None:
        return
    if timeout < 0:
        draft.defaults[name] = str(min(max(120_000, linger + request), MAX_INT))
    elif name in draft.java and timeout < linger + request:
        draft.add_error(
            "producer-delivery-timeout",
            f"{name!r} is {timeout}, less than 'linger.ms' ({linger}) plus 'request.timeout.ms' ({request})",
            f"write {name}={linger + request} or more",
            property=name,
        )


def _translate_compression(draft: SettingsDraft) -> None:
    """Translate the compression level of the codec; report one that is out of Java's range.

    One outside librdkafka's range is limited, with a warning.
    """
    codec = draft.value("compression.type") or "none"
    name, span = f"compression.{codec}.level", {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}.get(codec)
    text = draft.java.get(name)
    if text is None or span is None:
        return
    if has_reference(text):
        draft.set("compression.level", text, name)
        return
    level = int(text)
    if not (span[0] <= level <= span[1] or (codec == "gzip" and level == -1)):
        message, fix = f"{name!r} has the value {text!r}", f"use an integer from {span[0]} to {span[1]}"
        draft.add_error("client-setting-value", message, fix, name)
    elif codec == "gzip":
        draft.set("compression.level", text, name)
    else:
        draft.set_number(LibrdkafkaProperty("compression.level", 1, 12), text, name)


def _translate_partitioner(draft: SettingsDraft) -> None:
    """Set ``partitioner``: ``random`` with ``partitioner.ignore.keys``, else by default ``murmur2_random``, Java's.

    Nothing is reported, except if the user has set another ``partitioner`` beside ``partitioner.ignore.keys``.
    """
    name = "partitioner.ignore.keys"
    if draft.java.get(name) == "true":
        draft.set("partitioner", "random", name)
    else:
        draft.defaults["partitioner"] = "murmur2_random"
