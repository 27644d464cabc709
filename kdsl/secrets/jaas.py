"""``sasl.jaas.config``: parsed as Java's clients parse it, and written.

The grammar is that of Kafka's JaasConfig over Java's StreamTokenizer: a login module, a control flag, options
``name=value``, a semicolon; values in single or double quotes with Java's escapes, or bare words; comments of both
kinds. Login modules are recognised by the last part of their class name, so shaded ones count as Kafka's own.
Errors contain the position and the reason, but never the content.
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
        "IAMLoginModule": "software.amazon.msk.auth.iam.IAMLoginModule",
    }
)
"""The login modules that kdsl knows, by the last part of their names."""

_SECRET_OPTION = re.compile(r"password|passphrase|secret|token|key(?!tab)|claim", re.IGNORECASE)
_OPTIONS = frozenset(
    [
        "username",
        "password",
        "tokenauth",
        "clientId",
        "clientSecret",
        "scope",
        "serviceName",
        "principal",
        "keyTab",
        "useKeyTab",
        "storeKey",
        "useTicketCache",
        "renewTGT",
        "doNotPrompt",
        "ticketCache",
        "refreshKrb5Config",
        "debug",
        "unsecuredLoginStringClaim_sub",
    ]
)
"""The options of the known login modules, which messages may contain."""
_PLAIN_OPTIONS = frozenset({"tokenauth", "usekeytab", "storekey", "useticketcache", "keytab"})


class JaasError(KdslError):
    """A JAAS configuration that cannot be parsed.

    Args:
        position: The position in the string, from 1.
        reason: What is wrong there, without the content.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position, self.reason = position, reason

    def __str__(self) -> str:
        return f"at character {self.position}: {self.reason}"


def is_secret_option(name: str) -> bool:
    """Whether the value of a login module's option is secret (``password``, ``clientSecret``)."""
    return name.lower() not in _PLAIN_OPTIONS and _SECRET_OPTION.search(name) is not None


@attrs.frozen
class Login:
    """A parsed JAAS configuration.

    Attributes:
        module: The class name as it was written.
        options: The options in their order; the last of equal names counts, as in Java.
        flag: The control flag in lower case.
    """

    module: str
    options: Mapping[str, str] = attrs.field(repr=lambda o: repr({k: _redact(k, v) for k, v in o.items()}))
    flag: str = "required"

    @property
    def kind(self) -> str:
        """The last part of the class name, as ``PlainLoginModule``."""
        return re.split(r"[.$]", self.module)[-1]

    def __str__(self) -> str:
        """The JAAS configuration with secrets hidden."""
        return attrs.evolve(self, options={k: _redact(k, v) for k, v in self.options.items()}).text()

    def text(self) -> str:
        """The JAAS configuration for Java's clients, with Kafka's own name for a shaded login module."""
        options = "".join(f" {_name(name)}={quote(value)}" for name, value in self.options.items())
        return f"{MODULES.get(self.kind, self.module)} {self.flag}{options};"

    def resolve(self, resolve: Callable[[str], str]) -> Login:
        """The same login with every reference in its options replaced; the replacement is never parsed as JAAS.

        Errors are those of the function ``resolve``.
        """
        return attrs.evolve(self, options={name: resolve(value) for name, value in self.options.items()})


def _redact(name: str, value: str) -> str:
    """Return the value of an option for display: hidden if it is secret and not a reference."""
    return "***" if is_secret_option(name) and not _REFERENCE.fullmatch(value) else value


_REFERENCE = re.compile(r"\$\{[^{}]*\}")

# Java reads the escapes of C, octal numbers among them, and takes any other character after a backslash literally.
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WRITTEN: Final = {"\\": r"\\", '"': r"\"", **{char: f"\\{letter}" for letter, char in _ESCAPES.items()}}
# A letter, '$', '_' or anything from U+00A0 on; then also digits, '.' and '-'. Such a range itself compiles for 7 ms.
_BARE = re.compile(r"[^\x00-#%-@\[-^`{-\x9f][^\x00-#%-,/:-@\[-^`{-\x9f]*")
# As in Java's tokenizer, a comment after a single '/' includes the next character even if that ends the line.
_SPACE = re.compile(r"(?:[\x00-\x20]|/\*.*?(?:\*/|\Z)|/[^*][^\r\n]*|/\Z)+", re.DOTALL)
_ESCAPED_QUOTE = re.compile(r"\\[\"']")
_TWICE = re.compile(r"\\([\"'\\])")
_MIXED = "parsed without the backslashes before its quotes; escape all quotes, or better none"
_OCTAL = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")


def quote(value: str) -> str:
    """Quote the value of an option, with escapes that Java and `parse_jaas` understand."""
    return '"' + "".join(_WRITTEN.get(char, char) for char in value) + '"'


def _name(name: str) -> str:
    """Return the name of an option as Java can read it: in quotes unless it is a plain word."""
    return name if _BARE.fullmatch(name) else quote(name)


def parse_jaas(text: str) -> Login:
    r"""Parse the value of ``sasl.jaas.config``.

    Escaped quotes, ``username=\"u\"``, are accepted as well, although Java's clients refuse them: strings of Java and
    Python, and Flink's documentation, contain them, and they are copied from there into SQL and YAML.

    Args:
        text: One login module with its control flag and options, followed by a semicolon.

    Raises:
        JaasError: The string cannot be parsed; the error contains the position but not the content.
    """
    parser = _Parser(text)
    try:
        return parser.login()
    except JaasError:
        if not _ESCAPED_QUOTE.match(text, parser.at):
            raise
    plain = _TWICE.sub(r"\1", text)
    try:
        return _Parser(plain).login()
    except JaasError as e:
        raise JaasError(_position(text, e.position), f"{e.reason} ({_MIXED})") from None


def _position(text: str, position: int) -> int:
    """Return the position in a string for one after `_TWICE` has removed backslashes from it; both count from 1."""
    removed = 0
    for number, match in enumerate(_TWICE.finditer(text)):
        if match.start() - number >= position - 1:
            break
        removed += 1
    return position + removed


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def login(self) -> Login:
        """Parse the whole configuration: module, flag and options."""
        module = self.word("the class name of a login module is missing")
        start = self.skip()
        flag = self.word(f"after the login module must come one of {listing(FLAGS)}").lower()
        if flag not in FLAGS:
            raise JaasError(
                start + 1, f"after the login module must come one of {listing(FLAGS)}{nearest(flag, FLAGS)}"
            )
        options: dict[str, str] = {}
        while not self.take(";"):
            if self.skip() >= len(self.text):
                raise JaasError(self.at + 1, "the configuration must end with ';'")
            name = self.word("an option, name=value, or the closing ';' is expected here")
            if not self.take("="):
                raise JaasError(self.skip() + 1, f"'=' must follow the option {self._name_or_here(name)}")
            options[name] = self.word(
                f"the option {self._name_or_here(name)} has no value that Java can read; put it in double quotes"
            )
        if self.skip() < len(self.text):
            raise JaasError(self.at + 1, "there is more after the closing ';'; only one login module is allowed")
        return Login(module, MappingProxyType(options), flag)

    @staticmethod
    def _name_or_here(name: str) -> str:
        """Return a known option's name in quotes, else ``here``: another word may be part of a secret."""
        return repr(name) if name in _OPTIONS else "here"

    def skip(self) -> int:
        """Skip blanks and comments (in Java a single '/' begins a comment, too), and return the position.

        A comment without an end extends to the end of the text.
        """
        if match := _SPACE.match(self.text, self.at):
            self.at = match.end()
        return self.at

    def take(self, char: str) -> bool:
        """Skip blanks and comments (`skip`), move after a character if it comes next, and return whether it does."""
        is_next = self.text.startswith(char, self.skip())
        self.at += is_next
        return is_next

    def word(self, missing: str) -> str:
        """Take a word, or a quoted string without its quotes, after blanks and comments."""
        start = self.skip()
        if start < len(self.text) and self.text[start] in "\"'":
            return self.read_quoted()
        if self.text.startswith("${", start):
            raise JaasError(start + 1, "a reference must be in double quotes")
        if match := _BARE.match(self.text, start):
            self.at = match.end()
            return match[0]
        raise JaasError(start + 1, missing)

    def read_quoted(self) -> str:
        """Take a quoted string, without its quotes and escapes."""
        start, mark = self.at, self.text[self.at]
        self.at += 1
        value: list[str] = []
        while self.at < len(self.text) and (char := self.text[self.at]) not in "\r\n":
            self.at += 1
            if char == mark:
                return "".join(value)
            value.append(self.read_escape() if char == "\\" else char)
        raise JaasError(start + 1, "the quoted string that begins here does not end on the same line")

    def read_escape(self) -> str:
        """Take what follows a backslash, and return the character that it stands for; empty at the end of the text."""
        if match := _OCTAL.match(self.text, self.at):
            self.at = match.end()
            return chr(int(match[0], 8))
        char = self.text[self.at : self.at + 1]
        self.at += 1
        return _ESCAPES.get(char, char)
