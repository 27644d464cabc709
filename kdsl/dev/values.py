"""Sample values of column types: the same for the same name, type and number, and sensible for common names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import attrs

from kdsl.errors import KdslError
from kdsl.types import model as t

_BITS: dict[type[t.DataType], int] = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}
_NULL_SHARE = 0.1
_MOST_DIGITS, _MOST_BYTES, _MOST_ELEMENTS = 3, 16, 3

# What a column has whose name contains one of these words; the first that fits counts.
_TEXTS: Mapping[str, Sequence[str]] = {
    "currency": ("EUR", "USD", "GBP", "CHF", "JPY"),
    "country": ("DE", "FR", "IT", "GB", "US", "CN", "BR", "IN"),
    "city": ("Berlin", "Paris", "Rome", "London", "Boston", "Hangzhou", "Recife", "Pune"),
    "status": ("new", "paid", "sent", "done"),
    "state": ("new", "paid", "sent", "done"),
    "channel": ("web", "app", "shop"),
    "type": ("a", "b", "c"),
    "category": ("books", "food", "toys"),
    "name": ("Alice", "Bob", "Carol", "David", "Erin", "Frank", "Grace", "Heidi"),
}
_NUMBERS: Mapping[str, tuple[int, int]] = {
    "age": (18, 80),
    "year": (2000, 2026),
    "quantity": (1, 9),
    "qty": (1, 9),
    "count": (0, 99),
    "latitude": (-60, 60),
    "longitude": (-180, 180),
    "percent": (0, 100),
    "discount": (0, 30),
}
_ORDINARY = (1, 500)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TIME_WORDS = {"ts", "time", "timestamp", "at", "millis", "ms", "epoch"}
_ID_WORDS = {"id", "key", "code", "no", "number", "uuid"}


def is_id(name: str) -> bool:
    """Whether the name of a column is that of an identifier, such as ``user_id`` or ``orderNo``."""
    return _last_word(name) in _ID_WORDS


def _split(name: str) -> list[str]:
    """The words of a name, in small letters."""
    return [word.lower() for word in _WORD.findall(name)]


def _last_word(name: str) -> str:
    return (_split(name) or [""])[-1]


class FrozenRow(dict[str, Any]):
    """A row that can be the key of a map."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


@attrs.frozen
class Samples:
    """Makes values, as `kdsl.Table.produce` takes them.

    Attributes:
        seed: Another seed gives other values.
        choices: The only values of some columns, by their names, such as those of enums.
    """

    seed: int = 0
    choices: Mapping[str, Sequence[Any]] = attrs.field(factory=dict)

    def value(self, name: str, kind: t.DataType, number: int, at: datetime, *, may_be_null: bool = True) -> Any:
        """Return the value of a column.

        Args:
            name: The column.
            kind: Its type.
            number: Which value: the same number always gives the same value, apart from times.
            at: The time of the row, in UTC; times rise with it.
            may_be_null: Whether some values of a nullable type are None.
        """
        random = Random(f"{self.seed}/{name}/{kind.as_nullable()}/{number}")  # noqa: S311
        if random.random() < _NULL_SHARE and kind.nullable and may_be_null:
            return None
        fitting = str if isinstance(kind, t.Char | t.VarChar) else int if type(kind) in _BITS else ()
        if choices := [one for one in self.choices.get(name, ()) if isinstance(one, fitting)]:
            return random.choice(choices)
        return self._value(name, kind, number, at, random)

    def _value(self, name: str, kind: t.DataType, number: int, at: datetime, random: Random) -> Any:
        """Return a value that is not None."""
        match kind:
            case t.Boolean():
                return random.random() < 0.5
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return _integer(name, kind, number, at, random)
            case t.Float() | t.Double():
                low, high = _find(_NUMBERS, name, _ORDINARY)
                return round(random.uniform(low, high), 2)
            case t.Decimal():
                return _decimal(kind, random)
            case t.Char(length=length) | t.VarChar(length=length):
                return _text(name, number, at, random)[:length]
            case t.Binary(length=length) | t.VarBinary(length=length):
                return random.randbytes(min(length, _MOST_BYTES))
            case t.Date():
                return _date(name, at, random)
            case t.Time(precision=precision):
                return _round(at, precision).time()
            case t.Timestamp(precision=precision):
                return _round(at, precision).replace(tzinfo=None)
            case t.TimestampLtz(precision=precision):
                return _round(at, precision)
            case _:
                return self._make_nested(name, kind, number, at, random)

    def _make_nested(self, name: str, kind: t.DataType, number: int, at: datetime, random: Random) -> Any:
        """Return a value with parts: elements of arrays and maps are never None, because not every format has that."""
        numbers = [number * _MOST_ELEMENTS + i for i in range(random.randint(1, _MOST_ELEMENTS))]
        match kind:
            case t.Array(element=element):
                return [self.value(name, element, n, at, may_be_null=False) for n in numbers]
            case t.Map(key=key, value=value):
                return {
                    _hashable(self.value(f"{name}_key", key, n, at, may_be_null=False)): self.value(
                        name, value, n, at, may_be_null=False
                    )
                    for n in numbers
                }
            case t.Multiset(element=element):
                return {
                    _hashable(self.value(name, element, n, at, may_be_null=False)): random.randint(1, 9)
                    for n in numbers
                }
            case t.Row(fields=fields):
                return {f.name: self.value(f.name, f.type, number, at) for f in fields}
            case _:
                raise KdslError(f"there are no sample values of the type {kind}")


def _hashable(value: Any) -> Any:
    """Return a value that can be the key of a dict: rows and lists as such that cannot be changed."""
    if isinstance(value, dict):
        return FrozenRow({name: _hashable(member) for name, member in value.items()})
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _find(table: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return what a table has for one of the words in a name."""
    words = _split(name)
    return next((values for word, values in table.items() if word in words), default)


def _integer(name: str, kind: t.DataType, number: int, at: datetime, random: Random) -> int:
    """Return an integer that fits its type: an id, a time in epoch seconds or milliseconds, or a small number."""
    most = (1 << (_BITS[type(kind)] - 1)) - 1
    if is_id(name):
        return number % most + 1
    if _last_word(name) in _TIME_WORDS and not isinstance(kind, t.TinyInt | t.SmallInt):
        return int(at.timestamp() * (1000 if isinstance(kind, t.BigInt) else 1))
    low, high = _find(_NUMBERS, name, _ORDINARY)
    return random.randint(max(-most, min(low, most)), min(high, most))


def _decimal(kind: t.Decimal, random: Random) -> Decimal:
    """Return a decimal with few digits, as many as its type has."""
    fraction = min(kind.scale, 2)
    digits = min(kind.precision - kind.scale, _MOST_DIGITS) + fraction
    return Decimal(random.randrange(10**digits)).scaleb(-fraction)


def _text(name: str, number: int, at: datetime, random: Random) -> str:
    """Return a string: for an id one that shows its number, for a time its ISO form, else what suits the name."""
    words = _split(name) or ["value"]
    if words[-1] == "uuid":
        return "-".join(random.randbytes(n).hex() for n in (4, 2, 2, 2, 6))
    if is_id(name):
        return f"{words[-2] if len(words) > 1 else words[-1]}-{number + 1}"
    if words[-1] in _TIME_WORDS:
        return f"{at:%Y-%m-%d %H:%M:%S}"
    if words[-1] == "date":
        return f"{at:%Y-%m-%d}"
    if words[-1] in ("email", "mail"):
        return f"{random.choice(_TEXTS['name']).lower()}{number + 1}@example.com"
    if words[-1] in ("url", "uri", "link"):
        return f"https://example.com/{number + 1}"
    texts = _find(_TEXTS, name, None)
    return random.choice(texts) if texts else f"{words[-1]} {number + 1}"


def _date(name: str, at: datetime, random: Random) -> date:
    """Return the date of a time, or one some decades before for a birthday."""
    born = any(word.startswith("birth") for word in _split(name))
    return (at - timedelta(days=random.randint(20 * 365, 60 * 365) if born else 0)).date()


def _round(at: datetime, precision: int) -> datetime:
    """Return a time without the digits that a precision does not have; those of nanoseconds are not in Python's."""
    step = 10 ** max(0, 6 - precision)
    return at.replace(microsecond=at.microsecond // step * step)
