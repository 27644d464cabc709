from __future__ import annotations

import os
import shutil
import ssl
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kdsl.client_settings import key_files
from kdsl.client_settings.jks import JksError, decrypt_key, read_jks
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.stores import Store, StoreError, Which
from kdsl.client_settings.to_java import java_settings
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.cluster import Registry
from kdsl.registry.settings import read_settings
from kdsl.registry.tls import make_context
from kdsl.testing.certificates import Certificates, StoreType
from tests.client_settings.installed import create
from tests.installed_plugins import InstallPlugins

PASSWORD = "pass word"
READ = Machine()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("keys") / "keys", PASSWORD)


def fits(certificates: str, key: str, folder: Path) -> bool:
    """Whether OpenSSL takes a chain and its key for a pair."""
    (folder / "chain").write_text(certificates)
    (folder / "key").write_text(key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(folder / "chain", folder / "key")
    return True


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("declared", ["JKS", "PKCS12"])
def test_a_store_is_read_whatever_type_was_declared(
    keys: Certificates, tmp_path: Path, kind: StoreType, declared: str
) -> None:
    store = Store("keystore", str(keys.key_store("ann", kind)), declared, PASSWORD)
    pem = READ.read_store(store)

    assert pem.certificates.count("BEGIN CERTIFICATE") == 2  # the user's and the authority's in between
    assert pem.certificates.split() == keys.user("ann").chain.split()
    assert fits(pem.certificates, pem.key, tmp_path)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_the_authorities_of_a_trust_store_are_read(keys: Certificates, kind: StoreType) -> None:
    pem = READ.read_store(Store("truststore", str(keys.trust_store(kind)), kind, PASSWORD))

    assert pem.certificates.split() == keys.authority.read_text().split()
    assert pem.key == ""


def test_a_jks_trust_store_needs_no_password_as_in_java(keys: Certificates) -> None:
    pem = READ.read_store(Store("truststore", str(keys.trust_store("JKS")), "JKS"))

    assert pem.certificates.split() == keys.authority.read_text().split()


def test_a_key_of_another_password_than_its_store_is_opened(keys: Certificates, tmp_path: Path) -> None:
    store = tmp_path / "two.jks"
    store.write_bytes(keys.key_store("ann", "JKS").read_bytes())
    keys._keytool(
        *("-keypasswd", "-keystore", str(store), "-alias", "ann", "-storepass:env", "KDSL_STORE"),
        *("-keypass:env", "KDSL_STORE", "-new", "other one"),
    )
    pem = READ.read_store(Store("keystore", str(store), "JKS", PASSWORD, "other one"))

    assert fits(pem.certificates, pem.key, tmp_path)
    with pytest.raises(StoreError, match="the password of the key is wrong"):
        READ.read_store(Store("keystore", str(store), "JKS", PASSWORD))


@pytest.mark.parametrize("which", ["truststore", "keystore"])
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_wrong_password_is_reported_without_the_password(keys: Certificates, which: Which, kind: StoreType) -> None:
    path = keys.trust_store(kind) if which == "truststore" else keys.key_store("ann", kind)

    with pytest.raises(StoreError, match=f"'ssl.{which}.location' {path} cannot be read: the password is wrong") as e:
        READ.read_store(Store(which, str(path), kind, "HUSH"))

    assert "HUSH" not in str(e.value)
    assert e.value.__cause__ is None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda keys, folder: folder / "none.jks", "is not a file on"),
        (lambda keys, folder: keys.authority, r"it is PEM; write ssl\.keystore\.type=PEM"),
        (lambda keys, folder: keys.trust_store("JKS"), "it contains no key"),
        (lambda keys, folder: keys.trust_store("PKCS12"), "it contains no key that this password opens"),
        (lambda keys, folder: write(folder, b"\xce\xce\xce\xce rest"), "it is a JCEKS store; convert it with keytool"),
        (lambda keys, folder: write(folder, keys.key_store("ann", "JKS").read_bytes()[:200]), "it ends too early"),
        (lambda keys, folder: write(folder, b"some text"), "neither a JKS nor a PKCS12 store"),
    ],
)
def test_the_reason_why_a_store_cannot_be_read_is_reported(
    keys: Certificates, tmp_path: Path, make: Callable[[Certificates, Path], Path], reason: str
) -> None:
    with pytest.raises(StoreError, match=reason):
        READ.read_store(Store("keystore", str(make(keys, tmp_path)), "JKS", PASSWORD))


def test_a_key_without_a_certificate_is_skipped(tmp_path: Path) -> None:
    entry = struct.pack(">IH", 1, 3) + b"ann" + bytes(8) + struct.pack(">I", 2) + b"\x30\x00" + struct.pack(">I", 0)
    path = write(tmp_path, struct.pack(">III", 0xFEEDFEED, 2, 1) + entry)

    with pytest.raises(StoreError, match="it contains no certificate of an authority"):
        READ.read_store(Store("truststore", str(path), "JKS"))


def write(folder: Path, data: bytes) -> Path:
    (folder / "store").write_bytes(data)
    return folder / "store"


@given(st.binary(max_size=300), st.sampled_from([b"", bytes.fromhex("feedfeed0000000200000001")]))
def test_garbage_is_an_error_and_nothing_else(data: bytes, head: bytes) -> None:
    with pytest.raises(JksError):
        read_jks(head + data, "x")
    with pytest.raises(JksError):
        decrypt_key(data, "x")


def test_a_store_that_changed_is_read_again(keys: Certificates, tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(keys.key_store("ann", "JKS").read_bytes())
    first = READ.read_store(Store("keystore", str(path), "JKS", PASSWORD))
    path.write_bytes(keys.key_store("bob", "JKS").read_bytes())

    assert READ.read_store(Store("keystore", str(path), "JKS", PASSWORD)).key != first.key


def test_librdkafka_accepts_the_content_of_java_s_stores(keys: Certificates) -> None:
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(keys.trust_store("JKS")),
        "ssl.keystore.location": str(keys.key_store("ann", "JKS")),
        "ssl.keystore.password": PASSWORD,
    }
    translated = librdkafka_settings(settings, "consumer", machine=READ)

    assert translated.problems == ()
    assert create("consumer", translated.client_config()) == []


def test_a_private_file_is_its_owner_s_and_goes_with_the_process() -> None:
    path = key_files.write_private_file("chain.pem", b"text")

    assert path.read_bytes() == b"text"
    assert path.stat().st_mode & 0o77 == path.parent.stat().st_mode & 0o77 == 0
    assert key_files.write_private_file("chain.pem", b"text") == path
    assert key_files.write_private_file("chain.pem", b"other") != path


def test_a_file_address_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("x")

    assert key_files.find_file((tmp_path / "a b").as_uri()) == str(tmp_path / "a b")


def test_a_file_that_spark_ships_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.core.files import SparkFiles

    (tmp_path / "ca.pem").write_text("x")
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))

    assert key_files.find_file("/elsewhere/ca.pem") == str(tmp_path / "ca.pem")
    with pytest.raises(key_files.KeyFileError, match="or ship it with Spark"):
        key_files.find_file("/elsewhere/other.pem")


BUCKET = """
from pathlib import Path

asked = []

def fetch(url):
    asked.append(url)
    if "missing" in url:
        raise RuntimeError("HUSH")
    document, _, path = url.partition("#")
    return Path(path).read_bytes() if path else document.encode()
"""


@pytest.fixture
def fetcher(tmp_path: Path, install_plugins: InstallPlugins) -> None:
    """An installed package that fetches ``obs://``; every fetch is written down."""
    (tmp_path / "bucket_for_tests.py").write_text(BUCKET)
    install_plugins({"kdsl.files": {"obs": "bucket_for_tests:fetch"}})
    sys.modules.pop("bucket_for_tests", None)


@pytest.mark.usefixtures("fetcher")
def test_an_address_is_fetched_once_a_process() -> None:
    path = key_files.find_file("obs://bucket/x/client.jks")

    assert Path(path).read_text() == "obs://bucket/x/client.jks"
    assert Path(path).stat().st_mode & 0o77 == 0
    assert key_files.find_file("obs://bucket/x/client.jks") == path
    import bucket_for_tests  # type: ignore[import-not-found]

    assert bucket_for_tests.asked == ["obs://bucket/x/client.jks"]


@pytest.mark.usefixtures("fetcher")
def test_a_fetcher_that_fails_is_named_and_its_words_are_not_repeated() -> None:
    with pytest.raises(key_files.KeyFileError, match=r"the fetcher 'obs' .* failed with RuntimeError") as e:
        key_files.find_file("obs://bucket/missing")

    assert "HUSH" not in str(e.value)
    assert key_files.explain_unreachable("obs://bucket/missing") is None
    assert "there are fetchers for 'obs'" in str(key_files.explain_unreachable("oss://bucket/x"))


def test_a_fetcher_that_cannot_be_imported_says_what_to_do(tmp_path: Path, install_plugins: InstallPlugins) -> None:
    (tmp_path / "broken_bucket.py").write_text("raise RuntimeError('HUSH')")
    install_plugins({"kdsl.files": {"obs": "broken_bucket:fetch"}})

    with pytest.raises(key_files.KeyFileError, match=r"'plugins-for-tests'.* RuntimeError.*install what it needs") as e:
        key_files.find_file("obs://bucket/broken")
    assert "HUSH" not in "".join(traceback.format_exception(e.value))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which this process, and its forks, make files; this process has none in it yet."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(key_files, "_folder", None)
    return folder


def in_a_fork(step: Callable[[], str]) -> str:
    """What a step gives in a fork that ends as PySpark's workers do, without any exit handler."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, step().encode())
        except BaseException as e:  # noqa: BLE001
            os.write(write, repr(e).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as message:
        rows = message.read()
    os.waitpid(pid, 0)
    return rows


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("password", [None, "key-secret"])
def test_a_key_is_on_disk_only_while_it_is_read(keys: Certificates, temporary: Path, password: str | None) -> None:
    pair = keys.user("ann")
    read: list[tuple[int, int]] = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, certfile: Any, keyfile: Any = None, password: Any = None) -> None:
            read.append((Path(certfile).stat().st_mode & 0o777, Path(certfile).parent.stat().st_mode & 0o777))
            super().load_cert_chain(certfile, keyfile, password)

    key_files.load_key(Context(ssl.PROTOCOL_TLS_CLIENT), pair.chain + pair.key_pem(password), password)
    with pytest.raises(ssl.SSLError):
        key_files.load_key(Context(ssl.PROTOCOL_TLS_CLIENT), keys.user("bob").chain + pair.key_pem())

    assert read == [(0o600, 0o700)] * 2
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("fetcher")
@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_a_worker_that_ends_at_once_leaves_no_key(keys: Certificates, temporary: Path, kind: StoreType) -> None:
    store = keys.key_store("ann", kind)
    passwords = {} if kind == "PEM" else {"ssl.keystore.password": PASSWORD}
    sample = {"ssl.keystore.location": f"obs://bucket/store#{store}", "ssl.keystore.type": kind, **passwords}

    def work() -> str:
        settings, problems = read_settings(Registry("https://registry", sample))
        result = make_context(settings.tls)
        kafka = librdkafka_settings({"security.protocol": "SSL", **sample}, "consumer", machine=READ)
        return str((problems, kafka.problems, result.get_ca_certs() is not None, "ssl.key.pem" in kafka.settings))

    assert in_a_fork(work) == "((), (), True, True)"
    assert ["PRIVATE KEY" in path.read_text() for path in files(temporary)] == [False]  # the chain for librdkafka


@pytest.mark.usefixtures("fetcher")
def test_a_fork_has_its_own_copy_of_what_was_fetch(temporary: Path) -> None:
    parent = key_files.find_file("obs://bucket/fork/client.jks")

    child = in_a_fork(lambda: key_files.find_file("obs://bucket/fork/client.jks"))

    assert Path(child).parent != Path(parent).parent
    assert Path(child).read_bytes() == Path(parent).read_bytes()


def test_folders_of_ended_processes_are_removed(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = Path(in_a_fork(lambda: str(key_files.write_private_file("chain.pem", b"text")))).parent
    mine = key_files._create_folder()
    parts = mine.name.split("-")
    another_start = temporary / "-".join([*parts[:4], "1", "x"])
    another_machine = temporary / "-".join([*parts[:2], "00000000", *left.name.split("-")[3:]])
    others = temporary / "kdsl-keys-somebody"
    link = temporary / "-".join([*parts[:3], "999999999", "1", "x"])
    for folder in (another_start, another_machine, others):
        folder.mkdir()
    link.symlink_to(others)
    monkeypatch.setattr(key_files, "_folder", None)

    now = key_files.write_private_file("chain.pem", b"text").parent

    assert sorted(temporary.iterdir()) == sorted([now, mine, another_machine, others, link])
    assert not left.exists()


def test_a_removed_folder_is_created_again(temporary: Path) -> None:
    first = key_files.write_private_file("chain.pem", b"text")
    shutil.rmtree(first.parent)

    assert key_files.write_private_file("chain.pem", b"text").read_bytes() == b"text"


@pytest.mark.usefixtures("fetcher")
def test_a_pem_store_that_is_fetched_goes_into_java_s_settings(keys: Certificates, temporary: Path) -> None:
    location = f"obs://bucket/store#{keys.key_store('ann', 'PEM')}"
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": location,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"obs://bucket/store#{keys.authority}",
    }

    java = java_settings(settings, "consumer", machine=READ)

    assert java.problems == ()
    assert java.settings["ssl.keystore.certificate.chain"].split() == keys.user("ann").chain.split()
    assert "PRIVATE KEY" in java.settings["ssl.keystore.key"]
    assert java.settings["ssl.truststore.certificates"].split() == keys.authority.read_text().split()
    assert files(temporary) == []
    assert java.settings.keys().isdisjoint({"ssl.keystore.location", "ssl.truststore.location"})


@pytest.mark.usefixtures("fetcher")
def test_a_pem_store_that_is_fetched_without_the_pem_it_needs_is_a_problem(keys: Certificates) -> None:
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"obs://bucket/store#{keys.authority}",
    }

    (problem,) = java_settings(settings, "consumer", machine=READ).problems

    assert problem.code == "tls-pem"
    assert "holds no PEM block PRIVATE KEY" in problem.message
