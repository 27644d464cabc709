"""The distribution that installs this package, and another one whose files may be in the same folder.

On PyPI, ``kdsl`` is another project (a DSL for Kubernetes), which also installs a package ``kdsl``. This package is
installed by ``kdsl-kafka``.
"""

from __future__ import annotations

from pathlib import Path

NAME = "kdsl-kafka"
"""The name of the distribution, as pip installs it."""


def require_own_files(package: Path) -> None:
    """Check that no other distribution has put its files into the folder of this package.

    pip lets two distributions write the same folder: the later one replaces files of the earlier one, and removing
    either breaks the other.

    Args:
        package: The folder of the package ``kdsl``.
    """
    others = sorted(package.parent.glob("kdsl-*.dist-info"))
    if others:
        version = others[0].name.removesuffix(".dist-info").removeprefix("kdsl-")
        raise ImportError(
            f"the distribution 'kdsl' {version}, another project, is installed in {package.parent}, too, and its files "
            f"and those of {NAME!r} replace each other; run: pip uninstall --yes kdsl {NAME}, "
            f"then install {NAME} again (docs/install.md)"
        )
