"""A package with plug-ins that is installed for the time of a test: the fixture ``install_plugins``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

Plugins = Mapping[str, Mapping[str, str]]
"""By group and by name, where the plug-ins are: ``module:name``."""
InstallPlugins = Callable[[Plugins], None]


def write_metadata(folder: Path, plugins: Plugins) -> None:
    """Write into a folder what pip would install of a package with plug-ins, without its modules."""
    info = folder / "plugins_for_tests-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-for-tests\nVersion: 1\n")
    lines: list[str] = []
    for group, points in plugins.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
