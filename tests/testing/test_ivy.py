from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.ivy import Coordinate, IvyError, explain_failure, fetch_jars, repository as chosen_repository

from .conftest import Publish

APP = "org.example:app:1.0"
LIB = "org.example:lib:2.0"


def _fetch(coordinate: str, tmp_path: Path, java: Path) -> list[str]:
    into, ivy = tmp_path / "jars", tmp_path / "ivy"
    into.mkdir()
    ivy.mkdir()
    fetch_jars(
        [Coordinate.parse(coordinate)],
        into,
        java=java,
        ivy=ivy,
        alternative="name a folder of jars",
        on_progress=lambda _: None,
    )
    return sorted(jar.name for jar in into.iterdir())


@pytest.mark.spark  # a JVM runs Ivy
def test_jars_come_with_what_they_depend_on(publish: Publish, tmp_path: Path, java: Path) -> None:
    publish(LIB)
    publish(APP, needs=[LIB])

    assert _fetch(APP, tmp_path, java) == ["org.example_app-1.0.jar", "org.example_lib-2.0.jar"]


@pytest.mark.spark  # a JVM runs Ivy
def test_a_jar_can_come_alone(publish: Publish, tmp_path: Path, java: Path) -> None:
    publish(LIB)
    publish(APP, needs=[LIB])

    assert _fetch(f"{APP}@jar", tmp_path, java) == ["org.example_app-1.0.jar"]


@pytest.mark.spark  # a JVM runs Ivy
def test_an_archive_comes_alone(publish: Publish, repository: Path, tmp_path: Path, java: Path) -> None:
    publish(APP, needs=[LIB], jar=False)
    (repository / "org" / "example" / "app" / "1.0" / "app-1.0-all.tar.gz").write_bytes(b"packed")

    assert _fetch(f"{APP}:all@tar.gz", tmp_path, java) == ["org.example_app-1.0-all.tar.gz"]
    assert str(Coordinate.parse(f"{APP}:all@tar.gz")) == f"{APP}:all@tar.gz"


@pytest.mark.spark  # a JVM runs Ivy
def test_a_version_that_does_not_exist_is_named(publish: Publish, tmp_path: Path, java: Path) -> None:
    publish(LIB)

    with pytest.raises(IvyError, match=r"org.example:lib:2.1 \(not found\); check the version and the repository"):
        _fetch("org.example:lib:2.1", tmp_path, java)


@pytest.mark.spark  # a JVM runs Ivy
def test_a_half_filled_repository_is_recognised(publish: Publish, tmp_path: Path, java: Path) -> None:
    publish(LIB, jar=False)
    publish(APP, needs=[LIB])

    with pytest.raises(IvyError, match=r"the download of org.example:lib:2.0 failed: .* half-filled"):
        _fetch(APP, tmp_path, java)


@pytest.mark.spark  # a JVM runs Ivy
def test_a_host_that_does_not_answer_is_named(tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_MAVEN_REPOSITORY", "https://someone:hidden@127.0.0.1:1/maven2")

    with pytest.raises(IvyError, match=r"127\.0\.0\.1 cannot be reached .*; check the network") as error:
        _fetch(APP, tmp_path, java)
    assert "hidden" not in str(error.value)


@pytest.mark.spark  # a JVM runs Ivy
def test_a_login_with_signs_of_addresses_is_not_quoted(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDSL_MAVEN_REPOSITORY", "https://someone:pa@ss-hidden@127.0.0.1:1/maven2")

    with pytest.raises(IvyError, match="cannot be fetched from https://127") as error:
        _fetch(APP, tmp_path, java)
    assert "hidden" not in str(error.value)
    assert "ss-" not in str(error.value)


@pytest.mark.spark  # a JVM runs Ivy
def test_a_host_that_does_not_exist_is_named(tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_MAVEN_REPOSITORY", "https://nowhere.invalid/maven2")

    with pytest.raises(IvyError, match=r"nowhere\.invalid cannot be reached"):
        _fetch(APP, tmp_path, java)


@pytest.mark.parametrize("text", ["org.example:app", "app", "org.example:app:1.0@pom", "a::c"])
def test_a_coordinate_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(IvyError, match="is not a Maven coordinate; write group:artifact:version"):
        Coordinate.parse(text)


def test_the_repository_is_the_one_that_spark_would_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDSL_MAVEN_REPOSITORY", raising=False)
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://mirror.example/maven")

    assert chosen_repository() == "https://mirror.example/maven/"


PRINTED = """\
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t:: org.example#lib;2.1: not found
"""


def test_a_failure_is_read_from_what_the_program_printed() -> None:
    message = explain_failure(
        PRINTED, subject="lib cannot be fetched", folder="ivy", mirror="MIRROR", alternative="walk"
    )

    assert message == (
        "lib cannot be fetched: org.example:lib:2.1 (not found); check the version and the repository, or walk"
    )


def test_a_repository_that_refuses_is_named_with_its_status() -> None:
    printed = "CLIENT ERROR: HTTP response status: 401 url=https://mirror.example/lib.pom"

    message = explain_failure(
        printed, subject="lib cannot be fetched", folder="ivy", mirror="MIRROR", alternative="walk"
    )

    assert "the repository answers HTTP 401; name a repository that you may read in MIRROR, or walk" in message


@pytest.mark.parametrize("address", ["https://u:hidden@mirror.example/maven", "https://u:p@ss-hidden@mirror.example/m"])
def test_logins_in_what_ivy_says_are_not_repeated(address: str) -> None:
    lines = [
        f"tried {address}/lib.pom",
        f"Server access error at url {address}/lib.pom (java.net.ConnectException: {address} refused)",
        f"CLIENT ERROR: HTTP response status: 401 url={address}/lib.pom",
        f"\t\t:: org.example#lib;2.1: not found in {address}",
        f"download failed: org.example#lib;2.1!lib.jar({address}/lib.jar)",
    ]
    for text in lines:
        for output, error in ((text, ""), ("", text), (text, text)):
            message = explain_failure(
                output, error, subject="lib cannot be fetched", folder="ivy", mirror="MIRROR", alternative="walk"
            )
            assert "hidden" not in message
