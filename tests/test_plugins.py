"""Plug-ins: kdsl's own and those of other packages are found, named and loaded in the same way."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoints
from pathlib import Path
from unittest.mock import Mock

import pytest

from kdsl import plugins
from kdsl.plugins import OWN, PluginError, PluginGroup
from tests.installed_plugins import InstallPlugins

ROOT = Path(__file__).parents[1]
FORMATS = PluginGroup("kdsl.formats", "format")


def test_the_project_declares_the_plug_ins_that_a_checkout_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {name: points for name, points in project["project"]["entry-points"].items() if name != "pytest11"}

    assert groups == OWN


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, points in OWN.items() for name in points])
def test_each_plug_in_can_be_imported(group: str, name: str) -> None:
    assert PluginGroup(group, "plug-in").load(name) is not None


def test_those_of_other_packages_come_after_its_own(install_plugins: InstallPlugins) -> None:
    install_plugins({"kdsl.formats": {"morse": "json:JSONDecoder", "braille": "json:JSONEncoder"}})

    assert list(FORMATS.find_all()) == [*OWN["kdsl.formats"], "braille", "morse"]
    assert FORMATS.load("morse").__name__ == "JSONDecoder"
    with pytest.raises(PluginError, match=r"the format 'morse' \(json:JSONDecoder\) is not a subclass of kdsl.Format"):
        FORMATS.load_class("morse", Path, "kdsl.Format")


@pytest.mark.parametrize("value", ["missing_module:Morse", "json:Morse"])
def test_one_that_cannot_be_imported_is_named_with_its_place(value: str, install_plugins: InstallPlugins) -> None:
    install_plugins({"kdsl.formats": {"morse": value}})

    with pytest.raises(PluginError, match=rf"the format 'morse' \({value}\) cannot be imported: .*; install what"):
        FORMATS.load("morse")


def test_two_packages_cannot_register_the_same_name(install_plugins: InstallPlugins) -> None:
    install_plugins({"kdsl.formats": {"json": "other:Json"}})

    with pytest.raises(PluginError, match=r"two packages register the format 'json': kdsl_formats.json:Json and other"):
        FORMATS.find_all()


def test_the_installed_packages_are_searched_once_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Mock(return_value=EntryPoints())
    plugins.forget_plugins()
    monkeypatch.setattr(plugins, "entry_points", search)
    for name in OWN:
        PluginGroup(name, "plug-in").find_all()
    plugins.forget_plugins()

    search.assert_called_once_with()
