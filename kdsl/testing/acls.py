"""Gives users of a local Kafka their rights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaException
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
from kdsl.testing.errors import LocalKafkaError

_SECONDS = 60.0


def allow(
    admin: AdminClient, user: str, operations: Sequence[str], *, topic: str | None = None, group: str | None = None
) -> None:
    """Give a user rights on a topic, a group or, where neither is named, the cluster, and wait until they hold.

    Args:
        admin: A client that may do so.
        user: Who.
        operations: What.
        topic: A topic; a name that ends in ``*`` stands for all that begin so.
        group: A consumer group, alike.

    Raises:
        LocalKafkaError: There is no such operation, the broker refuses, or it does not come to know them.
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
        try:
            future.result(_SECONDS)
        except KafkaException as error:
            raise LocalKafkaError(f"User {user!r} cannot be given rights: {error}") from error
    _wait_for(admin, bindings, user)


def _wait_for(admin: AdminClient, bindings: Sequence[AclBinding], user: str) -> None:
    """Wait until a broker goes by what the controller has written down."""
    whatever: Any = None
    theirs = AclBindingFilter(
        ResourceType.ANY,
        whatever,
        ResourcePatternType.ANY,
        f"User:{user}",
        whatever,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    end = time.monotonic() + _SECONDS
    while True:
        bindings = admin.describe_acls(theirs).result(_SECONDS)
        if all(binding in bindings for binding in bindings):
            return
        if time.monotonic() > end:
            raise LocalKafkaError(f"User {user!r} has no rights {_SECONDS:g} s after they were given")
        time.sleep(0.02)
