"""References to secrets, and secrets that were written out: what travels, and what does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn
from urllib.parse import parse_qsl, urlencode

import attrs

from kdsl.errors import KdslError, listing, nearest

HIDDEN = "***"
GROUP = "kdsl.secrets"

_KINDS = ("env", "file", "secret_values", "given")
_WRITTEN = ("${env:NAME}", "${file:PATH}", "${file:PATH:KEY}", "${secret_values.NAME}")
_REFERENCE = re.compile(r"(?P<escape>\$\$\{)|\$\{(?P<body>[^{}]*)\}")
_BODY = re.compile(r"(?P<kind>[A-Za-z][\w-]*):(?P<name>.+)|(?P<values>secret_values)\.(?P<value>.+)", re.DOTALL)


class SecretError(KdslError):
    """A reference that cannot be read or resolved; the text names the reference, never a value."""


@attrs.frozen(repr=False)
class Secret:
    """A secret that was written out. It prints as ``***`` and refuses to be pickled."""

    _text: str

    def reveal(self) -> str:
        """The secret itself, for the client that needs it."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({HIDDEN!r})"

    def __str__(self) -> str:
        return HIDDEN

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise SecretError(
            "a secret that is written out is not pickled; write a reference to it, as ${env:NAME} or ${file:PATH}, "
            "or take it apart first with Cluster.detached()"
        )


@attrs.frozen
class Reference:
    """One reference to a secret.

    Attributes:
        kind: ``env``, ``file``, ``secret_values`` (any provider), ``given`` (a literal that travels beside the plan),
            or the name of a provider.
        name: The variable, the path, the provider's key, or the property.
        key: The key within a properties file.
        settings: What a provider is told besides the key.
    """

    kind: str
    name: str
    key: str | None = None
    settings: Mapping[str, str] = attrs.field(factory=dict, hash=False)

    def __str__(self) -> str:
        if self.kind == "secret_values":
            return f"${{secret_values.{self.name}}}"
        query = f"?{urlencode(self.settings)}" if self.settings else ""
        return f"${{{self.kind}:{self.name}{'' if self.key is None else f':{self.key}'}{query}}}"


@cache
def providers() -> Mapping[str, EntryPoint]:
    """The entry points of the installed providers by name, in the order of their names; none is loaded."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def references(text: str) -> Iterator[Reference]:
    """The references in a text.

    Raises:
        SecretError: Something between ``${`` and ``}`` is no reference.
    """
    for found in _REFERENCE.finditer(text):
        if not found["escape"]:
            yield _reference(found["body"])


def _reference(body: str) -> Reference:
    found = _BODY.fullmatch(body)
    kind, name = found.group("kind", "name") if found else (None, None)
    if found is None or not _known(found):
        # A body that is no reference may be a part of a secret, so that only its first word is looked at.
        word = re.match(r"\w+", body)
        hint = nearest(word[0], (*_KINDS[:3], *providers())) if word else ""
        ours = [f"${{{name}:KEY}}" for name in providers()]
        raise SecretError(
            f"a text between '${{' and '}}' is no reference{hint}; the references are {listing([*_WRITTEN, *ours])}, "
            "and a literal '${' is written '$${'"
        )
    if kind is None or name is None:
        return Reference("secret_values", str(found["value"]))
    if kind == "file":
        path, separator, key = name.rpartition(":")
        return Reference(kind, path, key) if separator and path else Reference(kind, name)
    if kind in _KINDS:
        return Reference(kind, name)
    key, _, query = name.partition("?")
    return Reference(kind, key, settings=dict(parse_qsl(query, keep_blank_values=True)))


def _known(found: re.Match[str]) -> bool:
    return bool(found["values"]) or found["kind"] in ("env", "file", "given") or found["kind"] in providers()


def has_reference(text: str) -> bool:
    """Whether a text holds a reference (well formed or not)."""
    return any(not found["escape"] for found in _REFERENCE.finditer(text))


def is_reference(text: str) -> bool:
    """Whether a text is one reference and nothing else."""
    found = _REFERENCE.fullmatch(text.strip())
    if found is None or found["escape"]:
        return False
    body = _BODY.fullmatch(found["body"])
    return body is not None and _known(body)


def escaped(text: str) -> str:
    """A text in which nothing is a reference; resolving it gives the text back."""
    return text.replace("${", "$${")


def replaced(text: str, look_up: Callable[[Reference], str]) -> str:
    """A text with each reference replaced by what a function gives for it; what it gives is not read again.

    Raises:
        SecretError: A reference cannot be read, or what the function raises.
    """
    return _REFERENCE.sub(lambda m: "${" if m["escape"] else look_up(_reference(m["body"])), text)
