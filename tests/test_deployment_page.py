"""The commands and programs of docs/deployment.md run as they are written, with a real Kafka."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from kdsl.retry import Deadline
from kdsl.testing import LocalKafka
from kdsl.testing.ports import free_port

PAGE = (Path(__file__).parents[1] / "docs" / "deployment.md").read_text(encoding="utf-8")
ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.reliability, pytest.mark.kafka, pytest.mark.spark]


def block(language: str, name: str) -> str:
    """A block of the page, by its first line."""
    blocks = re.findall(rf"```{language}\n(# {name}\n.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 1, name
    return str(blocks[0])


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def environment() -> dict[str, str]:
    """That of a shell in which PySpark's programs and this Python come first."""
    programs = [str(Path(sys.executable).parent), str(Path(pyspark.__file__).parent / "bin")]
    return {
        **{k: v for k, v in os.environ.items() if k != "PYSPARK_PYTHON"},
        "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture
def job(kafka: LocalKafka, tmp_path: Path) -> Path:
    """The program of the page, which reads what there is and ends, with topics of its own."""
    kafka.create_topic(f"orders-{tmp_path.name}")
    kafka.create_topic(f"copy-{tmp_path.name}")
    kafka.produce(f"orders-{tmp_path.name}", '{"order_id": "o1"}', '{"order_id": "o2"}')
    text = block("python", "job.py").replace('topic="orders"', f'topic="orders-{tmp_path.name}"')
    text = text.replace('topic="orders-copy"', f'topic="copy-{tmp_path.name}"')
    text = text.replace('"s3a://bucket/checkpoints/copy"', f'"{tmp_path}/checkpoint", trigger={{"availableNow": True}}')
    (tmp_path / "job.py").write_text(text, encoding="utf-8")
    return tmp_path / "job.py"


@contextmanager
def running(commands: str, environment: dict[str, str], folder: Path, *ports: int) -> Iterator[None]:
    """Run commands that leave processes behind, wait until these listen on ports, and end them at the end."""
    shell = subprocess.Popen(
        ["bash", "-c", f"{commands}\nwait"],
        env=environment,
        cwd=folder,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = Deadline(240)
        while not all(listens(port) for port in ports):
            assert shell.poll() is None, "the commands have ended"
            assert not deadline.has_passed, "no process listens"
            time.sleep(0.2)
        yield
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def run(commands: str, environment: dict[str, str], folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-ec", commands], env=environment, cwd=folder, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def read_copies(kafka: LocalKafka, folder: Path) -> list[bytes]:
    return sorted(message.value() or b"" for message in kafka.read(f"copy-{folder.name}"))


COPIES = [b'{"order_id":"o1"}', b'{"order_id":"o2"}']


def test_spark_submit_to_spark_standalone(
    kafka: LocalKafka, environment: dict[str, str], job: Path, tmp_path: Path
) -> None:
    port, *web = (free_port() for _ in range(3))
    cluster = block("bash", "standalone").replace("7077", str(port))
    cluster = cluster.replace("8080", str(web[0])).replace("8081", str(web[1]))
    submit = block("bash", "submit").replace("7077", str(port)).replace("localhost:9092", kafka.bootstrap_servers)

    with running(cluster, environment, tmp_path, port, *web):
        run(submit, environment, tmp_path)

    assert read_copies(kafka, tmp_path) == COPIES


def test_spark_connect(kafka: LocalKafka, environment: dict[str, str], job: Path, tmp_path: Path) -> None:
    port = free_port()
    server = block("bash", "server").replace("15002", str(port))
    client = block("bash", "client").replace("15002", str(port)).replace("localhost:9092", kafka.bootstrap_servers)

    with running(server, environment, tmp_path, port):
        run(client, environment, tmp_path)

    assert read_copies(kafka, tmp_path) == COPIES


def test_a_notebook(kafka: LocalKafka, environment: dict[str, str], job: Path, tmp_path: Path) -> None:
    cells = [block("python", f"cell {number}") for number in range(1, 5)]
    cells = [
        cell.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"orders-{tmp_path.name}"')
        for cell in cells
    ]
    empty: dict[str, object] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [{**empty, "source": c} for c in cells]}
    file = tmp_path / "orders.ipynb"
    file.write_text(json.dumps(notebook), encoding="utf-8")

    run(f"python -m jupyter execute --inplace --kernel_name=python3 --timeout=400 {file}", environment, tmp_path)

    executed = json.loads(file.read_text(encoding="utf-8"))["cells"]
    results = ["".join(executed[number]["outputs"][-1]["data"]["text/plain"]) for number in (1, 3)]
    assert all("o1" in text and "o2" in text for text in results)
