"""LIKE and regular expressions of Java on Arrow strings.

Arrow's expressions are those of RE2, Spark's those of Java. The constructs that both have with the same meaning, or for
which there is another form with the same meaning, are translated; others are refused. The one difference that depends
on the data is ``$``, which in Java also matches before a line terminator at the end: the few strings that end with one
are matched by Python, which can express that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import attrs
import pyarrow as pa
import pyarrow.compute as pc

MOST_REPETITIONS = 1000
"""RE2 repeats an expression at most so often."""
_TERMINATORS = "\n\r\x85\u2028\u2029"
_ENDS_WITH_TERMINATOR = f"[{_TERMINATORS}]\\z"
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": "\\t\\n\\x0B\\f\\r "}
_CONTROLS = {"t": "\\t", "n": "\\n", "r": "\\r", "f": "\\f"}
_META = frozenset("\\^$.|?*+()[]{}")
_JAVA_END = f"(?=\\r\\n\\Z|(?<!\\r)\\n\\Z|[{_TERMINATORS.replace(chr(10), '')}]\\Z|\\Z)"
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")

Match = Callable[[pa.Array], pa.Array]
"""Says of each string whether it matches; NULL stays NULL."""


class PatternError(ValueError):
    """A pattern has a part that Arrow cannot match exactly as Spark; the message names the part."""


@attrs.frozen
class Regular:
    """A regular expression in the languages of RE2 and of Python."""

    arrow: str
    python: str

    def find(self, texts: pa.Array) -> pa.Array:
        """Say of each string whether a part of it matches; NULL stays NULL."""
        matches = pc.match_substring_regex(texts, self.arrow)
        if "$" not in self.python and _JAVA_END not in self.python:
            return matches
        ending = pc.fill_null(pc.match_substring_regex(texts, _ENDS_WITH_TERMINATOR), False)
        if not pc.any(ending).as_py():
            return matches
        compiled = re.compile(self.python)
        few = [compiled.search(text) is not None for text in texts.filter(ending).to_pylist()]
        return pc.replace_with_mask(matches, ending, pa.array(few, pa.bool_()))


def compile_like(pattern: str, escape: str | None) -> Match:
    """Return the function that matches whole strings with a pattern of LIKE; without ``escape`` nothing is escaped."""
    parts = _like_parts(pattern, escape)
    texts = [text for text, _ in parts]
    match [sign for _, sign in parts]:
        case []:
            return lambda values: pc.equal(values, "")
        case [""]:
            return lambda values: pc.equal(values, pa.scalar(texts[0], values.type))
        case ["", "%"]:
            return partial(pc.starts_with, pattern=texts[0])
        case ["%", ""]:
            return partial(pc.ends_with, pattern=texts[1])
        case ["%", "", "%"]:
            return partial(pc.match_substring, pattern=texts[1])
    regular = "".join({"%": ".*", "_": "."}.get(sign) or _quote(text) for text, sign in parts)
    return partial(pc.match_substring_regex, pattern=f"(?s)\\A{regular}\\z")


def _like_parts(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    """Split a pattern into pairs of text and sign, one of them empty; raise PatternError as `like` does."""
    parts: list[tuple[str, str]] = []
    rest = iter(pattern)
    for sign in rest:
        if sign == escape:
            sign = next(rest, "")
            if sign not in ("%", "_", escape):
                raise PatternError(f"{escape}{sign}")
        elif sign in "%_":
            parts.append(("", sign))
            continue
        if parts and not parts[-1][1]:
            parts[-1] = (parts[-1][0] + sign, "")
        else:
            parts.append((sign, ""))
    return parts


def _quote(text: str) -> str:
    """Escape the characters that have a meaning in regular expressions."""
    return "".join(f"\\{sign}" if sign in _META else sign for sign in text)


def compile_regular(pattern: str) -> Regular:
    """Translate a regular expression of Java to the languages of RE2 and of Python."""
    both = _PatternTranslator(pattern).read()
    try:
        re.compile(both.python)
        pc.match_substring_regex(pa.array([""]), both.arrow)
    except (re.error, pa.ArrowInvalid) as e:
        raise PatternError(f"{pattern} ({e})") from None
    return both


class _PatternTranslator:
    """Translates an expression from left to right.

    Each method that translates a construct takes it at ``at``, and appends its translation to ``arrow`` and ``python``.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0
        self.arrow: list[str] = []
        self.python: list[str] = []

    def read(self) -> Regular:
        """Translate the whole expression; raise PatternError at a construct that cannot be translated."""
        repeatable = False
        while self.at < len(self.pattern):
            repeatable = self._read_one(repeatable=repeatable)
        return Regular("".join(self.arrow), "".join(self.python))

    def _add(self, arrow: str, python: str | None = None, *, length: int = 1) -> None:
        """Append a construct to both results (to Python's as to RE2's by default), and skip ``length`` characters."""
        self.arrow.append(arrow)
        self.python.append(arrow if python is None else python)
        self.at += length

    def _error(self, length: int = 1) -> PatternError:
        """Return, not raise, the error of the next characters."""
        return PatternError(self.pattern[self.at : self.at + length])

    def _read_one(self, *, repeatable: bool) -> bool:
        """Translate one construct, and return whether a quantifier may follow it."""
        sign = self.pattern[self.at]
        rest = self.pattern[self.at :]
        match sign:
            case "\\":
                self._read_escape()
            case "[":
                self._read_class()
            case ".":
                self._add(f"[^{_TERMINATORS}]")
            case "^":
                self._add("\\A")
                return False
            case "$":
                self._add("\\z", _JAVA_END)
                return False
            case "|":
                self._add("|")
                return False
            case "(":
                if rest.startswith("(?") and not rest.startswith("(?:"):
                    raise self._error(4)
                opening = "(?:" if rest.startswith("(?:") else "("
                self._add("(?:", length=len(opening))
                return False
            case ")":
                self._add(")")
            case "?" | "*" | "+" | "{":
                if not repeatable:
                    raise self._error()
                self._read_quantifier(rest)
                return False
            case "}" | "]":
                self._add(f"\\{sign}")
            case _:
                self._add(sign)
        return True

    def _read_quantifier(self, rest: str) -> None:
        """Translate the quantifier at the start of ``rest``, the pattern from here on."""
        length = 1
        if rest[0] == "{":
            repeat = _REPEAT.match(rest)
            if repeat is None or max(int(n) for n in (repeat[1], repeat[3] or "0")) > MOST_REPETITIONS:
                raise self._error(6)
            length = len(repeat[0])
        after = rest[length : length + 1]
        if after in ("+", "*", "{"):
            raise self._error(length + 1)  # possessive, or repeated twice
        length += after == "?"
        if rest[length : length + 1] in ("+", "*", "?", "{") and after == "?":
            raise self._error(length + 1)
        self._add(rest[:length], length=length)

    def _read_escape(self) -> None:
        """Translate what begins with a backslash; raise PatternError if RE2 has nothing with the same meaning."""
        sign = self.pattern[self.at + 1 : self.at + 2]
        if sign in _CLASSES:
            self._add(f"[{_CLASSES[sign]}]", length=2)
        elif sign.lower() in _CLASSES and sign:
            self._add(f"[^{_CLASSES[sign.lower()]}]", length=2)
        elif sign in _CONTROLS:
            self._add(_CONTROLS[sign], length=2)
        elif sign and sign.isascii() and not sign.isalnum():
            self._add(f"\\{sign}" if sign in _META else sign, length=2)
        else:
            raise self._error(2)

    def _read_class(self) -> None:
        """Translate a class in square brackets."""
        start = self.at
        self.at += 1
        content = "["
        if self.pattern[self.at : self.at + 1] == "^":
            content += "^"
            self.at += 1
        first = True
        while True:
            sign = self.pattern[self.at : self.at + 1]
            if sign == "]" and not first:
                break
            if sign in ("", "[", "]") or self.pattern.startswith("&&", self.at):
                raise PatternError(self.pattern[start : self.at + 2])
            content += self._class_member(sign)
            first = False
        self._add(content + "]")

    def _class_member(self, sign: str) -> str:
        """Take a character or escape inside a class, and return its translation; raise PatternError if it has none."""
        if sign == "\\":
            escaped = self.pattern[self.at + 1 : self.at + 2]
            self.at += 2
            if escaped in _CLASSES:
                return _CLASSES[escaped]
            if escaped in _CONTROLS:
                return _CONTROLS[escaped]
            if escaped and escaped.isascii() and not escaped.isalnum():
                return f"\\{escaped}"
            raise PatternError(f"\\{escaped}")
        self.at += 1
        if sign == "-":
            before, after = self.pattern[self.at - 2], self.pattern[self.at : self.at + 1]
            return "\\-" if after == "]" or before in "[^" else "-"
        return f"\\{sign}" if sign in "^&~|" else sign
