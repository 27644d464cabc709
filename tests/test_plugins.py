"""Plug-ins: kdsl's own and those of other packages are found, named and loaded in the same way."""

from __future__ import annotations

import tomllib
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
    expected = r"'morse' \(json:JSONDecoder of the package 'plugins-for-tests'\) is not a subclass of kdsl.Format"
    with pytest.raises(PluginError, match=expected):
        FORMATS.load_class("morse", Path, "kdsl.Format")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("missing_module:Morse", "No module named"),
        ("json:Morse", "has no attribute"),
        ("breaks_on_import:Morse", "KeyError, which python -c 'import breaks_on_import' explains"),
        ("no_python:Morse", "expected ':'"),
    ],
)
def test_one_that_cannot_be_imported_is_named_with_its_package(
    value: str, reason: str, install_plugins: InstallPlugins, tmp_path: Path
) -> None:
    (tmp_path / "breaks_on_import.py").write_text("import os\nos.environ['MORSE_HOME']\n")
    (tmp_path / "no_python.py").write_text("class Morse\n")
    install_plugins({"kdsl.formats": {"morse": value}})

    name = f"the format 'morse' \\({value} of the package 'plugins-for-tests'\\)"
    with pytest.raises(PluginError, match=rf"{name} cannot be imported: .*{reason}.*; install what it needs"):
        FORMATS.load("morse")


def test_a_name_of_two_packages_cannot_be_loaded_and_others_can(install_plugins: InstallPlugins) -> None:
    install_plugins({"kdsl.formats": {"json": "other:Json"}})

    expected = "json:Json of the package 'kdsl-kafka' and other:Json of the package 'plugins-for-tests'; uninstall"
    with pytest.raises(PluginError, match=rf"2 packages register the format 'json': kdsl_formats.{expected}"):
        FORMATS.load("json")
    assert FORMATS.load("csv").identifier == "csv"


def test_metadata_of_another_version_of_kdsl_is_not_used(install_plugins: InstallPlugins, tmp_path: Path) -> None:
    install_plugins({"kdsl.formats": {"json": "kdsl.formats.json:Json", "gone": "kdsl.formats.gone:Gone"}})
    metadata = tmp_path / "plugins_for_tests-1.dist-info/METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: kdsl-kafka\nVersion: 0.1\n")

    assert list(FORMATS.find_all()) == list(OWN["kdsl.formats"])
    assert FORMATS.load("json").identifier == "json"


def test_the_installed_packages_are_searched_once_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Mock(return_value=[])
    plugins.forget_plugins()
    monkeypatch.setattr(plugins, "distributions", search)
    for name in OWN:
        PluginGroup(name, "plug-in").find_all()
    plugins.forget_plugins()

    search.assert_called_once_with()


def test_of_two_versions_of_a_package_only_the_imported_one_has_plug_ins(
    install_plugins: InstallPlugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugins({"kdsl.formats": {"mine": "mine:Mine"}})
    newer = tmp_path / "newer" / "plugins_for_tests-2.dist-info"
    newer.mkdir(parents=True)
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-for-tests\nVersion: 2\n")
    plugins.forget_plugins()
    assert "mine" in FORMATS.find_all()

    monkeypatch.syspath_prepend(newer.parent)
    plugins.forget_plugins()

    assert "mine" not in FORMATS.find_all()
