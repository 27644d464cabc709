"""Secrets that a table holds written out: generated text has references to the environment in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.client.properties import Properties
from kdsl.options import Options
from kdsl.secrets import Secret


class Placeholders:
    """Gives references in the place of secrets, and tells which.

    Attributes:
        notes: What to set in the environment.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []

    def properties(self, given: Properties) -> dict[str, str]:
        """Client properties without secrets that are written out."""
        return {key: self._plain(key, value) for key, value in given.items()}

    def of(self, group: Options) -> dict[str, Any]:
        """The options of a group that differ from their defaults, by their Python names, without secrets."""
        return {
            a.name: self._inside(f"{type(group).__name__}.{a.metadata['key']}", getattr(group, a.name))
            for a in attrs.fields(type(group))
            if getattr(group, a.name) != a.default and getattr(group, a.name) is not None
        }

    def texts(self, group: Options) -> dict[str, str]:
        """The options of a group under Flink's keys, without secrets."""
        kept = {a.name: self._inside(a.metadata["key"], getattr(group, a.name)) for a in attrs.fields(type(group))}
        return type(group)(**{k: v for k, v in kept.items() if v is not attrs.NOTHING}).to_strings()

    def _inside(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._inside(f"{name}.{key}", held) for key, held in value.items()}
        return self._plain(name, value) if isinstance(value, Secret) else value

    def _plain(self, name: str, value: str | Secret) -> str:
        if not isinstance(value, Secret):
            return value
        variable = re.sub(r"\W+", "_", name).upper()
        self.notes.append(
            f"the value of {name!r} is a secret, which is not written here; set the environment variable {variable}"
        )
        return f"${{env:{variable}}}"
