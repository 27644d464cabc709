"""Table classes: a class statement declares a table, its class methods read and write it.

A class statement is only recorded (`kdsl.declare.dsl.declaration`); the operations are those of `kdsl.table.Table`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Signature
from reprlib import recursive_repr
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, Unpack, dataclass_transform

from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.definition import TableDef
from kdsl.declare.dsl import rows as row_classes
from kdsl.declare.dsl.column_reader import ClassColumns
from kdsl.declare.dsl.columns import col, metadata, virtual
from kdsl.declare.dsl.computed import expression
from kdsl.declare.dsl.declaration import record_declaration
from kdsl.declare.dsl.keywords import TableKeywords, UpsertTableKeywords, make_keyword_signature
from kdsl.declare.dsl.relation import DECLARATION, relation_of
from kdsl.declare.dsl.table_def import COLUMNS, define_table, read_columns
from kdsl.errors import fail_on, pluralize
from kdsl.extras import explain_missing_package
from kdsl.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

P = ParamSpec("P")
R = TypeVar("R")
_DEFINITION = "__kdsl_definition__"


if TYPE_CHECKING:
    _TableClass = type  # mypy checks the keywords of a class statement only if the metaclass is `type`
else:

    class _TableClass(type):
        """The metaclass of table classes: their ``repr`` shows the declared table."""

        @recursive_repr("<a table class>")  # a problem may show the class in which it is
        def __repr__(cls) -> str:
            """Return the declared table's name, topics and number of columns; for a class without a table as usual."""
            if "__kdsl_options__" in vars(cls) or not issubclass(cls, KafkaTable) or cls is KafkaTable:
                return super().__repr__()
            table = cls.definition()
            options, kind = table.options, "KafkaTable" if table.upserts is None else "UpsertTable"
            topics = ", ".join(map(repr, options.topic)) if isinstance(options.topic, tuple) else repr(options.topic)
            source = f"topic {topics}" if options.topic else "no topic"
            source = source if options.topic_pattern is None else f"topics like {options.topic_pattern!r}"
            return f"<{kind} {table.name}: {source}, {pluralize(len(table.columns), 'column')}>"

        @property
        def __signature__(cls) -> Signature:
            """The columns that a row takes; of a base, such as `KafkaTable`, the keywords of class statements."""
            if "__kdsl_options__" in vars(cls):
                return make_keyword_signature(cls.__kdsl_options__)
            return row_classes.make_row_signature(cls)


def operation(method: Callable[Concatenate[Table, P], R]) -> classmethod[KafkaTable, P, R]:
    """Turn a method of `Table` into a class method of table classes, with the same signature and docstring.

    A mixin of both classes would need a metaclass that type checkers see, and mypy then no longer checks the keywords
    of class statements.
    """

    @wraps(method)
    def call(cls: type[KafkaTable], /, *args: P.args, **named: P.kwargs) -> R:
        return method(cls.as_table(), *args, **named)

    return classmethod(call)


def read_operation(method: Callable[Concatenate[Table, P], DataFrame]) -> classmethod[KafkaTable, P, DataFrame]:
    """As `operation`, for a method that returns rows of the table; the DataFrame gets the alias of the class."""

    @wraps(method)
    def call(cls: type[KafkaTable], /, *args: P.args, **named: P.kwargs) -> DataFrame:
        return method(cls.as_table(), *args, **named).alias(relation_of(cls).alias)

    return classmethod(call)


@dataclass_transform(kw_only_default=True, field_specifiers=(col, metadata, virtual, expression))
class KafkaTable(metaclass=_TableClass):
    """A Kafka topic as a table. A subclass declares one; its instances are rows.

    ```python
    class Orders(KafkaTable, topic="orders", key=Json(), value=Json(), key_prefix="k_", value_fields="EXCEPT_KEY"):
        k_user_id: Key[int]
        amount: Col[Decimal] = col(type="decimal(10, 2)")
        placed_at: Col[datetime] = metadata("timestamp", watermark="5 seconds")
        offset: Virtual[int] = virtual("offset")
    ```

    As an attribute of the class, a column is a reference that pyspark takes as a column (`Ref`); as an attribute of a
    row, it is a value. Columns keep the order of their annotations, followed by the computed ones. A table class may
    inherit from another; one without a topic can serve as a common base. The cluster is named when the table is read
    or written.

    The keywords of the class statement are those of `kdsl.declare.dsl.keywords.TableKeywords`.
    """

    __attrs_attrs__: ClassVar[Any] = ()
    __kdsl_options__: ClassVar[type[KafkaOptions]] = KafkaOptions

    if TYPE_CHECKING:

        def __init_subclass__(cls, **keywords: Unpack[TableKeywords]) -> None: ...

    else:

        def __init_subclass__(cls, **keywords: Any) -> None:
            """Record the class statement, and turn its columns into descriptors; a base such as `UpsertTable` stays."""
            super().__init_subclass__()
            if "__kdsl_options__" in vars(cls):  # a base of table classes, such as UpsertTable
                return
            declaration = record_declaration(cls, keywords, _class_statement(sys._getframe(1)), _RESERVED)  # noqa: SLF001
            setattr(cls, DECLARATION, declaration)
            setattr(cls, COLUMNS, ClassColumns(declaration))
            setattr(cls, row_classes.FIELDS, row_classes.LazyFields())

        def __init__(self, **values: Any) -> None:
            """Create a row; its values are not checked. TypeError if columns are unknown or missing."""
            row_classes.fill(self, values)

    def evolve(self, **changes: Any) -> Self:
        """Return a copy of the row with other values and the same row kind, but without virtual and computed columns.

        Raises:
            TypeError: An argument is not a column of the row's constructor.
        """
        return row_classes.evolve(self, changes)

    @classmethod
    def definition(cls) -> TableDef:
        """Return what the class declares, with the problems of the declaration; see `kdsl.resolve`.

        It is computed once, unless the columns have problems.

        Raises:
            TypeError: The class is `KafkaTable` or `UpsertTable` itself, which declares no table.
        """
        definition: TableDef | None = vars(cls).get(_DEFINITION)
        if definition is None:
            definition = define_table(cls)
            if not read_columns(cls)[1]:
                setattr(cls, _DEFINITION, definition)
        return definition

    @classmethod
    def as_table(cls) -> Table:
        """Return the table that the class declares as a `Table`, which also has its plans and its cluster.

        Errors are those of `definition`.
        """
        return Table(cls.definition())

    schema = operation(Table.schema)
    key_schema = operation(Table.key_schema)
    value_schema = operation(Table.value_schema)
    explain = operation(Table.explain)
    to_arrow = operation(Table.to_arrow)
    iter_batches = operation(Table.iter_batches)
    produce = operation(Table.produce)
    read = read_operation(Table.read)
    read_stream = read_operation(Table.read_stream)
    snapshot = read_operation(Table.snapshot)
    dead_letters = operation(Table.dead_letters)
    unread_by = operation(Table.unread_by)
    decode = read_operation(Table.decode)
    write = operation(Table.write)
    write_stream = operation(Table.write_stream)
    encode = operation(Table.encode)

    @classmethod
    @explain_missing_package("a DataFrame of rows")
    def rows(cls, rows: Iterable[Self], *, spark: SparkSession | None = None) -> DataFrame:
        """Create a DataFrame of typed rows, for tests and small data.

        It has the columns that can be written and, if the rows are changes, first their row kinds; its alias is that of
        the class.

        Args:
            rows: The rows, all in the driver's memory.
            spark: The session; by default the active one.

        Raises:
            ResolveError: The declaration of the columns is invalid.
            RowError: No session is active, an object is not a row of this class, a row is a change that the table does
                not carry, or a value does not fit its column's type, for example None if NULL is not allowed; or the
                session does not have Spark's TIME, and a column needs it.
        """
        from kdsl.run.dataframes.rows import create_dataframe

        fail_on(read_columns(cls)[1], cls.__name__)
        return create_dataframe(cls, rows, spark).alias(relation_of(cls).alias)

    @classmethod
    def collect(cls, df: DataFrame) -> list[Self]:
        """Collect the rows of a DataFrame as typed rows in the driver's memory, also virtual and computed columns.

        Args:
            df: Columns of the table under their names and with their types, and of a changelog also the row kind.
                Virtual and computed columns may be missing, and columns that have a default.

        Raises:
            ResolveError: The declaration of the columns is invalid.
            RowError: Columns are missing, unknown, repeated, or of other types; the message lists all of them.
            ValueError: A value is not one of the enum that annotates its column.
        """
        from kdsl.run.dataframes.rows import collect

        fail_on(read_columns(cls)[1], cls.__name__)
        return collect(cls, df)


class UpsertTable(KafkaTable):
    """A Kafka topic as a table by key: a record replaces the row of its key, and a record without a value deletes it.

    ```python
    class Users(UpsertTable, topic="users", key=Json(), value=Json()):
        user_id: PrimaryKey[int]
        name: Col[str | None]
        region: Col[str | None]
    ```

    The columns of the primary key are the message key. A read starts at the earliest offsets and returns changes: the
    first column is ``_row_kind`` (``+I``, ``-U``, ``+U``, ``-D``); ``-U`` and ``-D`` have the row before the change.
    A write takes rows, or changes with ``_row_kind``: it writes the current row, and for a delete a tombstone.

    The methods are those of `KafkaTable`. The keywords of the class statement are those of
    `kdsl.declare.dsl.keywords.UpsertTableKeywords`.
    """

    __kdsl_options__ = UpsertOptions

    if TYPE_CHECKING:

        def __init_subclass__(cls, **keywords: Unpack[UpsertTableKeywords]) -> None: ...


_RESERVED = frozenset(name for name in vars(KafkaTable) if not name.startswith("_"))
"""The names that an attribute for a column cannot have."""


def _class_statement(frame: FrameType) -> FrameType:
    """Return the frame of a class statement, from that of an ``__init_subclass__``, beyond those of its bases."""
    while frame.f_code.co_name == "__init_subclass__" and frame.f_back is not None:
        frame = frame.f_back
    return frame
