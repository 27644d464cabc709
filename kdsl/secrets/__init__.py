"""Secrets: references that travel instead of them.

A property may hold references: ``${env:NAME}``, ``${file:PATH}`` (the whole file without the blanks around it),
``${file:PATH:KEY}`` (one key of a properties file; a path holds no colon), ``${secret_values.NAME}`` (from a folder of
secrets or any provider), ``${PROVIDER:KEY}`` (from the provider of that name; ``?name=value&…`` behind the key are
handed to it). They travel as they stand, in plans, pickles and logs; each process resolves them itself, when it makes
a client. ``$${`` is a literal ``${``. A secret that is written out is held as a `Secret`, which neither prints nor
pickles. What hides secrets in printed settings is `kdsl.client.hiding`.
"""

from __future__ import annotations

from kdsl.secrets.properties_file import read_properties
from kdsl.secrets.reference import (
    GROUP,
    HIDDEN,
    Reference,
    Secret,
    SecretError,
    escaped,
    has_reference,
    is_reference,
    providers,
    references,
)
from kdsl.secrets.resolving import DIRECTORY, Provider, resolve

__all__ = [
    "DIRECTORY",
    "GROUP",
    "HIDDEN",
    "Provider",
    "Reference",
    "Secret",
    "SecretError",
    "escaped",
    "has_reference",
    "is_reference",
    "providers",
    "read_properties",
    "references",
    "resolve",
]
