"""Java's names of charsets and the Python codecs that read and write them.

Names are matched in any letter case. The codecs agree with Java's charsets on every byte that Java assigns, and on all
but a few rare characters of the East Asian ones; `Charset` corrects the line break of IBM's EBCDIC pages.
"""

from __future__ import annotations

import codecs
import re
from functools import cache

import attrs

from kdsl.errors import nearest

# Java's name, Python's codec, Java's other names
_TABLE = """\
UTF-8 utf-8 unicode-1-1-utf-8 utf8
UTF-16 utf-16-be unicode unicodebig utf16 utf_16
UTF-16BE utf-16-be iso-10646-ucs-2 unicodebigunmarked utf_16be x-utf-16be
UTF-16LE utf-16-le unicodelittleunmarked utf_16le x-utf-16le
UTF-32 utf-32-be utf32 utf_32
UTF-32BE utf-32-be utf_32be x-utf-32be
UTF-32LE utf-32-le utf_32le x-utf-32le
US-ASCII ascii ansi_x3.4-1968 ansi_x3.4-1986 ascii ascii7 cp367 default ibm367 iso646-us us
GB2312 gb2312 euc-cn euc_cn euccn gb2312-1980 gb2312-80 x-euc-cn
GBK gbk cp936 windows-936
GB18030 gb18030 gb18030-2022
Big5 big5
Big5-HKSCS big5hkscs big5_hkscs big5hk big5hkscs
EUC-JP euc_jp euc_jp eucjis eucjp extended_unix_code_packed_format_for_japanese x-euc-jp x-eucjp
EUC-KR euc_kr euc_kr euckr ks_c_5601-1987 ksc5601 ksc5601-1987 ksc5601_1987 ksc_5601
Shift_JIS shift_jis ms_kanji shift-jis sjis x-sjis
windows-31j cp932 ms932 windows-932
ISO-2022-JP iso2022_jp iso2022jp jis jis_encoding
ISO-2022-JP-2 iso2022_jp_2 iso2022jp2
ISO-2022-KR iso2022_kr iso2022kr
x-Johab johab johab ksc5601-1992 ksc5601_1992 ms1361
x-windows-949 cp949 ms949 ms_949 windows-949 windows949
x-windows-950 cp950 ms950 windows-950
x-windows-874 cp874 ms-874 ms874 windows-874
x-iso-8859-11 iso8859_11 iso-8859-11 iso8859_11
KOI8-R koi8_r koi8 koi8_r
KOI8-U koi8_u koi8_u
x-MacRoman mac_roman macroman
x-MacCentralEurope mac_latin2 maccentraleurope
IBM00858 cp858 cp858 ibm-858 ibm858
x-IBM737 cp737 cp737 ibm-737 ibm737
TIS-620 tis_620 tis620 tis620.2533
IBM037 cp037 cp037 ibm-037 ibm-37
IBM500 cp500 cp500 ibm-500
IBM01140 cp1140 cp1140 ibm-1140 ibm1140
IBM1026 cp1026 cp1026 ibm-1026
ISO-8859-1 latin_1 8859_1 cp819 ibm-819 ibm819 iso8859-1 iso8859_1 iso_8859-1 iso_8859_1 l1 latin1
ISO-8859-2 iso8859_2 8859_2 cp912 ibm-912 ibm912 iso8859-2 iso8859_2 iso_8859-2 l2 latin2
ISO-8859-3 iso8859_3 8859_3 cp913 ibm-913 ibm913 iso8859-3 iso8859_3 iso_8859-3 l3 latin3
ISO-8859-4 iso8859_4 8859_4 cp914 ibm-914 ibm914 iso8859-4 iso8859_4 iso_8859-4 l4 latin4
ISO-8859-5 iso8859_5 8859_5 cp915 cyrillic ibm-915 ibm915 iso8859-5 iso8859_5 iso_8859-5
ISO-8859-6 iso8859_6 8859_6 arabic cp1089 ibm-1089 ibm1089 iso8859-6 iso8859_6 iso_8859-6
ISO-8859-7 iso8859_7 8859_7 cp813 greek greek8 ibm-813 ibm813 iso8859-7 iso8859_7 iso_8859-7
ISO-8859-8 iso8859_8 8859_8 cp916 hebrew ibm-916 ibm916 iso8859-8 iso8859_8 iso_8859-8
ISO-8859-9 iso8859_9 8859_9 cp920 ibm-920 ibm920 iso8859-9 iso8859_9 iso_8859-9 l5 latin5
ISO-8859-13 iso8859_13 8859_13 iso8859-13 iso8859_13 iso_8859-13
ISO-8859-15 iso8859_15 8859_15 cp923 ibm-923 ibm923 iso8859-15 iso8859_15 iso8859_15_fdis iso_8859-15 l9
    latin-9 latin0 latin9
ISO-8859-16 iso8859_16 iso8859_16 iso_8859-16 l10 latin10
windows-1250 cp1250 cp1250 cp5346
windows-1251 cp1251 ansi-1251 cp1251 cp5347
windows-1252 cp1252 cp1252 cp5348 ibm-1252 ibm1252
windows-1253 cp1253 cp1253 cp5349
windows-1254 cp1254 cp1254 cp5350
windows-1255 cp1255 cp1255
windows-1256 cp1256 cp1256
windows-1257 cp1257 cp1257 cp5353
windows-1258 cp1258 cp1258
IBM437 cp437 cp437 ibm-437 windows-437
IBM775 cp775 cp775 ibm-775
IBM850 cp850 cp850 ibm-850
IBM852 cp852 cp852 ibm-852
IBM855 cp855 cp855 ibm-855
IBM857 cp857 cp857 ibm-857
IBM860 cp860 cp860 ibm-860
IBM861 cp861 cp-is cp861 ibm-861
IBM862 cp862 cp862 ibm-862
IBM863 cp863 cp863 ibm-863
IBM864 cp864 cp864 ibm-864
IBM865 cp865 cp865 ibm-865
IBM866 cp866 cp866 ibm-866
IBM869 cp869 cp-gr cp869 ibm-869
"""
_EBCDIC = frozenset({"cp037", "cp500", "cp1026", "cp1140"})
_NOT_ASCII = re.compile(
    r"utf-16|utf-32|iso2022|cp037|cp500|cp1026|cp1140"
)  # codecs whose bytes below 128 are not ASCII
_MARKED = {
    "UTF-16": ((codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF16_LE, "utf-16-le")),
    "UTF-32": ((codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF32_LE, "utf-32-le")),
}
_HALF = re.compile(rb"\xed[\xa0-\xbf](?![\x80-\xbf])")
_ENTRIES = [entry.split() for entry in _TABLE.strip().replace("\n    ", " ").split("\n")]
_BY_NAME = {name.lower(): (java, codec) for java, codec, *others in _ENTRIES for name in (java, *others)}


@attrs.frozen
class Charset:
    """A charset of Java.

    Attributes:
        name: Java's name.
        codec: The Python codec; for ``UTF-16`` and ``UTF-32`` the one that applies without a byte order mark.
    """

    name: str
    codec: str

    @property
    def keeps_ascii(self) -> bool:
        """Whether a string whose bytes are all below 128 is ASCII."""
        return not _NOT_ASCII.match(self.codec)

    def decode(self, data: bytes) -> str:
        """Decode bytes; invalid ones become U+FFFD, as in Java.

        In UTF-16 and UTF-32 a byte order mark decides the order of the bytes, and is left out. In EBCDIC the next-line
        character (U+0085) becomes a line feed.
        """
        codec = self.codec
        for mark, marked in _MARKED.get(self.name, ()):
            if data.startswith(mark):
                data, codec = data[len(mark) :], marked
                break
        if codec == "utf-8":
            data = _HALF.sub(b"\xff", data)  # one U+FFFD, as in Java; Python would return two
        text = data.decode(codec, "replace")
        return text.replace("\x85", "\n") if codec in _EBCDIC else text

    def encode(self, text: str) -> bytes:
        """Encode a string; in UTF-16 it begins with a byte order mark unless it is empty, as in Java.

        Raises:
            ValueError: The charset lacks a character.
        """
        return (codecs.BOM_UTF16_BE if self.name == "UTF-16" and text else b"") + self.bare(text)

    def bare(self, text: str) -> bytes:
        """Encode a string without a byte order mark, even in UTF-16; in EBCDIC a line feed becomes U+0085.

        Raises:
            ValueError: The charset lacks a character.
        """
        if self.codec in _EBCDIC:
            text = text.replace("\n", "\x85")
        try:
            return text.encode(self.codec)
        except UnicodeEncodeError as e:
            raise ValueError(f"the charset {self.name} has no {text[e.start]!r}") from None


@cache
def charset(name: str) -> Charset | None:
    """The charset of a Java name; None if it is unknown, or Python has no codec for it."""
    entry = _BY_NAME.get(name.lower())
    return Charset(*entry) if entry else None


def unknown_charset(name: str) -> str:
    """The fix for an unknown name of a charset: it gives three examples, and the nearest name if there is one."""
    names = [entry[0] for entry in _ENTRIES]
    return f"write the name of a charset as Java spells it, such as UTF-8, ISO-8859-1 or GBK{nearest(name, names)}"
