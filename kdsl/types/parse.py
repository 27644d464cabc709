"""Column types from Flink SQL's spelling: ``DECIMAL(10, 2)``, ``ROW<a INT, b ARRAY<STRING>>``, ``TIMESTAMP_LTZ(3)``.

`parse_type` reads a whole string, and `TypeReader` a type inside of a statement.
``parse_type(str(kind)) == kind`` holds for every type of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from textwrap import indent
from typing import NoReturn

from kdsl.errors import TextError, excerpt, listing, nearest
from kdsl.sql_tokens import Cursor, Token, tokenize
from kdsl.types import model as t

TYPE_NAMES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DEC", "NUMERIC"),
    *("CHAR", "CHARACTER", "VARCHAR", "STRING", "BINARY", "VARBINARY", "BYTES"),
    *("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "ARRAY", "MAP", "MULTISET", "ROW"),
)
MAX_PRECISION = 9
_SIMPLE: dict[str, t.DataType] = {
    "BOOLEAN": t.Boolean(),
    "TINYINT": t.TinyInt(),
    "SMALLINT": t.SmallInt(),
    "INT": t.Int(),
    "BIGINT": t.BigInt(),
    "FLOAT": t.Float(),
    "DOUBLE": t.Double(),
    "DATE": t.Date(),
    "STRING": t.STRING,
    "BYTES": t.BYTES,
}
_FOREIGN = {
    "INTERVAL": "an INTERVAL cannot be a column of a Kafka table; declare a BIGINT, as of milliseconds",
    "RAW": "a RAW type is known to Flink's JVM alone; declare BYTES",
    "STRUCTURED": "a STRUCTURED type is a Java class; declare a ROW<…> with its members",
    "VARIANT": "a VARIANT cannot be a column of a Kafka table; declare a STRING and read the JSON text in the query",
    "NULL": "the type NULL holds no value; declare the type that the column has when it is not null",
    "SYMBOL": "the type SYMBOL is internal to Flink; it cannot be a column",
}
_ZONED = "TIMESTAMP WITH TIME ZONE cannot be a column of a Kafka table; declare TIMESTAMP_LTZ, which is an instant"
_USER_TYPE = "a type that a user registered in a catalog cannot be a column of a Kafka table; declare a ROW<…>"
_SYNONYMS = {"INTEGER": "INT", "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "CHARACTER": "CHAR"}
_WORD = re.compile(r"[^\W\d][\w$]*|`(?:[^`]|``)*`|\S")
_DIGITS = re.compile(r"[0-9]+")
_COMMENT = "a comment in quotes"
_END = "the end"


class TypeSyntaxError(TextError):
    """A string is not the SQL spelling of a column type.

    Attributes:
        reason: The reason, as a sentence.
        text: The whole string that was read.
        position: The index at which it is wrong, from 0; its length when something is missing at the end.
        length: How many characters are wrong there, at least 1.
        expected: What could have been written there, in words; empty if a value is out of range.
    """

    def __init__(self, reason: str, text: str, position: int, *, length: int = 1, expected: Iterable[str] = ()) -> None:
        super().__init__(reason, text, position)
        self.length = max(length, 1)
        self.expected = tuple(expected)

    def __reduce__(self) -> tuple[object, ...]:
        return (_error, (self.reason, self.text, self.position, self.length, self.expected))

    def __str__(self) -> str:
        shown = indent(excerpt(self.text, self.position, self.length), "  ", lambda _: True)
        return f"not a column type at {self.location}: {self.reason}\n{shown}"


def _error(reason: str, text: str, position: int, length: int, expected: tuple[str, ...]) -> TypeSyntaxError:
    """Create a TypeSyntaxError from its pickled parts."""
    return TypeSyntaxError(reason, text, position, length=length, expected=expected)


class TypeReader:
    """Reads a column type at a cursor, and moves the cursor past it.

    Args:
        cursor: The tokens.
        text: The string that the tokens come from, for messages.
    """

    def __init__(self, cursor: Cursor, text: str) -> None:
        self.cursor, self.text = cursor, text
        self._start = 0
        self._optional: list[str] = []

    def read(self, *, nullability: bool = True) -> t.DataType:
        """Read the type at the cursor.

        Args:
            nullability: Whether ``NULL`` or ``NOT NULL`` may follow the type.

        Raises:
            TypeSyntaxError: There is no type, or one with a mistake; it is one of Flink's that a Kafka table's column
                cannot have; or it is nested too deeply.
        """
        self._start = self.token.start
        kind = self._read_type(1, nullability=nullability)
        if _depth(kind) > MAX_TYPE_DEPTH:
            self._refuse_depth()
        return kind

    def expect_end(self) -> None:
        """Check that nothing follows the type.

        Raises:
            TypeSyntaxError: Something does.
        """
        if self.token.kind != "end":
            self._fail(_END)

    # tokens

    @property
    def token(self) -> Token:
        """The token at the cursor, after it has passed hints, which are comments here, and split ``<>`` in two."""
        while self.cursor.token.kind == "hint":
            self.cursor.take()
        token = self.cursor.token
        if token.kind == "sign" and len(token.text) > 1 and token.text[0] in "<>":
            self.cursor.split_sign()
        return self.cursor.token

    def _take(self) -> Token:
        """Take the next token, and forget what else would have been allowed."""
        self._optional.clear()
        return self.cursor.take()

    def _accept(self, word: str) -> bool:
        """Take a keyword or sign if it comes next; otherwise remember that it could have."""
        if self.token.upper == word:
            self._take()
            return True
        self._optional.append(word if word.isalpha() else repr(word))
        return False

    def _expect(self, word: str) -> None:
        """Take a keyword or sign; raise a TypeSyntaxError if it does not come next."""
        if not self._accept(word):
            self._fail()

    def _fail(self, *expected: str, position: int | None = None) -> NoReturn:
        """Raise a TypeSyntaxError: what is at the cursor, or at a position in its token, is not what is expected."""
        position = self.token.start if position is None else position
        names = sorted({*self._optional, *expected})
        either = ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else names[0]
        match = _WORD.match(self.text, position)
        word = match[0] if match else ""
        reason = f"found {word!r} where {either} is expected" if word else f"the text ends where {either} is expected"
        if names == ["LOCAL"] and word.upper() == "TIME":
            reason = _ZONED
        raise TypeSyntaxError(reason, self.text, position, length=len(word), expected=names)

    def _refuse_type(self) -> NoReturn:
        """Raise a TypeSyntaxError: no type, or none that a column can have, begins at the cursor."""
        token = self.token
        word = token.text
        reason = ""
        if token.upper in _FOREIGN:
            reason = _FOREIGN[token.upper]
        elif token.kind == "quoted" or (token.kind == "word" and self.text[token.end :].lstrip().startswith(".")):
            reason = _USER_TYPE
        elif token.kind == "word":
            reason = f"there is no type {word!r}{nearest(word, TYPE_NAMES)}; the types are {listing(TYPE_NAMES)}"
        if not reason:
            self._fail("a type")
        raise TypeSyntaxError(reason, self.text, token.start, length=len(word), expected=["a type"])

    def _refuse_depth(self) -> NoReturn:
        """Raise a TypeSyntaxError: the type that was read is nested too deeply."""
        length = self.cursor.previous.end - self._start
        raise TypeSyntaxError(f"it is nested more than {MAX_TYPE_DEPTH} deep", self.text, self._start, length=length)

    def _refuse_value(self, reason: str, token: Token) -> NoReturn:
        """Raise a TypeSyntaxError for a token with a wrong value."""
        raise TypeSyntaxError(reason, self.text, token.start, length=len(token.text))

    # types

    def _read_type(self, level: int, *, nullability: bool = True) -> t.DataType:
        """Read a type, its nullability, and ARRAY or MULTISET after it; ``level`` is how deep it is nested, from 1.

        Without ``nullability`` a NULL or NOT NULL after it, and after its ARRAYs, is not read.
        """
        if level > MAX_TYPE_DEPTH:
            self._refuse_depth()
        kind = self._read_base(level)
        kind = self._read_nullability(kind) if nullability else kind
        while True:
            if self._accept("ARRAY"):
                kind = t.Array(kind)
            elif self._accept("MULTISET"):
                kind = t.Multiset(kind)
            else:
                break
            kind = self._read_nullability(kind) if nullability else kind
        token = self.token
        if token.kind == "end" or token.text in (",", ">", ")") or self._at_comment():
            self._optional.clear()  # something that may follow a type: only the rule around it can be broken
        return kind

    def _read_nullability(self, kind: t.DataType) -> t.DataType:
        """Read ``NULL`` or ``NOT NULL``, if it follows a type, and return the type with it."""
        if self._accept("NOT"):
            self._expect("NULL")
            return kind.as_nullable(False)
        self._accept("NULL")
        return kind

    def _read_base(self, level: int) -> t.DataType:
        """Read a type without its nullability, at a nesting level."""
        name = _SYNONYMS.get(self.token.upper, self.token.upper)
        if name not in TYPE_NAMES:
            self._refuse_type()
        self._take()
        match name:
            case "CHAR" | "BINARY":
                if self._accept("VARYING"):
                    return self._read_length(f"VAR{name}")
                return self._read_length(name)
            case "VARCHAR" | "VARBINARY":
                return self._read_length(name)
            case "DECIMAL":
                return self._read_decimal()
            case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
                return self._read_temporal(name)
            case "ARRAY" | "MULTISET":
                self._expect("<")
                element = self._read_type(level + 1)
                self._expect(">")
                return t.Array(element) if name == "ARRAY" else t.Multiset(element)
            case "MAP":
                self._expect("<")
                key = self._read_type(level + 1)
                self._expect(",")
                value = self._read_type(level + 1)
                self._expect(">")
                return t.Map(key, value)
            case "ROW":
                return self._read_row(level)
        if name == "DOUBLE":
            self._accept("PRECISION")
        return _SIMPLE[name]

    def _read_numbers(self, most: int) -> list[Token]:
        """Read up to ``most`` numbers in brackets, and return their tokens; none where there are no brackets."""
        if not self._accept("("):
            return []
        numbers: list[Token] = []
        while not numbers or (len(numbers) < most and self._accept(",")):
            token = self.token
            digits = _DIGITS.match(token.text)
            if digits is None:
                self._fail("a number")
            if digits[0] != token.text:
                self._fail("')'", *(["','"] if len(numbers) + 1 < most else []), position=token.start + digits.end())
            numbers.append(self._take())
        self._expect(")")
        return numbers

    def _choose_number(self, numbers: list[Token], index: int, default: int, least: int, most: int, what: str) -> int:
        """Return the number at an index, or the unchecked default if there is none; ``what`` names it in the error."""
        if index >= len(numbers):
            return default
        token = numbers[index]
        if len(token.text) > len(str(t.MAX_LENGTH)) or not least <= int(token.text) <= most:
            self._refuse_value(f"{what} is a number from {least} to {most}, not {token.text}", token)
        return int(token.text)

    def _read_length(self, name: str) -> t.DataType:
        """Read the length of a CHAR, VARCHAR, BINARY or VARBINARY, and return the type.

        Without a length CHAR and BINARY have 1, VARCHAR is STRING, and VARBINARY is BYTES.
        """
        default = t.MAX_LENGTH if name.startswith("VAR") else 1
        length = self._choose_number(self._read_numbers(1), 0, default, 1, t.MAX_LENGTH, f"the length of {name}")
        kinds = {"CHAR": t.Char, "VARCHAR": t.VarChar, "BINARY": t.Binary, "VARBINARY": t.VarBinary}
        return kinds[name](length)

    def _read_decimal(self) -> t.DataType:
        """Read precision and scale of a DECIMAL, by default 10 and 0."""
        numbers = self._read_numbers(2)
        digits = self._choose_number(numbers, 0, 10, 1, t.MAX_DECIMAL, "the precision of DECIMAL")
        return t.Decimal(digits, self._choose_number(numbers, 1, 0, 0, digits, f"the scale of DECIMAL({digits}, …)"))

    def _read_temporal(self, name: str) -> t.DataType:
        """Read the rest of TIME, TIMESTAMP or TIMESTAMP_LTZ, also in standard SQL; by default with 0 or 6 digits."""
        numbers, kind = self._read_numbers(1), name
        if name != "TIMESTAMP_LTZ" and self._accept("WITHOUT"):
            self._expect("TIME")
            self._expect("ZONE")
        elif name == "TIMESTAMP" and not self.cursor.at("WITH", "(") and self._accept("WITH"):
            for word in ("LOCAL", "TIME", "ZONE"):
                self._expect(word)
            kind = "TIMESTAMP_LTZ"
        default = 0 if kind == "TIME" else 6
        precision = self._choose_number(numbers, 0, default, 0, MAX_PRECISION, f"the precision of {kind}")
        return {"TIME": t.Time, "TIMESTAMP": t.Timestamp, "TIMESTAMP_LTZ": t.TimestampLtz}[kind](precision)

    def _read_row(self, level: int) -> t.DataType:
        """Read the members, perhaps none, of ``ROW<name type, …>`` or ``ROW(name type, …)``."""
        close = ">" if self._accept("<") else ")"
        if close == ")":
            self._expect("(")
        fields: list[tuple[Token, t.Field]] = []
        while not self._accept(close):
            if fields:
                self._expect(",")
            fields.append(self._read_field(level))
        names: set[str] = set()
        for token, field in fields:
            if field.name in names:
                reason = f"the row has two members {field.name!r}; give one of them another name"
                self._refuse_value(reason, token)
            names.add(field.name)
        return t.Row(tuple(field for _, field in fields))

    def _read_field(self, level: int) -> tuple[Token, t.Field]:
        """Read a member of a row, with its comment, and return it with the token of its name."""
        if self.token.kind not in ("word", "quoted"):
            self._fail("a name", "a name in back-ticks")
        token = self._take()
        if not token.value:
            self._refuse_value("a name cannot be empty", token)
        kind = self._read_type(level + 1)
        comment = None
        if self._at_comment():
            comment = self._take().value
        else:
            self._optional.append(_COMMENT)
        return token, t.Field(token.value, kind, comment)

    def _at_comment(self) -> bool:
        """Whether a string in single quotes comes next."""
        return self.token.kind == "text" and self.token.text.startswith("'")


MAX_TYPE_DEPTH = 100
"""How deep types may be nested: they are also printed, compared and turned into Spark types, recursively."""


@lru_cache(maxsize=65_536)
def parse_type(text: str, *, allow_reserved: bool = False) -> t.DataType:
    """Read a column type from Flink SQL's spelling.

    All of Flink's synonyms are read, in any letter case, with comments and with ``NULL`` or ``NOT NULL`` after any
    type. Names of row members keep their case; in back-ticks they may contain any character, elsewhere letters, digits,
    ``_`` and ``$`` (including words such as ``date``, which must be quoted in Flink). Types are cached by their
    spelling.

    Args:
        text: The spelling, as ``ROW<a INT NOT NULL, b ARRAY<STRING>>``.
        allow_reserved: Whether members may have the names of kdsl's own columns, as in plans.

    Raises:
        TypeSyntaxError: The string is not a type, is nested too deeply, or is a type of Flink's that a Kafka table's
            column cannot have (TIMESTAMP WITH TIME ZONE, INTERVAL, RAW, structured types).
    """
    reader = TypeReader(Cursor(tokenize(text, allow_reserved=allow_reserved)), text)
    kind = reader.read()
    reader.expect_end()
    return kind


def _depth(kind: t.DataType) -> int:
    """Return how deep a type is nested: 1 for one without parts."""
    depth, level = 0, [kind]
    while level:  # without recursion, which is what must not fail here
        depth, level = depth + 1, [child for one in level for child in t.children(one)]
    return depth
