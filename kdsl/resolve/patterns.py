"""Topic patterns: translates Java's regular expressions, as Flink's users write them, to Python's.

Most of both languages is the same. Java's own constructs are rewritten; those that Python would read differently, or
not at all, are refused. Topic names contain only the characters ``a-z A-Z 0-9 . _ -``, so a character class that only
Java has becomes the set of its characters among these. Python's own ``(?P<name>…)`` stays. Java's language is that of
``java.util.regex.Pattern``.
"""

from __future__ import annotations

import re
import string
import unicodedata

_LOWER, _UPPER, _DIGITS = frozenset(string.ascii_lowercase), frozenset(string.ascii_uppercase), frozenset(string.digits)
_PUNCTUATION = frozenset("._-")
_EVERY = _LOWER | _UPPER | _DIGITS | _PUNCTUATION
_NONE: frozenset[str] = frozenset()

_NAMED: dict[str, frozenset[str]] = {
    "lower": _LOWER,
    "upper": _UPPER,
    "ascii": _EVERY,
    "alpha": _LOWER | _UPPER,
    "alphabetic": _LOWER | _UPPER,
    "letter": _LOWER | _UPPER,
    "lowercase": _LOWER,
    "uppercase": _UPPER,
    "digit": _DIGITS,
    "alnum": _LOWER | _UPPER | _DIGITS,
    "punct": _PUNCTUATION,
    "punctuation": _PUNCTUATION,
    "graph": _EVERY,
    "print": _EVERY,
    "blank": _NONE,
    "cntrl": _NONE,
    "control": _NONE,
    "xdigit": _DIGITS | frozenset("abcdefABCDEF"),
    "hex_digit": _DIGITS | frozenset("abcdefABCDEF"),
    "space": _NONE,
    "white_space": _NONE,
    "basiclatin": _EVERY,
    "basic_latin": _EVERY,
    "latin": _LOWER | _UPPER,
    "common": _DIGITS | _PUNCTUATION,
}
_PREFIX = re.compile(r"^(?:is|in|java|general_category=|gc=|script=|sc=|block=|blk=)(?=.)", re.IGNORECASE)
_CATEGORY = re.compile(r"[LMNPSZC][a-z]?|LC")
_CLASSES: dict[str, frozenset[str]] = {
    "d": _DIGITS,
    "w": _LOWER | _UPPER | _DIGITS | {"_"},
    "s": _NONE,
    "h": _NONE,
    "v": _NONE,
}
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_SAME_IN_NAMES = "dmsuUa"  # flags without effect on the characters of names
_NAMED_GROUP = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_BACK = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_CODE = re.compile(r"\\(?:x\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|0([0-3]?[0-7]{1,2}))")


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


def python_pattern(pattern: str) -> str:
    """Translate a topic pattern to Python's `re`, with Java's meaning; one without Java's own constructs is unchanged.

    Args:
        pattern: The pattern, which a whole name must match.

    Raises:
        PatternError: It is not a regular expression, or has a construct that cannot be rewritten.
    """
    translated = _Translation(pattern).run()
    try:
        re.compile(translated)
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

    def __init__(self, pattern: str) -> None:
        self._text, self._at = pattern, 0
        self._any_case = False
        self._scoped_case = False

    def run(self) -> str:
        """Translate the whole pattern to Python's `re`.

        Raises:
            PatternError: A part cannot be translated.
        """
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
        return rest

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a regular expression at the position, and move after it; None, and no move, if it does not match."""
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _translate_group(self) -> str:
        """Translate the beginning of a group, with its name or flags, and move after it.

        The result is empty if its flags concern no topic name.

        Raises:
            PatternError: It has a flag that topic patterns do not have, or switches ``i`` off in the middle.
        """
        if match := self._take(_NAMED_GROUP):
            return f"(?P<{match[1]}>"
        start = self._at
        if match := self._take(_FLAGS):
            on, off, end = match[1], match[2] or "", match[3]
            strange = sorted(set(on + off) - set("i" + _SAME_IN_NAMES))
            if strange:
                raise PatternError(
                    f"has the flag {strange[0]!r} in {match[0]!r}, which topic patterns do not have",
                    "remove it; the flag for any letter case is (?i)",
                )
            # Java's other flags concern characters that names do not contain; some have another meaning in Python.
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
        """Translate what begins with a backslash outside a class; an escape that is the same in Python stays.

        Raises:
            PatternError: Topic patterns do not have the escape, it names no character or an unknown property, or the
                pattern ends after the backslash. Escapes that neither language has are left to `python_pattern`.
        """
        if self._text.startswith("\\Q", self._at):
            return re.escape(self._take_quotation())
        if match := self._take(_BACK):
            return f"(?P={match[1]})"
        if (character := self._take_character()) is not None:
            return re.escape(character)
        start = self._at
        letter = self._peek_letter()
        if letter in "pP":
            return _character_class(self._take_property(letter))
        self._at = start + 2
        match letter:
            case "z":
                return r"\Z"
            case "h" | "v" | "R" | "e":  # names do not contain such a character
                return _character_class(_NONE)
            case "c":
                self._at += 1
                return _character_class(_NONE)
            case "H" | "V" | "X":
                return "."
            case "G" | "N" | "E":
                raise PatternError(f"has \\{letter} at position {start}, which topic patterns do not have")
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

        Raises:
            PatternError: There is no such character.
        """
        match = self._take(_CODE)
        if match is None:
            return None
        code = int(match[4], 8) if match[4] else int(match[1] or match[2] or match[3], 16)
        if code > 0x10FFFF:
            raise PatternError(f"names the character {match[0]}, which does not exist")
        return chr(code)

    def _peek_letter(self) -> str:
        """Return the character after the backslash at the position, without a move.

        Raises:
            PatternError: The pattern ends there.
        """
        if self._at + 1 >= len(self._text):
            raise PatternError("ends with a backslash")
        return self._text[self._at + 1]

    def _take_property(self, letter: str) -> frozenset[str]:
        r"""Take a property such as ``\p{Lower}``, and return the characters of topic names that have it.

        If the whole pattern ignores letter case, they are in both cases.

        Raises:
            PatternError: The property is missing or unknown.
        """
        start = self._at
        match = self._take(re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|([A-Z]))"))
        if match is None:
            raise PatternError(f"has \\{letter} without a property at position {start}", "write it as \\p{Lower}")
        name = match[2] or match[3] or ""
        characters = _characters_of_property(name)
        if characters is None:
            raise PatternError(
                f"has the property {match[0]} at position {start}, which kdsl does not know",
                "write the characters out, as [a-z]; names of topics have a-z A-Z 0-9 . _ -",
            )
        negated = (letter == "P") != bool(match[1])
        characters = self._fold_case(characters)
        return _EVERY - characters if negated else characters

    def _translate_class(self) -> str:
        """Translate the class in brackets that is next. It stays unchanged if Python reads it the same way.

        Raises:
            PatternError: Only Java has such a class, and the pattern ignores case in a part of it; or it is malformed.
        """
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
        return _character_class(self._read_set())

    def _read_set(self) -> frozenset[str]:
        """Read a class, whose opening bracket is next, and return the characters of topic names in it.

        Raises:
            PatternError: The class does not end, or has a part that cannot be rewritten.
        """
        start = self._at
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        parts: list[frozenset[str] | None] = [None]
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
        characters = frozenset.intersection(*[part for part in parts if part is not None] or [_NONE])
        return _EVERY - characters if negated else characters

    def _read_item(self) -> frozenset[str]:
        """Read one part of a class, and return the characters of topic names in it.

        A part is a nested class, an escape, a quotation, a range, or a character.

        Raises:
            PatternError: The part is unknown, or a range is in the wrong order.
        """
        text = self._text
        if text[self._at] == "[":
            return self._read_set()
        if text.startswith("\\Q", self._at):
            return self._fold_case(frozenset(self._take_quotation()))
        if text[self._at] == "\\":
            letter = self._peek_letter()
            if letter in "pP":
                return self._take_property(letter)
            if letter.lower() in _CLASSES:
                self._at += 2
                return _CLASSES[letter] if letter.islower() else _EVERY - _CLASSES[letter.lower()]
        first = last = self._take_one()
        if text.startswith("-", self._at) and text[self._at + 1 : self._at + 2] not in ("", "]", "["):
            self._at += 1
            last = self._take_one()
            if last < first:
                raise PatternError(f"has the range {first}-{last}, whose end comes before its beginning")
        return self._fold_case(frozenset(c for c in _EVERY if first <= c <= last))

    def _take_one(self) -> str:
        """Take one character of a class in brackets, which may be escaped, and return it without the escape.

        Raises:
            PatternError: A class has no such escape.
        """
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

    def _fold_case(self, characters: frozenset[str]) -> frozenset[str]:
        """Return those characters that topic names have, in both letter cases if the whole pattern ignores case."""
        if not self._any_case:
            return characters & _EVERY
        return frozenset(folded for c in characters for folded in (c.lower(), c.upper())) & _EVERY


def _characters_of_property(name: str) -> frozenset[str] | None:
    """The characters of topic names that have a property of Java's patterns; None if the property is unknown."""
    bare = _PREFIX.sub("", name)
    if _CATEGORY.fullmatch(bare):
        wanted = ("Lu", "Ll", "Lt") if bare == "LC" else (bare,)
        return frozenset(c for c in _EVERY if unicodedata.category(c).startswith(wanted))
    return _NAMED.get(bare.lower().replace("-", "_").replace(" ", "_"))


def _character_class(characters: frozenset[str]) -> str:
    """Write a set of characters of topic names as a class for Python's `re`; an empty set matches nothing."""
    if not characters:
        return r"[^\w\W]"
    runs: list[str] = []
    for group in (_UPPER, _LOWER, _DIGITS):
        run = ""
        for c in sorted(characters & group):
            if run and ord(c) != ord(run[-1]) + 1:
                runs.append(run)
                run = ""
            run += c
        runs += [run] if run else []
    texts = [run if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs]
    return "[" + "".join([*texts, *(c for c in "._-" if c in characters)]) + "]"
