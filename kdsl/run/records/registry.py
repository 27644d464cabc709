"""The schema registry of a read or write: the cluster's, with the Kafka clients' login if it uses the same one."""

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
    """Return the cluster's registry for the formats of a plan; None if no format needs one, or there is none.

    If the registry or a format inherits the Kafka clients' login, it is added (to one without a URL, if there is none).
    Nothing is checked here (`format_problems`).
    """
    parts = [part for part in _parts(plan) if part.format.needs_registry]
    registry = cluster.registry
    if not parts:
        return None
    if not (inherits_login(registry) or any(inherits_login(Registry("", p.format.to_strings())) for p in parts)):
        return registry
    login = {name: cluster.properties[name] for name in SASL if name in cluster.properties}
    if registry is None:
        return Registry("", login)
    return Registry(registry.url, registry.properties.merge(login))


def without_literal_secrets(plan: ReadPlan | WritePlan, registry: Registry | None) -> Registry | None:
    """Return the registry without literal secrets, for tasks that get it by value and not as a redacted option.

    A literal secret that a format needs is refused; the others are removed. None if no format needs a registry.
    """
    names = dict.fromkeys(name for part in _parts(plan) for name in open_secrets(part.format, registry))
    fail_on([*format_problems(plan, registry), *(open_secret(name, _OPEN) for name in names)], plan.table)
    if registry is None or not any(part.format.needs_registry for part in _parts(plan)):
        return None
    properties = {name: text for name, text in registry.properties.items() if not isinstance(text, Secret)}
    return Registry(registry.url, properties)


def format_problems(plan: ReadPlan | WritePlan, registry: Registry | None) -> Iterator[Problem]:
    """Yield the problems of a plan's formats with the registry's settings, or with its absence; it is not asked."""
    for part in _parts(plan):
        yield from part.format.check_registry(registry)


def _parts(plan: ReadPlan | WritePlan) -> list[Part]:
    """Return the parts that a plan has: key, value, both, or none."""
    return [part for part in (plan.key, plan.value) if part is not None]
