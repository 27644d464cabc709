"""An option is declared once: Python name, Flink key, type, default, doc, check.

The typed constructor, the reader of DDL and YAML, the messages and the reference pages all use the declaration. A group
of options (`Options`) accepts any value and never fails: `Options.problems` finds the mistakes, which the resolver
reports.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    overload,
)

import attrs

from kdsl.client_settings.properties import Properties, check_property_type
from kdsl.errors import Problem, listing, nearest
from kdsl.option_values import (
    Codec,
    describe_values,
    has_type,
    list_alternatives,
    parse_value,
    suggest_literal,
    write_value,
)
from kdsl.secrets import HIDDEN, Secret, is_reference
from kdsl.secrets.hiding import find_secrets_in_addresses, redact_value

T = TypeVar("T")
Check = Callable[[Any], str | None]
Secrecy = bool | Literal["address"]
_ADDRESS: Secrecy = "address"
_FREE = ".*"
_PLACEHOLDER = "${{given:{}}}"


class Spelling(Enum):
    """How a declaration spells its options; messages use the same spelling."""

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
    codec: Codec | None = None,
    sql_only: bool = False,
    kw_only: bool = True,
    decides: str | None = None,
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
    codec: Codec | None = None,
    sql_only: bool = False,
    kw_only: bool = True,
    decides: str | None = None,
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
    codec: Codec | None = None,
    sql_only: bool = False,
    kw_only: bool = True,
    decides: str | None = None,
) -> Any:
    """Declare an option of an `Options` class.

    Nothing is checked or converted here: the constructor of the class stores values in their form, and
    `Options.problems` checks them.

    Args:
        key: Flink's key, without the prefix that the group has in a ``WITH`` clause. One that ends in ``.*`` stands for
            all keys with that prefix: the option maps the rest of each key to a string (`Properties`).
        doc: What it means, one or two sentences, with units.
        default: The default value; without one the option is required.
        check: Returns what to write instead if a value of the right type is still wrong, or None.
        ignore_case: Whether the values of a ``Literal`` option are matched in any letter case.
        secret: Whether the string is a secret: a literal one becomes a `kdsl.secrets.Secret`, which is never printed or
            pickled; a reference (``${env:NAME}``) stays a string. ``"address"``: only a password inside it is secret.
        aliases: Older keys with the same meaning.
        side: The only direction that uses the option; in the other one a wrong value is a warning.
        codec: How DDL and YAML spell the value, if its type alone does not say it.
        sql_only: Whether only DDL and YAML have the option, for compatibility with Flink; Python has no keyword for it.
        kw_only: Whether the constructor takes the option by its name only; otherwise also by its position.
        decides: The property of the group whose value is that of the option, for a property by which kdsl asks any
            such group what it does (`kdsl.formats.Format.is_lenient`).
    """
    metadata = {
        "key": key,
        "doc": doc,
        "check": check,
        "ignore_case": ignore_case,
        "secret": secret,
        "aliases": aliases,
        "side": side,
        "codec": codec,
        "sql_only": sql_only,
        "kw_only": kw_only,
        "decides": decides,
    }
    return attrs.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Options:
    """A group of options; a format is one.

    The constructor takes the options by their Python names; unknown names and values of the wrong type raise nothing,
    and become problems, which the resolver reports together with all others.
    """

    __attrs_attrs__: ClassVar[Any]
    title: ClassVar[str] = "option group"
    without: ClassVar[Mapping[str, str]] = {}
    """Options of the parent class that this group does not have, by Python name; they keep their defaults.

    The values are the reasons, for messages; empty if there is no reason to mention.
    """

    @classmethod
    def declarations(cls) -> tuple[attrs.Attribute[Any], ...]:
        """The declarations of the group's options, in order; those in `without` are left out."""
        return tuple(a for a in attrs.fields(cls) if a.name not in cls.without)

    def __init_subclass__(cls) -> None:
        """Make the subclass a frozen attrs class, and resolve its annotations; NameError for one that is unknown.

        Its signature lists the options, for notebooks, consoles and ``help``.
        """
        attrs.define(cls, slots=False, frozen=True, kw_only=True, init=False, repr=False)
        attrs.resolve_types(cls)
        cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [_parameter(a) for a in sorted(cls.declarations(), key=lambda a: a.metadata["kw_only"])]
        )

    if not TYPE_CHECKING:  # type checkers make the constructor from the fields

        def __init__(self, *positional: Any, **values: Any) -> None:
            """Normalize and store the values; unknown names and missing required options (None) become mistakes.

            Raises:
                TypeError: There are too many positional values, or an option is also passed by name.
            """
            known = {a.name: a for a in self.declarations()}
            names = [a.name for a in known.values() if not a.metadata["kw_only"]]
            if len(positional) > len(names) or any(name in values for name in names[: len(positional)]):
                raise TypeError(
                    f"{type(self).__name__} takes by position only {', '.join(names) or 'nothing'}, each once"
                )
            values |= zip(names, positional, strict=False)
            for a in attrs.fields(type(self)):  # ``attrs.evolve`` gives all of them
                if a.name in self.without and values.get(a.name, a.default) == a.default:
                    values.pop(a.name, None)
            mistakes = [self._unknown_option(name, known, "{}=") for name in values if name not in known]
            for name, a in known.items():
                if name in values:
                    values[name] = _normalize(values[name], a, mistakes)
            for a in known.values():
                if a.default is attrs.NOTHING and a.name not in values:
                    fix = ("add ", f": {a.metadata['doc']}")
                    mistakes.append(_Mistake("option-missing", "is required", fix, a.name))
                    values[a.name] = None
            object.__setattr__(self, "_mistakes", tuple(mistakes))
            self.__attrs_init__(**{name: value for name, value in values.items() if name in known})

    @classmethod
    def _unknown_option(cls, name: str, valid: Mapping[str, Any], form: str) -> _Mistake:
        """Create the mistake of an option that does not exist; it names a close valid one, if any, and lists all.

        Args:
            name: The name or key that the user wrote.
            valid: The options that exist, by name or key.
            form: ``{}=`` for names of Python, ``{}`` for keys.
        """
        message = f"{cls.title} has no option {form.format(name) if form == '{}=' else repr(name)}"
        known = listing(sorted(valid)) if valid else "none"
        fix = (f"use one of its options: {known}",)
        return _Mistake("option-unknown", message + nearest(name, valid), fix, name, declared=False)

    @classmethod
    def from_strings(cls, strings: Mapping[str, str], **others: Any) -> Self:
        """Create the group from the strings of a ``WITH`` clause or a YAML document.

        An unknown key, a string that cannot be read, and an option with different values under its keys become
        problems of the group. An option that cannot be read has its default, None if it is required; of different
        values the last one counts.

        Args:
            strings: The values by Flink's keys.
            others: Values of other options by their Python names, for those that several keys describe.
        """
        by_key = {a.metadata["key"]: a for a in cls.declarations()}
        by_any = {**{alias: a for a in by_key.values() for alias in a.metadata["aliases"]}, **by_key}
        free = {key.removesuffix("*"): a for key, a in by_any.items() if key.endswith(_FREE)}
        values: dict[str, Any] = others
        written: dict[str, str] = {}
        mistakes: list[_Mistake] = []
        for key, text in strings.items():
            a = by_any.get(key)
            start = next((s for s in free if key.startswith(s) and key != s and not key.startswith(f"{s}*")), None)
            if a is None and start is not None:
                values.setdefault(free[start].name, {})[key.removeprefix(start)] = text
                continue
            if a is None or key.endswith(_FREE):
                mistakes.append(cls._unknown_option(key, by_key, "{}"))
                continue
            if written.setdefault(a.name, text) != text:
                message = f"and its older key{'s' if len(a.metadata['aliases']) > 1 else ''} "
                message += f"{listing(a.metadata['aliases'])} have different values"
                mistakes.append(_Mistake("option-twice", message, ("keep ", ""), a.name))
            try:
                values[a.name] = parse_value(text, a)
            except ValueError as e:
                mistakes.append(_value_mistake(a, f"has the value {text!r}: {e}"))
                values.setdefault(a.name, None if a.default is attrs.NOTHING else a.default)
        options = cls(**values)
        object.__setattr__(options, "_mistakes", (*options._mistakes, *mistakes))  # type: ignore[attr-defined]
        return options

    def to_strings(self) -> dict[str, str]:
        """The options that are neither None nor their defaults, as strings by Flink's keys, with secrets hidden."""
        strings: dict[str, str] = {}
        for a in self.declarations():
            value, key = getattr(self, a.name), a.metadata["key"]
            if value == a.default or value is None:
                continue
            if isinstance(value, Properties):
                strings.update({key.removesuffix("*") + name: text for name, text in value.redact().items()})
            else:
                strings[key] = _display(value, a)
        return strings

    def spell_changes(self, other: Options, prefix: str = "") -> tuple[str, str]:
        """Write the options that differ in another group, with their values there, as Python and as SQL.

        Secrets are hidden.

        Args:
            other: The other group, of the same class.
            prefix: The prefix of Flink's keys.

        Returns:
            The arguments of the constructor, and the options in SQL; empty if nothing differs.
        """
        changed = [a for a in self.declarations() if getattr(self, a.name) != getattr(other, a.name)]
        arguments = (f"{a.name}={getattr(other, a.name)!r}" for a in changed)
        settings = (
            f"'{prefix}{a.metadata['key']}' = {_sql_string(_display(getattr(other, a.name), a))}" for a in changed
        )
        return ", ".join(arguments), ", ".join(settings)

    def split(self, prefix: str = "") -> tuple[Self, dict[str, str]]:
        """Separate the literal secrets, as `kdsl.client_settings.properties.Properties.split` does.

        Args:
            prefix: The prefix of the keys of the literals.

        Returns:
            The group with ``${given:KEY}`` in place of each literal secret, or this group if it has none, and the
            literals by key.
        """
        values: dict[str, Any] = {}
        literals: dict[str, str] = {}
        for a in self.declarations():
            value, key = getattr(self, a.name), prefix + a.metadata["key"]
            if isinstance(value, Secret):
                values[a.name], literals[key] = _PLACEHOLDER.format(key), value.reveal()
            elif isinstance(value, Properties):
                values[a.name], of_value = value.split(key.removesuffix("*"))
                literals.update(of_value)
            else:
                values[a.name] = value
        return (type(self)(**values) if literals else self), literals

    def with_literals(self, literals: Mapping[str, str], prefix: str = "") -> Self:
        """Return the group with the literal secrets that `split` separated; this group if none has the prefix.

        Args:
            literals: The literal secrets by key.
            prefix: The prefix of their keys.
        """
        if not any(key.startswith(prefix) for key in literals):
            return self
        values: dict[str, Any] = {}
        for a in self.declarations():
            value, key = getattr(self, a.name), prefix + a.metadata["key"]
            if isinstance(value, Properties):
                value = value.with_literals(literals, key.removesuffix("*"))
            elif key in literals and value == _PLACEHOLDER.format(key):
                value = Secret(literals[key])
            values[a.name] = value
        return type(self)(**values)

    def problems(self, name: Callable[[str, str], str] = lambda name, _key: f"{name}=") -> Iterator[Problem]:
        """Yield the problems of the values, each checked by itself, without locations.

        `Problem.option` is the Python name of the option; of an unknown one it is the name or key that the user wrote.

        Args:
            name: Returns an option's name in the user's spelling, from its Python name and its Flink key.
        """
        for mistake in self._all_mistakes():
            yield mistake.problem(name, attrs.fields_dict(type(self)))

    def _all_mistakes(self) -> Iterator[_Mistake]:
        """Yield the mistakes that were found while reading, then values of wrong types or that a check rejects.

        Literal secrets of options for secrets are not checked.
        """
        yield from self._mistakes  # type: ignore[attr-defined]
        for a in attrs.fields(type(self)):
            value = getattr(self, a.name)
            if value is None and a.default is attrs.NOTHING:
                continue
            if isinstance(value, Secret) and a.metadata["secret"]:
                continue
            if not has_type(value, a.type):
                shown = HIDDEN if a.metadata["secret"] or a.metadata["key"].endswith(_FREE) else repr(value)
                hint = "" if shown == HIDDEN else suggest_literal(value, a.type)
                yield _value_mistake(a, f"has the value {shown}{hint}")
            elif a.metadata["check"] and not isinstance(value, Secret) and (fix := a.metadata["check"](value)):
                yield _Mistake("option-value", f"has the value {value!r}", (fix,), a.name)

    @cached_property
    def _wrong_options(self) -> frozenset[str]:
        """The names of the declared options with a mistake."""
        return frozenset(mistake.option for mistake in self._all_mistakes() if mistake.declared)

    def valid(self) -> Self:
        """Return the group with the default in place of every wrong value, so that other rules can be checked.

        A required option becomes None. If no value is wrong, the result is this group.
        """
        wrong = self._wrong_options
        if not wrong:
            return self
        defaults = {a.name: a.default for a in self.declarations() if a.default is not attrs.NOTHING}
        right = {a.name: getattr(self, a.name) for a in self.declarations() if a.name not in wrong}
        return type(self)(**{**defaults, **right})

    def __repr__(self) -> str:
        """Write the constructor's call with the options that are not their defaults, and secrets hidden."""
        values = ((a, getattr(self, a.name)) for a in attrs.fields(type(self)))
        arguments = (f"{a.name}={_repr(value, a)}" for a, value in values if value != a.default)
        return f"{type(self).__name__}({', '.join(arguments)})"


def _parameter(a: attrs.Attribute[Any]) -> inspect.Parameter:
    """The parameter of an option in the signature of its group."""
    kind = inspect.Parameter.KEYWORD_ONLY if a.metadata["kw_only"] else inspect.Parameter.POSITIONAL_OR_KEYWORD
    default = inspect.Parameter.empty if a.default is attrs.NOTHING else a.default
    return inspect.Parameter(a.name, kind, default=default, annotation=a.type)


@attrs.frozen
class _Mistake:
    """A mistake in a group of options; how the user spells the option is known only when it is reported.

    Attributes:
        code: The stable name of the rule.
        message: What is wrong; the name of a declared option goes before it.
        fix: The parts of the fix; the name of a declared option goes between them.
        option: The Python name of the option; of an unknown one the name that the user wrote.
        declared: Whether the group has the option.
    """

    code: str
    message: str
    fix: tuple[str, ...]
    option: str
    declared: bool = True

    def problem(self, name: Callable[[str, str], str], options: Mapping[str, attrs.Attribute[Any]]) -> Problem:
        """The problem, with the option's name in the user's spelling and without a location.

        Args:
            name: Returns that spelling, from the Python name and the Flink key.
            options: The options of the group by Python name.
        """
        if not self.declared:
            return Problem(self.code, self.message, "".join(self.fix), option=self.option)
        shown = name(self.option, options[self.option].metadata["key"])
        return Problem(self.code, f"{shown} {self.message}", shown.join(self.fix), option=self.option)


def _value_mistake(a: attrs.Attribute[Any], message: str) -> _Mistake:
    """Create the mistake of an option with a wrong value."""
    return _Mistake("option-value", message, ("set ", f" to {describe_values(a)}"), a.name)


def _normalize(value: Any, a: attrs.Attribute[Any], mistakes: list[_Mistake]) -> Any:
    """Convert a value to the form that the group stores; any other value is returned as it is.

    Values that ignore case get the case of their declaration, literal secrets and addresses with one become a `Secret`,
    and free-form mappings become `Properties` without values of wrong types. These are added to ``mistakes``.
    """
    if a.metadata["key"].endswith(_FREE) and isinstance(value, Mapping):
        entries: dict[Any, Any] = dict(value)
        wrong = {name: problem for name, one in entries.items() for problem in check_property_type(name, one)}
        for name in wrong:
            fix = ("use only strings, numbers, true and false in ", "")
            mistakes.append(_Mistake("option-value", f"has a value of the wrong type for {name!r}", fix, a.name))
        return Properties({str(name): one for name, one in entries.items() if name not in wrong})
    if not isinstance(value, str):
        return value
    match a.metadata["secret"]:
        case "address":
            return Secret(value) if find_secrets_in_addresses(value) or _may_hide_password(value) else value
        case True if value and not is_reference(value):
            return Secret(value)
    if not a.metadata["ignore_case"]:
        return value
    accepted = [str(v) for one in list_alternatives(a.type) if get_origin(one) is Literal for v in get_args(one)]
    return next((one for one in accepted if one.lower() == value.lower()), value)


def _display(value: Any, a: attrs.Attribute[Any]) -> str:
    """A value as a string that may be printed: an address without its password, and any other secret hidden."""
    if not isinstance(value, Secret):
        codec: Codec | None = a.metadata["codec"]
        return codec.format(value) if codec else write_value(value)
    address = value.reveal()
    return redact_value("", address) if a.metadata["secret"] == _ADDRESS and not _may_hide_password(address) else HIDDEN


def _sql_string(text: str) -> str:
    """A string literal of SQL."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _may_hide_password(address: str) -> bool:
    """Whether one of several addresses (with commas) has an ``@`` but no scheme, so its password cannot be found."""
    return any("@" in part and "://" not in part for part in address.split(","))


def _repr(value: Any, a: attrs.Attribute[Any]) -> str:
    """Write a value for a message; of a secret only what may be shown."""
    return repr(_display(value, a)) if isinstance(value, Secret) else repr(value)
