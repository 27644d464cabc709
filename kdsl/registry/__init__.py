"""The client of a schema registry with Confluent's API, which Apicurio, Karapace and Redpanda have as well.

Formats use it in tasks, to find the schema that a message was written with and to register the schema that they write
with; the commands use it on the driver. The schema of an id never changes, so it is cached without a limit of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdsl.extras import explain_missing_package
from kdsl.registry.errors import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryRefusedError,
    RegistryUnreachableError,
    UnknownSchemaError,
    UnknownSubjectError,
)
from kdsl.registry.model import RegisteredSchema, SchemaId, SchemaReference, SubjectVersion
from kdsl.registry.settings import registry_problems

if TYPE_CHECKING:
    from kdsl.registry.client import RegistryClient, registry_client

__all__ = [
    "IncompatibleSchemaError",
    "RegisteredSchema",
    "RegistryClient",
    "RegistryError",
    "RegistryRefusedError",
    "RegistryUnreachableError",
    "SchemaId",
    "SchemaReference",
    "SubjectVersion",
    "UnknownSchemaError",
    "UnknownSubjectError",
    "registry_client",
    "registry_problems",
]


def __getattr__(name: str) -> Any:
    """Import the client when it is first used: planning does not need it, nor its package httpx.

    Raises:
        AttributeError: There is no such name.
        MissingPackageError: httpx is not installed.
    """
    if name not in ("RegistryClient", "registry_client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explain_missing_package("a schema registry"):
        from kdsl.registry import client

    return getattr(client, name)
