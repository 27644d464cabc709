"""JSON messages for tests: mostly fitting a row type, in repeated and in odd shapes, some of them broken."""

from __future__ import annotations

import json
from random import Random

import attrs

from kdsl.types import model as t

NAMES = ("a", "id", "amount", "order_id", 'q"t', "naïve", "a.b", "A", "x" * 40, "\U0001f600", "")
NUMBERS = ("0", "-0", "1", "-1", "12.9", "1.50", "1e3", "1E+2", "-0.0", "0.005", "127", "128", "32768", "2147483648")
HUGE = ("9223372036854775807", "9223372036854775808", "1e400", "1e-400", "123456789012345678901234567890.5", "1" * 310)
NO_NUMBERS = (
    "01",
    "1.",
    ".5",
    "+1",
    "-",
    "1e",
    "NaN",
    "Infinity",
    "0x1",
    "1_0",
    "--1",
    "-01",
    "1.e5",
    "00",
    "nul",
    "tru",
)
WORDS = ("true", "false", "TRUE", " true ", "yes", "null", "NaN", "Infinity", "1d", "0x1p3", "\u0661", "+5", " 12 ")
DAYS = ("2020-01-01", "2021-02-29", "2020-02-29", "2021-04-31", "0000-01-01", "-0001-01-01", "+10000-01-01", "2020-1-1")
CLOCKS = ("00:00:00", "12:34:56.789", "23:59:59.123456789", "24:00:00", "24:00:01", "12:34", "12:34:56.", "12:60:00")
BASE64 = ("AQID", "AQI=", "AQ==", "AQI", "====", "", " AQID", "AQIDAQID", "AR==", "-_-_")
PIECES = (
    "a",
    "b",
    '"',
    "\\",
    "/",
    "\n",
    "\t",
    "\x01",
    "é",
    "\U0001f600",
    "\u2028",
    "\x7f",
    " ",
    "\0",
    "{",
    "]",
    ",",
    ":",
)


@attrs.frozen
class Style:
    """How a producer writes: the blanks, and whether members may be absent, come in any order, or be escaped."""

    comma: str
    colon: str
    loose: bool
    ascii_only: bool


STYLES = (
    Style(",", ":", loose=False, ascii_only=False),
    Style(", ", ": ", loose=False, ascii_only=True),
    Style(" ,\n\t", " : ", loose=True, ascii_only=False),
)


@attrs.define
class Writer:
    """Writes messages for a row type.

    Attributes:
        random: Where chance comes from.
        dirt: The share of values and messages that are wrong or odd.
    """

    random: Random
    dirt: float = 0.1

    def row(self, *, width: int = 4, depth: int = 2) -> t.Row:
        """A row type."""
        names = self.random.sample(NAMES, self.random.randint(0 if depth == 2 else 1, width))
        return t.Row(tuple(t.Field(name, self.kind(depth)) for name in names))

    def kind(self, depth: int) -> t.DataType:
        """A column type."""
        r = self.random
        chance = r.random()
        if depth and chance < 0.1:
            return t.Array(self.kind(depth - 1))
        if depth and chance < 0.18:
            return t.Map(t.STRING, self.kind(depth - 1))
        if depth and chance < 0.22:
            return t.Multiset(t.STRING)
        if depth and chance < 0.34:
            return self.row(width=3, depth=depth - 1)
        size = r.choice([(5, 2), (10, 2), (38, 18), (18, 0), (38, 38), (3, 3)])
        simple = (
            t.Boolean(),
            t.TinyInt(),
            t.SmallInt(),
            t.Int(),
            t.BigInt(),
            t.Float(),
            t.Double(),
            t.Char(3),
            t.BYTES,
        )
        times = (t.Date(), t.Time(0), t.Time(6), t.Timestamp(3), t.TimestampLtz(3))
        return r.choice([*simple, *times, t.STRING, t.STRING, t.Decimal(*size), t.Decimal(*size)])

    def messages(self, row: t.Row, count: int) -> list[bytes | None]:
        """Messages, most of them of one or two shapes."""
        r = self.random
        styles = r.sample(STYLES, r.randint(1, 2))
        extra = (
            [(r.choice(["zz", "u"]), r.choice([t.STRING, t.Int(), t.Array(t.Int()), row]))] if r.random() < 0.4 else []
        )
        arrays = r.random() < 0.15
        results: list[bytes | None] = []
        for _ in range(count):
            style = r.choice(styles)
            text = self.object([(f.name, f.type) for f in row.fields] + extra, style)
            if arrays and r.random() < 0.8:
                inner = [self.object([(f.name, f.type) for f in row.fields], style) for _ in range(r.randint(0, 3))]
                text = f"[{style.comma.join(inner)}]"
            results.append(self.broken(text, row, style) if r.random() < self.dirt else text.encode())
        return results

    def broken(self, text: str, row: t.Row, style: Style) -> bytes | None:
        """Something that is odd as a message."""
        r = self.random
        other = self.object([(f.name, f.type) for f in row.fields], style)
        data = text.encode()
        index = r.randint(0, len(data))
        return r.choice(
            [
                None,
                b"",
                b" ",
                b"null",
                b"not json",
                f" {text}\n".encode(),
                f"{text} x".encode(),
                f"{text}{other}".encode(),
                f"[{text},{other}]".encode(),
                f"[{text},5,null]".encode(),
                f"[{text},[{other}]".encode(),
                data[:index],
                data[:index] + data[index + 1 :],
                data[:index] + r.choice([b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\0", b" "]) + data[index:],
                data[:index] + bytes([r.randint(128, 255)]) + data[index:],
                data[:index] + data[r.randint(0, len(data)) :],
                text.encode("utf-16"),
                b"\xef\xbb\xbf" + data,
                b"{" + text.encode(),
                text.encode() + b"}",
            ]
        )

    def object(self, members: list[tuple[str, t.DataType]], style: Style) -> str:
        """An object that has the members, more or less."""
        r = self.random
        if style.loose:
            members = [m for m in members if r.random() < 0.9]
            r.shuffle(members)
        if r.random() < self.dirt / 4 and members:
            members = [*members, r.choice(members)]
        results = [f"{self.text(name, style)}{style.colon}{self.value(kind, style)}" for name, kind in members]
        return f"{{{style.comma.join(results)}}}"

    def value(self, kind: t.DataType, style: Style) -> str:
        """A value that mostly fits a type."""
        r = self.random
        if r.random() < self.dirt:
            return self.any(style, 2)
        if r.random() < 0.07:
            return "null"
        match kind:
            case t.Boolean():
                return r.choice(["true", "false"])
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                number = str(r.randint(-9, 120))
                return number if r.random() < 0.8 else f'"{number}"'
            case t.Float() | t.Double() | t.Decimal():
                number = r.choice([f"{r.uniform(-900, 900):.{r.randint(0, 5)}f}", r.choice(NUMBERS), str(r.random())])
                return number if r.random() < 0.8 else f'"{number}"'
            case t.Binary() | t.VarBinary():
                return f'"{r.choice(["AQID", "AQI=", "AQ==", "", "AQIDAQID"])}"'
            case t.Date():
                return f'"{r.randint(1, 9999):04d}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"'
            case t.Time():
                return f'"{r.choice(CLOCKS[:3])}"'
            case t.Timestamp() | t.TimestampLtz():
                return f'"2024-{r.randint(1, 12):02d}-11{r.choice(" T")}{r.choice(CLOCKS)}{r.choice(["", "Z"])}"'
            case t.Array(element=element):
                inner = [self.value(element, style) for _ in range(r.randint(0, 3))]
                return f"[{style.comma.join(inner)}]"
            case t.Map(value=value):
                return self.object([(k, value) for k in r.sample(["k", "é", 'q"', "z"], r.randint(0, 3))], style)
            case t.Multiset():
                return self.object([(k, t.TinyInt()) for k in r.sample("kz", r.randint(0, 2))], style)
            case t.Row(fields=fields):
                return self.object([(f.name, f.type) for f in fields], style)
            case _:
                return self.text("".join(r.choice(PIECES[:2] + PIECES[5:6]) for _ in range(r.randint(0, 6))), style)

    def any(self, style: Style, depth: int) -> str:
        """Any value, valid JSON mostly."""
        r = self.random
        chance = r.random()
        if chance < 0.35:
            return r.choice(r.choice([NUMBERS, NUMBERS, HUGE, NO_NUMBERS if self.dirt else NUMBERS]))
        if chance < 0.75 or not depth:
            plain = r.choice([*WORDS, *DAYS, *CLOCKS, *BASE64, *NUMBERS, *HUGE])
            stamp = r.choice(DAYS) + r.choice(" Tt") + r.choice(CLOCKS) + r.choice(["", "Z", "z"])
            mixed = "".join(r.choice(PIECES) for _ in range(r.randint(0, 5)))
            return self.text(r.choice([plain, stamp, mixed]), style)
        if chance < 0.85:
            return r.choice(["null", "true", "false"])
        inner = [self.any(style, depth - 1) for _ in range(r.randint(0, 3))]
        if chance < 0.92:
            return f"[{style.comma.join(inner)}]"
        keys = [self.text(r.choice(["a", "b", "é"]), style) for _ in inner]
        return f"{{{style.comma.join(f'{k}{style.colon}{v}' for k, v in zip(keys, inner, strict=True))}}}"

    def text(self, text: str, style: Style) -> str:
        """A JSON text; some control characters stay as they are."""
        r = self.random
        actual = json.dumps(text, ensure_ascii=style.ascii_only)
        if r.random() < self.dirt:
            actual = actual.replace("\\u0001", "\x01").replace("\\t", "\t").replace("a", "\\u0061", 1)
        if r.random() < self.dirt / 8:
            actual = actual[:-1] + r.choice(["\\ud800", "\\udc00x", "\\x", "\\u12", "\\/", "\\"]) + '"'
        return actual
