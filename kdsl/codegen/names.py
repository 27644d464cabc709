"""Valid Python names for columns, fields, classes and values that may have any name."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Collection
from enum import StrEnum

from kdsl.formats import format_names
from kdsl.kafka_table import KafkaTable

_WORDS = re.compile(r"[^\W_]+")
# What generated modules import or use; no class may have these names.
IMPORTED = frozenset(
    {
        *("Annotated", "Any", "Col", "Decimal", "Float32", "Header", "Int16", "Int32", "Int8", "KafkaTable", "Key"),
        *(
            "Metadata",
            "Named",
            "PrimaryKey",
            "StrEnum",
            "TimestampNtz",
            "UTC",
            "UpsertTable",
            "Virtual",
            *(name.title().replace("-", "") for name in format_names()),
        ),
    }
)
_OF_TABLES = frozenset(name for name in dir(KafkaTable) if not name.startswith("_"))
_OF_ENUMS = frozenset(name for name in dir(StrEnum) if not name.startswith("_")) | {"name", "value", "mro"}


def attribute_name(name: str, taken: Collection[str], *, of_table: bool = False) -> str:
    """Choose a name for an attribute: the column's own if possible, else a similar one that is not taken.

    Underscores at its start are left out.

    Args:
        name: The name of the column or field.
        taken: Names that the class has already.
        of_table: Whether it is an attribute of a table class, which reserves some names.
    """
    return _make_unique(_legal_name(name, "column", _OF_TABLES if of_table else frozenset()), taken)


def symbol_name(value: str, taken: Collection[str]) -> str:
    """Choose a name for a value of an enumeration, similar to the value, that is not in ``taken``."""
    return _make_unique(_legal_name(value, "value", _OF_ENUMS), taken)


def class_name(name: str, taken: Collection[str], kind: str) -> str:
    """Choose a name for a class, in CamelCase: ``user_behavior`` becomes ``UserBehavior``.

    Args:
        name: The name of the table or record.
        taken: Names that the module has already.
        kind: The suffix for a name that has another meaning: ``Table``, ``Record``, ``Enum``. It is put before a name
            that starts with a digit, and stands for one without letters and digits.
    """
    plain = unicodedata.normalize("NFKC", name)
    camel = "".join(word[0].upper() + word[1:] for word in _WORDS.findall(plain))
    camel = _replace_illegal(camel) or kind
    if not camel.isidentifier():
        camel = kind + camel
    if keyword.iskeyword(camel) or hasattr(builtins, camel) or camel in IMPORTED:
        camel += kind
    return _make_unique(camel, taken)


def _legal_name(name: str, start: str, reserved: frozenset[str]) -> str:
    """Return a name that Python allows and that is not reserved, without underscores at its start.

    One that then begins with a digit, or is empty, gets ``start`` before it. A keyword or reserved name gets ``_``
    after it.
    """
    legal = _replace_illegal(unicodedata.normalize("NFKC", name)).lstrip("_")
    if not legal.isidentifier():
        legal = f"{start}_{legal}".rstrip("_")
    return f"{legal}_" if keyword.iskeyword(legal) or legal in reserved else legal


def _replace_illegal(name: str) -> str:
    """Replace characters that names cannot contain by underscores."""
    return "".join(c if f"a{c}".isidentifier() and unicodedata.normalize("NFKC", c) == c else "_" for c in name)


def _make_unique(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken, with a number after it if necessary."""
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name.rstrip('_')}_{number}", number + 1
    return unique
