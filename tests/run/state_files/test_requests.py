"""How many requests a state makes, and what it does when they fail, as a proxy before the servers sees and makes it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from kdsl.run.state_files.cache import RunCache
from kdsl.run.state_files.files import DamagedFileError
from kdsl.run.state_files.remote import StoreFiles
from tests.run.state_files.conftest import SECRET, Server
from tests.run.state_files.proxy import Fault
from tests.run.state_files.test_files import forget, read_mapped, version_name, write_run


@pytest.fixture
def on_s3(s3: Server, tmp_path: Path, cache: RunCache) -> StoreFiles:
    s3.proxy.clear()
    return StoreFiles(s3.open(f"requests/{tmp_path.name}"), cache)


def test_a_batch_has_at_most_four_requests_with_its_share_of_removals(s3: Server, on_s3: StoreFiles) -> None:
    on_s3.write(version_name(99), b"{}")
    s3.proxy.clear()
    runs = [write_run(on_s3, 99, b"x" * 10_000)]
    batches = 160
    for version in range(100, 100 + batches):
        on_s3.read(version_name(version - 1))
        assert on_s3.open(runs[-1]).size() == 10_000
        runs.append(write_run(on_s3, version, b"x" * 10_000))
        on_s3.write(version_name(version), b"{}")
        if version % on_s3.batches_between_removals == 0:
            needed = {runs[-1], runs[-2], version_name(version), version_name(version - 1)}
            on_s3.remove(set(on_s3.list()) - needed)
    assert len(s3.proxy.requests) / batches < 3.3
    assert len(on_s3.list()) < 300
    assert not any("PUT" in one and one.endswith(f"/{s3.open('').root}") for one in s3.proxy.requests)


def test_each_operation_has_as_few_requests_as_the_page_says(s3: Server, on_s3: StoreFiles, cache: RunCache) -> None:
    def methods() -> list[str]:
        seen = s3.proxy.methods()
        s3.proxy.clear()
        return seen

    on_s3.write(version_name(1), b"{}")
    assert methods() == ["PUT"]
    on_s3.read(version_name(1))
    assert methods() == ["GET"]
    name = write_run(on_s3, 1, b"x" * 1_000_000)
    assert methods() == ["PUT"]
    on_s3.open(name)
    assert methods() == []
    forget(on_s3, cache, name)
    on_s3.open(name)
    assert methods() == ["HEAD", "GET"]
    on_s3.open(name)
    assert methods() == []
    on_s3.list()
    assert methods() == ["GET"]


FAULTS: list[Fault] = ["fails after it happened", "fails", "cut", "twice", "slow"]


@pytest.mark.parametrize("server", ["s3", "gcs", "azure"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_that_fails_changes_nothing(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    cache: RunCache,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    fault: Fault,
) -> None:
    monkeypatch.setattr("kdsl.run.state_files.remote._PAUSES", (0.05, 0.1, 0.2))
    store: Server = request.getfixturevalue(server)
    files = StoreFiles(store.open(f"faults/{tmp_path.name}"), cache)
    older = write_run(files, 1, b"k" * 100_000)
    failed, requests = 0, 1
    while failed < requests:  # each request of the operations below fails, in turn
        forget(files, cache, older)
        content = b'{"a":%d}' % failed
        store.proxy.clear(partial(_fail_at, fault, failed))
        files.write(version_name(2), content)
        name = write_run(files, 2, b"r" * 300_000)
        assert read_mapped(files.open(older)) == b"k" * 100_000
        assert files.read(version_name(2)) == content
        requests = len(store.proxy.requests)
        store.proxy.clear()
        forget(files, cache, name)
        assert read_mapped(files.open(name)) == b"r" * 300_000
        failed += 1
    assert failed >= 5


def _fail_at(fault: Fault, at: int, number: int, line: str) -> Fault | None:
    """Let one request fail; not a part of an upload to Google's, because the test server appends repeated parts."""
    return fault if number == at and not ("upload_id" in line and fault != "slow") else None


def test_a_large_run_whose_upload_fails_after_it_happened(s3: Server, on_s3: StoreFiles, cache: RunCache) -> None:
    content = bytes(range(256)) * (25 << 12)
    s3.proxy.clear(lambda number, line: "fails after it happened" if "uploadId" in line and number < 8 else None)
    name = write_run(on_s3, 1, content)
    s3.proxy.clear()
    forget(on_s3, cache, name)
    assert read_mapped(on_s3.open(name)) == content


def test_a_run_that_is_damaged_in_the_store(s3: Server, on_s3: StoreFiles, cache: RunCache) -> None:
    name = write_run(on_s3, 1, b"x" * 1_000)
    forget(on_s3, cache, name)
    path = on_s3._path(name)
    with s3.open("").system.open_output_stream(path) as out:
        out.write(b"y" * 1_000)
    s3.proxy.clear()
    with pytest.raises(DamagedFileError, match=r"s3a://bucket/.*\.run is not as it was written.*restore the file"):
        on_s3.open(name)
    assert s3.proxy.methods().count("GET") == 2
    on_s3.write(version_name(3), b"{}")
    with s3.open("").system.open_output_stream(on_s3._path(version_name(3))) as out:
        out.write(b"00000002 00000000\n{}".ljust(4096))
    with pytest.raises(DamagedFileError, match=r"0003\.json is damaged"):
        on_s3.read(version_name(3))


def test_errors_name_the_file_and_no_secret(s3: Server, on_s3: StoreFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdsl.run.state_files.remote._PAUSES", ())
    hidden = on_s3._store
    assert SECRET not in repr(hidden)
    assert SECRET not in hidden.hide(f"bad signature for {SECRET}")

    class Broken:
        def open_output_stream(self, path: str, compression: None) -> None:
            raise OSError(f"cannot write {path} with {SECRET}")

    object.__setattr__(hidden, "system", Broken())
    with pytest.raises(OSError, match=r"s3a://bucket/requests/.*0001\.json: cannot write") as error:
        on_s3.write(version_name(1), b"{}")
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_a_server_that_is_slow(s3: Server, on_s3: StoreFiles) -> None:
    s3.proxy.clear(lambda _, __: "slow")
    started = time.monotonic()
    on_s3.write(version_name(1), b"{}")
    assert on_s3.read(version_name(1)) == b"{}"
    assert time.monotonic() - started > 3.9
    assert s3.proxy.methods() == ["PUT", "GET"]
    s3.proxy.clear()
