"""What reading a column from a table class gives: a typed reference that pyspark takes as a column and as a name.

A `Ref` is a text (the column's name) and a Spark column at once, to type checkers and at run time. It needs no session
until something is done with it. Spark and pandas see the text where they want a name; everywhere else its operators and
methods are those of the column, so that ``Orders.amount > 100`` is a condition, never a comparison of texts. Only
``DataFrame.withWatermark`` insists on a plain text: ``str(Orders.placed_at)``.
"""

# It stands for Spark's own column, so it reaches into it; to type checkers it narrows what its bases take, and it is
# covariant, as what gives values is, although comparisons take values.
# ruff: noqa: SLF001
# pyright: reportIncompatibleMethodOverride=false, reportOverlappingOverload=false, reportGeneralTypeIssues=false
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pyspark.errors import PySparkException
from pyspark.sql import Column, functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.utils import is_remote

from kdsl.errors import KdslError
from kdsl.types.sql import quoted

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class NoSessionError(KdslError):
    """An expression over columns was made before there is a Spark session."""


class Mismatch:
    """To a type checker, what comparing a column with a value of another type gives; Spark takes it nowhere."""


if TYPE_CHECKING:
    from decimal import Decimal

    class Ref(Column, str, Generic[T_co]):  # type: ignore[misc]
        """A column of a table: its name, and a Spark column whose comparisons take the column's own type."""

        def __new__(cls, name: str, table: str = "") -> Ref[T_co]:
            """Make a reference to a column of a name, of the table that messages name."""
            ...

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

else:
    # Code of these packages asks a reference for the name; all other code means the column.
    _NAME_WANTED = frozenset(sys.stdlib_module_names) | {
        *("IPython", "_pytest", "delta", "numpy", "pandas", "pluggy", "polars", "py4j", "pyarrow", "pyspark")
    }
    # What compiled code, which cannot be told from its caller, asks of a name.
    _KEPT = frozenset({"encode", "isascii", "isidentifier"})
    # Arguments of these methods are names or texts, never columns.
    _TAKING_NAMES = frozenset({"alias", "name", "getField", "dropFields", "cast", "astype", "try_cast"})

    class Ref(str, ClassicColumn):
        """A column of a table: its name as a text, and a Spark column."""

        __class_getitem__ = classmethod(GenericAlias)
        __hash__ = str.__hash__

        def __new__(cls, name: str, table: str = "") -> Ref:
            """Make a reference to a column of a name, of the table that messages name."""
            made = super().__new__(cls, name)
            made.__dict__["_table"] = table
            return made

        def __init__(self, name: str, table: str = "") -> None:
            pass

        @property
        def _column(self) -> Column:
            """The Spark column of the session's kind."""
            of_session()
            try:
                return F.col(quoted(str.__str__(self)))
            except (AssertionError, PySparkException) as e:
                raise NoSessionError(
                    f"an expression over {self!r} needs a Spark session, and there is none yet; make it inside the "
                    "function that works on the DataFrame, or, to compare names, write str(...) around the column"
                ) from e

        @property
        def _jc(self) -> Any:
            return self._column._jc

        @property
        def _expr(self) -> Any:
            return self._column._expr

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or _name_wanted():
                raise AttributeError(f"{self!r} has no attribute {name!r}")
            return self._column[name]

        def __repr__(self) -> str:
            table = self.__dict__["_table"]
            return f"{table}.{str.__str__(self)}" if table else f"Ref({str.__repr__(self)})"

        def __str__(self) -> str:
            if sys._getframe(1).f_globals.get("__name__") == "pyspark.sql.connect.expressions":
                raise TypeError(f"Spark Connect would take {self!r} for a text here; write F.col({self!r})")
            return str.__str__(self)

        def __format__(self, spec: str) -> str:
            return format(str.__str__(self), spec)

        def __reduce__(self) -> tuple[Any, ...]:
            return (Ref, (str.__str__(self), self.__dict__["_table"]))

        def __copy__(self) -> Ref:
            return self

        def __deepcopy__(self, memo: dict[int, Any]) -> Ref:
            return self

        def __bool__(self) -> bool:
            if _name_wanted():
                return True
            raise TypeError(f"{self!r} is a column, not a value; use & | ~ instead of and, or, not, and F.when for if")

        def __len__(self) -> int:
            if _name_wanted():
                return str.__len__(self)
            raise TypeError(f"{self!r} is a column, not a value; use F.length({self!r}) or F.size({self!r})")

        def __iter__(self) -> Any:
            if _name_wanted():
                return str.__iter__(self)
            raise TypeError(
                f"{self!r} is a column, not a value; to have a row for each element use F.explode({self!r})"
            )

        def __contains__(self, item: Any) -> bool:
            if _name_wanted():
                return str.__contains__(self, item)
            raise TypeError(
                f"{self!r} is a column, not a value; use {self!r}.contains(...) or F.array_contains({self!r}, ...)"
            )

    def _name_wanted() -> bool:
        """Whether the code that called the method that asks wants the name, not the column."""
        return sys._getframe(2).f_globals.get("__name__", "").partition(".")[0] in _NAME_WANTED

    def _name(value: Any) -> Any:
        return str.__str__(value) if isinstance(value, Ref) else value

    def _spark_column(value: Any) -> Any:
        if isinstance(value, Ref):
            return value._column
        if isinstance(value, list | tuple):
            return type(value)(map(_spark_column, value))
        return value

    def _forward(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of a column; where a text has it, too, the text's for code that wants the name."""
        of_text = _TEXT_REFLECTED.get(name) or getattr(str, name, None)

        @functools.wraps(method)
        def call(self: Ref, *args: Any, **named: Any) -> Any:
            beside_column = any(isinstance(a, Column) and not isinstance(a, Ref) for a in args)
            if of_text is not None and not beside_column and _name_wanted():
                return of_text(self, *args, **named)
            if beside_column and name.startswith("__r"):
                return getattr(args[0], f"__{name.removeprefix('__r')}")(self._column)
            convert = _name if name in _TAKING_NAMES else _spark_column
            given = {k: convert(v) for k, v in named.items()}
            return getattr(self._column, name)(*map(convert, args), **given)

        return call

    def _refuse(name: str) -> Callable[..., Any]:
        """A method that only a text has: it would change the name, where its caller means the value."""
        of_text = getattr(str, name)

        @functools.wraps(of_text)
        def call(self: Ref, *args: Any, **named: Any) -> Any:
            if _name_wanted():
                return of_text(self, *args, **named)
            raise TypeError(
                f"{self!r} is a column, not a text, so it has no {name}(); use the functions of pyspark.sql.functions, "
                f"or str({self!r}) for its name"
            )

        return call

    _TEXT_REFLECTED = {
        "__radd__": lambda self, other: other + str.__str__(self) if isinstance(other, str) else NotImplemented,
        "__rmod__": lambda self, other: other % str.__str__(self) if isinstance(other, str) else NotImplemented,
    }

    for _attribute, _method in vars(Column).items():
        if callable(_method) and _attribute not in vars(Ref):
            setattr(Ref, _attribute, _forward(_attribute, _method))
    for _attribute in dir(str):
        if not _attribute.startswith("_") and _attribute not in vars(Ref) and _attribute not in _KEPT:
            setattr(Ref, _attribute, _refuse(_attribute))


def of_session() -> None:
    """Make references columns of the session's kind: Spark Connect has a class of its own.

    As a subclass of it, a reference answers for operators of which it is the right side.
    """
    if is_remote():
        _join_connect()


@functools.cache
def _join_connect() -> None:
    from pyspark.sql.connect.column import Column as ConnectColumn  # needs the packages of Spark Connect

    Ref.__bases__ = (*Ref.__bases__, ConnectColumn)


def ref(column: T) -> Ref[T]:
    """Tell a type checker that this is a column, for one that was declared with a plain annotation.

    ``Orders.amount`` of ``amount: Decimal`` is a value to type checkers; ``ref(Orders.amount)`` is what it is, a `Ref`.

    Raises:
        TypeError: It is a value, not a column of a table class.
    """
    if not isinstance(column, Ref):
        raise TypeError(f"{column!r} is no column of a table class; write ref(Table.column)")
    return column
