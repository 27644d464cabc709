"""Client properties as librdkafka's settings: one function for each kind of client, pure, all problems at once.

Java's names and defaults go in. Out come what the user chose, Java's defaults where librdkafka's differ, and what the
connector fixes; a process merges them with its own sizes when it makes a client (`Translated.merged`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from kdsl.client import librdkafka
from kdsl.client.connector import ConnectorSettings, connector_settings
from kdsl.client.draft import Draft, Resolve, read, refusal
from kdsl.client.hiding import redact
from kdsl.client.machine import Machine
from kdsl.client.model import MAX_INT, Client, Target
from kdsl.client.sasl import sasl
from kdsl.client.settings import TABLE, settings_of
from kdsl.client.tls import tls
from kdsl.errors import Problem
from kdsl.secrets import has_reference

_MESSAGE = 1_000_000

FIXED: Mapping[Client, Mapping[str, str]] = {
    # A task that loses its place must fail: librdkafka's default would go on at the end of the log.
    "consumer": {"auto.offset.reset": "error", "enable.auto.commit": "false", "enable.auto.offset.store": "false"},
    "producer": {},
    # An admin client of librdkafka asks as a producer does, so that looking for a topic could create it.
    "admin": {"allow.auto.create.topics": "false"},
}
"""What the connector sets for each kind of client, whatever is given."""


def _frozen(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(mapping))


@attrs.frozen
class Translated:
    """What client properties mean to librdkafka.

    Attributes:
        settings: What the user chose, by librdkafka's names.
        defaults: Java's defaults where librdkafka's differ and the user chose nothing.
        fixed: What the connector sets whatever was chosen.
        connector: What the connector takes for itself.
        problems: Everything that is wrong (errors) or left out (warnings).
    """

    settings: Mapping[str, str] = attrs.field(converter=_frozen, repr=lambda m: repr(redact(m)))
    defaults: Mapping[str, str] = attrs.field(converter=_frozen)
    fixed: Mapping[str, str] = attrs.field(converter=_frozen)
    connector: ConnectorSettings
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that stop."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that are told and go on."""
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    def merged(self, sizes: Mapping[str, str | int] | None = None) -> dict[str, str]:
        """The settings to make a client with.

        Args:
            sizes: What the caller would choose by librdkafka's names; stronger than a default, weaker than the user.
        """
        chosen = {librdkafka.canonical(name): str(value) for name, value in (sizes or {}).items()}
        made = {**self.defaults, **chosen, **self.settings, **self.fixed}
        fetch = made.get("fetch.max.bytes", "")
        if fetch.isdecimal() and int(fetch) < _MESSAGE:
            made.setdefault("message.max.bytes", str(max(int(fetch), 1000)))  # librdkafka wants it within a fetch
        return made


def consumer_settings(
    properties: Mapping[str, str], resolve: Resolve | None = None, machine: Machine | None = None
) -> Translated:
    """What client properties mean to librdkafka's consumer.

    Args:
        properties: Java's names (or librdkafka's own) and their texts, without the prefix ``properties.``.
        resolve: Replaces references to secrets, in the process that makes the client. Without it references stay as
            they stand, and what depends on them is not judged.
        machine: Finds key files, reads Java's stores, serves tokens; without it none is looked at.
    """
    return _translate(properties, "consumer", resolve, machine)


def producer_settings(
    properties: Mapping[str, str], resolve: Resolve | None = None, machine: Machine | None = None
) -> Translated:
    """What client properties mean to librdkafka's producer; the arguments are those of `consumer_settings`."""
    return _translate(properties, "producer", resolve, machine)


def admin_settings(
    properties: Mapping[str, str], resolve: Resolve | None = None, machine: Machine | None = None
) -> Translated:
    """What client properties mean to librdkafka's admin client; the arguments are those of `consumer_settings`."""
    return _translate(properties, "admin", resolve, machine)


def _translate(
    properties: Mapping[str, str], client: Client, resolve: Resolve | None, machine: Machine | None
) -> Translated:
    draft = read(properties, client, resolve)
    draft.settings.update(draft.own)
    _rows(draft)
    _reconnect(draft)
    if client == "consumer":
        _fetch(draft)
    elif client == "producer":
        _idempotence(draft)
        _delivery(draft)
        _compression(draft)
        _partitioner(draft)
    tls(draft, machine)
    sasl(draft, machine)
    defaults = {name: text for name, text in draft.defaults.items() if name not in draft.settings}
    connector = connector_settings(properties, resolve)
    return Translated(draft.settings, defaults, FIXED[client], connector, tuple(draft.problems))


def _rows(draft: Draft) -> None:
    letter = draft.client[0]
    for row in settings_of(draft.client):
        text = draft.given.get(row.name)
        targets = [t for t in row.targets if not t.clients or letter in t.clients]
        if text is not None:
            match row.act:
                case "dropped":
                    draft.warn("client-setting-dropped", f"{row.name!r} changes nothing: {row.note}", "remove it")
                case "refused" | "owned":
                    draft.problems.append(refusal(row))
                case "same" | "renamed":
                    for target in targets:
                        # Of a setting that becomes several properties, one may be given apart.
                        if not (len(targets) > 1 and target.name in draft.own):
                            _put(draft, target, text, row.name)
        elif default := row.default.get(letter):
            for target in targets:
                draft.defaults[target.name] = default


def _put(draft: Draft, target: Target, text: str, source: str) -> None:
    if target.low is None:
        draft.put(target.name, text, source)
    else:
        draft.put_number(target, text, source)


def _reconnect(draft: Draft) -> None:
    """A longest wait below the first: librdkafka refuses it, Java takes the lesser, or raises what is not given."""
    first, longest = draft.number("reconnect.backoff.ms", 50), draft.number("reconnect.backoff.max.ms", 1000)
    if first is None or longest is None or first <= longest:
        return
    if draft.value("reconnect.backoff.max.ms") is None:
        draft.defaults["reconnect.backoff.max.ms"] = draft.settings["reconnect.backoff.ms"]
    else:
        name = "reconnect.backoff.ms"
        (draft.settings if name in draft.settings else draft.defaults)[name] = str(longest)


def _fetch(draft: Draft) -> None:
    wait = draft.number("fetch.max.wait.ms", draft.number("fetch.wait.max.ms", 500) or 500)
    if wait is not None:
        # A request must outlast the time that a broker may hold it.
        draft.defaults["socket.timeout.ms"] = str(min(max(30_000, wait + 1000), 300_000))


def _idempotence(draft: Draft) -> None:
    """Java's rules: acks, retries and requests in flight allow idempotence, or switch it off where it is a default."""
    name, flight = "enable.idempotence", "max.in.flight.requests.per.connection"
    asked = draft.given.get(name)
    acks, retries, requests = draft.value("acks") or "all", draft.number("retries", 1), draft.number(flight, 5)
    if has_reference(f"{asked}{acks}") or retries is None or requests is None:
        return
    against = [] if acks in ("all", "-1") else [f"'acks' is {acks!r}"]
    against += ["'retries' is '0'"] if retries == 0 else []
    on = asked != "false"
    if on and against and asked == "true":
        draft.tell(
            "producer-idempotence",
            f"{name!r} is 'true', but {' and '.join(against)}",
            "write acks=all and retries above 0, or enable.idempotence=false",
        )
    elif on and against:
        on = False
        draft.defaults[name] = "false"
        draft.warn(
            "producer-idempotence",
            f"{' and '.join(against)}, which switches idempotence off: a retry may write a record twice",
            "write acks=all and retries above 0, or enable.idempotence=false to say that it is meant",
        )
    if on and requests > 5:
        draft.tell(
            "producer-idempotence",
            f"{flight!r} is {requests}, but idempotence allows 5 at most",
            f"write {flight}=5 or less, or enable.idempotence=false",
        )
    if not on:
        draft.defaults[flight] = "1"


def _delivery(draft: Draft) -> None:
    name = "delivery.timeout.ms"
    linger, request = draft.number("linger.ms", 5), draft.number("request.timeout.ms", 30_000)
    given = draft.number(name, -1)
    if linger is None or request is None or given is None:
        return
    if given < 0:
        draft.defaults[name] = str(min(max(120_000, linger + request), MAX_INT))
    elif name in draft.given and given < linger + request:
        draft.tell(
            "producer-delivery-timeout",
            f"{name!r} is {given}, less than 'linger.ms' ({linger}) and 'request.timeout.ms' ({request}) together",
            f"write {name}={linger + request} or more",
        )


def _compression(draft: Draft) -> None:
    codec = draft.value("compression.type") or "none"
    name, span = f"compression.{codec}.level", {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}.get(codec)
    text = draft.given.get(name)
    if text is None or span is None:
        return
    if has_reference(text):
        draft.put("compression.level", text, name)
        return
    level = int(text)
    if not (span[0] <= level <= span[1] or (codec == "gzip" and level == -1)):
        message, fix = f"{name!r} has the value {text!r}", f"give a whole number from {span[0]} to {span[1]}"
        draft.tell("client-setting-value", message, fix)
    elif codec == "gzip":
        draft.put("compression.level", text, name)
    else:
        draft.put_number(Target("compression.level", 1, 12), text, name)


def _partitioner(draft: Draft) -> None:
    name = "partitioner.ignore.keys"
    if draft.given.get(name) == "true":
        draft.put("partitioner", "random", name)
    else:
        draft.defaults["partitioner"] = "murmur2_random"


def known_settings() -> tuple[str, ...]:
    """Every name that a user may write, Java's first."""
    return (*TABLE, *sorted(librdkafka.all_properties()))
