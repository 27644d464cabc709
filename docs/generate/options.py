"""Tables of options in Markdown, from the declarations of the options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.option_values import describe_values, write_value
from kdsl.options import Options

_WORTH_A_LINK = 3
"""How many options a group shares with another one at least, so that a page sends its readers there."""


def options_table(
    group: type[Options], prefix: str = "", elsewhere: Mapping[str, tuple[type[Options], str]] | None = None
) -> str:
    """The options of a group.

    Args:
        group: The options.
        prefix: What the keys begin with on the page.
        elsewhere: Groups whose options are on other pages, with their prefixes, by a link to the page. An option that
            is declared there in the same way is only named.
    """
    here = {a.metadata["key"]: a for a in group.declarations()}
    shared = []
    for link, (other, other_prefix) in (elsewhere or {}).items():
        same = [a.metadata["key"] for a in other.declarations() if _cells(a) == _cells(here.get(a.metadata["key"]))]
        if len(same) < _WORTH_A_LINK:
            continue
        changed = "" if prefix == other_prefix else f", where they begin with `{other_prefix}`"
        shared.append(f"These are described in {link}{changed}: {', '.join(f'`{prefix}{key}`' for key in same)}.")
        for key in same:
            del here[key]
    rows = [f"| {' | '.join(_row(a, prefix))} |" for a in here.values()]
    head = ["| option, in Python | value | meaning |", "| --- | --- | --- |"]
    return "\n\n".join((["\n".join([*head, *rows])] if rows or not shared else []) + shared)


def _cells(a: attrs.Attribute[Any] | None) -> tuple[str, ...] | None:
    """What a table says of an option, whatever the prefix, for comparisons."""
    return None if a is None else _row(a, "")


def _row(a: attrs.Attribute[Any], prefix: str) -> tuple[str, str, str]:
    """The cells of an option: its names, its type and default, its meaning."""
    name = f"`{prefix}{a.metadata['key']}`" + ("" if a.metadata["sql_only"] else f"<br>`{a.name}`")
    kind = ("a secret" if a.metadata["secret"] is True else describe_values(a)).replace("|", "\\|")
    older = "".join(f" Older key: `{prefix}{alias}`." for alias in a.metadata["aliases"])
    return name, kind + _default(a.default), (a.metadata["doc"] + older).replace("|", "\\|")


def _default(value: Any) -> str:
    if value is attrs.NOTHING:
        return "; required"
    return "" if value in (None, "", (), Properties()) else f"; default `{write_value(value)}`"
