"""The errors of the registry client. Messages contain the registry's address, never the credentials."""

from __future__ import annotations

from kdsl.errors import KdslError


class RegistryError(KdslError):
    """A request to a schema registry failed; the base class of the other errors."""


class RegistryUnreachableError(RegistryError):
    """No registry answers at any of the addresses, also after retries."""


class RegistryRefusedError(RegistryError):
    """The registry refuses the credentials (401) or the request (403)."""


class UnknownSchemaError(RegistryError):
    """The registry has no schema with an id."""


class UnknownSubjectError(RegistryError):
    """The registry has no such subject or version, or the schema is not registered under the subject."""


class IncompatibleSchemaError(RegistryError):
    """The registry refuses a schema: it is not compatible with those of the subject, or not valid."""
