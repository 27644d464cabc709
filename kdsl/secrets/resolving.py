"""Resolves references in the process that needs the secret, as late as possible."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

from kdsl.errors import SecretError, listing, nearest
from kdsl.plugins import PluginError
from kdsl.secrets.properties_file import read_properties
from kdsl.secrets.reference import PROVIDERS, Reference, replace_references

_LINE = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*)\s*[=:]\s*(?!=+$)\S.*")
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
    """Look up the value of a reference: in the environment, in a file, or with a provider."""
    match reference.kind:
        case "env":
            value = os.environ.get(reference.name)
            if value is None:
                raise _make_error(
                    reference,
                    f"the environment variable {reference.name!r} is not set; set it for the driver and the executors "
                    f"(spark.executorEnv.{reference.name})",
                )
            return value
        case "file":
            return _read_file(reference)
        case "given":
            raise _make_error(
                reference,
                f"the value of {reference.name!r} was given literally on the driver, and this process does not have "
                "it; write a reference that each process can resolve, such as ${env:NAME} or ${file:PATH}",
            )
        case "secret_values":
            return _from_any_provider(reference)
        case _:
            return _from_provider(reference)


def _make_error(reference: Reference, reason: str) -> SecretError:
    """Create the error about a reference that cannot be resolved on this machine; the caller raises it."""
    return SecretError(f"{reference} cannot be resolved on {socket.gethostname()}: {reason}")


def _read_text(reference: Reference, path: Path) -> str:
    """Read the file of a reference."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise _make_error(
            reference, f"{path}: {reason}; put the file there on the driver and on every executor"
        ) from None


def _read_file(reference: Reference) -> str:
    """Read a file without the blanks around its content, or the value of a key in it."""
    text = _read_text(reference, Path(reference.name))
    if reference.key is None:
        return text.strip()
    values = read_properties(text)
    if reference.key not in values:
        raise _make_error(
            reference,
            f"the file has no key {reference.key!r}{nearest(reference.key, _names(text))}; a file with a key has a "
            f"line {reference.key}=VALUE, and ${{file:{reference.name}}} is the whole content of a file",
        )
    return values[reference.key]


def _names(text: str) -> list[str]:
    """The keys of a file in which each line is a name and a value; none of any other file.

    In a file of another kind, what Java would read as a key may be a secret: a password, or a line of a PEM file.
    """
    lines = [line.strip() for line in text.splitlines()]
    matches = [_LINE.fullmatch(line) for line in lines if line and line[0] not in "#!"]
    names = [match[1] for match in matches if match]
    return names if len(names) == len(matches) else []


def _from_provider(reference: Reference) -> str:
    """Ask the provider that a reference names."""
    secret = _ask_provider(reference.kind, reference)
    if secret is None:
        raise _make_error(reference, f"the provider {reference.kind!r} has no secret with the key {reference.name!r}")
    return secret


def _ask_provider(name: str, reference: Reference) -> str | None:
    """Ask a provider for the secret of a reference; None if it raises LookupError, because it has no such secret."""
    try:
        provider: Provider = PROVIDERS.load(name)
        value: object = provider(reference.name, **reference.settings)
    except LookupError:
        return None
    except SecretError:
        raise
    except PluginError as e:
        raise _make_error(reference, str(e)) from e
    except Exception as e:  # noqa: BLE001  # another package's; its message may contain the arguments
        raise _make_error(
            reference,
            f"the provider {name!r} of the group {PROVIDERS.name!r} failed with {type(e).__name__}; call it alone to "
            "see why",
        ) from None
    if not isinstance(value, str):
        raise _make_error(reference, f"the provider {name!r} returned a {type(value).__name__} instead of a string")
    return value


def _from_any_provider(reference: Reference) -> str:
    """Read a secret from the file of its name in the folder of secrets, or ask the providers in order until one has it.

    The folder is that of the environment variable `DIRECTORY`; blanks around the content of the file are removed. For a
    name with a path separator only the providers are asked.
    """
    if (folder := os.environ.get(DIRECTORY)) and os.sep not in reference.name:
        path = Path(folder, reference.name)
        if path.is_file():
            return _read_text(reference, path).strip()
    names = PROVIDERS.find_all()
    for name in names:
        secret = _ask_provider(name, reference)
        if secret is not None:
            return secret
    attempts = f"asked {listing(names)}" if names else f"no package registers a provider ({PROVIDERS.name})"
    raise _make_error(
        reference,
        f"{attempts}, and {DIRECTORY} has no such file; install a provider of the group {PROVIDERS.name!r}, or set "
        f"{DIRECTORY} to "
        "a folder with one file per secret",
    )
