"""Resolves references in the process that needs the secret, as late as possible."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kdsl.errors import SecretError, listing
from kdsl.plugins import PluginError
from kdsl.secrets.local import make_error, read_text
from kdsl.secrets.reference import PROVIDERS, Reference, other_providers, replace_references

DIRECTORY = "KDSL_SECRETS_DIR"

Provider = Callable[..., str]
"""Returns the secret for a key; gets the further settings of a reference as keyword arguments. Raises LookupError if it
has no secret for the key."""


def resolve(text: str) -> str:
    """Replace the references in a string by their secrets, in this process; secrets are not searched for references.

    Raises:
        SecretError: A reference is invalid, or its secret cannot be found.
    """
    return replace_references(text, _look_up)


def _look_up(reference: Reference) -> str:
    """Look up the value of a reference with the provider that it names, or with any."""
    if reference.kind == "secret_values":
        return _from_any_provider(reference)
    if reference.kind == "given":
        raise make_error(
            reference,
            f"the value of {reference.name!r} was given literally on the driver, and this process does not have it; "
            "write a reference that each process can resolve, such as ${env:NAME} or ${file:PATH}",
        )
    secret = _ask_provider(reference.kind, reference)
    if secret is None:
        raise make_error(reference, f"the provider {reference.kind!r} has no secret with the key {reference.name!r}")
    return secret


def _ask_provider(name: str, reference: Reference) -> str | None:
    """Ask a provider for the secret of a reference; None if it raises LookupError, because it has no such secret."""
    try:
        provider: Provider = PROVIDERS.load(name)
        entry = {} if reference.key is None else {"entry": reference.key}
        value: object = provider(reference.name, **entry, **reference.settings)
    except LookupError:
        return None
    except SecretError:
        raise
    except PluginError as e:
        raise make_error(reference, str(e)) from None
    except Exception as e:  # noqa: BLE001  # another package's; its message may contain the arguments
        raise make_error(
            reference,
            f"the provider {name!r} of the group {PROVIDERS.name!r} failed with {type(e).__name__}; call it alone to "
            "see why",
        ) from None
    if not isinstance(value, str):
        raise make_error(reference, f"the provider {name!r} returned a {type(value).__name__} instead of a string")
    return value


def _from_any_provider(reference: Reference) -> str:
    """Read a secret from the file of its name in the folder of secrets, or ask the providers in order until one has it.

    The folder is that of the environment variable `DIRECTORY`; blanks around the content of the file are removed. For a
    name with a path separator only the providers are asked.
    """
    if (folder := os.environ.get(DIRECTORY)) and os.sep not in reference.name:
        path = Path(folder, reference.name)
        if path.is_file():
            return read_text(reference, path).strip()
    names = other_providers()
    for name in names:
        secret = _ask_provider(name, reference)
        if secret is not None:
            return secret
    attempts = f"asked {listing(names)}" if names else f"no package registers a provider ({PROVIDERS.name})"
    raise make_error(
        reference,
        f"{attempts}, and {DIRECTORY} has no such file; install a provider of the group {PROVIDERS.name!r}, or set "
        f"{DIRECTORY} to "
        "a folder with one file per secret",
    )
