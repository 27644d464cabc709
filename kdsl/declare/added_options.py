"""Options that packages add to all tables, as vendors of services do: plug-ins of the group ``kdsl.table_options``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import attrs

from kdsl.client_settings.properties import Properties, Value
from kdsl.errors import Problem
from kdsl.options import Options
from kdsl.plugins import PluginError, PluginGroup

TABLE_OPTIONS = PluginGroup("kdsl.table_options", "group of table options")


class OptionNames(Protocol):
    """What the check of options knows of a table."""

    @property
    def properties(self) -> Mapping[str, Value]:
        """The client properties."""
        ...

    def option_name(self, attribute: str) -> str:
        """Return an option's name as the user wrote it, from its Python name."""
        ...

    def setting(self, attribute: str, value: object) -> str:
        """Return an option with a value as the user would write it."""
        ...


class AddedOptions(Options):
    """Options that a package adds to those of all tables; it declares them with `kdsl.options.option`.

    Their names and keys must differ from those of all others, so each begins with the name of the vendor. All of them
    have defaults.
    """

    def change_properties(self, properties: Properties) -> Properties:
        """Return the client properties as clients get them; by default as they are declared.

        It is called again with its own results, as when the properties of a cluster are added, and must not change
        them once more.

        Args:
            properties: The properties; not changed.
        """
        return properties

    def check_table(self, table: OptionNames) -> Iterable[Problem]:
        """Yield what is wrong with the options of a table, without locations; by default nothing.

        Values that are wrong by themselves are reported by `problems`. A problem is reported at its ``option``, a
        Python name.

        Args:
            table: The table, whose options these are.
        """
        del table
        return ()


def load_added_options() -> Mapping[str, type[AddedOptions]]:
    """The groups of options that kdsl and other packages add, by the names of the plug-ins."""
    parent = "kdsl.declare.added_options.AddedOptions"
    added: dict[str, type[AddedOptions]] = {}
    for name in TABLE_OPTIONS.find_all():
        group = TABLE_OPTIONS.load_class(name, AddedOptions, parent)
        required = next((a for a in attrs.fields(group) if a.default is attrs.NOTHING), None)
        if required is not None:
            raise PluginError(
                f"{TABLE_OPTIONS.describe(name)} adds the option {required.name!r} without a default to all tables; "
                "give it the default None"
            )
        for other in added.values():
            check_distinct({name: group}, attrs.fields(other))
        added[name] = group
    return added


def check_distinct(added: Mapping[str, type[AddedOptions]], others: Iterable[attrs.Attribute[Any]]) -> None:
    """Check that added options do not have the Python name or a key of another option: one of the two would be lost.

    Args:
        added: The groups of options, by the names of the plug-ins.
        others: The declarations of the other options.
    """
    taken = {text for a in others for text in _list_spellings(a)}
    for name, group in added.items():
        for a in attrs.fields(group):
            if same := taken.intersection(_list_spellings(a)):
                raise PluginError(
                    f"{TABLE_OPTIONS.describe(name)} adds the option {min(same)!r}, which tables have already; begin "
                    "the names and keys of its options with that of the vendor, or uninstall its package"
                )


def _list_spellings(a: attrs.Attribute[Any]) -> tuple[str, ...]:
    """The Python name and the keys of an option."""
    return (a.name, a.metadata["key"], *a.metadata["aliases"])
