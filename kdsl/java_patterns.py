r"""Regular expressions of Java, as Flink's users write them, translated to Python's.

Most of both languages is the same. Java's own constructs are rewritten; those that Python would read differently, or
not at all, are refused. A character class that only Java has becomes the set of its characters among those that names
can have: names of topics have only ``a-z A-Z 0-9 . _ -``, other names any character. As in Java, ``\w``, ``\d`` and
``(?i)`` mean ASCII, and ``\p{L}`` the letters of Unicode. Python's own ``(?P<name>…)`` stays. Java's language is that
of ``java.util.regex.Pattern``.
"""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from itertools import chain

import attrs


@attrs.frozen
class Characters:
    """A set of characters.

    Attributes:
        ranges: The first and the last code of each run, in order; no run touches the next one.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, *texts: str) -> Characters:
        """The characters of strings."""
        return cls.join((ord(c), ord(c)) for c in chain(*texts))

    @classmethod
    def join(cls, ranges: Iterable[tuple[int, int]]) -> Characters:
        """The characters of ranges in any order, which may overlap."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(last, joined[-1][1])
            else:
                joined.append((first, last))
        return cls(tuple(joined))

    def __or__(self, other: Characters) -> Characters:
        """The characters of both sets."""
        return Characters.join(self.ranges + other.ranges)

    def __and__(self, other: Characters) -> Characters:
        """The characters that are in both sets."""
        return ~(~self | ~other)

    def __sub__(self, other: Characters) -> Characters:
        """The characters that are not in the other set."""
        return self & ~other

    def __invert__(self) -> Characters:
        """All other characters of Unicode."""
        edges = [-1, *chain(*self.ranges), sys.maxunicode + 1]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        return Characters(tuple((before + 1, after - 1) for before, after in gaps if after - before > 1))

    def in_both_cases(self) -> Characters:
        """The characters, and those of ASCII that differ from one of them only in letter case."""
        letters = (self & _LETTERS).ranges
        return self | Characters.join((first ^ 0x20, last ^ 0x20) for first, last in letters)

    def write(self) -> str:
        """Write them as a class for Python's `re`; an empty set matches nothing."""
        if not self.ranges:
            return r"[^\w\W]"
        runs = ([first, last] if last - first > 1 else range(first, last + 1) for first, last in self.ranges)
        texts = (
            ("-" if len(run) == 2 and run[1] - run[0] > 1 else "").join(map(_write_character, run)) for run in runs
        )
        return f"[{''.join(texts)}]"


def _write_character(code: int) -> str:
    """Write a character inside a class, as its code if it is not a printable one of ASCII."""
    if (chr(code).isascii() and chr(code).isalnum()) or chr(code) in "_.":
        return chr(code)
    return f"\\{chr(code)}" if 0x20 < code < 0x7F else f"\\U{code:08x}"


_LOWER, _UPPER, _DIGITS = map(Characters.of, (string.ascii_lowercase, string.ascii_uppercase, string.digits))
_LETTERS = _LOWER | _UPPER
_PUNCTUATION = Characters.of(string.punctuation)
_ASCII = Characters(((0, 0x7F),))
_ANY = Characters(((0, sys.maxunicode),))
_NONE = Characters()
_BLANKS = Characters.of("\t\u00a0\u1680\u180e\u202f\u205f\u3000 ") | Characters(((0x2000, 0x200A),))
_ENDS = Characters.of("\n\x0b\f\r\x85\u2028\u2029")
_TERMINATORS = Characters.of("\n\r\x85\u2028\u2029")

_NAMED: dict[str, Characters] = {
    "lower": _LOWER,
    "upper": _UPPER,
    "ascii": _ASCII,
    "alpha": _LETTERS,
    "digit": _DIGITS,
    "alnum": _LETTERS | _DIGITS,
    "punct": _PUNCTUATION,
    "graph": _LETTERS | _DIGITS | _PUNCTUATION,
    "print": _LETTERS | _DIGITS | _PUNCTUATION | Characters.of(" "),
    "blank": Characters.of(" \t"),
    "cntrl": Characters.of(*map(chr, range(0x20)), "\x7f"),
    "xdigit": _DIGITS | Characters.of("abcdefABCDEF"),
    "space": Characters.of(string.whitespace),
}
"""The sets of characters that Java's patterns name without a prefix such as ``Is``."""
_BLOCKS = {"basiclatin": _ASCII, "basic_latin": _ASCII}
_NAMED_IN_TOPICS: dict[str, Characters] = {
    **_NAMED,
    **_BLOCKS,
    "alphabetic": _LETTERS,
    "letter": _LETTERS,
    "lowercase": _LOWER,
    "uppercase": _UPPER,
    "punctuation": _PUNCTUATION,
    "control": _NONE,
    "hex_digit": _NAMED["xdigit"],
    "white_space": _NONE,
    "latin": _LETTERS,
    "common": _DIGITS | _PUNCTUATION,
}
"""Properties of Unicode, with those of their characters that names of topics can have."""
_PREFIX = re.compile(r"^(?:is|in|java|general_category=|gc=|script=|sc=|block=|blk=)(?=.)", re.IGNORECASE)
_CATEGORY = re.compile(r"[LMNPSZC][a-z]?|LC")
_CLASSES: dict[str, Characters] = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | Characters.of("_"),
    "s": _NAMED["space"],
    "h": _BLANKS,
    "v": _ENDS,
}
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAMED_GROUP = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_BACK = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_CODE = re.compile(r"\\(?:x\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|0([0-3]?[0-7]{1,2}))")


@attrs.frozen
class Names:
    """What a pattern is matched with.

    Attributes:
        title: The patterns of such names, for messages.
        characters: The characters that the names can have.
        example: How to write characters out instead of a property, for messages.
        named: The sets of characters whose names may have a prefix such as ``Is``.
        ignored: The flags without effect on these characters.
        dot: What ``.`` matches.
    """

    title: str
    characters: Characters
    example: str
    named: Mapping[str, Characters]
    ignored: str = ""
    dot: str = "."


TOPICS = Names(
    "topic patterns",
    _LETTERS | _DIGITS | Characters.of("._-"),
    "write the characters out, as [a-z]; names of topics have a-z A-Z 0-9 . _ -",
    _NAMED_IN_TOPICS,
    "dmsuUa",  # some of them have another meaning in Python
)
ANY_NAMES = Names(
    "patterns of names",
    _ANY,
    r"write the characters out, as [a-zäöü], or a general category, as \p{L}",
    _BLOCKS,
    dot=(~_TERMINATORS).write(),
)

TABLES = attrs.evolve(ANY_NAMES, dot="(?s:.)")
"""Names of tables; in their patterns ``.`` is any character, also the end of a line."""


TOPIC_FIX = "write a pattern that the whole topic name must match, such as 'orders-.*'"
"""What to write instead of a pattern, where nothing else is known."""


class PatternError(Exception):
    """A pattern that cannot be used.

    Args:
        message: Why, as the end of "the pattern … ".
        fix: What to write instead.
    """

    def __init__(self, message: str, fix: str = TOPIC_FIX) -> None:
        super().__init__(message)
        self.fix = fix


def compile_pattern(pattern: str, names: Names = ANY_NAMES, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Compile a pattern of names that may have any character, such as those of tables.

    Args:
        pattern: The pattern, which a whole name must match.
        names: The names that it is matched with.
        ignore_case: Whether the letter case of ASCII does not count.

    Raises:
        PatternError: It is not a regular expression, or has a construct that cannot be rewritten.
    """
    flags = re.ASCII | (re.IGNORECASE if ignore_case else 0)
    return re.compile(python_pattern(pattern, names, ignore_case=ignore_case), flags)


def python_pattern(pattern: str, names: Names = TOPICS, *, ignore_case: bool = False) -> str:
    """Translate a pattern to Python's `re`, with Java's meaning.

    A pattern of topics without Java's own constructs is unchanged.

    Args:
        pattern: The pattern, which a whole name must match.
        names: The names that it is matched with.
        ignore_case: Whether the translation is compiled with the flag that ignores letter case.

    Raises:
        PatternError: It is not a regular expression, or has a construct that cannot be rewritten.
    """
    translated = _Translation(pattern, names, ignore_case=ignore_case).run()
    try:
        re.compile(translated, re.ASCII)
    except re.error as e:
        at = "" if e.pos is None or translated != pattern else f" at position {e.pos}"
        if "global flags" in e.msg:
            raise PatternError(
                f"switches a flag in its middle{at}", "put the flags first, as in '(?i)orders-.*', or write (?i:…)"
            ) from None
        raise PatternError(f"is not a regular expression: {e.msg}{at}") from None
    return translated


class _Translation:
    """One pattern, read from left to right."""

    def __init__(self, pattern: str, names: Names, *, ignore_case: bool) -> None:
        self._text, self._at, self._names = pattern, 0, names
        self._any_case = ignore_case
        self._scoped_case = False

    def run(self) -> str:
        """Translate the whole pattern to Python's `re`."""
        self._look_at_flags()
        parts: list[str] = []
        while self._at < len(self._text):
            parts.append(self._translate_next())
        return "".join(parts)

    def _look_at_flags(self) -> None:
        """Set whether the whole pattern (`_any_case`), and whether a part (`_scoped_case`), ignores letter case."""
        for match in _FLAGS.finditer(self._text):
            if "i" in match[1] + (match[2] or ""):
                if match.start() == 0 and match[3] == ")" and not match[2]:
                    self._any_case = True
                else:
                    self._scoped_case = True

    def _translate_next(self) -> str:
        """Translate the next part of the pattern, and move after it; raise PatternError if it cannot be translated."""
        rest = self._text[self._at]
        if rest == "\\":
            return self._translate_escape()
        if rest == "[":
            return self._translate_class()
        if self._text.startswith("(?", self._at):
            return self._translate_group()
        self._at += 1
        return self._names.dot if rest == "." else rest

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a regular expression at the position, and move after it; None, and no move, if it does not match."""
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _translate_group(self) -> str:
        """Translate the beginning of a group, with its name or flags, and move after it.

        The result is empty if its flags concern no topic name.
        """
        if match := self._take(_NAMED_GROUP):
            return f"(?P<{match[1]}>"
        start = self._at
        if match := self._take(_FLAGS):
            on, off, end = match[1], match[2] or "", match[3]
            strange = sorted(set(on + off) - set("i" + self._names.ignored))
            if strange:
                raise PatternError(
                    f"has the flag {strange[0]!r} in {match[0]!r}, which {self._names.title} do not have",
                    "remove it; the flag for any letter case is (?i)",
                )
            on, off = "i" * ("i" in on), "i" * ("i" in off)
            if end == ")" and off and start > 0:
                raise PatternError(
                    f"switches a flag in its middle at position {start}", f"write (?{on}-{off}:…) around a part"
                )
            if end == ")" and not on:
                return ""
            return f"(?{on}{'-' if off else ''}{off}{end}"
        self._at += 2
        return "(?"

    def _translate_escape(self) -> str:
        """Translate what begins with a backslash outside a class; an escape that is the same in Python stays."""
        if self._text.startswith("\\Q", self._at):
            return re.escape(self._take_quotation())
        if match := self._take(_BACK):
            return f"(?P={match[1]})"
        if (character := self._take_character()) is not None:
            return re.escape(character)
        start = self._at
        letter = self._peek_letter()
        if letter in "pP":
            return self._take_property(letter).write()
        self._at = start + 2
        match letter:
            case "z":
                return r"\Z"
            case "h" | "v":
                return self._among_names(_CLASSES[letter]).write()
            case "H" | "V":
                return self._among_names(~_CLASSES[letter.lower()]).write()
            case "R":
                return f"(?:\\r\\n|{self._among_names(_ENDS).write()})"
            case "e":
                return r"\x1b"
            case "c" if self._at < len(self._text):
                self._at += 1
                return re.escape(chr(ord(self._text[self._at - 1]) ^ 0x40))
            case "G" | "N" | "E" | "X" | "c":
                raise PatternError(f"has \\{letter} at position {start}, which {self._names.title} do not have")
            case _:
                return f"\\{letter}"

    def _take_quotation(self) -> str:
        r"""Take a quotation between ``\Q`` and ``\E``, or up to the end, and return its text."""
        end = self._text.find("\\E", self._at)
        text = self._text[self._at + 2 : len(self._text) if end < 0 else end]
        self._at = len(self._text) if end < 0 else end + 2
        return text

    def _take_character(self) -> str | None:
        r"""Take a character that is written as its code (``\x41``, ``\u0041``, ``\x{41}``, ``\0101``).

        None, without a move, if there is no code at the position.
        """
        match = self._take(_CODE)
        if match is None:
            return None
        code = int(match[4], 8) if match[4] else int(match[1] or match[2] or match[3], 16)
        if code > 0x10FFFF:
            raise PatternError(f"names the character {match[0]}, which does not exist")
        return chr(code)

    def _peek_letter(self) -> str:
        """Return the character after the backslash at the position, without a move."""
        if self._at + 1 >= len(self._text):
            raise PatternError("ends with a backslash")
        return self._text[self._at + 1]

    def _take_property(self, letter: str) -> Characters:
        r"""Take a property such as ``\p{Lower}``, and return the characters of names that have it.

        If the whole pattern ignores letter case, they are in both cases.
        """
        start = self._at
        match = self._take(re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|([A-Z]))"))
        if match is None:
            raise PatternError(f"has \\{letter} without a property at position {start}", "write it as \\p{Lower}")
        name = match[2] or match[3] or ""
        if self._any_case and re.fullmatch("(?:Is|gc=|general_category=)?L[ult]", name):
            name = "LC"
        characters = _find_property(name, self._names)
        if characters is None:
            raise PatternError(
                f"has the property {match[0]} at position {start}, which kdsl does not know",
                self._names.example,
            )
        negated = (letter == "P") != bool(match[1])
        characters = self._fold_case(characters)
        return self._among_names(~characters if negated else characters)

    def _translate_class(self) -> str:
        """Translate the class in brackets that is next. It stays unchanged if Python reads it the same way."""
        start = self._at
        plain = re.compile(r"\[\^?\]?(?:[^\[\]\\&]|&(?!&)|\\[^pPQEhHvVRXNGzZ0xuckKb])*\]")
        if match := self._take(plain):
            return match[0]
        if self._scoped_case:
            raise PatternError(
                f"has {self._text[start : start + 12]!r} at position {start}, a class that only Java has, with "
                "(?i) for a part of the pattern",
                "put (?i) first, or write the characters out, as [a-z]",
            )
        return self._read_set().write()

    def _read_set(self) -> Characters:
        """Read a class, whose opening bracket is next, and return the characters of names in it."""
        start = self._at
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        parts: list[Characters | None] = [None]
        first = True
        while True:
            if self._at >= len(self._text):
                raise PatternError(f"has a class in brackets that does not end, from position {start} on")
            if self._text[self._at] == "]" and not first:
                self._at += 1
                break
            if self._text.startswith("&&", self._at):
                self._at += 2
                parts.append(None)
            else:
                parts[-1] = (parts[-1] or _NONE) | self._read_item()
            first = False
        characters = reduce(Characters.__and__, [part for part in parts if part is not None] or [_NONE])
        return self._among_names(~characters if negated else characters)

    def _read_item(self) -> Characters:
        """Read one part of a class, and return the characters of names in it.

        A part is a nested class, an escape, a quotation, a range, or a character.
        """
        text = self._text
        if text[self._at] == "[":
            return self._read_set()
        if text.startswith("\\Q", self._at):
            return self._fold_case(Characters.of(self._take_quotation()))
        if text[self._at] == "\\":
            letter = self._peek_letter()
            if letter in "pP":
                return self._take_property(letter)
            if letter.lower() in _CLASSES:
                self._at += 2
                characters = _CLASSES[letter.lower()]
                return self._among_names(characters if letter.islower() else ~characters)
        first = last = self._take_one()
        if text.startswith("-", self._at) and text[self._at + 1 : self._at + 2] not in ("", "]", "["):
            self._at += 1
            last = self._take_one()
            if last < first:
                raise PatternError(f"has the range {first}-{last}, whose end comes before its beginning")
        return self._fold_case(Characters(((ord(first), ord(last)),)))

    def _take_one(self) -> str:
        """Take one character of a class in brackets, which may be escaped, and return it without the escape."""
        if self._text[self._at] != "\\":
            self._at += 1
            return self._text[self._at - 1]
        if (character := self._take_character()) is not None:
            return character
        letter, at = self._peek_letter(), self._at
        self._at += 2
        if letter.isalnum():
            known = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
            if letter not in known:
                raise PatternError(f"has \\{letter} at position {at}, which a class in brackets does not have")
            return known[letter]
        return letter

    def _fold_case(self, characters: Characters) -> Characters:
        """Return those characters that names can have, in both letter cases if the whole pattern ignores case."""
        return self._among_names(characters.in_both_cases() if self._any_case else characters)

    def _among_names(self, characters: Characters) -> Characters:
        """Return those characters that names can have."""
        return characters & self._names.characters


def _find_property(name: str, names: Names) -> Characters | None:
    """The characters that have a property of Java's patterns; None if the property is unknown."""
    bare = _PREFIX.sub("", name)
    if _CATEGORY.fullmatch(bare):
        return _find_category(bare, names.characters)
    plain = bare.lower().replace("-", "_").replace(" ", "_")
    return names.named.get(plain) or (_NAMED.get(plain) if bare == name else None)


@cache
def _find_category(category: str, among: Characters) -> Characters:
    """Those characters that have a general category of Unicode, or one that begins with its letter."""
    wanted = ("Lu", "Ll", "Lt") if category == "LC" else (category,)
    codes = chain(*(range(first, last + 1) for first, last in among.ranges))
    return Characters.join((code, code) for code in codes if unicodedata.category(chr(code)).startswith(wanted))
