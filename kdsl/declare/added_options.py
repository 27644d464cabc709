"""Options that packages add to all tables, as vendors of services do: plug-ins of the group ``kdsl.table_options``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kdsl.client_settings.properties import Properties, Value
from kdsl.errors import Problem
from kdsl.options import Options
from kdsl.plugins import PluginGroup

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

    Their names and keys must differ from those of all others, so each begins with the name of the vendor.
    """

    def change_properties(self, properties: Properties) -> Properties:
        """Return the client properties as clients get them; by default as they are declared.

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


def load_added_options() -> tuple[type[AddedOptions], ...]:
    """The groups of options that kdsl and other packages add.

    Raises:
        PluginError: One cannot be imported, or is not such a group.
    """
    parent = "kdsl.declare.added_options.AddedOptions"
    return tuple(TABLE_OPTIONS.load_class(name, AddedOptions, parent) for name in TABLE_OPTIONS.find_all())
