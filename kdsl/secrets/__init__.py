"""Secrets, and references that are sent to executors instead of them.

A property may contain references: ``${env:NAME}``, ``${file:PATH}`` (the whole file without surrounding blanks),
``${file:PATH:KEY}`` (one key of a properties file; the path contains no colon), ``${secret_values.NAME}`` (from a
folder of secrets or any provider), ``${PROVIDER:KEY}`` (from the provider of that name; ``?name=value&…`` after the key
are passed to it). References stay unresolved in plans, pickles and logs; each process resolves them when it creates a
client. ``$${`` is a literal ``${``. A secret that is written out is a `Secret`, which cannot be printed or pickled.
`kdsl.secrets.hiding` hides secrets in printed settings.
"""

from __future__ import annotations

from kdsl.secrets.properties_file import read_properties
from kdsl.secrets.reference import (
    HIDDEN,
    PROVIDERS,
    Reference,
    Secret,
    escape_references,
    has_reference,
    is_reference,
    references,
)
from kdsl.secrets.resolving import DIRECTORY, Provider, resolve

__all__ = [
    "DIRECTORY",
    "HIDDEN",
    "PROVIDERS",
    "Provider",
    "Reference",
    "Secret",
    "escape_references",
    "has_reference",
    "is_reference",
    "read_properties",
    "references",
    "resolve",
]
