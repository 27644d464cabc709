"""Secrets: references that travel instead of them, and what hides them when something is printed.

A property may hold references: ``${env:NAME}``, ``${file:PATH}`` (the whole file without the blanks around it),
``${file:PATH:KEY}`` (one key of a properties file; a path holds no colon), ``${secret_values.NAME}`` (from a provider).
They travel as they stand, in plans, pickles and logs; each process resolves them itself, when it makes a client.
``$${`` is a literal ``${``. A secret that is written out is held as a `Secret`, which neither prints nor pickles.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

import attrs

from kdsl.client import librdkafka
from kdsl.client.jaas import JaasError, is_secret_option, parse
from kdsl.client.model import SECRET
from kdsl.client.settings import TABLE
from kdsl.errors import KdslError, listing, nearest

HIDDEN = "***"
GROUP = "kdsl.secrets"
DIRECTORY = "KDSL_SECRETS_DIR"

Provider = Callable[[str], str]
"""Gives the secret of a name; raises LookupError where it has none of that name."""

_KINDS = ("env", "file", "secret_values", "given")
_WRITTEN = ("${env:NAME}", "${file:PATH}", "${file:PATH:KEY}", "${secret_values.NAME}")
_REFERENCE = re.compile(r"(?P<escape>\$\$\{)|\$\{(?P<body>[^{}]*)\}")
_BODY = re.compile(r"(?P<kind>env|file|given):(?P<name>.+)|(?P<values>secret_values)\.(?P<value>.+)", re.DOTALL)


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
        kind: ``env``, ``file``, ``secret_values``, or ``given``: a literal that travels beside the plan.
        name: The variable, the path, the provider's name, or the property.
        key: The key within a properties file.
    """

    kind: str
    name: str
    key: str | None = None

    def __str__(self) -> str:
        if self.kind == "secret_values":
            return f"${{secret_values.{self.name}}}"
        return f"${{{self.kind}:{self.name}{'' if self.key is None else f':{self.key}'}}}"


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
    if found is None:
        kind = re.match(r"\w*", body)
        # A body that is no reference may be a part of a secret, so that only its first word is looked at.
        hint = nearest(kind[0], _KINDS[:3]) if kind and kind[0] else ""
        raise SecretError(
            f"a text between '${{' and '}}' is no reference{hint}; the references are {listing(_WRITTEN)}, "
            "and a literal '${' is written '$${'"
        )
    if found["values"]:
        return Reference("secret_values", found["value"])
    if found["kind"] == "file":
        path, separator, key = found["name"].rpartition(":")
        return Reference("file", path, key) if separator and path else Reference("file", found["name"])
    return Reference(found["kind"], found["name"])


def has_reference(text: str) -> bool:
    """Whether a text holds a reference (well formed or not)."""
    return any(not found["escape"] for found in _REFERENCE.finditer(text))


def is_reference(text: str) -> bool:
    """Whether a text is one reference and nothing else."""
    found = _REFERENCE.fullmatch(text.strip())
    return found is not None and not found["escape"] and _BODY.fullmatch(found["body"]) is not None


def escaped(text: str) -> str:
    """A text in which nothing is a reference; resolving it gives the text back."""
    return text.replace("${", "$${")


def resolve(text: str) -> str:
    """Replace the references in a text by what they stand for, in this process; what they stand for is not read again.

    Raises:
        SecretError: A reference cannot be read, or what it stands for is not there.
    """
    return _REFERENCE.sub(lambda m: "${" if m["escape"] else _look_up(_reference(m["body"])), text)


def _look_up(reference: Reference) -> str:
    match reference.kind:
        case "env":
            value = os.environ.get(reference.name)
            missing = f"the environment variable {reference.name!r} is not set"
            fix = f"set it for the driver and the executors (spark.executorEnv.{reference.name})"
        case "file":
            return _from_file(reference)
        case "given":
            value = None
            missing = f"the value of {reference.name!r} was written out on the driver and did not travel here"
            fix = "write a reference that each process can resolve, as ${env:NAME} or ${file:PATH}"
        case _:
            return _from_providers(reference)
    if value is None:
        raise SecretError(f"{reference} cannot be resolved on {socket.gethostname()}: {missing}; {fix}")
    return value


def _from_file(reference: Reference) -> str:
    try:
        text = Path(reference.name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is no UTF-8 text"
        raise SecretError(
            f"{reference} cannot be resolved on {socket.gethostname()}: {reference.name}: {reason}; "
            "put the file there on the driver and on every executor"
        ) from None
    if reference.key is None:
        return text.strip()
    values = read_properties(text)
    if reference.key not in values:
        raise SecretError(
            f"{reference} cannot be resolved on {socket.gethostname()}: the file has no key {reference.key!r}"
            f"{nearest(reference.key, values)}; its keys are {listing(values)}"
        )
    return values[reference.key]


@cache
def _providers() -> Mapping[str, Provider]:
    return {point.name: point.load() for point in sorted(entry_points(group=GROUP), key=lambda p: p.name)}


def _from_providers(reference: Reference) -> str:
    if (folder := os.environ.get(DIRECTORY)) and os.sep not in reference.name:
        path = Path(folder, reference.name)
        if path.is_file():
            return path.read_text(encoding="utf-8").strip()
    providers = _providers()
    for provider in providers.values():
        try:
            return provider(reference.name)
        except LookupError:
            continue
    asked = f"asked {listing(providers)}" if providers else f"no package registers a provider ({GROUP})"
    raise SecretError(
        f"{reference} cannot be resolved on {socket.gethostname()}: {asked}, and {DIRECTORY} has no such file; "
        f"install a provider of the group {GROUP!r}, or set {DIRECTORY} to a folder with one file per secret"
    )


_LINE = re.compile(r"(?P<key>(?:\\.|[^\\\s=:])+)?[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Read the text of a Java properties file: comments, continued lines, escapes; the last of equal keys holds."""
    values = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        whole = line.lstrip(" \t\f")
        if not whole or whole[0] in "#!":
            continue
        while re.search(r"(?<!\\)(?:\\\\)*\\$", whole):
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        found = _LINE.fullmatch(whole)
        if found:
            values[_unescaped(found["key"] or "")] = _unescaped(found["value"])
    return values


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _CONTROLS.get(m[2] or "", m[2] or ""), text)


_SECRET_KEY = re.compile(
    r"(?:pass(?:word|wd|phrase)|secret|token|jaas|credentials?|user[._-]?info|(?:api|access|private)[._-]?key|key[._-]pem"
    r"|oauthbearer[._-]config)(?:[._-](?:pem|config|value|text|key))*",
    re.IGNORECASE,
)
USER_INFO = re.compile(r"(?<=://)(?P<user>[^/@:\s]*):(?P<password>[^/@\s]+)(?=@)")


def is_secret(key: str) -> bool:
    """Whether the value of a setting must not be shown, by the setting's name.

    Known are Java's and librdkafka's settings and, by their last words, the options of formats and registries
    (``avro-confluent.basic-auth.user-info``); a prefix such as ``properties.`` changes nothing.
    """
    if any(key == name or key.endswith(f".{name}") for name in SECRET):
        return True
    found = list(_SECRET_KEY.finditer(key))
    return (bool(found) and found[-1].end() == len(key)) or _misspelled(key)


@cache
def _misspelled(key: str) -> bool:
    """Whether a name that no client knows is nearly that of a secret: ``sasl.pasword`` holds one, too."""
    if key in TABLE or key in librdkafka.all_properties():
        return False
    return bool(get_close_matches(key, (*SECRET, "sasl.password"), n=1, cutoff=0.85))


def holds_secret(key: str, text: str) -> bool:
    """Whether a value of a setting, as it is written, would show a secret: a secret that is no reference."""
    if not is_secret(key):
        return any(not is_reference(found["password"]) for found in USER_INFO.finditer(text))
    if is_reference(text) or not text:
        return False
    if key.endswith("jaas.config"):
        try:
            options = parse(text).options
        except JaasError:
            return True
        return any(is_secret_option(name) and not is_reference(value) for name, value in options.items())
    return True


def shown(key: str, text: str) -> str:
    """A value as it may be printed."""
    if not holds_secret(key, text):
        return text
    return HIDDEN if is_secret(key) else USER_INFO.sub(rf"\g<user>:{HIDDEN}", text)


def redact(mapping: Mapping[str, object]) -> dict[str, str]:
    """A mapping of settings as it may be printed; references stay readable."""
    return {key: HIDDEN if isinstance(value, Secret) else shown(key, str(value)) for key, value in mapping.items()}
