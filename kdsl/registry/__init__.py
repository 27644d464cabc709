"""The client of a schema registry (Confluent's API, which Apicurio, Karapace and Redpanda serve, too).

Formats use it inside tasks, to find the schema that a message was written with, and to register the one that they write
with; the commands use it on the driver. What a registry gives under an id never changes, so that it is kept for good.
"""

from __future__ import annotations

from kdsl.registry.client import RegistryClient, registry_client
from kdsl.registry.errors import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryRefusedError,
    RegistryUnreachableError,
    UnknownSchemaError,
    UnknownSubjectError,
)
from kdsl.registry.model import RegisteredSchema, SchemaReference, SubjectVersion
from kdsl.registry.settings import registry_problems

__all__ = [
    "IncompatibleSchemaError",
    "RegisteredSchema",
    "RegistryClient",
    "RegistryError",
    "RegistryRefusedError",
    "RegistryUnreachableError",
    "SchemaReference",
    "SubjectVersion",
    "UnknownSchemaError",
    "UnknownSubjectError",
    "registry_client",
    "registry_problems",
]
