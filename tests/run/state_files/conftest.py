from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from kdsl.run.state_files.cache import RunCache
from kdsl.run.state_files.files import StateFiles
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.remote import StoreFiles
from kdsl.run.state_files.stores import Store, open_store
from tests.run.state_files.proxy import Proxy, start_proxy
from tests.run.state_files.servers import BUCKET, find_port, run_azurite, run_gcs, run_s3

ACCESS, SECRET = "AKIDEXAMPLEKEY", "wJalrXUtnFEMIexample/secret+key"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's
ODD = "a b#c?d%20e+f&g"
"""A folder whose name has characters that URLs escape."""


@attrs.frozen
class Server:
    """A store for tests.

    Attributes:
        proxy: What counts its requests.
        open: Opens a folder.
    """

    proxy: Proxy
    open: Callable[[str], Store]


def s3_settings(proxy: Proxy) -> dict[str, str]:
    """The settings of Hadoop with which S3A would reach a server."""
    return {
        "fs.s3a.endpoint": f"http://{proxy.address}",
        "fs.s3a.access.key": ACCESS,
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.path.style.access": "true",
    }


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_s3(tmp_path_factory.mktemp("s3")) as address, start_proxy(address) as proxy:
        settings = s3_settings(proxy)
        yield Server(proxy, lambda folder: open_store("t", Location.parse(f"s3a://{BUCKET}/{folder}"), settings.get))


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = find_port()
    folder = tmp_path_factory.mktemp("gcs")
    with start_proxy(f"127.0.0.1:{port}") as proxy, run_gcs(folder, proxy.address, port):
        settings = {"fs.gs.storage.root.url": f"http://{proxy.address}/", "fs.gs.auth.type": "UNAUTHENTICATED"}
        yield Server(proxy, lambda folder: open_store("t", Location.parse(f"gs://{BUCKET}/{folder}"), settings.get))


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from pyarrow.fs import AzureFileSystem

    with run_azurite(tmp_path_factory.mktemp("azure")) as address, start_proxy(address) as proxy:
        where: dict[str, Any] = {f"{service}_storage_authority": proxy.address for service in ("blob", "dfs")}
        where |= {f"{service}_storage_scheme": "http" for service in ("blob", "dfs")}
        system = AzureFileSystem(account_name="devstoreaccount1", account_key=AZURE_KEY, **where)
        system.create_dir(BUCKET)
        account = f"abfss://{BUCKET}@devstoreaccount1.dfs.core.windows.net"
        yield Server(proxy, lambda folder: Store(Location.parse(f"{account}/{folder}"), system, (AZURE_KEY,), fewest=4))


@pytest.fixture
def cache(tmp_path: Path) -> RunCache:
    (tmp_path / "cache").mkdir(mode=0o700)
    return RunCache(tmp_path / "cache", 1 << 30)


@pytest.fixture(params=["local", "s3", "gcs", "azure"])
def files(request: pytest.FixtureRequest, tmp_path: Path, cache: RunCache) -> StateFiles:
    """An empty state on each kind of file system."""
    if request.param == "local":
        return LocalFiles(tmp_path / ODD / "state")
    server: Server = request.getfixturevalue(request.param)
    server.proxy.clear()
    return StoreFiles(server.open(f"{ODD}/{tmp_path.name}/state"), cache)
