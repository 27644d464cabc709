from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kdsl.client import key_files
from kdsl.client.jks import JksError, open_key, read_jks
from kdsl.client.machine import ThisMachine
from kdsl.client.stores import Store, StoreError, Which
from kdsl.client.translate import consumer_settings
from kdsl.testing.certificates import Certificates, StoreType
from tests.client.installed import create

PASSWORD = "pass word"
READ = ThisMachine()


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
    pem = READ.pem(store)

    assert pem.certificates.count("BEGIN CERTIFICATE") == 2  # the user's and the authority's in between
    assert pem.certificates.split() == keys.user("ann").chain.split()
    assert fits(pem.certificates, pem.key, tmp_path)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_the_authorities_of_a_trust_store_are_read(keys: Certificates, kind: StoreType) -> None:
    pem = READ.pem(Store("truststore", str(keys.trust_store(kind)), kind, PASSWORD))

    assert pem.certificates.split() == keys.authority.read_text().split()
    assert pem.key == ""


def test_a_jks_trust_store_needs_no_password_as_in_java(keys: Certificates) -> None:
    pem = READ.pem(Store("truststore", str(keys.trust_store("JKS")), "JKS"))

    assert pem.certificates.split() == keys.authority.read_text().split()


def test_a_key_of_another_password_than_its_store_is_opened(keys: Certificates, tmp_path: Path) -> None:
    store = tmp_path / "two.jks"
    store.write_bytes(keys.key_store("ann", "JKS").read_bytes())
    keys._keytool(
        *("-keypasswd", "-keystore", str(store), "-alias", "ann", "-storepass:env", "KDSL_STORE"),
        *("-keypass:env", "KDSL_STORE", "-new", "other one"),
    )
    pem = READ.pem(Store("keystore", str(store), "JKS", PASSWORD, "other one"))

    assert fits(pem.certificates, pem.key, tmp_path)
    with pytest.raises(StoreError, match="the password of the key is wrong"):
        READ.pem(Store("keystore", str(store), "JKS", PASSWORD))


@pytest.mark.parametrize("which", ["truststore", "keystore"])
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_wrong_password_is_told_and_not_repeated(keys: Certificates, which: Which, kind: StoreType) -> None:
    path = keys.trust_store(kind) if which == "truststore" else keys.key_store("ann", kind)

    with pytest.raises(StoreError, match=f"'ssl.{which}.location' {path} cannot be read: the password is wrong") as e:
        READ.pem(Store(which, str(path), kind, "HUSH"))

    assert "HUSH" not in str(e.value)
    assert e.value.__cause__ is None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda keys, folder: folder / "none.jks", "is no file on"),
        (lambda keys, folder: keys.authority, r"it is PEM; write ssl\.keystore\.type=PEM"),
        (lambda keys, folder: keys.trust_store("JKS"), "it holds no key"),
        (lambda keys, folder: keys.trust_store("PKCS12"), "it holds no key that this password opens"),
        (lambda keys, folder: write(folder, b"\xce\xce\xce\xce rest"), "it is a JCEKS store; convert it with keytool"),
        (lambda keys, folder: write(folder, keys.key_store("ann", "JKS").read_bytes()[:200]), "it ends too early"),
        (lambda keys, folder: write(folder, b"some text"), "neither a JKS nor a PKCS12 store"),
    ],
)
def test_a_store_that_cannot_be_read_says_why(
    keys: Certificates, tmp_path: Path, make: Callable[[Certificates, Path], Path], reason: str
) -> None:
    with pytest.raises(StoreError, match=reason):
        READ.pem(Store("keystore", str(make(keys, tmp_path)), "JKS", PASSWORD))


def write(folder: Path, data: bytes) -> Path:
    (folder / "store").write_bytes(data)
    return folder / "store"


@given(st.binary(max_size=300), st.sampled_from([b"", bytes.fromhex("feedfeed0000000200000001")]))
def test_garbage_is_an_error_and_nothing_else(data: bytes, head: bytes) -> None:
    with pytest.raises(JksError):
        read_jks(head + data, "x")
    with pytest.raises(JksError):
        open_key(data, "x")


def test_a_store_that_changed_is_read_again(keys: Certificates, tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(keys.key_store("ann", "JKS").read_bytes())
    first = READ.pem(Store("keystore", str(path), "JKS", PASSWORD))
    path.write_bytes(keys.key_store("bob", "JKS").read_bytes())

    assert READ.pem(Store("keystore", str(path), "JKS", PASSWORD)).key != first.key


def test_librdkafka_takes_what_java_s_stores_hold(keys: Certificates) -> None:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(keys.trust_store("JKS")),
        "ssl.keystore.location": str(keys.key_store("ann", "JKS")),
        "ssl.keystore.password": PASSWORD,
    }
    translated = consumer_settings(given, machine=READ)

    assert translated.problems == ()
    assert create("consumer", translated.merged()) == []


def test_a_private_file_is_its_owner_s_and_goes_with_the_process() -> None:
    path = key_files.private_file("chain.pem", b"text")

    assert path.read_bytes() == b"text"
    assert path.stat().st_mode & 0o77 == path.parent.stat().st_mode & 0o77 == 0
    assert key_files.private_file("chain.pem", b"text") == path
    assert key_files.private_file("chain.pem", b"other") != path


def test_a_file_address_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("x")

    assert key_files.local_path((tmp_path / "a b").as_uri()) == str(tmp_path / "a b")


def test_a_file_that_spark_ships_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.core.files import SparkFiles

    (tmp_path / "ca.pem").write_text("x")
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))

    assert key_files.local_path("/elsewhere/ca.pem") == str(tmp_path / "ca.pem")
    with pytest.raises(key_files.KeyFileError, match="or ship it with Spark"):
        key_files.local_path("/elsewhere/other.pem")


@pytest.fixture
def fetcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that fetches ``obs://``; every fetch is written down."""
    (tmp_path / "bucket_for_tests.py").write_text(
        "asked = []\n\ndef fetch(url):\n    asked.append(url)\n"
        "    if 'missing' in url:\n        raise RuntimeError('HUSH')\n    return url.encode()\n"
    )
    info = tmp_path / "bucket_for_tests-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bucket-for-tests\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[kdsl.files]\nobs = bucket_for_tests:fetch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    key_files.fetchers.cache_clear()
    yield
    key_files.fetchers.cache_clear()


@pytest.mark.usefixtures("fetcher")
def test_an_address_is_fetched_once_a_process() -> None:
    path = key_files.local_path("obs://bucket/x/client.jks")

    assert Path(path).read_text() == "obs://bucket/x/client.jks"
    assert Path(path).stat().st_mode & 0o77 == 0
    assert key_files.local_path("obs://bucket/x/client.jks") == path
    import bucket_for_tests  # type: ignore[import-not-found]

    assert bucket_for_tests.asked == ["obs://bucket/x/client.jks"]


@pytest.mark.usefixtures("fetcher")
def test_a_fetcher_that_fails_is_named_and_its_words_are_not_repeated() -> None:
    with pytest.raises(key_files.KeyFileError, match=r"the fetcher 'obs' .* failed with RuntimeError") as e:
        key_files.local_path("obs://bucket/missing")

    assert "HUSH" not in str(e.value)
    assert key_files.unreachable("obs://bucket/missing") is None
    assert "there are fetchers for 'obs'" in str(key_files.unreachable("oss://bucket/x"))
