"""The licences of all dependencies, from the software bill of materials, compared with those that are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from license_expression import ExpressionError, get_spdx_licensing  # type: ignore[import-untyped]  # has no types

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",  # covers its own files, which are used unchanged
    "PSF-2.0",
    "Python-2.0",
    "Unlicense",
    "Zlib",
}
"""The licences, by SPDX identifier, that a dependency of kdsl may have: none asks anything of programs that use it."""

NAMES = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
    "MIT License": "MIT",
    "3-Clause BSD License": "BSD-3-Clause",
    "Dual License": "",
}
"""SPDX identifiers of what packages wrote into their metadata before there was a field for SPDX."""

KNOWN = {"protobuf": "BSD-3-Clause"}
"""The licences of packages whose metadata names none, read in their repositories."""


def read_licences(bill: dict[str, Any]) -> dict[str, str]:
    """The licence of each component of a bill of materials as an SPDX expression; empty if it names none."""
    return {part["name"]: KNOWN.get(part["name"]) or _expression(part) for part in bill["components"]}


def _expression(part: dict[str, Any]) -> str:
    """The expression that a component declares; a classifier counts only if no licence field can be understood."""
    spelled = []
    for entry in part.get("licenses", ()):
        licence = entry.get("license", {})
        name = entry.get("expression") or licence.get("id") or licence.get("name", "")
        spelled.append(NAMES.get(name, name))
    understood = [name for name in spelled if _parse(name) is not None]
    return " AND ".join(
        f"({name})" if " " in name else name for name in dict.fromkeys(understood or filter(None, spelled))
    )


def licence_problems(licences: dict[str, str]) -> list[str]:
    """The packages whose licence is unknown or not allowed, each with what to do."""
    return [problem for name, licence in sorted(licences.items()) for problem in _problems(name, licence)]


def _problems(package: str, licence: str) -> Iterator[str]:
    if not licence:
        yield f"{package}: its metadata names no licence; add the one of its repository to release/licences.py"
        return
    expression = _parse(licence)
    if expression is None:
        yield f"{package}: the licence {licence!r} is not known; add its SPDX identifier to release/licences.py"
    elif not _is_allowed(expression):
        yield f"{package}: the licence {licence} is not allowed; allow it in release/licences.py, or drop it"


def _parse(licence: str) -> Any:
    """The expression of license_expression, or None if it is not one of SPDX's."""
    try:
        return get_spdx_licensing().parse(licence, validate=True) if licence else None
    except ExpressionError:
        return None


def _is_allowed(expression: Any) -> bool:
    """Whether all licences of an AND are allowed, and one of an OR."""
    if not expression.args:
        return expression.render() in ALLOWED
    combine = any if expression.operator.strip() == "OR" else all
    return combine(_is_allowed(part) for part in expression.args)
