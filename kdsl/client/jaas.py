"""The text of ``sasl.jaas.config``: parsed as Java's clients parse it, and written again.

The grammar is that of Kafka's JaasConfig over Java's StreamTokenizer: a login module, a control flag, options
``name=value``, a semicolon; values in single or double quotes with Java's escapes, or bare words; comments of both
kinds. Login modules are known by the last part of their class name, so that shaded ones count as Kafka's own.
Errors say where and what, never what was written there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from kdsl.errors import KdslError, listing, nearest

FLAGS = ("required", "requisite", "sufficient", "optional")

MODULES: Mapping[str, str] = MappingProxyType(
    {
        "PlainLoginModule": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "ScramLoginModule": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "OAuthBearerLoginModule": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        "Krb5LoginModule": "com.sun.security.auth.module.Krb5LoginModule",
    }
)
"""The login modules that kdsl knows, by the last part of their names."""

_SECRET_OPTION = re.compile(r"password|passphrase|secret|token|key(?!tab)|claim", re.IGNORECASE)
_PLAIN_OPTIONS = frozenset({"tokenauth", "usekeytab", "storekey", "useticketcache", "keytab"})


class JaasError(KdslError):
    """A JAAS text that cannot be parsed.

    Args:
        position: The place in the text, from 1.
        reason: What is wrong there; nothing of the text itself.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position, self.reason = position, reason

    def __str__(self) -> str:
        return f"at character {self.position}: {self.reason}"


def is_secret_option(name: str) -> bool:
    """Whether an option of a login module holds something that must not be shown (``password``, ``clientSecret``)."""
    return name.lower() not in _PLAIN_OPTIONS and _SECRET_OPTION.search(name) is not None


@attrs.frozen
class Login:
    """What a JAAS text says.

    Attributes:
        module: The class name as it was written.
        options: The options in their order; a name given twice has its last value, as in Java.
        flag: The control flag in lower case.
    """

    module: str
    options: Mapping[str, str] = attrs.field(repr=lambda o: repr({k: _shown(k, v) for k, v in o.items()}))
    flag: str = "required"

    @property
    def kind(self) -> str:
        """The last part of the class name, as ``PlainLoginModule``."""
        return re.split(r"[.$]", self.module)[-1]

    def __str__(self) -> str:
        """The JAAS text with secrets hidden."""
        return attrs.evolve(self, options={k: _shown(k, v) for k, v in self.options.items()}).text()

    def text(self) -> str:
        """The JAAS text that Java's clients take, with Kafka's own name for a shaded login module."""
        options = "".join(f" {_name(name)}={quote(value)}" for name, value in self.options.items())
        return f"{MODULES.get(self.kind, self.module)} {self.flag}{options};"

    def resolved(self, resolve: Callable[[str], str]) -> Login:
        """The same with every value resolved; what a reference stands for is never parsed as JAAS."""
        return attrs.evolve(self, options={name: resolve(value) for name, value in self.options.items()})


def _shown(name: str, value: str) -> str:
    return "***" if is_secret_option(name) and not _REFERENCE.fullmatch(value) else value


_REFERENCE = re.compile(r"\$\{[^{}]*\}")

# Java reads the escapes of C, octal numbers among them, and takes any other character after a backslash as it is.
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WRITTEN: Final = {"\\": r"\\", '"': r"\"", **{char: f"\\{letter}" for letter, char in _ESCAPES.items()}}
_BARE = re.compile(r"[A-Za-z$_\u00a0-\U0010ffff][A-Za-z0-9.$_\-\u00a0-\U0010ffff]*")
# A comment after a single '/' swallows the next character even when it ends the line, as Java's tokenizer does.
_SPACE = re.compile(r"(?:[\x00-\x20]|/\*.*?(?:\*/|\Z)|/[^*][^\r\n]*|/\Z)+", re.DOTALL)
_OCTAL = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")


def quote(value: str) -> str:
    """A value of an option in double quotes, escaped so that Java and `parse` read the same value back."""
    return '"' + "".join(_WRITTEN.get(char, char) for char in value) + '"'


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else quote(name)


def parse(text: str) -> Login:
    """Parse the value of ``sasl.jaas.config``.

    Args:
        text: One login module with its control flag and options, ended by a semicolon.

    Raises:
        JaasError: The text is none; the error names the position and hides the content.
    """
    return _Parser(text).login()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def login(self) -> Login:
        module = self.word("the class name of a login module is missing")
        start = self.skip()
        flag = self.word(f"after the login module comes one of {listing(FLAGS)}").lower()
        if flag not in FLAGS:
            raise JaasError(start + 1, f"after the login module comes one of {listing(FLAGS)}{nearest(flag, FLAGS)}")
        options: dict[str, str] = {}
        while not self.take(";"):
            if self.skip() >= len(self.text):
                raise JaasError(self.at + 1, "the text must end with ';'")
            name = self.word("an option, name=value, or the closing ';' must stand here")
            if not self.take("="):
                raise JaasError(self.skip() + 1, f"'=' must follow the option {self.tell(name)}")
            options[name] = self.word(
                f"the option {self.tell(name)} has no value that Java can read; put it in double quotes"
            )
        if self.skip() < len(self.text):
            raise JaasError(self.at + 1, "more text follows the closing ';'; a client takes one login module")
        return Login(module, MappingProxyType(options), flag)

    @staticmethod
    def tell(name: str) -> str:
        # What stands in a name's place may be the end of an unquoted secret.
        return repr(name) if re.fullmatch(r"[A-Za-z_][A-Za-z_]{0,40}", name) else "here"

    def skip(self) -> int:
        """Past blanks and comments (a single '/' begins one in Java, too)."""
        if found := _SPACE.match(self.text, self.at):
            self.at = found.end()
        return self.at

    def take(self, char: str) -> bool:
        found = self.text.startswith(char, self.skip())
        self.at += found
        return found

    def word(self, missing: str) -> str:
        start = self.skip()
        if start < len(self.text) and self.text[start] in "\"'":
            return self.quoted()
        if self.text.startswith("${", start):
            raise JaasError(start + 1, "a reference must stand in double quotes")
        if found := _BARE.match(self.text, start):
            self.at = found.end()
            return found[0]
        raise JaasError(start + 1, missing)

    def quoted(self) -> str:
        start, mark = self.at, self.text[self.at]
        self.at += 1
        value: list[str] = []
        while self.at < len(self.text) and (char := self.text[self.at]) not in "\r\n":
            self.at += 1
            if char == mark:
                return "".join(value)
            value.append(self.escaped() if char == "\\" else char)
        raise JaasError(start + 1, "the quotation that begins here does not end on its line")

    def escaped(self) -> str:
        if found := _OCTAL.match(self.text, self.at):
            self.at = found.end()
            return chr(int(found[0], 8))
        char = self.text[self.at : self.at + 1]
        self.at += 1
        return _ESCAPES.get(char, char)
