"""The licences of dependencies: read from a bill of materials, allowed, refused or unknown."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("license_expression", reason="needs the dependency group dist")

from release.licences import licence_problems, read_licences


def component(*licenses: dict[str, Any], name: str = "some") -> dict[str, Any]:
    return {"components": [{"name": name, "licenses": list(licenses)}]}


@pytest.mark.parametrize(
    ("licenses", "expression"),
    [
        ([{"expression": "MPL-2.0 AND (Apache-2.0 OR MIT)"}], "(MPL-2.0 AND (Apache-2.0 OR MIT))"),
        ([{"license": {"id": "MIT"}}], "MIT"),
        ([{"license": {"name": "License :: OSI Approved :: Apache Software License"}}], "Apache-2.0"),
        ([{"license": {"id": "BSD-3-Clause"}}, {"license": {"name": "Dual License"}}], "BSD-3-Clause"),
        ([{"license": {"name": "Apache 2.0"}}, {"license": {"id": "BSD-3-Clause"}}], "Apache-2.0 AND BSD-3-Clause"),
        ([{"license": {"id": "MIT"}}, {"license": {"name": "as is, with text"}}], "MIT"),
        ([], ""),
    ],
)
def test_the_licence_of_a_component(licenses: list[dict[str, Any]], expression: str) -> None:
    assert read_licences(component(*licenses)) == {"some": expression}


@pytest.mark.parametrize(
    "licence", ["MIT", "Apache-2.0 OR GPL-3.0-only", "MPL-2.0 AND (GPL-2.0-only OR MIT)", "(BSD-3-Clause AND 0BSD)"]
)
def test_allowed_licences(licence: str) -> None:
    assert licence_problems({"some": licence}) == []


@pytest.mark.parametrize(
    ("licence", "problem"),
    [
        ("GPL-3.0-only", "is not allowed"),
        ("MIT AND GPL-3.0-only", "is not allowed"),
        ("GPL-2.0-only WITH Classpath-exception-2.0", "is not allowed"),
        ("Beer", "is not known; add its SPDX identifier"),
        ("", "its metadata names no licence"),
    ],
)
def test_other_licences_are_problems(licence: str, problem: str) -> None:
    (line,) = licence_problems({"some": licence})

    assert line.startswith("some: ")
    assert problem in line


def test_a_package_without_metadata_has_the_licence_of_its_repository() -> None:
    assert read_licences(component(name="protobuf")) == {"protobuf": "BSD-3-Clause"}
