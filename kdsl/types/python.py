"""Column types from Python annotations, and short names for the widths that Python does not distinguish.

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
``Enum`` of strings or of integers,   STRING or BIGINT            their values
``Literal``
====================================  ==========================  ===================================================

``X | None`` may be NULL, everything else is NOT NULL. A Spark or kdsl type inside ``Annotated`` replaces the derived
type, if it can store values of the Python type. A member of a row has the name of the class's member, or the name in
`Named`; the string under it in the class is its comment.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, Literal, TypeAlias, Union, get_args, get_origin

import attrs

from kdsl.errors import KdslError, nearest
from kdsl.types import model as t
from kdsl.types.class_source import member_docstrings
from kdsl.types.parse import TypeSyntaxError, parse_type
from kdsl.types.spark import from_spark, spark_type_classes

if TYPE_CHECKING:
    from pyspark.sql import types as s

Int8: TypeAlias = Annotated[int, t.TinyInt()]
Int16: TypeAlias = Annotated[int, t.SmallInt()]
Int32: TypeAlias = Annotated[int, t.Int()]
Int64: TypeAlias = Annotated[int, t.BigInt()]
Float32: TypeAlias = Annotated[float, t.Float()]
Float64: TypeAlias = Annotated[float, t.Double()]
TimestampLtz: TypeAlias = Annotated[dt.datetime, t.TimestampLtz()]
TimestampNtz: TypeAlias = Annotated[dt.datetime, t.Timestamp()]

if TYPE_CHECKING:
    SqlType: TypeAlias = str | s.DataType | type[s.DataType] | t.DataType | type[t.DataType]
else:
    SqlType = Any
"""A column type that overrides the one derived from the annotation: SQL, a Spark type or a kdsl type."""

Evaluate = Callable[[str], Any]
"""Evaluates an annotation that is still a string; exceptions of the evaluation are not caught."""

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
_USABLE = "int, float, Decimal, str, bytes, bool, date, time, datetime, list[...], dict[..., ...] or a dataclass"


@attrs.frozen
class Named:
    """The name of a row's member where a Python class cannot have it: ``zip_code: Annotated[str, Named("zip-code")]``.

    Attributes:
        name: The name in the message and in the DataFrame.
    """

    name: str


_NAMES = "__kdsl_member_names__"


def member_names(cls: Any) -> Mapping[str, str]:
    """The attributes of a class whose members have other names in the row, by these names.

    They are known as soon as a column type was read from the class.
    """
    names: Mapping[str, str] = getattr(cls, _NAMES, {})
    return names


class AnnotationError(KdslError, TypeError):
    """No column type can be derived from an annotation.

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

    Names of `Named` members are stored on their classes, for `member_names`. Exceptions of aliases pass (`unwrap`).

    Args:
        annotation: The Python type, which may be nested and may hold forward references.
        explicit: A type that replaces the derived one, except for its nullability, which the annotation decides.
        evaluate: Evaluates forward references.

    Raises:
        AnnotationError: The annotation is not a column type, or the explicit type cannot store its values.
    """
    chosen = None if explicit is None else sql_type(explicit)
    try:
        return _AnnotationReader(evaluate).read(annotation, chosen)
    except RecursionError:
        message = f"{_spell(annotation)} contains itself, and a column type must have a finite depth"
        raise AnnotationError(message, "write the type out to the depth that the values have") from None


def sql_type(declared: SqlType) -> t.DataType:
    """The column type of an SQL spelling, a Spark type or a kdsl type; a class of types stands for its default.

    Raises:
        AnnotationError: The argument is something else, or cannot be a column type.
    """
    fix = "write SQL, as 'DECIMAL(10, 2)', or a Spark type, as DecimalType(10, 2)"
    if isinstance(declared, str):
        try:
            return parse_type(declared)
        except TypeSyntaxError as e:
            raise AnnotationError(f"the type {declared!r} cannot be read: {e.reason}", fix) from None
    try:
        kind = declared() if isinstance(declared, type) else declared
        if isinstance(kind, spark_type_classes()):
            return from_spark(kind)
    except TypeError as e:
        raise AnnotationError(f"the type {_spell(declared)} cannot be used: {e}", fix) from None
    if not isinstance(kind, t.DataType):
        raise AnnotationError(f"{declared!r} is not a column type", fix)
    return kind


def unwrap(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Remove ``Annotated``, ``Required`` and ``Final`` from an annotation, and resolve aliases and NewTypes.

    Returns:
        The rest, and the metadata of all ``Annotated``, inner ones first.

    Raises:
        AnnotationError: The value of an alias (``type X = …``) cannot be evaluated, or is the alias itself.
    """
    marks: tuple[Any, ...] = ()
    aliases: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *metadata = get_args(annotation)
            marks = (*metadata, *marks)
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # `type X = ...`, from Python 3.12 on
            if any(annotation is alias for alias in aliases):
                raise AnnotationError(f"the alias {annotation} stands for itself", "correct it")
            aliases.append(annotation)
            try:
                annotation = annotation.__value__
            except Exception as e:  # noqa: BLE001  # the value may be any expression
                message = f"the alias {annotation} cannot be read: {type(e).__name__}: {e}"
                raise AnnotationError(message, "correct it") from None
        elif get_origin(annotation) in _QUALIFIERS:
            (annotation,) = get_args(annotation)
        else:
            return annotation, marks


_QUALIFIERS = (typing.Required, typing.Final)


def class_members(cls: Any) -> Mapping[str, Any] | None:
    """The members of an attrs class, dataclass, NamedTuple or TypedDict; None for any other class.

    Each has its annotation, which may still be a string, or None without one.
    """
    if not isinstance(cls, type):
        return None
    if attrs.has(cls):
        return {a.name: a.type for a in attrs.fields(cls)}
    if dataclasses.is_dataclass(cls):
        return {f.name: f.type for f in dataclasses.fields(cls)}
    if typing.is_typeddict(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        return next(filter(None, map(read_annotations, cls.__mro__)), {})
    return None


def read_annotations(owner: Any) -> dict[str, Any]:
    """The annotations that a class or function itself declares; as strings if they cannot be evaluated yet.

    From Python 3.14 on an annotation is evaluated when it is read (PEP 649). A table class is read before names below
    it exist, and names that are imported for type checkers never do. `evaluate_annotation` takes the strings.
    """
    try:
        return dict(inspect.get_annotations(owner))
    except NameError:
        lazy: Any = importlib.import_module("annotationlib")  # Python 3.14 has it; no earlier one raises NameError here
        return dict(lazy.get_annotations(owner, format=lazy.Format.STRING))


def literal_values(annotation: Any) -> tuple[Any, ...] | None:
    """The values that a ``Literal`` or an ``Enum`` allows; None for any other type."""
    if get_origin(annotation) is Literal:
        return tuple(v.value if isinstance(v, enum.Enum) else v for v in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return tuple(member.value for member in annotation)
    return None


class _AnnotationReader:
    """Derives the column type of one annotation; records the enclosing classes, which must not contain themselves."""

    def __init__(self, evaluate: Evaluate | None) -> None:
        self._evaluate = evaluate or _no_names
        self._inside: list[type] = []

    def read(self, annotation: Any, explicit: t.DataType | None = None) -> t.DataType:
        """Read the column type of an annotation, and store names of `Named` members; see `column_type`."""
        annotation = self._evaluate_hint(annotation)
        base, marks = unwrap(annotation)
        base = self._evaluate_hint(base)
        outermost = next((m for m in reversed(marks) if is_sql_type(m)), None)
        if explicit is None and outermost is not None:
            explicit = sql_type(outermost)
        parts = [a for a in get_args(base) if a is not types.NoneType]
        if get_origin(base) in (Union, types.UnionType):
            if len(parts) != 1:
                message = f"{_spell(annotation)} is a union of types, but a column has one type"
                raise AnnotationError(message, "choose one of them; '| None' makes it nullable")
            return self.read(parts[0], explicit).as_nullable()
        if base is None or base is types.NoneType:
            raise AnnotationError("None alone is not a column type", f"use {_USABLE}, with '| None' for NULL")
        if explicit is None:
            return self._derive(base, annotation).as_nullable(False)
        if base not in (Any, object):
            self._check_explicit(base, annotation, explicit)
        return explicit.as_nullable(False)

    def _check_explicit(self, base: Any, annotation: Any, explicit: t.DataType) -> None:
        """Check that an explicit type can store values of the annotation; names are stored as by `_derive`."""
        derived = self._derive(base, annotation)
        if not is_compatible(derived, explicit):
            message = f"values of {explicit.spelling} are not of type {_spell(base)}"
            raise AnnotationError(
                message, f"annotate it as {_python_spelling(explicit)}, or choose a type like {derived.spelling}"
            )

    def _evaluate_hint(self, annotation: Any) -> Any:
        """Evaluate an annotation if it is a string, in the module of the innermost class."""
        return evaluate_annotation(annotation, self._evaluate)

    def _derive(self, base: Any, annotation: Any) -> t.DataType:
        """Derive the column type of a Python type; ``annotation`` is how it was written, for messages.

        The names of `Named` members are stored on their classes.
        """
        origin, args = get_origin(base), get_args(base)
        if base in _LISTS or base in _MAPS:
            example = f"{base.__name__}[str]" if base in _LISTS else f"{base.__name__}[str, int]"
            raise AnnotationError(f"{base.__name__} does not name the type of its elements", f"write it, as {example}")
        try:
            if base in SCALARS:
                return SCALARS[base]
        except TypeError:  # not hashable
            pass
        if (allowed := literal_values(base)) is not None:
            return self._type_of_values(allowed, annotation)
        if origin in _LISTS and (origin is not tuple or (len(args) == 2 and args[1] is ...)):
            return t.Array(self.read(args[0]))
        if origin in _MAPS:
            return t.Map(self._read_key(args[0]), self.read(args[1]))
        if (hints := class_members(base)) is not None:
            return self._read_row(base, hints)
        raise AnnotationError(f"{_spell(annotation)} is not a column type{_suggest_type(base)}", f"use {_USABLE}")

    def _read_key(self, annotation: Any) -> t.DataType:
        """Derive the type of a map's keys, as `read` does."""
        kind = self.read(annotation)
        if kind.nullable:
            raise AnnotationError(f"the keys of {_spell(annotation)} may be None", "a key of a map is never NULL")
        return kind

    def _type_of_values(self, allowed: tuple[Any, ...], annotation: Any) -> t.DataType:
        """Return STRING or BIGINT, the type of the values of a ``Literal`` or ``Enum``."""
        kinds = {type(value) for value in allowed}
        if kinds == {str}:
            return t.STRING
        if kinds == {int}:
            return t.BigInt()
        raise AnnotationError(
            f"{_spell(annotation)} has values of {' and '.join(sorted(k.__name__ for k in kinds)) or 'no type'}",
            "make all of them strings, or all of them integers",
        )

    def _read_row(self, cls: type, hints: Mapping[str, Any]) -> t.DataType:
        """Derive the ROW of a class of fields; names that differ on the wire are kept on the class (`member_names`)."""
        if cls in self._inside:
            raise AnnotationError(f"{cls.__name__} contains itself", "a row has a fixed depth; remove the inner one")
        if not hints:
            raise AnnotationError(f"{cls.__name__} has no fields", "declare at least one")
        self._inside.append(cls)
        outer, self._evaluate = self._evaluate, evaluator_within(cls, self._evaluate)
        try:
            kinds = {name: self._read_member(cls, name, hint) for name, hint in hints.items()}
            names = {name: self._wire_name(cls, name, hint) for name, hint in hints.items()}
        finally:
            self._inside.pop()
            self._evaluate = outer
        repeated = next((n for n in names.values() if list(names.values()).count(n) > 1), None)
        if repeated is not None:
            raise AnnotationError(f"{cls.__name__} has two members {repeated!r}", "give each its own name")
        renamed = {wire: name for name, wire in names.items() if wire != name}
        if renamed or member_names(cls):
            setattr(cls, _NAMES, renamed)
        comments = member_docstrings(cls)
        return t.Row(tuple(t.Field(names[name], kind, comments.get(name)) for name, kind in kinds.items()))

    def _wire_name(self, cls: type, name: str, hint: Any) -> str:
        """The name that a member of a class has in the row: the one in `Named`, otherwise its own."""
        _, marks = unwrap(self._evaluate_hint(hint))
        mark = next((m for m in marks if isinstance(m, Named)), None)
        if mark is None:
            return name
        wire_name: object = mark.name
        if not isinstance(wire_name, str) or not wire_name:
            raise AnnotationError(
                f"{cls.__name__}.{name} has the name {wire_name!r}", "write a string, as Named('zip-code')"
            )
        if typing.is_typeddict(cls):
            fix = f"write {cls.__name__} = TypedDict({cls.__name__!r}, {{{wire_name!r}: ...}})"
            message = f"{cls.__name__}.{name} is Named, but members of a TypedDict can have any name themselves"
            raise AnnotationError(message, fix)
        return wire_name

    def _read_member(self, cls: type, name: str, hint: Any) -> t.DataType:
        """Derive the type of a member of a class, as `read` does; one that is NotRequired is nullable."""
        if hint is None:
            raise AnnotationError(f"{cls.__name__}.{name} has no annotation", "annotate each field")
        try:
            hint = self._evaluate_hint(hint)
            if get_origin(hint) is typing.NotRequired:
                return self.read(get_args(hint)[0]).as_nullable()
            return self.read(hint)
        except AnnotationError as e:
            raise AnnotationError(f"{cls.__name__}.{name}: {e.message}", e.fix) from None


def evaluate_annotation(annotation: Any, evaluate: Evaluate) -> Any:
    """Evaluate an annotation that is a string or a forward reference; return any other one as it is.

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
            raise AnnotationError(message, "import or define the name in the module of the class") from None
        except Exception as e:  # noqa: BLE001  # an annotation may be any expression
            message = f"the annotation {text!r} cannot be read: {type(e).__name__}: {e}"
            raise AnnotationError(message, "correct it") from None
    return annotation


def _no_names(text: str) -> Any:
    """Raise NameError: the evaluation without a module knows no name."""
    raise NameError(f"name {text!r} is not defined", name=text)


def evaluator_within(cls: type, outer: Evaluate) -> Evaluate:
    """Return an evaluator by the names of a nested class, of its bases and their modules, then by the outer one.

    It passes on any exception of the evaluation, and the outer one's NameError.
    """

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
    """Whether a piece of metadata of ``Annotated`` is a Spark type or a kdsl type, or a class of these."""
    kinds = (*spark_type_classes(), t.DataType)
    return isinstance(mark, kinds) or (isinstance(mark, type) and issubclass(mark, kinds))


def is_compatible(derived: t.DataType, explicit: t.DataType) -> bool:
    """Whether an explicit column type can store values of the Python type that another one was derived from.

    Nullability, widths, lengths and digits do not matter.
    """
    match derived, explicit:
        case t.Array(element=a), t.Array(element=b):
            return is_compatible(a, b)
        case t.Map(key=a, value=b), t.Map(key=c, value=d):
            return is_compatible(a, c) and is_compatible(b, d)
        case t.Map(key=a, value=b), t.Multiset(element=c):
            return is_compatible(a, c) and is_compatible(b, t.Int())
        case t.Row(fields=a), t.Row(fields=b):
            same_names = [f.name for f in a] == [f.name for f in b]
            return same_names and all(is_compatible(c.type, d.type) for c, d in zip(a, b, strict=True))
        case _:
            return any(isinstance(derived, f) and isinstance(explicit, f) for f in _FAMILIES) or (
                type(derived) is type(explicit)
            )


def _python_spelling(kind: t.DataType) -> str:
    """Return the annotation of a type's values, without ``| None``, for a message; a ROW is described in words."""
    match kind:
        case t.Array(element=element):
            return f"list[{_python_spelling(element)}]"
        case t.Map(key=key, value=value):
            return f"dict[{_python_spelling(key)}, {_python_spelling(value)}]"
        case t.Multiset(element=element):
            return f"dict[{_python_spelling(element)}, int]"
        case t.Row(fields=fields):
            return f"a class with the fields {', '.join(f.name for f in fields)}"
        case _:
            return next(str(p.__name__) for p, derived in SCALARS.items() if is_compatible(derived, kind))


def _suggest_type(base: Any) -> str:
    """Return a hint at a supported type with a similar name; empty if there is none."""
    name = getattr(base, "__name__", "")
    names = {p.__name__: p for p in SCALARS}
    return nearest(name, names) if name and name not in names else ""


def _spell(annotation: Any) -> str:
    """An annotation as source code, without the modules of its names."""
    base, _ = unwrap(annotation)
    if isinstance(base, type) and not get_args(base):
        return base.__name__
    if base is Any:
        return "Any"
    text = str(base)
    for part in _walk_annotation(base):
        module = getattr(part, "__module__", "")
        text = text.replace(f"{module}.", "") if module else text
    return text


def _walk_annotation(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and all its parts."""
    yield annotation
    for part in get_args(annotation):
        yield from _walk_annotation(part)
