from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.testing import DownloadError
from kdsl.testing.maven import Coordinate, fetch_jars, repository as chosen_repository

from .conftest import Publish

pytestmark = pytest.mark.spark  # a JVM runs Ivy

APP = "org.example:app:1.0"
LIB = "org.example:lib:2.0"


def _fetch(coordinate: str, tmp_path: Path, java: Path) -> list[str]:
    told: list[str] = []
    into = tmp_path / "jars"
    fetch_jars([Coordinate.parse(coordinate)], into, java=java, ivy=tmp_path / "ivy", on_progress=told.append)
    return sorted(jar.name for jar in into.iterdir())


def test_jars_come_with_what_they_depend_on(publish: Publish, tmp_path: Path, java: Path) -> None:
    publish(LIB)
    publish(APP, needs=[LIB])

    assert _fetch(APP, tmp_path, java) == ["org.example_app-1.0.jar", "org.example_lib-2.0.jar"]


def test_a_jar_can_come_alone(publish: Publish, tmp_path: Path, java: Path) -> None:
    publish(LIB)
    publish(APP, needs=[LIB])

    assert _fetch(f"{APP}@jar", tmp_path, java) == ["org.example_app-1.0.jar"]


def test_an_archive_comes_alone(publish: Publish, repository: Path, tmp_path: Path, java: Path) -> None:
    publish(APP, needs=[LIB], jar=False)
    (repository / "org" / "example" / "app" / "1.0" / "app-1.0-all.tar.gz").write_bytes(b"packed")

    assert _fetch(f"{APP}:all@tar.gz", tmp_path, java) == ["org.example_app-1.0-all.tar.gz"]
    assert str(Coordinate.parse(f"{APP}:all@tar.gz")) == f"{APP}:all@tar.gz"


def test_a_version_that_does_not_exist_is_named(publish: Publish, tmp_path: Path, java: Path) -> None:
    publish(LIB)

    with pytest.raises(DownloadError, match=r"org.example:lib:2.1 \(not found\); check the version and the repository"):
        _fetch("org.example:lib:2.1", tmp_path, java)


def test_a_half_filled_repository_is_recognised(publish: Publish, tmp_path: Path, java: Path) -> None:
    publish(LIB, jar=False)
    publish(APP, needs=[LIB])

    with pytest.raises(DownloadError, match=r"the download of org.example#lib;2.0!lib.jar failed; .* half-filled"):
        _fetch(APP, tmp_path, java)


def test_a_host_that_does_not_answer_is_named(tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_MAVEN_REPOSITORY", "https://someone:hidden@127.0.0.1:1/maven2")

    with pytest.raises(DownloadError, match=r"127\.0\.0\.1 cannot be reached .*; check the network") as error:
        _fetch(APP, tmp_path, java)
    assert "hidden" not in str(error.value)


def test_a_host_that_does_not_exist_is_named(tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_MAVEN_REPOSITORY", "https://nowhere.invalid/maven2")

    with pytest.raises(DownloadError, match=r"nowhere\.invalid cannot be reached"):
        _fetch(APP, tmp_path, java)


@pytest.mark.parametrize("text", ["org.example:app", "app", "org.example:app:1.0@pom", "a::c"])
def test_a_coordinate_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(DownloadError, match="is no Maven coordinate; write group:artifact:version"):
        Coordinate.parse(text)


def test_the_repository_is_the_one_that_spark_would_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDSL_MAVEN_REPOSITORY", raising=False)
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://mirror.example/maven")

    assert chosen_repository() == "https://mirror.example/maven/"
