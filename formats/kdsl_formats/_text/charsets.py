"""Charsets by Java's names, as Python's codecs.

Most of Java's names are also names of Python's codecs. The codecs agree with Java's charsets on every byte that Java
assigns, and on all but a few rare characters of the East Asian ones; `Charset` corrects the line break of EBCDIC.
"""

from __future__ import annotations

import codecs
import re
from functools import cache, cached_property

import attrs

from kdsl.errors import nearest

_ALIASES = {
    "unicode": "utf-16",
    "unicodebig": "utf-16",
    "unicodebigunmarked": "utf-16-be",
    "unicodelittleunmarked": "utf-16-le",
    "eucjis": "euc-jp",
    "ksc5601": "euc-kr",
    "ksc5601-1987": "euc-kr",
    "ms_kanji": "shift_jis",
    "windows-31j": "cp932",
    "ms874": "cp874",
    "jis": "iso2022-jp",
    "latin-9": "iso8859-15",
    "ibm00858": "cp858",
    "ibm01140": "cp1140",
    "gb18030-2022": "gb18030",
}
"""Java's names that Python does not know, in lower case and without ``x-``."""
_OTHERS = re.compile(r"(?:cp|ibm)?[-_]?(?:874|932|949|950)|ms936")
"""Names that mean IBM's charsets in Java, and Microsoft's in Python."""
_REFUSED = frozenset(
    (
        *("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7", "utf-8-sig", "mbcs", "oem"),
        *("cp273", "cp424", "cp856", "cp875", "cp1006", "shift_jis_2004"),
        *("mac-cyrillic", "mac-greek", "mac-iceland", "mac-turkish"),
    )
)
"""Python's codecs that are not charsets, or that read some bytes otherwise than Java's charset of that name."""
_SUGGESTED = (
    *(
        "UTF-8",
        "UTF-16",
        "UTF-16BE",
        "UTF-16LE",
        "UTF-32",
        "US-ASCII",
        "GBK",
        "GB18030",
        "GB2312",
        "Big5",
        "Big5-HKSCS",
    ),
    *("Shift_JIS", "windows-31j", "EUC-JP", "EUC-KR", "ISO-2022-JP", "ISO-2022-KR", "KOI8-R", "KOI8-U", "TIS-620"),
    *(f"ISO-8859-{n}" for n in (*range(1, 10), 13, 15, 16)),
    *(f"windows-{n}" for n in (874, 949, 950, *range(1250, 1259))),
)
_EBCDIC = frozenset({"cp037", "cp500", "cp1026", "cp1140"})
_MARKS = {
    "utf-16": ((codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF16_LE, "utf-16-le")),
    "utf-32": ((codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF32_LE, "utf-32-le")),
}
_HALF = re.compile(rb"\xed[\xa0-\xbf](?![\x80-\xbf])")


@attrs.frozen
class Charset:
    """A charset of Java.

    Attributes:
        name: Its name, as it was written.
        codec: The Python codec; ``utf-16`` and ``utf-32`` are big-endian without a byte order mark.
    """

    name: str
    codec: str

    @cached_property
    def keeps_ascii(self) -> bool:
        """Whether a string whose bytes are all below 128 is ASCII; with shifts between alphabets it may be another."""
        ascii_bytes = bytes(range(128))
        has_shifts = self.codec.startswith(("iso2022", "hz"))
        return not has_shifts and ascii_bytes.decode(self.codec, "replace") == ascii_bytes.decode("ascii")

    def decode(self, data: bytes) -> str:
        """Decode bytes; invalid ones become U+FFFD, as in Java.

        In UTF-16 and UTF-32 a byte order mark decides the order of the bytes, and is left out. In EBCDIC the next-line
        character (U+0085) becomes a line feed.
        """
        codec = f"{self.codec}-be" if self.codec in _MARKS else self.codec
        for mark, marked in _MARKS.get(self.codec, ()):
            if data.startswith(mark):
                data, codec = data[len(mark) :], marked
                break
        if codec == "utf-8":
            data = _HALF.sub(b"\xff", data)  # one U+FFFD, as in Java; Python would return two
        text = data.decode(codec, "replace")
        return text.replace("\x85", "\n") if codec in _EBCDIC else text

    def encode(self, text: str) -> bytes:
        """Encode a string; in UTF-16 it begins with a byte order mark unless it is empty, as in Java."""
        return (codecs.BOM_UTF16_BE if self.codec == "utf-16" and text else b"") + self.bare(text)

    def bare(self, text: str) -> bytes:
        """Encode a string without a byte order mark, even in UTF-16; in EBCDIC a line feed becomes U+0085."""
        if self.codec in _EBCDIC:
            text = text.replace("\n", "\x85")
        try:
            return text.encode(f"{self.codec}-be" if self.codec in _MARKS else self.codec)
        except UnicodeEncodeError as e:
            raise ValueError(f"the charset {self.name} has no {text[e.start]!r}") from None


@cache
def charset(name: str) -> Charset | None:
    """The charset of a Java name, in any letter case; None if it is unknown, or Python has no codec for it."""
    bare = name.lower().removeprefix("x-")
    if _OTHERS.fullmatch(bare):
        return None
    python = _ALIASES.get(bare) or re.sub(r"^(?:windows|ibm)-?(?=\d+$)", "cp", bare)
    try:
        codec = codecs.lookup(re.sub(r"^8859[-_]", "iso8859-", python)).name
        "a".encode(codec)
    except (LookupError, ValueError):
        return None
    return None if codec in _REFUSED else Charset(name, codec)


def unknown_charset(name: str) -> str:
    """The fix for an unknown name of a charset: it gives three examples, and the nearest name if there is one."""
    return f"write the name of a charset as Java spells it, such as UTF-8, ISO-8859-1 or GBK{nearest(name, _SUGGESTED)}"
