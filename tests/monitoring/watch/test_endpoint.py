"""Where jobs serve their metrics, and what they answer: names nobody would choose, no answer, a wrong one."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode

import pytest

from kdsl.monitoring.watch import endpoint as module
from kdsl.monitoring.watch.endpoint import EndpointError, ask, parse_endpoint
from kdsl.testing.ports import free_port
from tests.monitoring.watch.jobs import line, lines, run_job


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("9404", "http://127.0.0.1:9404/metrics"),
        ("localhost", "http://localhost:9404/metrics"),
        ("spark:9405", "http://spark:9405/metrics"),
        ("[::1]:9405", "http://[::1]:9405/metrics"),
        ("http://spark", "http://spark:80/metrics"),
        ("https://spark/jobs/1/", "https://spark:443/jobs/1/"),
        ("http://me:s3cret@spark:1/m?token=s3cret", "http://spark:1/m"),
    ],
)
def test_an_endpoint_is_a_port_a_host_or_a_url_and_shown_without_secrets(text: str, url: str) -> None:
    endpoint = parse_endpoint(text)

    assert endpoint.url == url
    assert "s3cret" not in repr(endpoint)


@pytest.mark.parametrize("text", ["", "ftp://spark", "http://", "spark:port", "spark:70000", "file:///etc/passwd"])
def test_what_is_not_an_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is neither a port|its port is not"):
        parse_endpoint(text)


def test_values_are_those_of_queries_and_tables_whatever_their_names() -> None:
    name, table = 'a "b"\\\n<script>\u2028x', "Orders}"
    with run_job() as job:
        job.says(
            "# HELP kdsl_running x\n# TYPE kdsl_running gauge\n",
            lines(name, running=1, uptime=1.5e3),
            lines(name, table, num_records_in_total=7, pending_records=float("nan")),
            line("num_records_dropped_total", 3, query=name, table=table, reason="dead-letter"),
            line("records_lag", 4, query=name, table=table, topic="t", partition="0"),
            line("consumer_fetch_total", 5, query=name, table=table, client_id="c"),
            'python_info{version="3"} 1\n',
        )
        values = ask(job.endpoint)

    assert values == {
        name: {
            ("", "running", ()): 1,
            ("", "uptime", ()): 1500,
            (table, "numRecordsIn", ()): 7,
            (table, "numRecordsDropped", ("dead-letter",)): 3,
            (table, "records-lag", ("t", "0")): 4,
        }
    }


def test_user_and_password_of_a_url_are_sent_and_so_is_its_query_string() -> None:
    with run_job() as job:
        ask(parse_endpoint(f"http://me:p%40ss@127.0.0.1:{job.server_port}/m?token=1"))
        ask(job.endpoint)

    assert job.seen[0]["Authorization"] == "Basic " + b64encode(b"me:p@ss").decode()
    assert job.seen[0]["path"] == "/m?token=1"
    assert "Authorization" not in job.seen[1]
    assert job.seen[1]["path"] == "/metrics"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"", "it answers with HTTP 404 Not Found"),
        (302, b"", "it answers with HTTP 302 Found"),
        (200, b"kdsl_running{query=", "it does not answer with metrics for Prometheus"),
        (200, b"\xff\xfe", "it does not answer with metrics for Prometheus"),
    ],
)
def test_another_answer_is_explained(status: int, body: bytes, reason: str) -> None:
    with run_job() as job:
        job.status, job.body = status, body
        with pytest.raises(EndpointError, match=reason):
            ask(job.endpoint)


def test_nobody_who_answers_is_explained() -> None:
    with pytest.raises(EndpointError, match="Connection refused"):
        ask(parse_endpoint(str(free_port())))
    with pytest.raises(EndpointError, match=r"not known|resolution"):
        ask(parse_endpoint("host.invalid"))


def test_an_answer_that_is_late_or_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(EndpointError, match="it takes too long"):
            ask(parse_endpoint(str(silent.getsockname()[1])))

        def drip() -> None:
            silent.accept()[0].close()  # that of the request above
            with silent.accept()[0] as peer:
                peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                while not stop.wait(0.05):
                    peer.sendall(b"# \n")

        stop = threading.Event()
        dripping = threading.Thread(target=drip)
        dripping.start()
        with pytest.raises(EndpointError, match="its answer does not end"):
            ask(parse_endpoint(str(silent.getsockname()[1])))
        stop.set()
        dripping.join()


def test_an_answer_that_is_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST", 1000)
    with run_job() as job:
        job.body = b"#" * 2000
        with pytest.raises(EndpointError, match="its answer does not end"):
            ask(job.endpoint)
