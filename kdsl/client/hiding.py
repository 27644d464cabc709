"""What hides secrets when settings are printed: which settings hold one, by name, and what may be shown of a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache

from kdsl.client import librdkafka
from kdsl.client.jaas import JaasError, is_secret_option, parse
from kdsl.client.model import SECRET
from kdsl.client.settings import TABLE
from kdsl.secrets import HIDDEN, Secret, is_reference

_SECRET_KEY = re.compile(
    r"(?:pass(?:word|wd|phrase)|secret|token|jaas|credentials?|user[._-]?info|(?:api|access|private)[._-]?key|key[._-]pem"
    r"|oauthbearer[._-]config)(?:[._-](?:pem|config|value|text|key))*",
    re.IGNORECASE,
)
_USER_INFO = r"(?P<user>[^/@:\s]*):(?P<password>[^/@\s]+)(?=@)"
USER_INFO = re.compile(rf"(?<=://){_USER_INFO}")
LOGIN = re.compile(rf"(?:(?<=://)|(?<![^,\s])){_USER_INFO}")
"""User and password within an address of a web server, also where the scheme before them is missing."""


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
    words = re.split(r"[._-]", key)
    names = (*SECRET, "sasl.password", "basic.auth.user.info", "bearer.auth.token")
    ends = [key, *(".".join(words[i:]) for i in range(len(words) - 1))]  # a prefix changes nothing
    return any(get_close_matches(end, names, n=1, cutoff=0.85) for end in ends)


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


def without_login(address: str) -> str:
    """An address, or several with commas between them, without what stands before an ``@``."""
    return re.sub(r"(?:(?<=://)|(?<![^,\s]))[^/@]*@", "", address)


def shown(key: str, text: str) -> str:
    """A value as it may be printed."""
    if not holds_secret(key, text):
        return text
    return HIDDEN if is_secret(key) else USER_INFO.sub(rf"\g<user>:{HIDDEN}", text)


def redact(mapping: Mapping[str, object]) -> dict[str, str]:
    """A mapping of settings as it may be printed; references stay readable."""
    return {key: HIDDEN if isinstance(value, Secret) else shown(key, str(value)) for key, value in mapping.items()}
