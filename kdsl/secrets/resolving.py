"""Resolves references, at the last moment and in the process that needs the secret."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path

from kdsl.errors import listing, nearest
from kdsl.secrets.properties_file import read_properties
from kdsl.secrets.reference import GROUP, Reference, SecretError, providers, replaced

DIRECTORY = "KDSL_SECRETS_DIR"

Provider = Callable[..., str]
"""Gives the secret of a key (and of what a reference says besides, as keyword arguments); raises LookupError where it
has none of that key."""


def resolve(text: str) -> str:
    """Replace the references in a text by what they stand for, in this process; what they stand for is not read again.

    Raises:
        SecretError: A reference cannot be read, or what it stands for is not there.
    """
    return replaced(text, _look_up)


def _look_up(reference: Reference) -> str:
    match reference.kind:
        case "env":
            value = os.environ.get(reference.name)
            if value is None:
                raise _missing(
                    reference,
                    f"the environment variable {reference.name!r} is not set; set it for the driver and the executors "
                    f"(spark.executorEnv.{reference.name})",
                )
            return value
        case "file":
            return _from_file(reference)
        case "given":
            raise _missing(
                reference,
                f"the value of {reference.name!r} was written out on the driver and did not travel here; write a "
                "reference that each process can resolve, as ${env:NAME} or ${file:PATH}",
            )
        case "secret_values":
            return _from_any_provider(reference)
        case _:
            return _from_provider(reference)


def _missing(reference: Reference, reason: str) -> SecretError:
    return SecretError(f"{reference} cannot be resolved on {socket.gethostname()}: {reason}")


def _from_file(reference: Reference) -> str:
    try:
        text = Path(reference.name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is no UTF-8 text"
        raise _missing(
            reference, f"{reference.name}: {reason}; put the file there on the driver and on every executor"
        ) from None
    if reference.key is None:
        return text.strip()
    values = read_properties(text)
    if reference.key not in values:
        raise _missing(
            reference,
            f"the file has no key {reference.key!r}{nearest(reference.key, values)}; its keys are {listing(values)}",
        )
    return values[reference.key]


@cache
def _loaded(name: str) -> Provider:
    provider: Provider = providers()[name].load()
    return provider


def _from_provider(reference: Reference) -> str:
    found = _asked(reference.kind, reference)
    if found is None:
        raise _missing(reference, f"the provider {reference.kind!r} has no secret of the key {reference.name!r}")
    return found


def _asked(name: str, reference: Reference) -> str | None:
    """What a provider has for a reference; None where it has nothing of that key."""
    try:
        value: object = _loaded(name)(reference.name, **reference.settings)
    except LookupError:
        return None
    except SecretError:
        raise
    except Exception as e:  # noqa: BLE001  # it is somebody else's; its text may hold what it was told
        raise _missing(
            reference,
            f"the provider {name!r} of the group {GROUP!r} failed with {type(e).__name__}; call it alone to see why",
        ) from None
    if not isinstance(value, str):
        raise _missing(reference, f"the provider {name!r} gave a {type(value).__name__}, and no text")
    return value


def _from_any_provider(reference: Reference) -> str:
    if (folder := os.environ.get(DIRECTORY)) and os.sep not in reference.name:
        path = Path(folder, reference.name)
        if path.is_file():
            return path.read_text(encoding="utf-8").strip()
    for name in providers():
        found = _asked(name, reference)
        if found is not None:
            return found
    asked = f"asked {listing(providers())}" if providers() else f"no package registers a provider ({GROUP})"
    raise _missing(
        reference,
        f"{asked}, and {DIRECTORY} has no such file; install a provider of the group {GROUP!r}, or set {DIRECTORY} to "
        "a folder with one file per secret",
    )
