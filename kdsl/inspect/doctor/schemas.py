"""What tables need of schema registries: an answer, a login, subjects, schemas that go with the columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from kdsl.cluster import Cluster, Registry
from kdsl.errors import KdslError
from kdsl.formats import Direction, Side, Use
from kdsl.inspect.doctor.findings import Finding, error, ok, skipped, warning
from kdsl.plan.model import Part, ReadPlan, WritePlan
from kdsl.registry import (
    IncompatibleSchemaError,
    RegistryClient,
    RegistryRefusedError,
    RegistryUnreachableError,
    UnknownSubjectError,
)
from kdsl.registry.settings import canonical
from kdsl_formats.registry import RegistryFormat

_RETRIES = "max.retries"


@attrs.frozen
class _Use:
    """One side of a table whose schemas stand in a registry."""

    plan: ReadPlan | WritePlan
    side: Side
    part: Part
    format: RegistryFormat

    @property
    def direction(self) -> Direction:
        return "read" if isinstance(self.plan, ReadPlan) else "write"


def schemas(cluster: Cluster, plans: Iterable[ReadPlan | WritePlan]) -> Iterator[Finding]:
    """Look at the registries of a cluster and of the tables' formats, without changing anything there.

    Args:
        cluster: The cluster.
        plans: What is to be read and written there.
    """
    registries: dict[Registry, list[_Use]] = {} if cluster.registry is None else {cluster.registry: []}
    for use in _uses(plans):
        registry = use.format.registry(cluster.registry)
        if registry is not None:
            registries.setdefault(registry, []).append(use)
    for registry, uses in registries.items():
        yield from _registry(registry, uses)


def _uses(plans: Iterable[ReadPlan | WritePlan]) -> Iterator[_Use]:
    for plan in plans:
        sides: tuple[tuple[Side, Part | None], ...] = (("key", plan.key), ("value", plan.value))
        for side, part in sides:
            if part is not None and isinstance(part.format, RegistryFormat):
                yield _Use(plan, side, part, part.format)


def _registry(registry: Registry, uses: Iterable[_Use]) -> Iterator[Finding]:
    # It is asked once: whoever looks wants to know how it is now.
    given = {name: text for name, text in registry.properties.items() if canonical(name) != _RETRIES}
    try:
        client = RegistryClient(attrs.evolve(registry, properties={**given, _RETRIES: "0"}))
    except KdslError as e:
        yield error("registry", str(e), "correct the settings of the registry")
        return
    check = f"registry {client.address}"
    try:
        try:
            seen = f"accepted; {len(client.subjects())} subjects can be seen"
        except RegistryRefusedError as e:
            yield ok(check, "it answers")
            if "HTTP 403" not in str(e):
                yield error("login at the registry", str(e), "see the user, or the token, of the registry")
                return
            seen = "accepted; this user may not list the subjects"
        else:
            yield ok(check, "it answers")
        yield ok("login at the registry", seen)
        for use in uses:
            yield from _subjects(use, client)
    except RegistryUnreachableError as e:
        yield error(check, str(e), "see that it runs, and that its address, its TLS and the way to it are right")
    except KdslError as e:
        yield error(check, str(e), "see that this is the address of a schema registry")
    finally:
        client.close()


def _subjects(use: _Use, client: RegistryClient) -> Iterator[Finding]:
    for topic in use.plan.topics.names:
        yield _subject(use, client, topic)
    if not use.plan.topics.names:
        yield skipped(f"schemas of {use.plan.table}", "subjects are called after topics, and a pattern names none")


def _subject(use: _Use, client: RegistryClient, topic: str) -> Finding:
    chosen, row = use.format, use.part.row
    try:
        named = chosen.subject is None and chosen.named_after("record")
        record = chosen.registered(row, client)[0] if named else ""
        subject = chosen.subject_of(Use(side=use.side, topics=(topic,)), record)
    except KdslError as e:
        return skipped(f"{use.side} schema of {use.plan.table}", f"its subject is not known: {e}")
    check = f"subject {subject}"
    try:
        if use.direction == "write" and not chosen.use_latest_version:
            return _registered(use, client, check, subject)
        latest = client.latest(subject)
    except UnknownSubjectError as e:
        if use.direction == "write":
            return error(check, str(e), "register a schema there, or take out use-latest-version")
        message = "the registry has no such subject; messages whose schemas stand elsewhere are read all the same"
        return warning(check, message, "see that it is the registry of the writer, and that something was written")
    except IncompatibleSchemaError as e:
        return error(check, str(e), "see what the registry says of the schema")
    except RegistryRefusedError as e:
        return error(check, str(e), "let this user read the subject")
    told = f"the latest schema (version {latest.version}, id {latest.id})"
    why = chosen.misfit(row, latest.schema, client, use.direction)
    if why:
        verb = "gives no rows" if use.direction == "read" else "cannot hold the rows"
        return error(check, f"{told} {verb} of {use.plan.table}: {why}", "change the columns, or the schema")
    return ok(check, f"{told} goes with the columns of {use.plan.table}")


def _registered(use: _Use, client: RegistryClient, check: str, subject: str) -> Finding:
    """What a sink meets that registers its schema, or wants it to be registered."""
    chosen, schema = use.format, None
    try:
        _, schema = chosen.registered(use.part.row, client)
        found = client.look_up(subject, schema, normalize=chosen.normalize)
    except UnknownSubjectError as e:
        if not chosen.auto_register:
            return error(check, str(e), "register the schema there, or take out auto-register = false")
        why = "" if schema is None else client.refusal(subject, schema, normalize=chosen.normalize)
        if why:
            message = f"the registry will not take the schema of {use.plan.table}: {why}"
            return error(check, message, "change the columns so that they go with those before, or the compatibility")
        return ok(check, f"the first rows of {use.plan.table} register its schema there")
    return ok(check, f"the schema of {use.plan.table} stands there (version {found.version}, id {found.id})")
