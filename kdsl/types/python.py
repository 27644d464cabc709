"""Column types from Python annotations, and short names for the widths that Python does not tell apart.

====================================  ==========================  ===================================================
Python                                column type                 note
====================================  ==========================  ===================================================
``int``                               BIGINT                      ``Int8 Int16 Int32 Int64`` for the other widths
``float``                             DOUBLE                      ``Float32`` is FLOAT
``Decimal``                           DECIMAL(38, 18)             give the digits: ``type="decimal(10, 2)"``
``str``, ``bytes``, ``bool``          STRING, BYTES, BOOLEAN
``date``, ``time``                    DATE, TIME(6)
``datetime``                          TIMESTAMP_LTZ(6)            an instant; ``TimestampNtz`` is TIMESTAMP(6)
``list[T]``, ``tuple[T, ...]``        ARRAY
``dict[K, V]``                        MAP
attrs class, dataclass,               ROW
``NamedTuple``, ``TypedDict``
``Enum`` of texts or whole numbers,   STRING or BIGINT            their values
``Literal``
====================================  ==========================  ===================================================

``X | None`` may be NULL, everything else is NOT NULL. A Spark or kdsl type inside ``Annotated`` takes the place of the
derived one, if values of the Python type can be values of it. A member of a row has the name of the class's member, or
the one that `Named` says; the string under it in the class is its comment.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Annotated, Any, ForwardRef, Literal, TypeAlias, Union, get_args, get_origin

import attrs
from pyspark.sql import types as s

from kdsl.errors import KdslError, nearest
from kdsl.types import model as t
from kdsl.types.docstrings import member_docstrings
from kdsl.types.parse import TypeSyntaxError, parse_type
from kdsl.types.spark import from_spark

Int8: TypeAlias = Annotated[int, t.TinyInt()]
Int16: TypeAlias = Annotated[int, t.SmallInt()]
Int32: TypeAlias = Annotated[int, t.Int()]
Int64: TypeAlias = Annotated[int, t.BigInt()]
Float32: TypeAlias = Annotated[float, t.Float()]
Float64: TypeAlias = Annotated[float, t.Double()]
TimestampLtz: TypeAlias = Annotated[dt.datetime, t.TimestampLtz()]
TimestampNtz: TypeAlias = Annotated[dt.datetime, t.Timestamp()]

SqlType: TypeAlias = str | s.DataType | type[s.DataType] | t.DataType | type[t.DataType]
"""A column type that is given instead of the derived one: SQL text, a Spark type or a kdsl type."""

Evaluate = Callable[[str], Any]
"""Gives the value of an annotation that is still text; raises what evaluating raises."""

SCALARS: dict[Any, t.DataType] = {
    bool: t.Boolean(),
    int: t.BigInt(),
    float: t.Double(),
    decimal.Decimal: t.Decimal(38, 18),
    str: t.STRING,
    bytes: t.BYTES,
    dt.date: t.Date(),
    dt.time: t.Time(6),
    dt.datetime: t.TimestampLtz(),
}
_LISTS = (list, tuple, Sequence, MutableSequence)
_MAPS = (dict, Mapping, MutableMapping)
_FAMILIES: tuple[tuple[type[t.DataType], ...], ...] = (
    (t.TinyInt, t.SmallInt, t.Int, t.BigInt),
    (t.Float, t.Double),
    (t.Char, t.VarChar),
    (t.Binary, t.VarBinary),
    (t.Timestamp, t.TimestampLtz),
    (t.Map, t.Multiset),
)
_USABLE = "int, float, Decimal, str, bytes, bool, date, time, datetime, list[...], dict[..., ...] or a class of fields"


@attrs.frozen
class Named:
    """The name of a row's member where a Python class cannot have it: ``zip_code: Annotated[str, Named("zip-code")]``.

    Attributes:
        name: The name in the message and in the DataFrame.
    """

    name: str


_NAMES = "__kdsl_member_names__"


def member_names(cls: Any) -> Mapping[str, str]:
    """The members of a class of fields that have other names in the row: by those, the attributes.

    Known once a column type was read from the class.
    """
    found: Mapping[str, str] = getattr(cls, _NAMES, {})
    return found


class AnnotationError(KdslError, TypeError):
    """An annotation gives no column type.

    Attributes:
        message: What was written and why it cannot be a column.
        fix: What to write instead.
    """

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message, fix)
        self.message, self.fix = message, fix

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}"


def column_type(annotation: Any, explicit: SqlType | None = None, evaluate: Evaluate | None = None) -> t.DataType:
    """The column type of a Python annotation.

    Args:
        annotation: The Python type, which may be nested and may hold forward references.
        explicit: A type that takes the place of the derived one, all but its nullability, which the annotation says.
        evaluate: What reads forward references.

    Raises:
        AnnotationError: The annotation is none of a column, or the explicit type cannot hold its values.
    """
    chosen = None if explicit is None else sql_type(explicit)
    try:
        return _Reader(evaluate).read(annotation, chosen)
    except RecursionError:
        message = f"{_name(annotation)} contains itself, and a column's type must come to an end"
        raise AnnotationError(message, "write the type out, as deep as it goes") from None


def sql_type(given: SqlType) -> t.DataType:
    """The column type that is given as SQL text, as a Spark type or as a kdsl type.

    Raises:
        AnnotationError: It is none of them.
    """
    fix = "write SQL, as 'DECIMAL(10, 2)', or a Spark type, as DecimalType(10, 2)"
    if isinstance(given, str):
        try:
            return parse_type(given)
        except TypeSyntaxError as e:
            raise AnnotationError(f"the type {given!r} cannot be read: {e.reason}", fix) from None
    try:
        made = given() if isinstance(given, type) else given
        if isinstance(made, s.DataType):
            return from_spark(made)
    except TypeError as e:
        raise AnnotationError(f"the type {_name(given)} cannot be used: {e}", fix) from None
    if not isinstance(made, t.DataType):
        raise AnnotationError(f"{given!r} is no column type", fix)
    return made


def unwrap(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """An annotation without its ``Annotated``, and what stood there; type aliases are followed."""
    marks: tuple[Any, ...] = ()
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *found = get_args(annotation)
            marks = (*found, *marks)
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # `type X = ...`, from Python 3.12 on
            annotation = annotation.__value__
        elif get_origin(annotation) in _QUALIFIERS:
            (annotation,) = get_args(annotation)
        else:
            return annotation, marks


_QUALIFIERS = (typing.Required, typing.Final)


def members(cls: Any) -> Mapping[str, Any] | None:
    """The members of a class of fields with their annotations, which may still be text; None for any other class."""
    if not isinstance(cls, type):
        return None
    if attrs.has(cls):
        return {a.name: a.type for a in attrs.fields(cls)}
    if dataclasses.is_dataclass(cls):
        return {f.name: f.type for f in dataclasses.fields(cls)}
    if typing.is_typeddict(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        return dict(cls.__annotations__)
    return None


def values_of(annotation: Any) -> tuple[Any, ...] | None:
    """The values that a ``Literal`` or an ``Enum`` allows; None for any other type."""
    if get_origin(annotation) is Literal:
        return tuple(v.value if isinstance(v, enum.Enum) else v for v in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return tuple(member.value for member in annotation)
    return None


class _Reader:
    """Reads one annotation; knows the classes that it is inside of, which cannot contain themselves."""

    def __init__(self, evaluate: Evaluate | None) -> None:
        self._evaluate = evaluate or _nothing_known
        self._inside: list[type] = []

    def read(self, annotation: Any, explicit: t.DataType | None = None) -> t.DataType:
        annotation = self._evaluated(annotation)
        base, marks = unwrap(annotation)
        base = self._evaluated(base)
        outermost = next((m for m in reversed(marks) if is_sql_type(m)), None)
        if explicit is None and outermost is not None:
            explicit = sql_type(outermost)
        parts = [a for a in get_args(base) if a is not types.NoneType]
        if get_origin(base) in (Union, types.UnionType):
            if len(parts) != 1:
                message = f"{_name(annotation)} is a choice of types, but a column has one"
                raise AnnotationError(message, "choose one of them; with '| None' it may be NULL")
            return self.read(parts[0], explicit).as_nullable()
        if base is None or base is types.NoneType:
            raise AnnotationError("None alone is no type of a column", f"use {_USABLE}, with '| None' for NULL")
        if explicit is None:
            return self._derived(base, annotation).as_nullable(False)
        if base not in (Any, object):
            self._check(base, annotation, explicit)
        return explicit.as_nullable(False)

    def _check(self, base: Any, annotation: Any, explicit: t.DataType) -> None:
        derived = self._derived(base, annotation)
        if not agree(derived, explicit):
            message = f"values of {explicit.spelling} are no {_name(base)}"
            raise AnnotationError(
                message, f"annotate it as {_python(explicit)}, or choose a type like {derived.spelling}"
            )

    def _evaluated(self, annotation: Any) -> Any:
        return evaluated(annotation, self._evaluate)

    def _derived(self, base: Any, annotation: Any) -> t.DataType:
        origin, args = get_origin(base), get_args(base)
        if base in _LISTS or base in _MAPS:
            example = f"{base.__name__}[str]" if base in _LISTS else f"{base.__name__}[str, int]"
            raise AnnotationError(f"{base.__name__} does not say of what", f"write what it holds, as {example}")
        try:
            if base in SCALARS:
                return SCALARS[base]
        except TypeError:  # not hashable
            pass
        if (allowed := values_of(base)) is not None:
            return self._of_values(allowed, annotation)
        if origin in _LISTS and (origin is not tuple or (len(args) == 2 and args[1] is ...)):
            return t.Array(self.read(args[0]))
        if origin in _MAPS:
            return t.Map(self._key(args[0]), self.read(args[1]))
        if (found := members(base)) is not None:
            return self._row(base, found)
        raise AnnotationError(f"{_name(annotation)} is no type of a column{_hint(base)}", f"use {_USABLE}")

    def _key(self, annotation: Any) -> t.DataType:
        kind = self.read(annotation)
        if kind.nullable:
            raise AnnotationError(f"the keys of {_name(annotation)} may be None", "a key of a map is never NULL")
        return kind

    def _of_values(self, allowed: tuple[Any, ...], annotation: Any) -> t.DataType:
        kinds = {type(value) for value in allowed}
        if kinds == {str}:
            return t.STRING
        if kinds == {int}:
            return t.BigInt()
        raise AnnotationError(
            f"{_name(annotation)} has values of {' and '.join(sorted(k.__name__ for k in kinds)) or 'no type'}",
            "let all of them be texts, or all of them whole numbers",
        )

    def _row(self, cls: type, found: Mapping[str, Any]) -> t.DataType:
        if cls in self._inside:
            raise AnnotationError(f"{cls.__name__} contains itself", "a row has a fixed depth; leave the inner one out")
        if not found:
            raise AnnotationError(f"{cls.__name__} has no fields", "give it at least one")
        self._inside.append(cls)
        outer, self._evaluate = self._evaluate, inside(cls, self._evaluate)
        try:
            kinds = {name: self._member(cls, name, hint) for name, hint in found.items()}
            names = {name: self._wire_name(cls, name, hint) for name, hint in found.items()}
        finally:
            self._inside.pop()
            self._evaluate = outer
        repeated = next((n for n in names.values() if list(names.values()).count(n) > 1), None)
        if repeated is not None:
            raise AnnotationError(f"{cls.__name__} has two members {repeated!r}", "give each a name of its own")
        renamed = {wire: name for name, wire in names.items() if wire != name}
        if renamed or member_names(cls):
            setattr(cls, _NAMES, renamed)
        comments = member_docstrings(cls)
        return t.Row(tuple(t.Field(names[name], kind, comments.get(name)) for name, kind in kinds.items()))

    def _wire_name(self, cls: type, name: str, hint: Any) -> str:
        """The name that a member has in the row."""
        _, marks = unwrap(self._evaluated(hint))
        said = next((m for m in marks if isinstance(m, Named)), None)
        if said is None:
            return name
        given: object = said.name
        if not isinstance(given, str) or not given:
            raise AnnotationError(f"{cls.__name__}.{name} has the name {given!r}", "give Named(...) a text")
        if typing.is_typeddict(cls):
            fix = f"write {cls.__name__} = TypedDict({cls.__name__!r}, {{{given!r}: ...}})"
            raise AnnotationError(f"{cls.__name__}.{name} is Named, but a TypedDict can have any name", fix)
        return given

    def _member(self, cls: type, name: str, hint: Any) -> t.DataType:
        if hint is None:
            raise AnnotationError(f"{cls.__name__}.{name} has no annotation", "annotate each field")
        try:
            hint = self._evaluated(hint)
            if get_origin(hint) is typing.NotRequired:
                return self.read(get_args(hint)[0]).as_nullable()
            return self.read(hint)
        except AnnotationError as e:
            raise AnnotationError(f"{cls.__name__}.{name}: {e.message}", e.fix) from None


def evaluated(annotation: Any, evaluate: Evaluate) -> Any:
    """An annotation that is no text any more.

    Raises:
        AnnotationError: It cannot be evaluated.
    """
    while isinstance(annotation, str | ForwardRef):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        try:
            annotation = evaluate(text)
        except NameError as e:
            hint = nearest(e.name or "", getattr(evaluate, "names", tuple)())
            message = f"the annotation {text!r} cannot be read: there is no name {e.name!r}{hint}"
            raise AnnotationError(message, "import or define the name where the class stands") from None
        except Exception as e:  # noqa: BLE001  # an annotation may be any expression
            message = f"the annotation {text!r} cannot be read: {type(e).__name__}: {e}"
            raise AnnotationError(message, "correct it") from None
    return annotation


def _nothing_known(text: str) -> Any:
    raise NameError(f"name {text!r} is not defined", name=text)


def inside(cls: type, outer: Evaluate) -> Evaluate:
    """Reads the annotations of a nested class: as where that class stands, else as for the class around it."""

    def evaluate(text: str) -> Any:
        for owner in cls.__mro__:
            module = sys.modules.get(owner.__module__)
            try:
                return eval(text, vars(module) if module else {}, dict(vars(owner)))  # noqa: S307
            except NameError:
                continue
        return outer(text)

    return evaluate


def is_sql_type(mark: Any) -> bool:
    """Whether something inside ``Annotated`` is a Spark type or a kdsl type."""
    kinds = (s.DataType, t.DataType)
    return isinstance(mark, kinds) or (isinstance(mark, type) and issubclass(mark, kinds))


def agree(derived: t.DataType, explicit: t.DataType) -> bool:
    """Whether values of the Python type from which one type was derived can be values of the other."""
    match derived, explicit:
        case t.Array(element=a), t.Array(element=b):
            return agree(a, b)
        case t.Map(key=a, value=b), t.Map(key=c, value=d):
            return agree(a, c) and agree(b, d)
        case t.Map(key=a, value=b), t.Multiset(element=c):
            return agree(a, c) and agree(b, t.Int())
        case t.Row(fields=a), t.Row(fields=b):
            same_names = [f.name for f in a] == [f.name for f in b]
            return same_names and all(agree(c.type, d.type) for c, d in zip(a, b, strict=True))
        case _:
            return any(isinstance(derived, f) and isinstance(explicit, f) for f in _FAMILIES) or (
                type(derived) is type(explicit)
            )


def _python(kind: t.DataType) -> str:
    """The Python type of a column type's values, as it is written in an annotation."""
    match kind:
        case t.Array(element=element):
            return f"list[{_python(element)}]"
        case t.Map(key=key, value=value):
            return f"dict[{_python(key)}, {_python(value)}]"
        case t.Multiset(element=element):
            return f"dict[{_python(element)}, int]"
        case t.Row(fields=fields):
            return f"a class with the fields {', '.join(f.name for f in fields)}"
        case _:
            return next(str(p.__name__) for p, derived in SCALARS.items() if agree(derived, kind))


def _hint(base: Any) -> str:
    name = getattr(base, "__name__", "")
    names = {p.__name__: p for p in SCALARS}
    return nearest(name, names) if name and name not in names else ""


def _name(annotation: Any) -> str:
    """An annotation as it is written, without the modules of its names."""
    base, _ = unwrap(annotation)
    if isinstance(base, type) and not get_args(base):
        return base.__name__
    if base is Any:
        return "Any"
    text = str(base)
    for part in _parts(base):
        module = getattr(part, "__module__", "")
        text = text.replace(f"{module}.", "") if module else text
    return text


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)
