"""An option is declared once: Python name, Flink key, type, default, doc, check.

The declaration serves the typed constructor, the reading of DDL and YAML, the messages and the reference pages. A group
of options (`Options`) records what it is given and never fails: `Options.problems` judges, and the resolver tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    overload,
)

import attrs

from kdsl.client.hiding import USER_INFO, shown
from kdsl.client.properties import Properties, value_problems
from kdsl.durations import duration_text, parse_duration
from kdsl.errors import Problem, listing, nearest
from kdsl.secrets import HIDDEN, Secret, is_reference

T = TypeVar("T")
Check = Callable[[Any], str | None]
Secrecy = bool | Literal["address"]
_ADDRESS: Secrecy = "address"
_FREE = ".*"
_GIVEN = "${{given:{}}}"


class Spelling(Enum):
    """The way in which a declaration names its options; messages speak the same."""

    PYTHON = "python"
    DDL = "ddl"
    YAML = "yaml"


@overload
def option(
    key: str,
    doc: str,
    *,
    default: T,
    check: Check | None = None,
    ignore_case: bool = False,
    secret: Secrecy = False,
    aliases: tuple[str, ...] = (),
    side: Literal["read", "write"] | None = None,
) -> T: ...
@overload
def option(
    key: str,
    doc: str,
    *,
    check: Check | None = None,
    ignore_case: bool = False,
    secret: Secrecy = False,
    aliases: tuple[str, ...] = (),
    side: Literal["read", "write"] | None = None,
) -> Any: ...
def option(
    key: str,
    doc: str,
    *,
    default: Any = attrs.NOTHING,
    check: Check | None = None,
    ignore_case: bool = False,
    secret: Secrecy = False,
    aliases: tuple[str, ...] = (),
    side: Literal["read", "write"] | None = None,
) -> Any:
    """Declare an option of an `Options` class.

    Args:
        key: Flink's key, without the prefix that the group has in a ``WITH`` clause. One that ends in ``.*`` stands for
            all keys that begin so: the option is a mapping of the rest of their names to texts (`Properties`).
        doc: What it means, one or two sentences, with units.
        default: The value when it is not given; without one the option is required.
        check: Gives the reason why a value of the right type is still wrong, or None.
        ignore_case: Whether the values of a ``Literal`` option are matched in any letter case.
        secret: Whether the text is a secret: written out it becomes a `kdsl.secrets.Secret`, which never shows and
            never pickles; a reference (``${env:NAME}``) stays text. ``"address"``: only a password within it is one.
        aliases: Older keys that mean the same.
        side: The only direction that looks at it; in the other one a wrong value is told as a warning.
    """
    metadata = {
        "key": key,
        "doc": doc,
        "check": check,
        "ignore_case": ignore_case,
        "secret": secret,
        "aliases": aliases,
        "side": side,
    }
    return attrs.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Options:
    """A group of options; a format is one.

    The constructor takes the options by their Python names and records everything, also what is wrong: unknown names
    and values of the wrong type become problems that the resolver tells together with all others.
    """

    __attrs_attrs__: ClassVar[Any]
    title: ClassVar[str] = "option group"
    without: ClassVar[Mapping[str, str]] = {}
    """Options of the group that it is made from which it has not, by their Python names; they keep their defaults.

    Each with the reason, for messages; empty where there is none to tell.
    """

    @classmethod
    def declared(cls) -> tuple[attrs.Attribute[Any], ...]:
        """The declarations of the group's options."""
        return tuple(a for a in attrs.fields(cls) if a.name not in cls.without)

    def __init_subclass__(cls) -> None:
        attrs.define(cls, slots=False, frozen=True, kw_only=True, init=False, repr=False)
        attrs.resolve_types(cls)

    if not TYPE_CHECKING:  # type checkers make the constructor from the fields

        def __init__(self, **given: Any) -> None:
            known = {a.name: a for a in self.declared()}
            for a in attrs.fields(type(self)):  # ``attrs.evolve`` gives all of them
                if a.name in self.without and given.get(a.name, a.default) == a.default:
                    given.pop(a.name, None)
            recorded = [self._unknown(name, known, "{}=") for name in given if name not in known]
            for name, a in known.items():
                if name in given:
                    given[name] = _held(given[name], a, recorded)
            for a in known.values():
                if a.default is attrs.NOTHING and a.name not in given:
                    recorded.append(_problem("option-missing", a, "is required", f"add {{}}: {a.metadata['doc']}"))
                    given[a.name] = None
            object.__setattr__(self, "_recorded", tuple(recorded))
            self.__attrs_init__(**{name: value for name, value in given.items() if name in known})

    @classmethod
    def _unknown(cls, name: str, valid: Mapping[str, Any], form: str) -> Problem:
        message = f"{cls.title} has no option {form.format(name) if form == '{}=' else repr(name)}"
        known = listing(sorted(valid)) if valid else "none"
        return Problem("option-unknown", message + nearest(name, valid), f"use one of its options: {known}")

    @classmethod
    def from_strings(cls, given: Mapping[str, str]) -> Self:
        """Make the group from Flink's keys and texts, as a ``WITH`` clause or a YAML document holds them.

        What cannot be read is recorded and told by `problems`.
        """
        by_key = {a.metadata["key"]: a for a in cls.declared()}
        by_any = {**{alias: a for a in by_key.values() for alias in a.metadata["aliases"]}, **by_key}
        free = {key.removesuffix("*"): a for key, a in by_any.items() if key.endswith(_FREE)}
        values: dict[str, Any] = {}
        written: dict[str, str] = {}
        recorded: list[Problem] = []
        for key, text in given.items():
            a = by_any.get(key)
            start = next((s for s in free if key.startswith(s) and key != s and not key.startswith(f"{s}*")), None)
            if a is None and start is not None:
                values.setdefault(free[start].name, {})[key.removeprefix(start)] = text
                continue
            if a is None or key.endswith(_FREE):
                recorded.append(cls._unknown(key, by_key, "{}"))
                continue
            if written.setdefault(a.name, text) != text:
                message = f"and its older key{'s' if len(a.metadata['aliases']) > 1 else ''} "
                message += f"{listing(a.metadata['aliases'])} have different values"
                recorded.append(_problem("option-twice", a, message, "keep {}"))
            try:
                values[a.name] = _read(text, a.type, ignore_case=a.metadata["ignore_case"])
            except ValueError as e:
                recorded.append(
                    _problem("option-value", a, f"has the value {text!r}: {e}", f"give {{}} {_kind(a.type)}")
                )
                values.setdefault(a.name, None if a.default is attrs.NOTHING else a.default)
        made = cls(**values)
        object.__setattr__(made, "_recorded", (*made._recorded, *recorded))  # type: ignore[attr-defined]
        return made

    def to_strings(self) -> dict[str, str]:
        """The options that differ from their defaults, as Flink's keys and texts."""
        found: dict[str, str] = {}
        for a in self.declared():
            value, key = getattr(self, a.name), a.metadata["key"]
            if value == a.default or value is None:
                continue
            if isinstance(value, Properties):
                found.update({key.removesuffix("*") + name: text for name, text in value.redacted().items()})
            else:
                found[key] = _shown(value, a)
        return found

    def split(self, prefix: str = "") -> tuple[Self, dict[str, str]]:
        """Take the literal secrets out, as `kdsl.client.properties.Properties.split` does.

        Args:
            prefix: Goes before the keys of the literals.

        Returns:
            The group with ``${given:KEY}`` in the place of each literal secret, and the literals by key.
        """
        kept: dict[str, Any] = {}
        literals: dict[str, str] = {}
        for a in self.declared():
            value, key = getattr(self, a.name), prefix + a.metadata["key"]
            if isinstance(value, Secret):
                kept[a.name], literals[key] = _GIVEN.format(key), value.reveal()
            elif isinstance(value, Properties):
                kept[a.name], found = value.split(key.removesuffix("*"))
                literals.update(found)
            else:
                kept[a.name] = value
        return (type(self)(**kept) if literals else self), literals

    def joined(self, literals: Mapping[str, str], prefix: str = "") -> Self:
        """Put the literal secrets back that `split` took out."""
        if not any(key.startswith(prefix) for key in literals):
            return self
        made: dict[str, Any] = {}
        for a in self.declared():
            value, key = getattr(self, a.name), prefix + a.metadata["key"]
            if isinstance(value, Properties):
                value = value.joined(literals, key.removesuffix("*"))
            elif key in literals and value == _GIVEN.format(key):
                value = Secret(literals[key])
            made[a.name] = value
        return type(self)(**made)

    def complaints(
        self, name: Callable[[str, str], str] = lambda name, _key: f"{name}="
    ) -> Iterator[tuple[str | None, Problem]]:
        """Everything that is wrong with the values, each by itself, with the Python name of the option.

        Args:
            name: Gives an option's name in the user's spelling, from its Python name and its Flink key.
        """
        for problem in self._recorded:  # type: ignore[attr-defined]
            attribute = problem.code.partition(":")[2]
            yield attribute or None, _spelled(problem, type(self), name)
        for a in attrs.fields(type(self)):
            value = getattr(self, a.name)
            if value is None and a.default is attrs.NOTHING:
                continue
            if isinstance(value, Secret) and a.metadata["secret"]:
                continue
            if not _fits(value, a.type):
                seen = HIDDEN if a.metadata["secret"] or a.metadata["key"].endswith(_FREE) else repr(value)
                near = "" if seen == HIDDEN else _nearest(value, a.type)
                found = _problem("option-value", a, f"has the value {seen}{near}", f"give {{}} {_kind(a.type)}")
                yield a.name, _spelled(found, type(self), name)
            elif a.metadata["check"] and not isinstance(value, Secret) and (complaint := a.metadata["check"](value)):
                found = _problem("option-value", a, f"has the value {value!r}", complaint)
                yield a.name, _spelled(found, type(self), name)

    def problems(self, name: Callable[[str, str], str] = lambda name, _key: f"{name}=") -> Iterator[Problem]:
        """The problems of `complaints`."""
        yield from (problem for _, problem in self.complaints(name))

    def valid(self) -> Self:
        """The group with the default in the place of every wrong value, so that other rules can go on."""
        wrong = {attribute for attribute, _ in self.complaints() if attribute}
        if not wrong:
            return self
        fields = {a.name: a.default for a in self.declared() if a.default is not attrs.NOTHING}
        kept = {a.name: getattr(self, a.name) for a in self.declared() if a.name not in wrong}
        return type(self)(**{**fields, **kept})

    def __repr__(self) -> str:
        values = ((a, getattr(self, a.name)) for a in attrs.fields(type(self)))
        told = (f"{a.name}={_told(value, a)}" for a, value in values if value != a.default)
        return f"{type(self).__name__}({', '.join(told)})"

    @classmethod
    def reference(cls, prefix: str = "") -> str:
        """The table of the options in Markdown, for the reference pages."""
        rows = ["| option | Python | type | default | meaning |", "| --- | --- | --- | --- | --- |"]
        for a in cls.declared():
            default = "none" if a.default is None or a.default == Properties() else f"`{_write(a.default)}`"
            default = "required" if a.default is attrs.NOTHING else default
            kind = ("a secret" if a.metadata["secret"] is True else _kind(a.type)).replace("|", "\\|")
            older = "".join(f" Older key: `{prefix}{alias}`." for alias in a.metadata["aliases"])
            doc = (a.metadata["doc"] + older).replace("|", "\\|")
            rows.append(f"| `{prefix}{a.metadata['key']}` | `{a.name}` | {kind} | {default} | {doc} |")
        return "\n".join(rows)


# A problem of an option is recorded with the placeholder {} for its name, filled in when it is told.
def _problem(code: str, a: attrs.Attribute[Any], message: str, fix: str) -> Problem:
    return Problem(f"{code}:{a.name}", f"{{}} {_escaped(message)}", fix if "{}" in fix else _escaped(fix))


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _spelled(problem: Problem, cls: type[Options], name: Callable[[str, str], str]) -> Problem:
    code, _, attribute = problem.code.partition(":")
    if not attribute:
        return problem
    shown = name(attribute, getattr(attrs.fields(cls), attribute).metadata["key"])
    return attrs.evolve(problem, code=code, message=problem.message.format(shown), fix=problem.fix.format(shown))


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _kind(kind: Any) -> str:
    """A type of an option in words."""
    words = []
    for one in _alternatives(kind):
        if get_origin(one) is Literal:
            words.append(" or ".join(repr(v) for v in get_args(one)))
        elif get_origin(one) is tuple:
            words.append("a list separated by ';'")
        elif _is_mapping(one):
            words.append("settings by their names")
        elif one is not NoneType:
            words.append(_WORDS.get(one, getattr(one, "__name__", str(one))))
    return " or ".join(words)


_WHOLE = re.compile(r"[-+]?[0-9]{1,1000}")
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    str: "a text",
    timedelta: "a duration (as '5 min')",
}


def _fits(value: Any, kind: Any) -> bool:
    for one in _alternatives(kind):
        match get_origin(one):
            case _ if one is NoneType:
                good = value is None
            case origin if origin is Literal:
                good = value in get_args(one)
            case origin if origin is tuple:
                good = isinstance(value, tuple) and all(isinstance(v, get_args(one)[0]) for v in value)
            case _ if _is_mapping(one):
                good = isinstance(value, Properties)
            case _:
                good = isinstance(value, one) and (one is bool or not isinstance(value, bool))
        if good:
            return True
    return False


def _nearest(value: Any, kind: Any) -> str:
    """The accepted value that is meant, where it can be guessed."""
    literals = (one for one in _alternatives(kind) if get_origin(one) is Literal)
    return nearest(str(value), (str(v) for one in literals for v in get_args(one)))


def _is_mapping(kind: Any) -> bool:
    return isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping)


def _held(value: Any, a: attrs.Attribute[Any], recorded: list[Problem]) -> Any:
    """A value as the group keeps it.

    That is: in the letter case of its declaration where any will do, as `Properties` where it is a free-form mapping,
    as a `Secret` where it is one that was written out.
    """
    if a.metadata["key"].endswith(_FREE) and isinstance(value, Mapping):
        given: dict[Any, Any] = dict(value)
        wrong = {name: told for name, one in given.items() for told in value_problems(name, one)}
        recorded.extend(
            _problem("option-value", a, f"has an odd value of {name!r}", "give texts, numbers, true or false in {}")
            for name in wrong
        )
        return Properties({str(name): one for name, one in given.items() if name not in wrong})
    if not isinstance(value, str):
        return value
    match a.metadata["secret"]:
        case "address":
            literal = any(not is_reference(found["password"]) for found in USER_INFO.finditer(value))
            return Secret(value) if literal or _is_odd(value) else value
        case True if value and not is_reference(value):
            return Secret(value)
    if not a.metadata["ignore_case"]:
        return value
    accepted = [str(v) for one in _alternatives(a.type) if get_origin(one) is Literal for v in get_args(one)]
    return next((one for one in accepted if one.lower() == value.lower()), value)


def _shown(value: Any, a: attrs.Attribute[Any]) -> str:
    """A value as text that may be printed; of an address all but the password."""
    if not isinstance(value, Secret):
        return _write(value)
    address = value.reveal()
    return shown("", address) if a.metadata["secret"] == _ADDRESS and not _is_odd(address) else HIDDEN


def _is_odd(address: str) -> bool:
    """Whether there may be a password in an address that is none, as it has no scheme."""
    return any("@" in part and "://" not in part for part in address.split(","))


def _told(value: Any, a: attrs.Attribute[Any]) -> str:
    return repr(_shown(value, a)) if isinstance(value, Secret) else repr(value)


def _read(text: str, kind: Any, *, ignore_case: bool) -> Any:
    for one in _alternatives(kind):
        if one is bool:
            if text.strip().lower() not in ("true", "false"):
                raise ValueError("expected true or false")
            return text.strip().lower() == "true"
        if one is int:
            if not _WHOLE.fullmatch(text.strip()):
                raise ValueError("expected a whole number")
            return int(text)
        if one is timedelta:
            return parse_duration(text)
        if get_origin(one) is Literal:
            for value in get_args(one):
                if str(value) == text or (ignore_case and str(value).lower() == text.lower()):
                    return value
            raise ValueError(f"expected {_kind(one)}{nearest(text, map(str, get_args(one)))}")
        if get_origin(one) is tuple:
            return tuple(part.strip() for part in text.split(";"))
    return text


def _write(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case timedelta():
            return duration_text(value)
        case tuple():
            return ";".join(map(str, value))
        case _:
            return str(value)
