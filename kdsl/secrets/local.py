"""The providers ``env`` and ``file``: secrets in the environment and in files of this machine."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from kdsl.errors import SecretError, nearest
from kdsl.secrets.properties_file import read_properties
from kdsl.secrets.reference import Reference

_LINE = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*)\s*[=:]\s*(?!=+$)\S.*")


def from_environment(key: str) -> str:
    """The value of an environment variable.

    Raises:
        SecretError: It is not set.
    """
    value = os.environ.get(key)
    if value is None:
        raise make_error(
            Reference("env", key),
            f"the environment variable {key!r} is not set; set it for the driver and the executors "
            f"(spark.executorEnv.{key})",
        )
    return value


def from_file(key: str, entry: str | None = None) -> str:
    """The content of a file without the blanks around it, or the value of an entry in a properties file.

    Args:
        key: The path.
        entry: The key of the entry; None for the whole content.

    Raises:
        SecretError: The file cannot be read, or has no such entry.
    """
    text = read_text(Reference("file", key, entry), Path(key))
    if entry is None:
        return text.strip()
    values = read_properties(text)
    if entry not in values:
        raise make_error(
            Reference("file", key, entry),
            f"the file has no key {entry!r}{nearest(entry, _names(text))}; a file with a key has a line {entry}=VALUE, "
            f"and ${{file:{key}}} is the whole content of a file",
        )
    return values[entry]


def make_error(reference: Reference, reason: str) -> SecretError:
    """Create the error about a reference that cannot be resolved on this machine; the caller raises it."""
    return SecretError(f"{reference} cannot be resolved on {socket.gethostname()}: {reason}")


def read_text(reference: Reference, path: Path) -> str:
    """Read the file of a reference."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise make_error(
            reference, f"{path}: {reason}; put the file there on the driver and on every executor"
        ) from None


def _names(text: str) -> list[str]:
    """The keys of a file in which each line is a name and a value; none of any other file.

    In a file of another kind, what Java would read as a key may be a secret: a password, or a line of a PEM file.
    """
    lines = [line.strip() for line in text.splitlines()]
    matches = [_LINE.fullmatch(line) for line in lines if line and line[0] not in "#!"]
    names = [match[1] for match in matches if match]
    return names if len(names) == len(matches) else []
