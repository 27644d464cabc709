"""What the client of a schema registry raises. The texts name the registry's address, never who asks."""

from __future__ import annotations

from kdsl.errors import KdslError


class RegistryError(KdslError):
    """A schema registry does not do what it is asked; the base of the others."""


class RegistryUnreachableError(RegistryError):
    """No registry answers at any of the addresses, however often it is asked."""


class RegistryRefusedError(RegistryError):
    """The registry does not know who asks (401), or does not allow it (403)."""


class UnknownSchemaError(RegistryError):
    """The registry has no schema of an id."""


class UnknownSubjectError(RegistryError):
    """The registry has no such subject or version, or the schema does not stand under the subject."""


class IncompatibleSchemaError(RegistryError):
    """The registry refuses a schema: it does not go with those that the subject has, or it is none."""
