"""Column types from Flink SQL's spelling: ``DECIMAL(10, 2)``, ``ROW<a INT, b ARRAY<STRING>>``, ``TIMESTAMP_LTZ(3)``.

The grammar is the file ``types.lark`` beside this module; the reader of ``CREATE TABLE`` statements can import it and
merge `TypeReader` into its own transformer. ``parse_type(str(kind)) == kind`` holds for every type of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from textwrap import indent
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args

from kdsl.errors import TextError, excerpt, listing, nearest
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
_WORD = re.compile(r"[^\W\d][\w$]*|`(?:[^`]|``)*`|\S")
_WORDS_OF = {
    "NAME": "a name",
    "QUOTED": "a name in back-ticks",
    "TEXT": "a comment in quotes",
    "NUMBER": "a number",
    "LPAR": "'('",
    "RPAR": "')'",
    "LESSTHAN": "'<'",
    "MORETHAN": "'>'",
    "COMMA": "','",
    "$END": "the end",
    "SUFFIX_ARRAY": "ARRAY",
    "SUFFIX_MULTISET": "MULTISET",
}


class TypeSyntaxError(TextError):
    """A text is not the SQL spelling of a column type.

    Attributes:
        reason: Why, in a sentence.
        text: The whole text that was read.
        position: The index in the text at which it is wrong, from 0; its length when something is missing at the end.
        length: How many characters are wrong there, at least 1.
        expected: What could have stood there, in words; empty when the place is right and the value is not.
    """

    def __init__(self, reason: str, text: str, position: int, *, length: int = 1, expected: Iterable[str] = ()) -> None:
        super().__init__(reason, text, position)
        self.length = max(length, 1)
        self.expected = tuple(expected)

    def __reduce__(self) -> tuple[object, ...]:
        return (_error, (self.reason, self.text, self.position, self.length, self.expected))

    def __str__(self) -> str:
        shown = indent(excerpt(self.text, self.position, self.length), "  ", lambda _: True)
        return f"not a column type at {self.place}: {self.reason}\n{shown}"


def _error(reason: str, text: str, position: int, length: int, expected: tuple[str, ...]) -> TypeSyntaxError:
    return TypeSyntaxError(reason, text, position, length=length, expected=expected)


class _RangeError(Exception):
    """A number or a name that the grammar accepts and the type does not; gets its text in `parse_type`."""

    def __init__(self, reason: str, token: Token) -> None:
        super().__init__(reason)
        self.reason, self.token = reason, token


def _number(token: Token | None, default: int, least: int, most: int, what: str) -> int:
    if token is None:
        return default
    if len(token) > len(str(t.MAX_LENGTH)) or not least <= int(token) <= most:
        raise _RangeError(f"{what} is a number from {least} to {most}, not {token}", token)
    return int(token)


def _length(token: Token | None, kind: str, default: int) -> int:
    return _number(token, default, 1, t.MAX_LENGTH, f"the length of {kind}")


@v_args(inline=True)
class TypeReader(Transformer[Token, Any]):
    """Makes column types of the parse of ``types.lark``."""

    def start(self, kind: t.DataType) -> t.DataType:
        """The whole text."""
        return kind

    def datatype(self, base: t.DataType, nullable: bool | None, *suffixes: tuple[str, bool | None]) -> t.DataType:
        """A type, its nullability, and ARRAY or MULTISET written behind it."""
        kind = base.as_nullable(nullable is not False)
        for name, outer in suffixes:
            made = t.Array(kind) if name == "SUFFIX_ARRAY" else t.Multiset(kind)
            kind = made.as_nullable(outer is not False)
        return kind

    def suffix(self, word: Token, nullable: bool | None) -> tuple[str, bool | None]:
        """``ARRAY`` or ``MULTISET`` behind the type of its elements."""
        return word.type.rpartition("__")[2], nullable

    def not_null(self, _word: Token) -> bool:
        """``NOT NULL``."""
        return False

    def nullable(self, _word: Token) -> bool:
        """``NULL``, which is also what holds when nothing is said."""
        return True

    def simple(self, word: Token) -> t.DataType:
        """A type without arguments."""
        return _SIMPLE[word.type.rpartition("__")[2]]

    def char(self, length: Token | None) -> t.DataType:
        """``CHAR(n)``."""
        return t.Char(_length(length, "CHAR", 1))

    def varchar(self, length: Token | None) -> t.DataType:
        """``VARCHAR(n)``; without a length it is STRING."""
        return t.VarChar(_length(length, "VARCHAR", t.MAX_LENGTH))

    def binary(self, length: Token | None) -> t.DataType:
        """``BINARY(n)``."""
        return t.Binary(_length(length, "BINARY", 1))

    def varbinary(self, length: Token | None) -> t.DataType:
        """``VARBINARY(n)``; without a length it is BYTES."""
        return t.VarBinary(_length(length, "VARBINARY", t.MAX_LENGTH))

    def decimal(self, precision: Token | None, scale: Token | None) -> t.DataType:
        """``DECIMAL(p, s)``."""
        digits = _number(precision, 10, 1, t.MAX_DECIMAL, "the precision of DECIMAL")
        return t.Decimal(digits, _number(scale, 0, 0, digits, f"the scale of DECIMAL({digits}, …)"))

    def time(self, precision: Token | None) -> t.DataType:
        """``TIME(p)``."""
        return t.Time(_number(precision, 0, 0, MAX_PRECISION, "the precision of TIME"))

    def timestamp(self, precision: Token | None) -> t.DataType:
        """``TIMESTAMP(p)``."""
        return t.Timestamp(_number(precision, 6, 0, MAX_PRECISION, "the precision of TIMESTAMP"))

    def timestamp_ltz(self, precision: Token | None) -> t.DataType:
        """``TIMESTAMP_LTZ(p)``."""
        return t.TimestampLtz(_number(precision, 6, 0, MAX_PRECISION, "the precision of TIMESTAMP_LTZ"))

    def array(self, element: t.DataType) -> t.DataType:
        """``ARRAY<T>``."""
        return t.Array(element)

    def multiset(self, element: t.DataType) -> t.DataType:
        """``MULTISET<T>``."""
        return t.Multiset(element)

    def map(self, key: t.DataType, value: t.DataType) -> t.DataType:
        """``MAP<K, V>``."""
        return t.Map(key, value)

    def row(self, *members: tuple[Token, t.Field] | None) -> t.DataType:
        """``ROW<name T, …>``."""
        fields: dict[str, t.Field] = {}
        for member in members:
            if member is None:
                continue
            token, field = member
            if field.name in fields:
                raise _RangeError(f"the row has two members {field.name!r}; give one of them another name", token)
            fields[field.name] = field
        return t.Row(tuple(fields.values()))

    def field(self, name: tuple[Token, str], kind: t.DataType, comment: Token | None) -> tuple[Token, t.Field]:
        """A member of a row, with the place of its name."""
        token, word = name
        text = None if comment is None else comment[1:-1].replace("''", "'")
        return token, t.Field(word, kind, text)

    def name(self, word: Token) -> tuple[Token, str]:
        """A name, plain or in back-ticks."""
        if not word.startswith("`"):
            return word, str(word)
        if len(word) == len("``"):
            raise _RangeError("a name cannot be empty", word)
        return word, word[1:-1].replace("``", "`")


@cache
def _parser() -> Lark:
    return Lark.open(
        "types.lark",
        rel_to=__file__,
        parser="lalr",
        lexer="contextual",
        maybe_placeholders=True,
        transformer=TypeReader(),
    )


DEEPEST = 100
"""How deep types may be nested: what is read here must be printed, compared and turned into Spark's types, too."""


@lru_cache(maxsize=65_536)
def parse_type(text: str) -> t.DataType:
    """Read a column type from Flink SQL's spelling.

    All of Flink's synonyms are read, in any letter case, with comments and with ``NULL`` or ``NOT NULL`` behind any
    type. Names of row members keep their case; in back-ticks they may hold anything, elsewhere letters, digits, ``_``
    and ``$`` (words such as ``date`` too, which Flink wants quoted).

    Args:
        text: The spelling, as ``ROW<a INT NOT NULL, b ARRAY<STRING>>``.

    Raises:
        TypeSyntaxError: The text is no type, or a type of Flink's that a Kafka table's column cannot have (TIMESTAMP
            WITH TIME ZONE, INTERVAL, RAW, structured types).
    """
    try:
        kind: t.DataType = _parser().parse(text)  # type: ignore[assignment]  # the transformer makes the tree a type
    except UnexpectedInput as e:
        raise _syntax_error(e, text) from None
    except _RangeError as e:
        raise TypeSyntaxError(e.reason, text, e.token.start_pos or 0, length=len(e.token)) from None
    if _depth(kind) > DEEPEST:
        raise TypeSyntaxError(f"it is nested more than {DEEPEST} deep", text, 0, length=len(text))
    return kind


def _depth(kind: t.DataType) -> int:
    depth, level = 0, [kind]
    while level:  # without recursion, which is what must not fail here
        depth, level = depth + 1, [child for one in level for child in t.children(one)]
    return depth


def _syntax_error(e: UnexpectedInput, text: str) -> TypeSyntaxError:
    position, allowed = len(text), set[str]()
    if isinstance(e, UnexpectedToken):
        allowed = e.accepts or e.expected
        if e.token.type != "$END":
            position = e.token.start_pos or 0
    elif isinstance(e, UnexpectedCharacters):
        position = cast("int", e.pos_in_stream)
        before = _parser().parse_interactive(text[:position])
        before.exhaust_lexer()
        allowed = before.accepts()  # type: ignore[no-untyped-call]
    names = {terminal.removeprefix("_") for terminal in allowed}
    type_wanted = {"BOOLEAN", "ROW"} <= names
    expected = ["a type"] if type_wanted else sorted({_WORDS_OF.get(n, n) for n in names - {"BLANKS", "COMMENT"}})
    found = _WORD.match(text, position)
    word = found[0] if found else ""

    def error(reason: str) -> TypeSyntaxError:
        return TypeSyntaxError(reason, text, position, length=len(word), expected=expected)

    wanted = expected[0] if len(expected) == 1 else ", ".join(expected[:-1]) + " or " + expected[-1] if expected else ""
    if not word:
        return error(f"the text ends where {wanted} is expected")
    if names == {"LOCAL"} and word.upper() == "TIME":
        return error(_ZONED)
    if type_wanted and word.upper() in _FOREIGN:
        return error(_FOREIGN[word.upper()])
    if type_wanted and word.startswith("`") and len(word) > 1:
        return error(_USER_TYPE)
    if type_wanted and word[0].isidentifier():
        if text[position + len(word) :].lstrip().startswith("."):
            return error(_USER_TYPE)
        return error(f"there is no type {word!r}{nearest(word, TYPE_NAMES)}; the types are {listing(TYPE_NAMES)}")
    return error(f"found {word!r} where {wanted} is expected")
