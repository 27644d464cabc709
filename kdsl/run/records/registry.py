"""The schema registry of a read or a write: the cluster's, with the login of the Kafka clients where it shares that."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.cluster import Cluster, Registry
from kdsl.errors import Problem, fail_on
from kdsl.plan.model import Part, ReadPlan, WritePlan
from kdsl.registry.settings import SASL, inherits_login
from kdsl.resolve.formats import open_secret, open_secrets
from kdsl.secrets import Secret

_OPEN = "over the transport 'jvm', in decode() and encode(), and where batches are staged,"


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

    It has no secret that is written out: one that a format needs is refused, and the others stay behind.

    Raises:
        ResolveError: There is none and a format needs one, or a secret was written out; all problems are told.
    """
    names = dict.fromkeys(name for part in _parts(plan) for name in open_secrets(part.format, registry))
    fail_on([*format_problems(plan, registry), *(open_secret(name, _OPEN) for name in names)], plan.table)
    if registry is None or not any(part.format.needs_registry for part in _parts(plan)):
        return None
    kept = {name: text for name, text in registry.properties.items() if not isinstance(text, Secret)}
    return Registry(registry.url, kept)


def format_problems(plan: ReadPlan | WritePlan, registry: Registry | None) -> Iterator[Problem]:
    """The problems of a plan's formats with the registry, or with there being none."""
    for part in _parts(plan):
        yield from part.format.check_registry(registry)


def _parts(plan: ReadPlan | WritePlan) -> list[Part]:
    return [part for part in (plan.key, plan.value) if part is not None]
