from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from kdsl.registry import IncompatibleSchemaError, RegisteredSchema, RegistryUnreachableError
from kdsl.testing import LocalRegistry, LocalRegistryError
from kdsl.testing._watchdog import wait_ended
from kdsl.testing.ports import answers
from kdsl.testing.registry_app import find_registry

pytestmark = pytest.mark.registry

ONE, OTHER = (
    RegisteredSchema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": k}]}))
    for k in ("long", "string")
)
OWNER = """
import os, sys, time
from kdsl.testing import LocalRegistry
registry = LocalRegistry().start()
print(registry.pid, registry.port, registry.data_dir, flush=True)
time.sleep(600)
"""


@pytest.mark.reliability
def test_it_serves_keeps_nothing_and_may_be_frozen() -> None:
    registry = LocalRegistry()
    with pytest.raises(LocalRegistryError, match="is not started"):
        registry.url  # noqa: B018
    with registry:
        folder, port = registry.data_dir, registry.port
        client = registry.client()
        number = client.register("a", ONE)
        assert json.loads(client.schema(number).text) == json.loads(ONE.text)
        with pytest.raises(IncompatibleSchemaError):
            client.register("a", OTHER)
        listening = {c.laddr for c in psutil.Process(registry.pid).net_connections("inet") if c.status == "LISTEN"}
        assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}

        registry.pause()
        with pytest.raises(httpx.TimeoutException):
            httpx.get(f"{registry.url}/subjects", timeout=0.3, trust_env=False)
        registry.resume()
        assert registry.client().subjects() == ("a",)
    assert not folder.exists()
    with pytest.raises(RegistryUnreachableError):
        client.subjects()
    with LocalRegistry(port=port, compatibility="NONE") as again:
        assert again.client().subjects() == ()
        assert again.client().register("a", ONE) != again.client().register("a", OTHER)


@pytest.mark.reliability
def test_it_ends_with_its_owner_also_when_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, port, folder = owner.stdout.readline().split()
        registry = psutil.Process(int(pid))
        assert answers(int(port))
        owner.kill()

    assert wait_ended([registry], 120) == []
    end = time.monotonic() + 120
    while Path(folder).exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not answers(int(port))
    assert not Path(folder).exists()


def test_a_port_in_use_is_reported(kdsl_registry: LocalRegistry) -> None:
    with pytest.raises(LocalRegistryError, match=f"port={kdsl_registry.port}: the port is in use"):
        LocalRegistry(port=kdsl_registry.port).start()


def test_a_folder_without_a_registry_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_REGISTRY_APP", str(tmp_path))

    with pytest.raises(LocalRegistryError, match="unpack Apicurio's"):
        find_registry(java=Path("java"))
