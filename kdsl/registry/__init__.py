"""The client of a schema registry with Confluent's API, which Apicurio, Karapace and Redpanda have as well.

Formats use it in tasks, to find the schema that a message was written with and to register the schema that they write
with; the commands use it on the driver. The schema of an id never changes, so it is cached without a limit of time.
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
