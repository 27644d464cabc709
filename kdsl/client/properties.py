"""Client properties as a declaration holds them: normalised to text, secrets hidden, comparable.

Flink knows texts only; Python and YAML may give numbers and booleans. A literal secret becomes a `Secret`, so that no
printed form shows it; `Properties.split` takes the literals out, so that what remains may travel in a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kdsl.client.hiding import holds_secret, redact
from kdsl.errors import Problem, ProblemError, ResolveError
from kdsl.secrets import Secret

_GIVEN = "${{given:{}}}"

Value = str | int | float | bool | Secret


class Properties(Mapping[str, str | Secret]):
    """Client properties by Java's names; immutable, equal by value, printed without secrets.

    Args:
        given: The properties; numbers and booleans become Java's texts.

    Raises:
        ResolveError: Values that are neither text, number nor boolean; all of them are told.
    """

    __slots__ = ("_values",)

    def __init__(self, given: Mapping[str, Value] | None = None) -> None:
        problems = [ProblemError(p) for key, value in (given or {}).items() for p in value_problems(key, value)]
        if problems:
            raise ResolveError("the client properties cannot be read", problems)
        self._values = {key: _held(key, value) for key, value in (given or {}).items()}

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
        return f"Properties({self.redacted()!r})"

    def __reduce__(self) -> tuple[type[Properties], tuple[dict[str, str | Secret]]]:
        return Properties, (self._values,)

    def redacted(self) -> dict[str, str]:
        """The properties as they may be printed."""
        return redact(self._values)

    def revealed(self) -> dict[str, str]:
        """The properties with literal secrets in the open, for the translation; never print or keep this."""
        return {k: v.reveal() if isinstance(v, Secret) else v for k, v in self._values.items()}

    def split(self, prefix: str = "") -> tuple[Properties, dict[str, str]]:
        """Take the literal secrets out.

        Args:
            prefix: Goes before the keys of the literals, to tell several sets of properties apart.

        Returns:
            The properties with ``${given:KEY}`` in the place of each literal secret, and the literals by key.
        """
        literals = {prefix + k: v.reveal() for k, v in self._values.items() if isinstance(v, Secret)}
        kept = {k: _GIVEN.format(prefix + k) if prefix + k in literals else v for k, v in self._values.items()}
        return Properties(kept), literals

    def joined(self, literals: Mapping[str, str], prefix: str = "") -> Properties:
        """Put the literal secrets back that `split` took out."""
        given = {_GIVEN.format(prefix + k): prefix + k for k in self._values}
        return Properties(
            {
                k: Secret(literals[given[v]]) if isinstance(v, str) and given.get(v) in literals else v
                for k, v in self._values.items()
            }
        )

    def merged(self, other: Mapping[str, Value]) -> Properties:
        """These properties with others over them."""
        return Properties({**self._values, **Properties(other)})


def value_problems(key: str, value: object) -> Iterator[Problem]:
    """What is wrong with a property before its meaning is looked at: a key or value of a type that cannot be one."""
    if not isinstance(value, str | int | float | bool | Secret):
        yield Problem(
            "client-property-type",
            f"the client property {key!r} has a value of the type {type(value).__name__}",
            "give a text, a number, true or false",
        )


def _held(key: str, value: Value) -> str | Secret:
    if isinstance(value, Secret):
        return value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Secret(text) if holds_secret(key, text) else text
