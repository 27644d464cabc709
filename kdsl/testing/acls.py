"""Gives users of a local Kafka their rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,  # pyright: ignore[reportPrivateImportUsage]
    AclBindingFilter,  # pyright: ignore[reportPrivateImportUsage]
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AclPermissionType,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    ResourcePatternType,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from kdsl.errors import listing, nearest
from kdsl.retry import Deadline, retry
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.running import convert_errors

_SECONDS = 60.0


def allow(
    admin: AdminClient, user: str, operations: Sequence[str], *, topic: str | None = None, group: str | None = None
) -> None:
    """Give a user rights on a topic, a group (or both) or, if neither is named, the cluster.

    It waits until the rights take effect.

    Args:
        admin: An admin client that may create rights.
        user: The user.
        operations: The names of the operations.
        topic: A topic; a name that ends in ``*`` means all topics with this prefix.
        group: A consumer group, written like a topic.

    Raises:
        LocalKafkaError: There is no such operation, the broker refuses, or the rights do not take effect.
    """
    known = [name for name in AclOperation.__members__ if name not in ("UNKNOWN", "ANY")]
    for operation in operations:
        if operation not in known:
            raise LocalKafkaError(
                f"There is no operation {operation!r}{nearest(operation, known)}; write {listing(known)}"
            )
    named = [(ResourceType.TOPIC, topic), (ResourceType.GROUP, group)]
    resources = [(kind, name) for kind, name in named if name is not None]
    bindings = [
        AclBinding(
            kind,
            name.removesuffix("*") or "*",
            ResourcePatternType.PREFIXED if name.endswith("*") and name != "*" else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, name in resources or [(ResourceType.BROKER, "kafka-cluster")]
        for operation in operations
    ]
    for future in admin.create_acls(bindings).values():
        with convert_errors(f"User {user!r} cannot be given rights"):
            future.result(_SECONDS)
    _wait_for(admin, bindings, user)


def _wait_for(admin: AdminClient, bindings: Sequence[AclBinding], user: str) -> None:
    """Wait, a minute at most, until the broker lists the rights among those of the user."""
    anything: Any = None
    rights_of_user = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        f"User:{user}",
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )

    def find_missing(_: float) -> list[AclBinding]:
        with convert_errors(f"The rights of user {user!r} cannot be described"):
            applied = admin.describe_acls(rights_of_user).result(_SECONDS)
        return [binding for binding in bindings if binding not in applied]

    if retry(find_missing, lambda missing: not missing, Deadline(_SECONDS), pause=0.02):
        raise LocalKafkaError(f"The rights of user {user!r} did not take effect within {_SECONDS:g} s")
