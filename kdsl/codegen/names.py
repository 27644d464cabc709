"""Names that Python can have, for columns, members, classes and values that may be called anything."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Collection
from enum import StrEnum

from kdsl.declare.classes.table import KafkaTable
from kdsl.formats import format_names

_WORDS = re.compile(r"[^\W_]+")
# What the written modules import or use; no class may take these names.
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


def attribute(name: str, taken: Collection[str], *, of_table: bool = False) -> str:
    """A name for an attribute: the given one where Python can have it, else one like it.

    Args:
        name: What the column or member is called.
        taken: Names that the class has already.
        of_table: Whether it stands in a table class, which has names of its own.
    """
    return _free(_legal(name, "column", _OF_TABLES if of_table else frozenset()), taken)


def symbol(value: str, taken: Collection[str]) -> str:
    """A name for a value of an enumeration."""
    return _free(_legal(value, "value", _OF_ENUMS), taken)


def class_name(name: str, taken: Collection[str], kind: str) -> str:
    """A name for a class, in capitals: ``user_behavior`` is ``UserBehavior``.

    Args:
        name: What the table or record is called.
        taken: Names that the module has already.
        kind: What is put behind a name that stands for something else: ``Table``, ``Record``, ``Enum``.
    """
    plain = unicodedata.normalize("NFKC", name)
    made = "".join(word[0].upper() + word[1:] for word in _WORDS.findall(plain))
    made = _identifier(made) or kind
    if not made.isidentifier():
        made = kind + made
    if keyword.iskeyword(made) or hasattr(builtins, made) or made in IMPORTED:
        made += kind
    return _free(made, taken)


def _legal(name: str, start: str, reserved: frozenset[str]) -> str:
    made = _identifier(unicodedata.normalize("NFKC", name)).lstrip("_")
    if not made.isidentifier():
        made = f"{start}_{made}".rstrip("_")
    return f"{made}_" if keyword.iskeyword(made) or made in reserved else made


def _identifier(text: str) -> str:
    return "".join(c if f"a{c}".isidentifier() and unicodedata.normalize("NFKC", c) == c else "_" for c in text)


def _free(name: str, taken: Collection[str]) -> str:
    made, number = name, 2
    while made in taken:
        made, number = f"{name.rstrip('_')}_{number}", number + 1
    return made
