"""Hides secrets when settings are printed: which settings are secret, by name, and what of a value may be shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from urllib.parse import unquote

from kdsl.secrets import HIDDEN, Secret, is_reference
from kdsl.secrets.jaas import JaasError, is_secret_option, parse_jaas

SECRET_SETTINGS = frozenset(
    [
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ]
)
"""The settings of Java's clients that have the type PASSWORD."""
NOT_SECRET = frozenset({"sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.client.credentials.client.id"})
"""The settings of clients whose names resemble that of a secret; `tests/secrets` compares them with all settings."""

_SECRET_KEY = re.compile(
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token|jaas|credentials?|user[._-]?info"
    r"|header[._-][\w-]*(?:authorization|cookie)|(?:api|access|private)[._-]?key|key[._-]pem|oauthbearer[._-]config)(?:[._-](?:pem|config|value|text|key))*",
    re.IGNORECASE,
)
# A password reaches to the last '@' before the path. One that contains a '/' is not part of a valid address, but
# is hidden as well, unless it is a port.
_USER_INFO = r"(?P<user>[^/@:\s]*):(?P<password>[^/\s]+|(?!//|[0-9]+(?:[/?#,\s]|$))(?:(?!://)\S)+)(?=@)"
_START = r"(?:(?<=://)|(?<![^,\s]))"
USER_INFO = re.compile(rf"(?<=://){_USER_INFO}")
LOGIN = re.compile(rf"{_START}{_USER_INFO}")
"""User and password within a URL, also if the scheme is missing."""
_BEFORE_HOST = re.compile(rf"{_START}(?:{_USER_INFO}@|(?:[^/@,\s]*@)+)")
_PARAMETER = re.compile(r"(?<=[?&;])(?P<name>[\w.-]+)=(?=(?P<value>[^&;#\s]+))")
_SHORT = 4
_AROUND = r"(?:(?<=[='\"(\[<,;&/|:])|(?<=[=:]\s))"


def is_secret(key: str) -> bool:
    """Whether the value of a setting must not be shown, by the setting's name.

    This covers the settings of Java and librdkafka and, by their last words, the options of formats and registries
    (``avro-confluent.basic-auth.user-info``); also names that resemble one of them, such as a misspelled one. A prefix
    such as ``properties.`` makes no difference.
    """
    if any(key == name or key.endswith(f".{name}") for name in SECRET_SETTINGS):
        return True
    matches = list(_SECRET_KEY.finditer(key))
    return (bool(matches) and matches[-1].end() == len(key)) or _resembles_secret(key)


@cache
def _resembles_secret(key: str) -> bool:
    """Whether a name may be a misspelled one of a secret, such as ``sasl.pasword``, with any prefix."""
    if key in NOT_SECRET:
        return False
    words = re.split(r"[._-]", key)
    names = (*SECRET_SETTINGS, "sasl.password", "basic.auth.user.info", "bearer.auth.token")
    ends = [key, *(".".join(words[i:]) for i in range(len(words) - 1))]  # with any prefix
    return any(get_close_matches(end, names, n=1, cutoff=0.85) for end in ends)


def find_secrets_in_addresses(text: str) -> list[tuple[int, int]]:
    """Find the secrets in a string that may contain URLs: passwords of logins, and parameters named as secrets.

    References to secrets are not secrets.

    Returns:
        The start and end of each secret, in order.
    """
    logins = (match for match in USER_INFO.finditer(text) if not is_reference(match["password"]))
    named = (match for match in _PARAMETER.finditer(text) if is_secret(match["name"]))
    values = (match for match in named if not is_reference(match["value"]))
    return sorted([*(match.span("password") for match in logins), *(match.span("value") for match in values)])


def contains_secret(key: str, text: str) -> bool:
    """Whether the value of a setting, or an address in it, contains a secret itself, not a reference to one.

    A JAAS configuration that cannot be parsed counts as a secret, and so do bootstrap servers with an ``@``.
    """
    if _is_servers(key):
        return "@" in text
    if not is_secret(key):
        return bool(find_secrets_in_addresses(text))
    if is_reference(text) or not text:
        return False
    if key.endswith("jaas.config"):
        try:
            options = parse_jaas(text).options
        except JaasError:
            return True
        return any(is_secret_option(name) and not is_reference(value) for name, value in options.items())
    return True


def remove_login(address: str) -> str:
    """Remove the logins (everything before ``@``) from a URL, or from several separated by commas."""
    return _BEFORE_HOST.sub("", address)


def redact_value(key: str, text: str) -> str:
    """Replace the secrets in a value of a setting by `HIDDEN`, so that it can be printed.

    The whole value is replaced where the setting is a secret by its name, and bootstrap servers with an ``@``.
    """
    if not contains_secret(key, text):
        return text
    return HIDDEN if is_secret(key) or _is_servers(key) else redact_addresses(text)


def _is_servers(key: str) -> bool:
    """Whether a setting lists brokers, where a login is wrong; its password may contain the commas between them."""
    return key.rpartition("properties.")[2] == "bootstrap.servers"


def redact_addresses(text: str) -> str:
    """Replace the passwords and secret parameters in a string that may contain URLs by `HIDDEN`, for printing it."""
    parts, end = [], 0
    for start, stop in find_secrets_in_addresses(text):
        if stop > end:
            parts += [text[end : max(start, end)], HIDDEN]
            end = stop
    return "".join([*parts, text[end:]])


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a message that another program wrote, such as a driver's error.

    A secret is hidden wherever it occurs, also within words, as it is or as it is written in URLs, JSON and Python. A
    secret of one to three characters is hidden only where a value is expected: after ``=``, ``:`` or ``/``, or in
    quotes. Hidden everywhere, it would make the message unreadable, and the letters missing from words would reveal it.

    Args:
        text: The message.
        secrets: The secrets; empty ones are ignored.
    """
    spelled = {form for secret in secrets for form in _spellings(secret)}
    if not spelled:
        return text
    forms = [
        _or_quoted(form) if len(form) >= _SHORT else rf"{_AROUND}{_or_quoted(form)}(?=['\")\]>,;&@/|\s]|$)"
        for form in sorted(spelled, key=len, reverse=True)
    ]
    return re.sub("|".join(forms), HIDDEN, text)


def _spellings(secret: str) -> set[str]:
    """The forms of a secret: itself, without blanks around it, percent-decoded, and escaped as in JSON and Python.

    Empty ones are left out. `_or_quoted` adds the percent-encoded forms.
    """
    texts = {secret, secret.strip(), unquote(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    return {text for text in texts if text}


def _or_quoted(text: str) -> str:
    """A regular expression for a string whose characters may be percent-encoded; programs differ in which are."""
    return "".join(map(_char_or_quoted, text))


def _char_or_quoted(char: str) -> str:
    """A regular expression for a character, percent-encoded or not; ASCII letters and digits only as they are.

    The codes may be in either case, and a space may be ``+``.
    """
    if char.isascii() and char.isalnum():
        return char
    quoted = "".join(f"%{byte:02X}" for byte in char.encode(errors="surrogatepass"))
    return rf"(?:{re.escape(char)}|(?i:{quoted}){'|[+]' if char == ' ' else ''})"


def redact(mapping: Mapping[str, object]) -> dict[str, str]:
    """Replace the secrets in settings (`redact_value`), so that they can be printed; references stay readable."""
    return {
        key: HIDDEN if isinstance(value, Secret) else redact_value(key, str(value)) for key, value in mapping.items()
    }
