"""The schema registry of a read or a write: the cluster's, with the login of the Kafka clients where it shares that."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.cluster import Cluster, Registry
from kdsl.errors import Problem, fail_on
from kdsl.plan.model import Part, ReadPlan, WritePlan
from kdsl.plan.text import detached
from kdsl.registry.settings import SASL, inherits_login


def registry_of(cluster: Cluster, plan: ReadPlan | WritePlan) -> Registry | None:
    """The registry that the formats of a plan are handed; None where none of them asks for one."""
    parts = [part for part in _parts(plan) if part.format.needs_registry]
    registry = cluster.registry
    if not parts:
        return None
    if not (inherits_login(registry) or any(inherits_login(Registry("", p.format.to_strings())) for p in parts)):
        return registry
    login = {name: cluster.properties[name] for name in SASL if name in cluster.properties}
    if registry is None:
        return Registry("", login)
    return Registry(registry.url, registry.properties.merged(login))


def portable(plan: ReadPlan | WritePlan, registry: Registry | None) -> Registry | None:
    """The registry, for tasks that are handed it by value and not as an option that Spark redacts.

    Raises:
        ResolveError: There is none and a format needs one, or a secret was written out; all problems are told.
    """
    fail_on([*registry_problems(plan, registry), *_literals(plan, registry)], plan.table)
    return registry if any(part.format.needs_registry for part in _parts(plan)) else None


def registry_problems(plan: ReadPlan | WritePlan, registry: Registry | None) -> Iterator[Problem]:
    """The problems of a plan's formats with the registry, or with there being none."""
    for part in _parts(plan):
        yield from part.format.check_registry(registry)


def _literals(plan: ReadPlan | WritePlan, registry: Registry | None) -> Iterator[Problem]:
    names = [name.split(".", 2)[2] for name in detached(plan)[1]]
    if registry is not None and any(part.format.needs_registry for part in _parts(plan)):
        names += registry.properties.split()[1]
    for name in names:
        yield Problem(
            "secret-literal",
            f"the secret {name!r} is written out, and would travel to the executors in the open: over the transport "
            "'jvm', in decode() and encode(), and where batches are staged, it is a part of the function that Spark "
            "sends",
            "write a reference that each process resolves, as ${env:NAME} or ${file:PATH}",
        )


def _parts(plan: ReadPlan | WritePlan) -> list[Part]:
    return [part for part in (plan.key, plan.value) if part is not None]
