"""References to columns: what ``Orders.amount`` evaluates to.

A `Ref` is a Spark column and the name of the column at once, to type checkers and at run time. It needs no session
until it is used. Spark and pandas see the string where they expect a name. Everywhere else its operators and
methods are those of the column: ``Orders.amount > 100`` is a condition, never a comparison of strings. Only
``DataFrame.withWatermark`` requires a plain string: ``str(Orders.placed_at)``.

PySpark is imported when the first reference is created. Without it a reference is only a name, and its operators
raise an error.

A reference means a column of this name, in any DataFrame. In an expression over columns of two tables, which only a
join has, a name that occurs in both tables is qualified with its table: ``Orders.k == Payments.k``.
"""

# A reference acts as Spark's own column, so it uses its internals. To type checkers it narrows the parameters of its
# bases, and it is covariant, as a producer of values is, although comparisons take values.
# ruff: noqa: SLF001
# pyright: reportIncompatibleMethodOverride=false, reportOverlappingOverload=false, reportGeneralTypeIssues=false
from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import attrs

from kdsl.errors import KdslError
from kdsl.extras import explain_missing_package, missing_package
from kdsl.spark_internals.columns import (
    CONNECT_EXPRESSIONS,
    ColumnProxy,
    classic_column_class,
    column_methods,
    connect_column_class,
    is_spark_column,
)
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class NoSessionError(KdslError):
    """An expression over columns was built before a Spark session existed."""


class SelfComparisonError(KdslError):
    """A column of a table class is compared with itself, which is always true; a self-join needs aliases."""


@attrs.frozen
class Relation:
    """The side of a join that the columns of a table class belong to.

    Attributes:
        alias: The alias of the DataFrames that have these columns.
        table: The name of the table class.
        columns: The names of its columns.
        fixed: Whether the columns are always qualified, as those of `kdsl.aliased`.
    """

    alias: str
    table: str
    columns: frozenset[str] = attrs.field(eq=False, repr=False)
    fixed: bool = False


class Mismatch:
    """The type that type checkers infer for a comparison of a column with a value of another type.

    No function of Spark accepts it, so the mistake is reported.
    """


if TYPE_CHECKING:
    from decimal import Decimal

    class Ref(Column, str, Generic[T_co]):  # type: ignore[misc]
        """A column of a table: its name, and a Spark column whose comparisons take the column's own type."""

        def __new__(cls, name: str, table: str = "") -> Ref[T_co]:
            """Create a reference to a column; messages name the table."""
            ...

        def _within(self, relation: Relation) -> Ref[T_co]: ...

        def __hash__(self) -> int: ...

        @overload  # type: ignore[override]
        def __eq__(self, other: T_co | Column) -> Column: ...
        @overload
        def __eq__(self: Ref[Decimal | None], other: int) -> Column: ...  # type: ignore[overload-overlap]
        @overload
        def __eq__(self, other: object) -> Mismatch: ...
        def __eq__(self, other: object) -> Any: ...

        @overload  # type: ignore[override]
        def __ne__(self, other: T_co | Column) -> Column: ...
        @overload
        def __ne__(self: Ref[Decimal | None], other: int) -> Column: ...  # type: ignore[overload-overlap]
        @overload
        def __ne__(self, other: object) -> Mismatch: ...
        def __ne__(self, other: object) -> Any: ...

        @overload  # type: ignore[override]
        def __lt__(self, other: T_co | Column) -> Column: ...
        @overload
        def __lt__(self: Ref[Decimal | None], other: int) -> Column: ...  # type: ignore[overload-overlap]
        @overload
        def __lt__(self, other: object) -> Mismatch: ...
        def __lt__(self, other: object) -> Any: ...

        @overload  # type: ignore[override]
        def __le__(self, other: T_co | Column) -> Column: ...
        @overload
        def __le__(self: Ref[Decimal | None], other: int) -> Column: ...  # type: ignore[overload-overlap]
        @overload
        def __le__(self, other: object) -> Mismatch: ...
        def __le__(self, other: object) -> Any: ...

        @overload  # type: ignore[override]
        def __gt__(self, other: T_co | Column) -> Column: ...
        @overload
        def __gt__(self: Ref[Decimal | None], other: int) -> Column: ...  # type: ignore[overload-overlap]
        @overload
        def __gt__(self, other: object) -> Mismatch: ...
        def __gt__(self, other: object) -> Any: ...

        @overload  # type: ignore[override]
        def __ge__(self, other: T_co | Column) -> Column: ...
        @overload
        def __ge__(self: Ref[Decimal | None], other: int) -> Column: ...  # type: ignore[overload-overlap]
        @overload
        def __ge__(self, other: object) -> Mismatch: ...
        def __ge__(self, other: object) -> Any: ...

    def _use_pyspark() -> bool: ...

else:
    # Code in these packages wants the name of a reference; all other code means the column.
    _NAME_WANTED = frozenset(sys.stdlib_module_names) | {
        *("IPython", "_pytest", "delta", "numpy", "pandas", "pluggy", "polars", "py4j", "pyarrow", "pyspark")
    }
    # Methods of str that compiled code calls, whose module cannot be determined.
    _METHODS_OF_STR = frozenset({"encode", "isascii", "isidentifier"})
    # Arguments of these methods are names or strings, never columns.
    _COMPARISONS = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})
    _TAKING_NAMES = frozenset({"alias", "name", "getField", "dropFields", "cast", "astype", "try_cast"})

    class Ref(str, ColumnProxy):
        """A column of a table: its name as a string, and a Spark column, whose class becomes a base of this one."""

        __class_getitem__ = classmethod(GenericAlias)
        __hash__ = str.__hash__

        def __new__(cls, name: str, table: str = "") -> Ref:
            """Create a reference to a column; messages name the table. The first one makes `Ref` a Spark column."""
            _use_pyspark()
            reference = str.__new__(cls, name)
            reference.__dict__["_table"] = table
            reference.__dict__["_relation"] = None
            return reference

        def __init__(self, name: str, table: str = "") -> None:
            pass

        def _within(self, relation: Relation) -> Ref:
            """Return a new reference to the same column within a relation, always qualified if that is fixed."""
            reference = Ref(str.__str__(self), relation.alias if relation.fixed else self.__dict__["_table"])
            reference.__dict__["_relation"] = relation
            return reference

        @property
        def _column(self) -> Column:
            """The Spark column of the session's kind, qualified only if the relation is fixed.

            As in `_column_in_expression`, the base class of `Ref` may change.
            """
            return self._column_in_expression(())

        def _column_in_expression(self, others: Iterable[Ref]) -> Column:
            """Return the Spark column for use in an expression with other references.

            It is qualified if its relation is fixed, or if another table of the expression also has a column of this
            name: the expression is then the condition of a join, and the name alone would be ambiguous. If the session
            is remote, `Ref` becomes a subclass of Spark Connect's column class.
            """
            use_session_columns()
            with explain_missing_package(f"an expression over {self!r}"):
                from pyspark.errors import PySparkException
                from pyspark.sql import functions as F

            relation, name = self.__dict__["_relation"], str.__str__(self)
            text = quote_name(name)
            if relation is not None and (relation.fixed or any(_clash(relation, name, other) for other in others)):
                text = f"{quote_name(relation.alias)}.{text}"
            try:
                return F.col(text)
            except (AssertionError, PySparkException) as e:
                raise NoSessionError(
                    f"an expression over {self!r} needs a Spark session, and there is none yet; build it inside the "
                    "function that works on the DataFrame, or, to compare names, write str(...) around the column"
                ) from e

        def __getattr__(self, name: str) -> Any:
            """Return the field ``name`` of a ROW column as a Spark column; that the field exists is not checked.

            Raises:
                AttributeError: It begins with ``_``, or the caller wants the name of the column.
                NoSessionError: There is no Spark session yet.
                MissingPackageError: PySpark is not installed.
            """
            if name.startswith("_") or _caller_wants_name():
                raise AttributeError(f"{self!r} has no attribute {name!r}")
            return self._column[name]

        def __repr__(self) -> str:
            table = self.__dict__["_table"]
            return f"{table}.{str.__str__(self)}" if table else f"Ref({str.__repr__(self)})"

        def __str__(self) -> str:
            """Return the name of the column; raise TypeError if Spark Connect's expressions ask for it."""
            if sys._getframe(1).f_globals.get("__name__") == CONNECT_EXPRESSIONS:
                raise TypeError(f"Spark Connect would treat {self!r} as a string here; write F.col({self!r})")
            return str.__str__(self)

        def __format__(self, spec: str) -> str:
            return format(str.__str__(self), spec)

        def __reduce__(self) -> tuple[Any, ...]:
            return (_unpickle, (str.__str__(self), self.__dict__["_table"], self.__dict__["_relation"]))

        def __copy__(self) -> Ref:
            return self

        def __deepcopy__(self, memo: dict[int, Any]) -> Ref:
            return self

        def __bool__(self) -> bool:
            """Return True for a caller that wants the name; raise TypeError for any other."""
            if _caller_wants_name():
                return True
            raise TypeError(f"{self!r} is a column, not a value; use & | ~ instead of and, or, not, and F.when for if")

        def __len__(self) -> int:
            """Return the length of the name for a caller that wants the name; raise TypeError for any other."""
            if _caller_wants_name():
                return str.__len__(self)
            raise TypeError(f"{self!r} is a column, not a value; use F.length({self!r}) or F.size({self!r})")

        def __iter__(self) -> Any:
            """Return an iterator over the name for a caller that wants the name; raise TypeError for any other."""
            if _caller_wants_name():
                return str.__iter__(self)
            raise TypeError(
                f"{self!r} is a column, not a value; to have a row for each element use F.explode({self!r})"
            )

        def __contains__(self, item: Any) -> bool:
            """Search the column's name for a caller that wants the name; raise TypeError for any other."""
            if _caller_wants_name():
                return str.__contains__(self, item)
            raise TypeError(
                f"`in` cannot search {self!r}, which is a column and not a value; use {self!r}.contains(...) or "
                f"F.array_contains({self!r}, ...)"
            )

    def _unpickle(name: str, table: str, relation: Relation | None) -> Ref:
        """Create a reference from its pickled parts."""
        reference = Ref(name, table)
        return reference if relation is None else reference._within(relation)

    def _clash(relation: Relation, name: str, other: Ref) -> bool:
        """Return whether another reference is of another relation that has a column of this name."""
        theirs = other.__dict__["_relation"]
        return theirs is not None and theirs != relation and name in theirs.columns

    def _references(values: Iterable[Any]) -> Iterator[Ref]:
        """Yield the column references among values, also inside lists and tuples at any depth."""
        for value in values:
            if isinstance(value, Ref):
                yield value
            elif isinstance(value, list | tuple):
                yield from _references(value)

    def _caller_wants_name() -> bool:
        """Whether the code two frames up, which called the method that calls this, wants the name, not the column."""
        return sys._getframe(2).f_globals.get("__name__", "").partition(".")[0] in _NAME_WANTED

    def _name(value: Any) -> Any:
        """Return the name of a reference as a plain string, and any other value as it is."""
        return str.__str__(value) if isinstance(value, Ref) else value

    def _spark_column(value: Any, others: Iterable[Ref]) -> Any:
        """Convert a reference, also inside lists and tuples, to a Spark column; any other value stays.

        Args:
            value: The value.
            others: The references in the same expression, which decide whether a name is qualified.
        """
        if isinstance(value, Ref):
            return value._column_in_expression(others)
        if isinstance(value, list | tuple):
            return type(value)(_spark_column(one, others) for one in value)
        return value

    def _check_comparison(left: Ref, right: Any) -> None:
        """Check that two columns that are compared are different ones."""
        relation = left.__dict__["_relation"]
        if relation is None or not isinstance(right, Ref) or right.__dict__["_relation"] != relation:
            return
        if str.__str__(left) == str.__str__(right):
            tables = [side.__dict__["_table"] for side in (left, right)]
            if tables[0] != tables[1]:
                raise SelfComparisonError(
                    f"{left!r} and {right!r} are the same column: {tables[0]} and {tables[1]} share the alias "
                    f"{relation.alias!r}; give each its own, as aliased({tables[0]}, {tables[0].lower()!r}), and its "
                    f"DataFrame too, as df.alias({tables[0].lower()!r})"
                )
            alias = f"aliased({relation.table.rpartition('.')[2]}, 'a')"
            raise SelfComparisonError(
                f"{left!r} is compared with itself, which is always true; to join the table with itself, compare the "
                f"columns of two aliases, such as {alias}; to leave out rows without a value, use "
                f"{left!r}.isNotNull()"
            )

    def _forward(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of `Ref` that calls a method of the Spark column with references converted to columns.

        If str has the method, too, callers that want the name get that of str. Arguments that are names, not columns,
        become plain strings. A comparison of a column with itself raises SelfComparisonError, and any call without a
        Spark session NoSessionError, or without PySpark MissingPackageError.
        """
        of_str = _REFLECTED_OF_STR.get(name) or getattr(str, name, None)

        @functools.wraps(method)
        def call(self: Ref, *args: Any, **named: Any) -> Any:
            with_column = any(is_spark_column(a) and not isinstance(a, Ref) for a in args)
            if of_str is not None and not with_column and _caller_wants_name():
                return of_str(self, *args, **named)
            if with_column and name.startswith("__r"):
                return getattr(args[0], f"__{name.removeprefix('__r')}")(self._column)
            if name in _TAKING_NAMES:
                return getattr(self._column, name)(*map(_name, args), **{k: _name(v) for k, v in named.items()})
            if name in _COMPARISONS:
                _check_comparison(self, args[0])
            references = [self, *_references((*args, *named.values()))]
            converted = [_spark_column(a, references) for a in args]
            keywords = {k: _spark_column(v, references) for k, v in named.items()}
            return getattr(self._column_in_expression(references), name)(*converted, **keywords)

        return call

    def _refuse(name: str) -> Callable[..., Any]:
        """Return a method of `Ref` that raises TypeError, unless the caller, such as pyspark, wants the column's name.

        It replaces a method of str, which would change the name though its caller means the value.
        """
        of_str = getattr(str, name)

        @functools.wraps(of_str)
        def call(self: Ref, *args: Any, **named: Any) -> Any:
            if _caller_wants_name():
                return of_str(self, *args, **named)
            raise TypeError(
                f"{self!r} is a column, not a string, so it has no {name}(); use the functions of "
                f"pyspark.sql.functions, or str({self!r}) for its name"
            )

        return call

    _REFLECTED_OF_STR = {
        "__radd__": lambda self, other: other + str.__str__(self) if isinstance(other, str) else NotImplemented,
        "__rmod__": lambda self, other: other % str.__str__(self) if isinstance(other, str) else NotImplemented,
    }

    # What a column has as operators; without PySpark they are forwarded all the same, and raise an error there.
    _OPERATORS = {
        name: getattr(operator, name.replace("__r", "__"))
        for name in (
            *_COMPARISONS,
            *("__add__", "__sub__", "__mul__", "__truediv__", "__mod__", "__pow__", "__and__", "__or__"),
            *("__radd__", "__rsub__", "__rmul__", "__rtruediv__", "__rmod__", "__rpow__", "__rand__", "__ror__"),
            *("__neg__", "__invert__", "__getitem__"),
        )
    }

    def _complete(methods: Mapping[str, Any]) -> None:
        """Give `Ref` methods that forward to the Spark column; the other public methods of str are refused."""
        for name, method in methods.items():
            if callable(method) and name not in vars(Ref):
                setattr(Ref, name, _forward(name, method))
        for name in dir(str):
            if not name.startswith("_") and name not in vars(Ref) and name not in _METHODS_OF_STR:
                setattr(Ref, name, _refuse(name))

    @functools.cache
    def _use_pyspark() -> bool:
        """Make `Ref` a subclass of PySpark's column class, with its methods; return False if there is no PySpark.

        Without PySpark, the operators of a reference raise MissingPackageError instead of comparing or adding strings.
        """
        try:
            column = classic_column_class()
        except ModuleNotFoundError as e:
            if missing_package("a reference", e) is None:
                raise
            _complete(_OPERATORS)
            return False
        _complete(column_methods())
        Ref.__bases__ = (*Ref.__bases__, column)
        return True


def use_session_columns() -> None:
    """Make `Ref` a subclass of Spark Connect's column class if the session is remote; the change is permanent.

    Python then also tries the reference's reflected operators first. The first call also makes `Ref` PySpark's column,
    or without PySpark gives it operators that raise errors (`_use_pyspark`).
    """
    if _use_pyspark():
        from pyspark.sql.utils import is_remote

        if is_remote():
            _use_connect_columns()


@functools.cache
def _use_connect_columns() -> None:
    """Make references columns of Spark Connect, too."""
    Ref.__bases__ = (*Ref.__bases__, connect_column_class())


def ref(column: T) -> Ref[T]:
    """Show a type checker that this is a column, if it was declared with a plain annotation.

    ``Orders.amount`` of ``amount: Decimal`` is a value to type checkers; ``ref(Orders.amount)`` is a `Ref`.

    Raises:
        TypeError: It is a value, not a column of a table class.
    """
    if not isinstance(column, Ref):
        raise TypeError(f"{column!r} is not a column of a table class; write ref(Table.column)")
    return column
