"""Compares the subjects of schema registries with the schemas of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import attrs

from kdsl.cluster import Registry
from kdsl.deployment.desired import SubjectNeed
from kdsl.deployment.model import Resource, Step
from kdsl.diagnostics.clients import open_registry
from kdsl.errors import KdslError
from kdsl.formats import Direction, Use
from kdsl.registry.errors import IncompatibleSchemaError, RegistryUnreachableError, UnknownSubjectError
from kdsl.registry.model import RegisteredSchema, SubjectVersion
from kdsl.schemas.registry import draft_registered_schema
from kdsl.types import model as t

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient

_THREADS = 8
"""How many subjects are looked at at the same time."""


def compare_subjects(needs: Iterable[SubjectNeed]) -> Iterator[Step]:
    """Yield how the subjects that tables use differ from their schemas; errors of a registry are among them."""
    by_registry: dict[Registry, list[SubjectNeed]] = {}
    for need in needs:
        by_registry.setdefault(need.registry, []).append(need)
    for registry, of_registry in by_registry.items():
        yield from _compare_registry(registry, of_registry)


def _compare_registry(registry: Registry, needs: list[SubjectNeed]) -> Iterator[Step]:
    """Yield the differences of a registry's subjects, each once, which are asked for at the same time, without retries.

    If the registry does not answer, its settings have errors, or its client is not installed, that is a difference.
    """
    where = needs[0].where
    try:
        client = open_registry(registry)
    except KdslError as e:
        yield Resource("registry", "of " + needs[0].table, where).step("?", "", None, None, str(e))
        return
    seen: set[tuple[str, object]] = set()
    with ThreadPoolExecutor(_THREADS, "kdsl diff") as pool:
        try:
            for steps in pool.map(partial(_compare_subject, client), needs):
                for step in steps:
                    if (key := (step.difference.name, step.difference.declared)) not in seen:
                        seen.add(key)
                        yield step
        except RegistryUnreachableError as e:
            pool.shutdown(cancel_futures=True)
            yield Resource("registry", client.address, where, client.address).step("?", "", None, None, str(e))


def _compare_subject(client: RegistryClient, need: SubjectNeed) -> list[Step]:
    """Compare a table's schema with its subject."""
    resource = Resource("subject", f"{need.side} schema of {need.table}", need.where, client.address)
    try:
        subject = need.schemas.find_subject(need.row, Use(side=need.side, topics=(need.topic,)), client)
        resource = attrs.evolve(resource, name=subject)
        if "write" in need.directions and not need.schemas.use_latest_version:
            step = _compare_sink_schema(client, need, resource)
        else:
            step = _compare_latest_schema(client, need, resource)
    except RegistryUnreachableError:
        raise
    except IncompatibleSchemaError as e:
        without_schema = str(e).partition(": {")[0]
        step = resource.step("!", "", None, "the schema of the columns", without_schema)
    except KdslError as e:
        step = resource.step("?", "", None, None, str(e))
    return [] if step is None else [step]


def _compare_sink_schema(client: RegistryClient, need: SubjectNeed, resource: Resource) -> Step | None:
    """Compare the schema that a sink writes; None if it is registered."""
    chosen, subject = need.schemas, resource.name
    _, schema = chosen.sink_schema(need.row, client)
    try:
        client.look_up(subject, schema, normalize=chosen.normalize)
    except UnknownSubjectError:

        def register() -> None:
            client.register(subject, schema, normalize=chosen.normalize)

        try:
            latest = client.latest(subject)
        except UnknownSubjectError:
            columns = ", ".join(f"{f.name} {f.type}" for f in need.row.fields)
            why = "there is no such subject; " + _explain_write(need)
            return resource.step("+", "", None, columns, why, register)
        level = client.compatibility(subject)
        changes = _describe_changes(client, need, latest)
        refusal = client.refusal(subject, schema, normalize=chosen.normalize)
        values = f"version {latest.version}", f"the schema of {need.table}"
        if refusal:
            why = f"{changes} ({level}: refused: {refusal}); change the columns to fit, or the compatibility"
            return resource.step("!", "", *values, why)
        why = f"{changes} ({level}: compatible); {_explain_write(need)}"
        return resource.step("~", "", *values, why, register)
    return None


def _explain_write(need: SubjectNeed) -> str:
    """What a write does without the schema."""
    return "the next write registers it" if need.schemas.auto_register else "writes fail, since auto-register is false"


def _compare_latest_schema(client: RegistryClient, need: SubjectNeed, resource: Resource) -> Step | None:
    """Compare the latest schema of a subject with the columns; None if they fit, or if a read finds no schema yet."""
    direction: Direction = "write" if "write" in need.directions else "read"
    try:
        latest = client.latest(resource.name)
    except UnknownSubjectError:
        if direction == "read":
            return None  # its writer registers it
        why = "there is no such subject, whose latest schema is written (use-latest-version); register one"
        return resource.step("!", "", None, "a schema", why)
    misfit = need.schemas.schema_misfit(need.row, latest.schema, client, direction)
    if not misfit:
        return None
    verb = "read into" if direction == "read" else "written from"
    why = f"messages cannot be {verb} the columns: {misfit}; change the columns, or the schema"
    return resource.step("!", "", f"version {latest.version}", f"the columns of {need.table}", why)


def _describe_changes(client: RegistryClient, need: SubjectNeed, latest: SubjectVersion) -> str:
    """Write how the columns of a table differ from those of a registered schema.

    Of a schema that cannot be read as columns, only that it is another one.
    """
    _, declared = need.schemas.sink_schema(need.row, client)
    before, after = (_columns(client, need, schema) for schema in (latest.schema, declared))
    if before is None or after is None:
        return "another schema"
    parts = [f"+ {name} {kind}" for name, kind in after.items() if name not in before]
    parts += [f"- {name}" for name in before if name not in after]
    parts += [f"{name} {before[name]} → {kind}" for name, kind in after.items() if before.get(name, kind) != kind]
    return ", ".join(parts) or "the same columns in another schema"


def _columns(client: RegistryClient, need: SubjectNeed, schema: RegisteredSchema) -> Mapping[str, t.DataType] | None:
    """The columns of a schema by name; None if it cannot be read as columns."""
    try:
        draft = draft_registered_schema(client, schema, need.registry.url, topic=need.topic)
    except KdslError:
        return None
    return {column.name: column.type for column in draft.table.columns if column.role == "physical"}
