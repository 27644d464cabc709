"""Plain-text secrets of a table: generated source has references to the environment instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.options import Options
from kdsl.secrets import Secret


class Placeholders:
    """Replaces plain-text secrets by references, and notes which.

    Attributes:
        notes: The environment variables to set.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []

    def properties(self, properties: Properties) -> dict[str, str]:
        """Copy client properties, with plain-text secrets replaced; what was replaced is noted."""
        return {key: self._replace(key, value) for key, value in properties.items()}

    def options(self, group: Options) -> dict[str, Any]:
        """Return the options of a group that differ from their defaults, by Python names, with secrets replaced.

        What was replaced is noted.
        """
        return {
            a.name: self._replace_nested(f"{type(group).__name__}.{a.metadata['key']}", getattr(group, a.name))
            for a in attrs.fields(type(group))
            if getattr(group, a.name) != a.default and getattr(group, a.name) is not None
        }

    def to_strings(self, group: Options) -> dict[str, str]:
        """Return a group's options that differ from their defaults, by Flink's keys; secrets are replaced and noted."""
        fields = attrs.fields(type(group))
        options = {a.name: self._replace_nested(a.metadata["key"], getattr(group, a.name)) for a in fields}
        return type(group)(**{k: v for k, v in options.items() if v is not attrs.NOTHING}).to_strings()

    def _replace_nested(self, name: str, value: Any) -> Any:
        """Replace and note the secrets in a value, also inside mappings.

        ``name`` is the option, for the variables' names.
        """
        if isinstance(value, Mapping):
            return {key: self._replace_nested(f"{name}.{key}", item) for key, item in value.items()}
        return self._replace(name, value) if isinstance(value, Secret) else value

    def _replace(self, name: str, value: str | Secret) -> str:
        """Return a value, or for a secret a reference to an environment variable, which is noted."""
        if not isinstance(value, Secret):
            return value
        variable = re.sub(r"\W+", "_", name).upper()
        self.notes.append(
            f"the value of {name!r} is a secret, which was replaced by a reference; set the environment variable "
            f"{variable}"
        )
        return f"${{env:{variable}}}"
