"""The options by which commands learn where the brokers and the registry are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from kdsl.cli import start
from kdsl.cli.app import app
from kdsl.cli.clusters import cluster_from_options

EXAMPLES = Path(__file__).parents[2] / "examples" / "sql"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KDSL_BOOTSTRAP_SERVERS", "KDSL_REGISTRY", "KDSL_REGISTRY_PROPERTIES_BASIC_AUTH_USER_INFO"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "clusters.yaml"
    path.write_text("clusters: {a: {bootstrap_servers: 'b:1', registry: {url: 'http://own', properties: {x.y: z}}}}")
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


def test_a_registry_goes_with_the_brokers() -> None:
    cluster = cluster_from_options("b:1", None, None, ["a=b=c"], "http://r", ["basic-auth.user-info=u:p"])

    assert cluster is not None
    assert cluster.properties.reveal() == {"a": "b=c"}
    assert cluster.registry is not None
    assert (cluster.registry.url, cluster.registry.properties.reveal()) == (
        "http://r",
        {"basic-auth.user-info": "u:p"},
    )


def test_the_registry_of_a_document_is_used_unless_another_is_set(
    document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDSL_REGISTRY", "http://environment")
    own = cluster_from_options(None, document, None, None, "http://environment")
    more = cluster_from_options(None, document, None, None, None, ["k=v"])
    other = cluster_from_options(None, document, None, None, "http://other")

    assert [c.registry and (c.registry.url, c.registry.properties.reveal()) for c in (own, more, other) if c] == [
        ("http://own", {"x.y": "z"}),
        ("http://own", {"x.y": "z", "k": "v"}),
        ("http://other", {}),
    ]


def test_the_environment_sets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_BOOTSTRAP_SERVERS", "b:1")
    monkeypatch.setenv("KDSL_REGISTRY", "http://r")
    monkeypatch.setenv("KDSL_REGISTRY_PROPERTIES_BASIC_AUTH_USER_INFO", "u:p")
    cluster = cluster_from_options("b:1", registry="http://r")

    assert cluster is not None
    assert cluster.registry is not None
    assert cluster.registry.properties.reveal() == {"basic.auth.user.info": "u:p"}


@pytest.mark.parametrize(
    "settings",
    [{"properties": ["a=b"]}, {"registry": "http://r"}, {"registry_properties": ["a=b"]}],
)
def test_settings_without_brokers_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(typer.BadParameter, match="needs --bootstrap or --cluster-file"):
        cluster_from_options(None, **settings)  # type: ignore[arg-type]


def test_settings_of_a_registry_need_one() -> None:
    with pytest.raises(typer.BadParameter, match="needs --registry"):
        cluster_from_options("b:1", registry_properties=["a=b"])


@pytest.mark.parametrize("option", ["--property", "--registry-property", "-D", "-c"])
def test_a_setting_is_key_and_value(option: str) -> None:
    done = run("run", str(EXAMPLES / "datagen.sql"), "--bootstrap", "b:1", "--registry", "http://r", option, "x")

    assert done.exit_code == 2
    assert "expected key=value" in done.output


@pytest.mark.parametrize("option", ["--bootstrap", "--bootstrap-servers"])
@pytest.mark.parametrize("command", ["run", "peek", "verify", "doctor"])
def test_commands_share_their_names(command: str, option: str) -> None:
    shown = run(command, "--help").output

    assert all(name in shown for name in (option, "--registry", "--registry-property", "--cluster-file"))


def test_a_table_of_a_registry_is_refused_before_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text(
        "CREATE TABLE a (id INT) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'avro-confluent',"
        " 'scan.startup.mode' = 'earliest-offset');"
        "CREATE TABLE p (id INT) WITH ('connector' = 'print'); INSERT INTO p SELECT id FROM a;"
    )

    assert "registry" in run("run", "--dry-run", "--bootstrap", "b:1", str(path)).output
    assert run("run", "--dry-run", "--bootstrap", "b:1", str(path)).exit_code == 1
    assert run("run", "--dry-run", "--bootstrap", "b:1", "--registry", "http://r", str(path)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [("properties: {sasl.password: *HUSH}", ":4: the document is not valid YAML"), (None, "No such file")],
)
def test_a_document_that_cannot_be_read_is_an_error_and_no_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    message: str,
) -> None:
    path = tmp_path / "clusters.yaml"
    if text is not None:
        path.write_text(f"clusters:\n  a:\n    bootstrap_servers: b:1\n    {text}\n")
    monkeypatch.setattr(sys, "argv", ["kdsl", "lag", "--group", "g", "--cluster-file", str(path)])

    with pytest.raises(SystemExit) as end:
        start.run()

    shown = "".join(capsys.readouterr())
    assert end.value.code in (1, 2)
    assert message in " ".join(shown.replace("│", " ").split())
    assert "HUSH" not in shown
