"""A Maven repository on disk, so that fetching jars can be tried without a network."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kdsl.java import find_java

Publish = Callable[..., None]


@pytest.fixture(scope="session")
def java() -> Path:
    return find_java()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository that kdsl fetches from, and an empty cache of kdsl's own."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.setenv("KDSL_MAVEN_REPOSITORY", folder.as_uri())
    monkeypatch.setenv("KDSL_CACHE", str(tmp_path / "cache"))
    for name in ("KDSL_KAFKA_JARS", "KDSL_KAFKA_VERSION", "KDSL_KAFKA_COORDINATES"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def publish(repository: Path) -> Publish:
    """Puts an artifact into the repository, with or without its jar."""

    def put(coordinate: str, needs: Iterable[str] = (), *, jar: bool = True) -> None:
        group, artifact, version = coordinate.split(":")
        folder = repository.joinpath(*group.split("."), artifact, version)
        folder.mkdir(parents=True)
        dependencies = "".join(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
                *need.split(":")
            )
            for need in needs
        )
        (folder / f"{artifact}-{version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version><dependencies>{dependencies}</dependencies></project>"
        )
        if jar:
            with zipfile.ZipFile(folder / f"{artifact}-{version}.jar", "w") as file:
                file.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nName: {coordinate}\n")

    return put
