"""``kdsl watch``: what it serves, prints once, opens and refuses, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from kdsl.cli.app import app
from kdsl.testing.ports import free_port
from tests.monitoring.watch.jobs import lines, run_job

KDSL = (sys.executable, "-c", "import sys; sys.argv[0] = 'kdsl'; from kdsl.cli import main; main()")
RUNS = lines("copy [b]", running=1, batch_duration=1200, failed={}) + lines(
    "copy [b]", "Orders", num_records_in_total=5, pending_records=1234, leases_lost=1
)


def test_once_prints_the_queries_and_what_is_in_trouble() -> None:
    with run_job() as job:
        job.says(RUNS, lines("other", running=0, failed={(("error", "Orders: no rights"),): 1}))
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["watch", job.endpoint.url, "--once"])

    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    assert rows == [
        ["copy [b]", "running", "Orders", "1,234", "", "", "", "1,200"],
        ["other", "failed", "", "", "", "", "", ""],
    ]
    assert "copy [b]: Orders: another query uses the same consumer group" in result.stdout
    assert "other: the query has failed: Orders: no rights" in result.stdout


def test_once_without_queries_and_without_an_answer() -> None:
    with run_job() as job:
        result = CliRunner().invoke(app, ["watch", str(job.server_port), "--once"])
    assert (result.exit_code, result.stdout.strip()) == (0, "no streaming query of kdsl has run there yet")

    port = free_port()
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["watch", f"http://me:s3cret@127.0.0.1:{port}", "--once"])
    assert result.exit_code == 1
    assert f"http://127.0.0.1:{port}/metrics: no answer: Connection refused" in result.output
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["localhost", "ftp://me:s3cret@spark"], "number 2 is not an endpoint: it is neither a port, nor HOST:PORT"),
        (["spark:many"], "number 1 is not an endpoint: its port is not a number"),
    ],
)
def test_what_is_not_an_endpoint_is_refused_without_its_url(arguments: list[str], message: str) -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["watch", *arguments])

    assert result.exit_code == 2
    assert message in result.output
    assert "s3cret" not in result.output


@pytest.mark.parametrize("variables", [{"JPY_PARENT_PID": "1"}, {"CLICOLOR_FORCE": "1", "GIT_PAGER": "cat"}])
def test_in_a_cell_of_a_notebook_it_prints_once_and_ends(variables: dict[str, str]) -> None:
    with run_job() as job:
        job.says(RUNS)
        done = subprocess.run(
            [*KDSL, "watch", job.endpoint.url],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **variables, "COLUMNS": "200"},
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert "1,234" in done.stdout


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_the_page_until_it_is_ended(end: signal.Signals) -> None:
    taken = free_port()
    with run_job() as job:
        job.says(RUNS)
        command = [*KDSL, "watch", job.endpoint.url, "--port", "0", "--no-browser", "--every", "0.2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            (url,) = re.findall(r"watching at (\S+)", process.stdout.readline())
            assert "<title>kdsl watch</title>" in urlopen(url).read().decode()
            assert '"queries"' in urlopen(f"{url}data").read().decode()
            port = url.strip("/").rpartition(":")[2]
            refused = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["watch", str(taken), "--port", port])
            assert refused.exit_code == 2
            assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in refused.output
            process.send_signal(end)
            assert process.wait(30) == 0
            assert process.stderr.read() == "Ctrl-C ends it\n"
