"""Checks what tables need of schema registries: access, subjects, and schemas that fit the columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

from kdsl.cluster import Cluster, Registry
from kdsl.diagnostics.clients import open_registry
from kdsl.diagnostics.doctor.findings import Finding, error, ok, skip, warning
from kdsl.errors import KdslError, pluralize
from kdsl.formats import Direction, RegistrySchemas, Side, Use
from kdsl.plan.model import Part, ReadPlan, WritePlan
from kdsl.registry import (
    IncompatibleSchemaError,
    RegistryRefusedError,
    RegistryUnreachableError,
    UnknownSubjectError,
)
from kdsl_formats.json.connect import describe_replaced_nulls

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient


@attrs.frozen
class _SchemaUse:
    """The key or value of a table whose schemas are in a registry."""

    plan: ReadPlan | WritePlan
    side: Side
    part: Part
    schemas: RegistrySchemas

    @property
    def direction(self) -> Direction:
        """Whether the table is read or written."""
        return "read" if isinstance(self.plan, ReadPlan) else "write"


def check_schemas(cluster: Cluster, plans: Iterable[ReadPlan | WritePlan]) -> Iterator[Finding]:
    """Check the registries of a cluster and of the tables' formats, without changing anything there.

    Errors of the registries are findings.

    Args:
        cluster: The cluster.
        plans: What is to be read and written there.
    """
    registries: dict[Registry, list[_SchemaUse]] = {} if cluster.registry is None else {cluster.registry: []}
    for use in _list_uses(plans):
        registry = use.part.format.registry(cluster.registry)
        if registry is not None:
            registries.setdefault(registry, []).append(use)
    for registry, uses in registries.items():
        yield from _check_registry(registry, uses)


def _list_uses(plans: Iterable[ReadPlan | WritePlan]) -> Iterator[_SchemaUse]:
    """Yield the keys and values of the plans whose formats use a schema registry."""
    for plan in plans:
        sides: tuple[tuple[Side, Part | None], ...] = (("key", plan.key), ("value", plan.value))
        for side, part in sides:
            schemas = None if part is None else part.format.registry_schemas()
            if part is not None and schemas is not None:
                yield _SchemaUse(plan, side, part, schemas)


def _check_registry(registry: Registry, uses: Iterable[_SchemaUse]) -> Iterator[Finding]:
    """Check a registry: its settings, its answer, the login, and the subjects that the tables use.

    After an error of its settings, its login or its answer, the remaining checks are left out.
    """
    try:
        client = open_registry(registry)
    except KdslError as e:
        yield error("registry", str(e), "correct the settings of the registry")
        return
    check = f"registry {client.address}"
    try:
        try:
            seen = f"accepted; {pluralize(len(client.subjects()), 'subject is', 'subjects are')} visible"
        except RegistryRefusedError as e:
            yield ok(check, "it answers")
            if "HTTP 403" not in str(e):
                yield error("login at the registry", str(e), "check the user or the token for the registry")
                return
            seen = "accepted; this user may not list the subjects"
        else:
            yield ok(check, "it answers")
        yield ok("login at the registry", seen)
        for use in uses:
            yield from _check_subjects(use, client)
    except RegistryUnreachableError as e:
        yield error(check, str(e), "check that it runs, and check its address, its TLS settings and the network")
    except KdslError as e:
        yield error(check, str(e), "check that this is the address of a schema registry")
    finally:
        client.close()


def _check_subjects(use: _SchemaUse, client: RegistryClient) -> Iterator[Finding]:
    """Check the schema of a table against the subject of each topic; of a topic pattern, yield that it is skipped.

    Errors of the registry are findings, except RegistryUnreachableError, which is raised.
    """
    for topic in use.plan.topics.names:
        yield _check_subject(use, client, topic)
    if not use.plan.topics.names:
        yield skip(f"schemas of {use.plan.table}", "subjects are named after topics, and a topic pattern has no names")


def _check_subject(use: _SchemaUse, client: RegistryClient, topic: str) -> Finding:
    """Check the schema of a table against its subject in the registry; skip it if the name of the subject is not known.

    Other errors are findings.
    """
    schemas, row = use.schemas, use.part.row
    try:
        subject = schemas.find_subject(row, Use(side=use.side, topics=(topic,)), client)
    except RegistryUnreachableError:
        raise
    except KdslError as e:
        return skip(f"{use.side} schema of {use.plan.table}", f"its subject is not known: {e}")
    check = f"subject {subject}"
    try:
        if use.direction == "write" and not schemas.use_latest_version:
            return _check_sink_schema(use, client, check, subject)
        latest = client.latest(subject)
    except UnknownSubjectError as e:
        if use.direction == "write":
            return error(check, str(e), "register a schema there, or remove use-latest-version")
        message = "the registry has no such subject; messages with schemas of other subjects can still be read"
        return warning(check, message, "check that it is the registry of the writer, and that something was written")
    except IncompatibleSchemaError as e:
        return error(check, str(e), "correct the schema")
    except RegistryRefusedError as e:
        return error(check, str(e), "let this user read the subject")
    except RegistryUnreachableError:
        raise
    except KdslError as e:
        return error(check, str(e), "check the schemas of this subject, and what answers in place of the registry")

    version_text = f"the latest schema (version {latest.version}, id {latest.id})"
    try:
        reason = schemas.schema_misfit(row, latest.schema, client, use.direction)
    except RegistryUnreachableError:
        raise
    except KdslError as e:  # such as a schema that it refers to and that is missing
        reason = str(e)
    if reason:
        verb = "cannot be read into the rows" if use.direction == "read" else "does not fit the rows"
        return error(check, f"{version_text} {verb} of {use.plan.table}: {reason}", "change the columns, or the schema")
    if use.direction == "read":
        defaults = schemas.find_replaced_nulls(row, latest.schema, client)
        if defaults:
            message, _, fix = describe_replaced_nulls(defaults, registered=True).partition("; ")
            return warning(check, f"{version_text} fits the columns of {use.plan.table}, but {message}", fix)
    return ok(check, f"{version_text} fits the columns of {use.plan.table}")


def _check_sink_schema(use: _SchemaUse, client: RegistryClient, check: str, subject: str) -> Finding:
    """Check whether the registry has the schema of a sink, or would accept it, without registering it."""
    schemas, schema = use.schemas, None
    try:
        _, schema = schemas.sink_schema(use.part.row, client)
        version = schemas.look_up(client, subject, schema, use.part.row)
    except UnknownSubjectError as e:
        if not schemas.auto_register:
            return error(check, str(e), "follow one of these, or remove auto-register = false")
        reason = "" if schema is None else client.refusal(subject, schema, normalize=schemas.normalize)
        if reason:
            message = f"the registry would refuse the schema of {use.plan.table}: {reason}"
            return error(
                check,
                message,
                "change the columns to fit earlier versions, or the compatibility",
            )
        return ok(check, f"the first write of {use.plan.table} will register its schema there")
    return ok(check, f"the schema of {use.plan.table} is registered there (version {version.version}, id {version.id})")
