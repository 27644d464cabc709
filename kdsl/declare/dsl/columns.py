"""The parts of a table class: columns, their marks, and the functions that create them.

A row stores a `Col`, so it is an argument of the constructor; a `Virtual` or a computed column is filled in by Kafka or
by an expression, so it is not. As an attribute of the class a column is a `Ref`, of a row a value. Columns are only
recorded here; `kdsl.declare.dsl.declaration` makes the `TableDef`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, Never, TypeAlias, TypeVar, overload

import attrs

from kdsl.declare.definition import MISSING
from kdsl.declare.dsl.expectations import Expectation, as_expectations
from kdsl.declare.dsl.ref import Ref, use_session_columns
from kdsl.declare.dsl.relation import relation_of
from kdsl.types.python import SqlType

T = TypeVar("T")
_REFERENCES = "__kdsl_references__"
"""The attribute of a table class that stores the references to its columns, by attribute."""

Headers: TypeAlias = dict[str, bytes | None]
"""The headers of a record; for a repeated key, the last one. ``dict[str, bytes]`` has no header without a value."""
# The annotation chooses: a dict is invariant, so neither type can replace the other.
_Headers = TypeVar("_Headers", dict[str, bytes], dict[str, bytes | None])


class Header(NamedTuple):
    """One header of a record, as ``header-list`` has them."""

    key: str
    value: bytes | None


@attrs.frozen
class KeyField:
    """Marks a column of the message key: ``Annotated[Col[int], KeyField()]``; `Key` is the short form.

    Attributes:
        primary: Whether it is also part of the primary key.
    """

    primary: bool = False


@attrs.frozen
class MetadataMark:
    """Marks a column that shows metadata of the record. Written ``Metadata("offset")``.

    Attributes:
        key: The metadata key (`kdsl.declare.metadata.METADATA`).
        virtual: Whether the column is only read, as with `Virtual`.
    """

    key: str
    virtual: bool = False


if TYPE_CHECKING:

    def Metadata(key: str, *, virtual: bool = False) -> Any:  # noqa: N802
        """Mark a column of metadata.

        ``Annotated[Col[datetime], Metadata("timestamp")]`` is a column that is also written, and
        ``Annotated[int, Metadata("offset", virtual=True)]`` one that is only read. It has the same meaning as the
        default of an annotated name. `metadata` and `virtual` have more precise types.
        """
else:
    Metadata = MetadataMark


class ColumnDescriptor(Generic[T]):
    """A column of a table class: a descriptor that holds its declaration.

    Attributes:
        attribute: Its name in the class.
        default: The value of a row that does not set one.
        type: The column type, if the annotation does not define it.
        watermark: How late a row may be by this column of event time, as ``5 seconds``.
        comment: What it means.
        name: The column's name, if it is not the attribute's.
        mark: The metadata that it shows.
        key: Its mark as a key column.
        expect: Its row rules.
        uses: The number of attributes that share this object.
    """

    def __init__(
        self,
        *,
        default: Any = MISSING,
        type: SqlType | None = None,  # noqa: A002
        watermark: str | None = None,
        comment: str | None = None,
        name: str | None = None,
        mark: MetadataMark | None = None,
        key: KeyField | None = None,
        expect: Expectation | Sequence[Expectation] | None = None,
    ) -> None:
        self.attribute, self.uses = "", 0
        self.default, self.type, self.watermark = default, type, watermark
        self.comment, self.name, self.mark, self.key = comment, name, mark, key
        self.expect = as_expectations(expect)

    def __set_name__(self, owner: type[Any], name: str) -> None:
        """Note the attribute under which a class has the column, and count the uses of this object."""
        self.attribute = name
        self.uses += 1

    @overload
    def __get__(self, row: None, owner: type[Any]) -> Ref[T]: ...
    @overload
    def __get__(self, row: object, owner: type[Any]) -> T: ...
    def __get__(self, row: object | None, owner: type[Any]) -> Any:
        """Return the class's reference to the column, or the value that a row stores, else the result of `absent`.

        The reference is created and stored by `_reference`; errors of `absent` are raised.
        """
        if row is None:
            return self._reference(owner)
        try:
            return row.__dict__[self.attribute]
        except KeyError:
            return self.absent(row)

    @property
    def column(self) -> str:
        """The column's name."""
        return self.name or self.attribute

    def _reference(self, owner: type[Any]) -> Ref[T]:
        """Return the reference of a class to the column, which is created once and stored in the class.

        `Ref` becomes a subclass of the column class of PySpark, or of Spark Connect, as by `use_session_columns`.
        """
        use_session_columns()
        references: dict[str, Ref[T]] = vars(owner).get(_REFERENCES) or {}
        if self.attribute not in references:
            reference: Ref[T] = Ref(self.column, owner.__name__)
            references[self.attribute] = reference._within(relation_of(owner))  # noqa: SLF001
            setattr(owner, _REFERENCES, references)
        return references[self.attribute]

    def absent(self, row: object) -> Any:
        """Raise the error of a column that the row does not store; called when the attribute is read.

        Raises:
            AttributeError: Always. Kafka fills the column in, so only rows that were read have it.
        """
        name = type(row).__name__
        raise AttributeError(
            f"{name}.{self.attribute} is filled in by Kafka, so only rows that were read with it have it; "
            f"{name}.collect(df) returns such rows if df has the column"
        )


class Col(ColumnDescriptor[T]):
    """A column that a row stores: ``amount: Col[Decimal]``."""

    if TYPE_CHECKING:  # rows are immutable; type checkers derive the constructor's parameter from this method

        def __set__(self, row: Never, value: T) -> None: ...

    else:

        def __set__(self, row: object, value: T) -> None:
            """Store the value in the row's dictionary; attrs refuses assignments to rows before this is called."""
            row.__dict__[self.attribute] = value


class Virtual(ColumnDescriptor[T]):
    """A column that Kafka fills in: only read, and not an argument of a row. ``offset: Virtual[int]``."""

    def __set__(self, row: object, value: Never) -> None:
        """Raise AttributeError, always: Kafka fills the column in."""
        raise AttributeError(f"{type(row).__name__}.{self.attribute} is filled in by Kafka and cannot be set")


Key = Annotated[Col[T], KeyField()]
"""A column of the message key: ``user_id: Key[int]``."""
PrimaryKey = Annotated[Col[T], KeyField(primary=True)]
"""A column of the message key and of the primary key: ``user_id: PrimaryKey[int]``."""


@overload
def col(
    *,
    default: T,
    type: SqlType | None = None,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
    expect: Expectation | Sequence[Expectation] | None = None,
) -> Col[T]: ...
@overload
def col(
    *,
    type: SqlType | None = None,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
    expect: Expectation | Sequence[Expectation] | None = None,
) -> Any: ...
def col(
    *,
    default: Any = MISSING,
    type: SqlType | None = None,  # noqa: A002
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
    expect: Expectation | Sequence[Expectation] | None = None,
) -> Any:
    """Declare more about a column than its annotation does.

    ```python
    amount: Col[Decimal] = col(type="decimal(10, 2)")
    ```

    Args:
        default: The value of a row that does not set one, and of a written DataFrame without this column.
        type: The column type: a string in SQL, a Spark type, or one of `kdsl.types`. The annotation decides whether it
            may be NULL.
        watermark: Makes this the column of event time: how late a row may be, as ``5 seconds``.
        comment: What the column means; a string under the column in the class body means the same.
        name: The column's name, if it cannot be the attribute's, such as ``timestamp-type`` or ``schema``.
        expect: A rule that the rows should meet, or several: ``expect("amount > 0", on_fail="drop")``
            (`kdsl.declare.dsl.expectations.expect`). A rule without a name has the column's.
    """
    return Col(default=default, type=type, watermark=watermark, comment=comment, name=name, expect=expect)


Raw: TypeAlias = Literal["__raw_key__", "__raw_value__"]
Writable: TypeAlias = Literal["timestamp", "headers", "header-list", "topic", "__raw_key__", "__raw_value__"]


@overload
def metadata(
    key: Literal["timestamp"],
    *,
    default: datetime = ...,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
) -> Col[datetime]: ...
@overload
def metadata(
    key: Literal["timestamp"],
    *,
    default: None,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
) -> Col[datetime | None]: ...
@overload
def metadata(
    key: Literal["headers"],
    *,
    default: _Headers = ...,  # pyright: ignore[reportInvalidTypeVarUse]  # the annotation of the column solves it
    comment: str | None = None,
    name: str | None = None,
) -> Col[_Headers]: ...
@overload
def metadata(
    key: Literal["headers"],
    *,
    default: None,
    comment: str | None = None,
    name: str | None = None,
) -> Col[_Headers | None]: ...
@overload
def metadata(
    key: Literal["header-list"],
    *,
    default: list[Header] = ...,
    comment: str | None = None,
    name: str | None = None,
) -> Col[list[Header]]: ...
@overload
def metadata(
    key: Literal["topic"],
    *,
    default: str = ...,
    comment: str | None = None,
    name: str | None = None,
) -> Col[str]: ...
@overload
def metadata(
    key: Raw,
    *,
    default: bytes | None = ...,
    comment: str | None = None,
    name: str | None = None,
) -> Col[bytes | None]: ...
@overload
def metadata(
    key: Writable,
    *,
    type: SqlType,
    default: Any = ...,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
) -> Any: ...
def metadata(
    key: str,
    *,
    default: Any = MISSING,
    type: SqlType | None = None,  # noqa: A002
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
) -> Col[Any]:
    """A column of metadata that is read and written.

    ```python
    placed_at: Col[datetime] = metadata("timestamp", watermark="5 seconds")
    ```

    Args:
        key: A metadata key that can be written: ``timestamp``, ``headers``, ``header-list``, ``topic`` (where the table
            has several), ``__raw_key__``, ``__raw_value__``. Nothing is raised here for another one: it is an error
            when the table is first used.
        default: As for `col`; of a timestamp that is NULL, the client writes its own time.
        type: As for `col`. Type checkers then take the type of the values from the annotation alone.
        watermark: As for `col`.
        comment: As for `col`.
        name: As for `col`.
    """
    mark = MetadataMark(key)
    return Col(default=default, type=type, watermark=watermark, comment=comment, name=name, mark=mark)


# The default of `init` shows type checkers that a virtual column is not an argument of a row.
@overload
def virtual(
    key: Literal["partition", "offset"],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[int]: ...
@overload
def virtual(
    key: Literal["leader-epoch", "value.schema-id"],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[int | None]: ...
@overload
def virtual(
    key: Literal["timestamp"],
    *,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[datetime]: ...
@overload
def virtual(
    key: Literal["topic", "timestamp-type"],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[str]: ...
@overload
def virtual(
    key: Literal["headers"],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[_Headers]: ...
@overload
def virtual(
    key: Literal["header-list"],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[list[Header]]: ...
@overload
def virtual(
    key: Raw,
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[bytes | None]: ...
@overload
def virtual(
    key: Literal[
        "value.schema",
        "value.source.database",
        "value.source.schema",
        "value.source.table",
        "value.database",
        "value.table",
    ],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[str | None]: ...
@overload
def virtual(
    key: Literal["value.ingestion-timestamp", "value.source.timestamp", "value.event-timestamp"],
    *,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[datetime | None]: ...
@overload
def virtual(
    key: Literal["value.source.properties"],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[dict[str, str | None] | None]: ...
@overload
def virtual(
    key: Literal["value.sql-type"],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[dict[str, int | None] | None]: ...
@overload
def virtual(
    key: Literal["value.pk-names", "value.primary-keys", "value.primary-key-columns"],
    *,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[list[str | None] | None]: ...
@overload
def virtual(
    key: str,
    *,
    type: SqlType,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Any: ...
def virtual(
    key: str,
    *,
    type: SqlType | None = None,  # noqa: A002
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Virtual[Any]:
    """A column of metadata that is only read.

    ```python
    offset: Virtual[int] = virtual("offset")
    ```

    Args:
        key: A metadata key: ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestamp-type``, ``leader-epoch``,
            ``headers``, ``header-list``, ``__raw_key__``, ``__raw_value__``, or one of the value's format, as
            ``value.source.table``. Nothing is raised here for another one: it is an error when the table is first used.
        type: As for `col`. Type checkers then take the type of the values from the annotation alone.
        watermark: As for `col`.
        comment: As for `col`.
        name: As for `col`.
        init: For type checkers only.
    """
    del init
    mark = MetadataMark(key, virtual=True)
    return Virtual(type=type, watermark=watermark, comment=comment, name=name, mark=mark)
