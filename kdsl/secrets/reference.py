"""References to secrets, which are sent to executors, and secrets that are written out, which are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn
from urllib.parse import parse_qsl, urlencode

import attrs

from kdsl.errors import SecretError, listing, nearest
from kdsl.plugins import PluginGroup

UNRESOLVED_FIX = "make what the reference names available here, or correct the reference"
"""What to do about a reference that a process cannot resolve."""
HIDDEN = "***"
PROVIDERS = PluginGroup("kdsl.secrets", "secrets provider")

_LOCAL = ("env", "file")
"""The providers that need no other package. Only references that name them are looked up with them."""
_WRITTEN = ("${env:NAME}", "${file:PATH}", "${file:PATH:KEY}", "${secret_values.NAME}")
_REFERENCE = re.compile(r"(?P<escape>\$\$\{)|\$\{(?P<body>[^{}]*)\}")
_BODY = re.compile(r"(?P<kind>[A-Za-z][\w-]*):(?P<name>.+)|(?P<values>secret_values)\.(?P<value>.+)", re.DOTALL)


@attrs.frozen(repr=False)
class Secret:
    """A secret that is written out. It prints as ``***`` and cannot be pickled."""

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
        """Refuse to be pickled.

        Raises:
            SecretError: Always.
        """
        raise SecretError(
            "a secret that is written out cannot be pickled; write a reference to it, as ${env:NAME} or ${file:PATH}, "
            "or separate it first with Cluster.split_literals()"
        )


@attrs.frozen
class Reference:
    """One reference to a secret.

    Attributes:
        kind: ``env``, ``file``, ``secret_values`` (any provider), ``given`` (a literal that is sent beside the plan),
            or the name of a provider.
        name: The variable, the path, the provider's key, or the property.
        key: The key within a properties file.
        settings: Further arguments for a provider.
    """

    kind: str
    name: str
    key: str | None = None
    settings: Mapping[str, str] = attrs.field(factory=dict, hash=False)

    def __str__(self) -> str:
        """The reference as it is written in a property, such as ``${env:NAME}``."""
        if self.kind == "secret_values":
            return f"${{secret_values.{self.name}}}"
        query = f"?{urlencode(self.settings)}" if self.settings else ""
        return f"${{{self.kind}:{self.name}{'' if self.key is None else f':{self.key}'}{query}}}"


def other_providers() -> list[str]:
    """The names of the providers of other packages, sorted, which are asked for ``${secret_values.NAME}``."""
    return [name for name in PROVIDERS.find_all() if name not in _LOCAL]


def references(text: str) -> Iterator[Reference]:
    """Yield the references in a string, in order; ``$${`` does not begin one.

    Raises:
        SecretError: Something between ``${`` and ``}`` is not a reference.
    """
    for match in _REFERENCE.finditer(text):
        if not match["escape"]:
            yield _parse_reference(match["body"])


def _parse_reference(body: str) -> Reference:
    """Parse what stands between ``${`` and ``}``."""
    match = _BODY.fullmatch(body)
    kind, name = match.group("kind", "name") if match else (None, None)
    if match is None or not _has_known_kind(match):
        # A body that is not a reference may be part of a secret, so only its first word is used.
        word = re.match(r"\w+", body)
        hint = nearest(word[0], ("secret_values", *PROVIDERS.find_all())) if word else ""
        ours = [f"${{{name}:KEY}}" for name in other_providers()]
        raise SecretError(
            f"the value between '${{' and '}}' is not a reference{hint}; the references are "
            f"{listing([*_WRITTEN, *ours])}, "
            "and a literal '${' is written '$${'"
        )
    if kind is None or name is None:
        return Reference("secret_values", str(match["value"]))
    if kind == "file":
        path, separator, key = name.rpartition(":")
        return Reference(kind, path, key) if separator and path else Reference(kind, name)
    if kind in ("env", "given"):
        return Reference(kind, name)
    key, _, query = name.partition("?")
    return Reference(kind, key, settings=dict(parse_qsl(query, keep_blank_values=True)))


def _has_known_kind(match: re.Match[str]) -> bool:
    """Whether a parsed reference is to any provider, to a literal of the driver, or to an installed provider."""
    return bool(match["values"]) or match["kind"] in ("given", *_LOCAL) or match["kind"] in PROVIDERS.find_all()


def has_reference(text: str) -> bool:
    """Whether a string contains a reference, valid or not."""
    return any(not match["escape"] for match in _REFERENCE.finditer(text))


def is_reference(text: str) -> bool:
    """Whether a string is exactly one valid reference, apart from blanks around it."""
    match = _REFERENCE.fullmatch(text.strip())
    if match is None or match["escape"]:
        return False
    body = _BODY.fullmatch(match["body"])
    return body is not None and _has_known_kind(body)


def escape_references(text: str) -> str:
    """Escape a string so that nothing in it is a reference; resolving the result returns the string."""
    return text.replace("${", "$${")


def replace_references(text: str, look_up: Callable[[Reference], str]) -> str:
    """Replace each reference in a string by the result of a function, and ``$${`` by ``${``.

    Results are not searched for references.

    Raises:
        SecretError: A reference is invalid, or the function raises it.
    """
    return _REFERENCE.sub(lambda m: "${" if m["escape"] else look_up(_parse_reference(m["body"])), text)
