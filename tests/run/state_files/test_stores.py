"""Which settings of a session reach pyarrow's file systems."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from kdsl.errors import KdslError
from kdsl.run.state_files import stores
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.stores import open_store


def s3_arguments(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], **environment: str) -> dict[str, Any]:
    """The arguments with which S3's file system is created."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    passed: dict[str, Any] = {}
    monkeypatch.setattr(stores, "_create_s3", lambda _, arguments: passed.update(arguments))
    open_store("t", Location.parse("s3a://bucket/x"), settings.get)
    return {name: value for name, value in passed.items() if value is not None}


def test_s3_takes_the_settings_of_s3a(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"fs.s3a.access.key": "A", "fs.s3a.secret.key": "S"}
    assert s3_arguments(monkeypatch, {}) == {}
    assert s3_arguments(monkeypatch, keys, AWS_REGION="eu-west-1") == {
        "access_key": "A",
        "secret_key": "S",
        "region": "eu-west-1",
    }
    of_bucket = {"fs.s3a.bucket.bucket.secret.key": "T", "fs.s3a.bucket.other.access.key": "B"}
    of_bucket["fs.s3a.session.token"] = "U"
    assert s3_arguments(monkeypatch, {**keys, **of_bucket}) == {
        "access_key": "A",
        "secret_key": "T",
        "session_token": "U",
    }
    server = {"fs.s3a.endpoint": "minio.example:9000", "fs.s3a.connection.ssl.enabled": "false"}
    assert s3_arguments(monkeypatch, {**server, "fs.s3a.path.style.access": "true"}) == {
        "endpoint_override": "minio.example:9000",
        "scheme": "http",
        "force_virtual_addressing": False,
        "region": "us-east-1",
    }
    assert s3_arguments(monkeypatch, {"fs.s3a.endpoint": "https://s3.example/", "fs.s3a.endpoint.region": "r"}) == {
        "endpoint_override": "s3.example",
        "scheme": "https",
        "force_virtual_addressing": True,
        "region": "r",
    }
    anonymous = {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}
    assert s3_arguments(monkeypatch, {**anonymous, **keys}) == {"anonymous": True}
    role = {"fs.s3a.aws.credentials.provider": "x.AssumedRoleCredentialProvider", "fs.s3a.assumed.role.arn": "arn:r"}
    assert s3_arguments(monkeypatch, role) == {"role_arn": "arn:r", "session_name": "kdsl"}


@pytest.mark.parametrize(
    ("location", "settings", "message"),
    [
        ("ftp://host/x", {}, r"cannot keep rows on ftp:// \(ftp://host/x\); use a folder"),
        ("dbfs:/x", {}, "cannot keep rows on dbfs://"),
        ("s3a://b/x", {"fs.s3a.access.key": "SECRETKEY"}, r"access\.key is set, but fs\.s3a\.secret\.key is not"),
        ("s3a://b/x", {"fs.s3a.secret.key": "SECRETKEY"}, r"secret\.key is set, but fs\.s3a\.access\.key is not"),
        ("s3a://b/x", {"fs.s3a.encryption.algorithm": "SSE-C"}, "is SSE-C, which kdsl cannot apply"),
        ("abfss://box/x", {}, "does not name a container and an account"),
        (
            "abfss://c@a.dfs.core.windows.net/x",
            {"fs.azure.account.oauth2.client.id": "i", "fs.azure.account.oauth2.client.secret": "SECRETKEY"},
            "but no tenant",
        ),
        ("gs://b/x", {"fs.gs.auth.service.account.json.keyfile": "/k.json"}, "GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://b/x", {"fs.gs.auth.service.account.private.key": "SECRETKEY"}, "contains a key, which kdsl cannot use"),
    ],
)
def test_what_is_refused(location: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(KdslError, match=message) as error:
        open_store("t", Location.parse(location), settings.get)
    assert str(error.value).startswith("t: ")
    assert "SECRETKEY" not in str(error.value)


def test_hdfs_without_its_library_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(KdslError, match=r"hdfs:// needs Hadoop's native library .*libhdfs\.so"):
        open_store("t", Location.parse("hdfs://name:8020/x"), lambda _: None)


def test_the_parts_of_a_token_are_hidden_in_messages() -> None:
    signature = "aB3/dE+f1234567890abcdefghij0123456789="
    token = f"sv=2022-11-02&se=2030-01-01&sp=rw&sig={quote(signature, safe='')}"
    location = Location.parse("abfss://box@acc.dfs.core.windows.net/x")
    store = open_store("t", location, {"fs.azure.sas.fixed.token": token}.get)
    for form in (signature, quote(signature, safe=""), quote(signature, safe="/"), token):
        assert form not in store.hide(f"failed: 'https://acc.blob.core.windows.net/box/x?sp=rw&sig={form}'")


def azure_arguments(monkeypatch: pytest.MonkeyPatch, location: str, settings: dict[str, str]) -> dict[str, str]:
    passed: dict[str, str] = {}
    monkeypatch.setattr(
        stores, "_create_azure", lambda _, account, arguments: passed.update(dict(arguments), account=account)
    )
    store = open_store("t", Location.parse(location), settings.get)
    assert store.root == "box/x"
    return passed


def test_azure_takes_the_settings_of_abfs(monkeypatch: pytest.MonkeyPatch) -> None:
    location = "abfss://box@acc.dfs.core.windows.net/x"
    hosts = {
        "account": "acc",
        "blob_storage_authority": ".blob.core.windows.net",
        "dfs_storage_authority": ".dfs.core.windows.net",
    }
    assert azure_arguments(monkeypatch, location, {}) == hosts
    key = {"fs.azure.account.key.acc.dfs.core.windows.net": "K"}
    assert azure_arguments(monkeypatch, location, key) == {**hosts, "account_key": "K"}
    old = location.replace("abfss", "wasbs").replace("dfs", "blob")
    assert azure_arguments(monkeypatch, old, key) == {**hosts, "account_key": "K"}
    assert azure_arguments(monkeypatch, location, {"fs.azure.sas.fixed.token": "T"}) == {**hosts, "sas_token": "T"}
    login = {
        "fs.azure.account.oauth2.client.id": "I",
        "fs.azure.account.oauth2.client.secret": "S",
        "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/TENANT/oauth2/token",
    }
    assert azure_arguments(monkeypatch, location, login) == {
        **hosts,
        "client_id": "I",
        "client_secret": "S",
        "tenant_id": "TENANT",
    }
