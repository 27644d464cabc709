"""Client properties as a declaration holds them: normalised to strings, with secrets hidden, comparable.

Flink has only strings; Python and YAML may contain numbers and booleans. A literal secret becomes a `Secret`, so that
it is never printed; `Properties.split` removes the literals, so that the rest can be part of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kdsl.errors import Problem, ProblemError, ResolveError
from kdsl.secrets import Secret
from kdsl.secrets.hiding import contains_secret, redact

_GIVEN = "${{given:{}}}"

Value = str | int | float | bool | Secret


class Properties(Mapping[str, str | Secret]):
    """Client properties by Java's names; immutable, equal by value, printed without secrets.

    Args:
        properties: The properties; numbers and booleans become strings as Java writes them.
    """

    __slots__ = ("_values",)

    def __init__(self, properties: Mapping[str, Value] | None = None) -> None:
        """Store the properties as strings, and those with secrets as `Secret`; raise ResolveError for other types."""
        properties = properties or {}
        problems = [ProblemError(p) for key, value in properties.items() for p in check_property_type(key, value)]
        if problems:
            raise ResolveError("the client properties cannot be read", problems)
        self._values = {key: _normalize(key, value) for key, value in properties.items()}

    def __getitem__(self, key: str) -> str | Secret:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Properties) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Properties({self.redact()!r})"

    def __reduce__(self) -> tuple[type[Properties], tuple[dict[str, str | Secret]]]:
        return Properties, (self._values,)

    def redact(self) -> dict[str, str]:
        """Copy the properties with secrets replaced, so that they can be printed."""
        return redact(self._values)

    def reveal(self) -> dict[str, str]:
        """Copy the properties including literal secrets, for the translation; never print or keep them."""
        return {k: v.reveal() if isinstance(v, Secret) else v for k, v in self._values.items()}

    def split(self, prefix: str = "") -> tuple[Properties, dict[str, str]]:
        """Separate the literal secrets from the properties.

        Args:
            prefix: A prefix for the keys of the literals, which distinguishes several sets of properties.

        Returns:
            The properties with ``${given:KEY}`` in place of each literal secret, and the literals by key.
        """
        literals = {prefix + k: v.reveal() for k, v in self._values.items() if isinstance(v, Secret)}
        references = {k: _GIVEN.format(prefix + k) if prefix + k in literals else v for k, v in self._values.items()}
        return Properties(references), literals

    def with_literals(self, literals: Mapping[str, str], prefix: str = "") -> Properties:
        """Return the properties with the literal secrets that `split` separated; missing ones stay references."""
        keys = {_GIVEN.format(prefix + k): prefix + k for k in self._values}
        return Properties(
            {
                k: Secret(literals[keys[v]]) if isinstance(v, str) and keys.get(v) in literals else v
                for k, v in self._values.items()
            }
        )

    def merge(self, other: Mapping[str, Value]) -> Properties:
        """Return these properties, overridden by others."""
        return Properties({**self._values, **Properties(other)})


def check_property_type(key: str, value: object) -> Iterator[Problem]:
    """Yield a problem for a value of a property that is neither a string, a number, a boolean nor a `Secret`."""
    if not isinstance(value, str | int | float | bool | Secret):
        yield Problem(
            "client-property-type",
            f"the client property {key!r} has a value of the type {type(value).__name__}",
            "use a string, a number, true or false",
            property=key,
        )


def _normalize(key: str, value: Value) -> str | Secret:
    """Convert a value to a string, and to a `Secret` if it is one or contains one; its type is not checked."""
    if isinstance(value, Secret):
        return value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Secret(text) if contains_secret(key, text) else text
