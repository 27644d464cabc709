"""Opens the file systems of states with the credentials of the session, or else with each cloud's default ones."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import parse_qs

import attrs

from kdsl.errors import KdslError
from kdsl.run.state_files.location import Location
from kdsl.secrets.hiding import hide_secrets, redact_addresses

Settings = Callable[[str], str | None]
"""Returns a setting of Hadoop by its name, such as ``fs.s3a.access.key``; None or an empty text if it is not set."""

_ATTEMPTS = 8
_SECONDS = 30.0
"""How long a request may go without an answer before it is repeated."""
_TRUE = ("true", "yes")


@attrs.frozen(eq=False)
class Store:
    """A file system, as states use it.

    Attributes:
        location: The folder of the states.
        system: The file system of pyarrow.
        secrets: The secrets of its settings, which are removed from its messages.
        reads_by_size: Whether reading without asking for the size saves a request.
        has_folders: Whether folders are more than a part of the names of files, so that there are none in a state.
        fewest: How many files are removed at once at least, where a removal has several requests.
        renames: Whether a file is seen while it is written, and must be renamed when it is complete.
    """

    location: Location
    system: Any
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    reads_by_size: bool = True
    has_folders: bool = False
    fewest: int = 32
    renames: bool = False

    @property
    def root(self) -> str:
        """The folder as a path of the file system."""
        return self.location.path if self.has_folders else f"{self._container}{self.location.path}"

    @property
    def _container(self) -> str:
        return self.location.authority.partition("@")[0]

    def hide(self, message: str) -> str:
        """Remove the secrets from a message of the file system."""
        return redact_addresses(hide_secrets(message, self.secrets))


def open_store(table: str, location: Location, settings: Settings) -> Store:
    """Open the file system of a folder; this makes no request, except to find the region of a bucket of S3.

    A KdslError is raised if the file system or a setting is not supported, or settings are missing.

    Args:
        table: The table's name, for messages.
        location: The folder.
        settings: The settings of Hadoop in the session.
    """
    opened = _OPENERS.get(location.scheme)
    if opened is None:
        raise KdslError(
            f"{table}: kdsl cannot keep rows on {location.scheme}:// ({location}); use a folder that all workers mount "
            "(file:/…, /Volumes/…), s3a://, gs://, abfss:// or hdfs://, for the checkpoint or as state_location= "
            "('scan.changelog.state.location')"
        )
    return opened(table, location, settings)


def _open_s3(table: str, location: Location, settings: Settings) -> Store:
    """Open a bucket of S3, or of another store with its interface, as Hadoop's S3A is configured."""
    bucket = location.authority

    def find(name: str) -> str | None:
        return settings(f"fs.s3a.bucket.{bucket}.{name}") or settings(f"fs.s3a.{name}") or None

    encryption = find("encryption.algorithm") or find("server-side-encryption-algorithm")
    if encryption not in (None, "AES256"):
        raise KdslError(
            f"{table}: fs.s3a.encryption.algorithm is {encryption}, which kdsl cannot apply to the files of its state; "
            f"make it the default encryption of a bucket, name that with state_location= "
            "('scan.changelog.state.location'), and remove the setting for it with "
            "fs.s3a.bucket.NAME.encryption.algorithm=AES256"
        )
    provider, role = find("aws.credentials.provider") or "", find("assumed.role.arn")
    arguments: dict[str, Any] = {}
    if provider.endswith("AnonymousAWSCredentialsProvider"):
        arguments["anonymous"] = True
    elif "AssumedRole" in provider and role:
        arguments |= {"role_arn": role, "session_name": find("assumed.role.session.name") or "kdsl"}
    else:
        access, secret = find("access.key"), find("secret.key")
        if (access is None) != (secret is None):
            present, missing = ("access", "secret") if access else ("secret", "access")
            raise KdslError(
                f"{table}: fs.s3a.{present}.key is set, but fs.s3a.{missing}.key is not; set both, or neither for the "
                "default credentials of AWS"
            )
        if access is not None:
            arguments |= {"access_key": access, "secret_key": secret, "session_token": find("session.token")}
    endpoint = find("endpoint")
    if endpoint is not None:
        scheme, has_scheme, host = endpoint.rpartition("://")
        secure = scheme == "https" if has_scheme else (find("connection.ssl.enabled") or "true").lower() in _TRUE
        arguments |= {"endpoint_override": host.rstrip("/"), "scheme": "https" if secure else "http"}
        by_path = (find("path.style.access") or "false").lower() in _TRUE
        arguments["force_virtual_addressing"] = not by_path and not host.partition(":")[0].replace(".", "").isdigit()
    if (proxy := find("proxy.host")) is not None:
        user, password = find("proxy.username"), find("proxy.password")
        secure = (find("proxy.ssl.enabled") or "false").lower() in _TRUE
        options = {"scheme": "https" if secure else "http", "host": proxy, "port": int(find("proxy.port") or 80)}
        arguments["proxy_options"] = tuple(
            {**options, **({"username": user, "password": password} if user else {})}.items()
        )
    region = find("endpoint.region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    arguments["region"] = region or (None if endpoint is None else "us-east-1")
    secrets = [find(name) for name in ("access.key", "secret.key", "session.token", "proxy.password")]
    system = _create_s3(bucket, tuple(sorted(arguments.items())))
    return Store(location, system, tuple(secret for secret in secrets if secret))


@cache
def _create_s3(bucket: str, arguments: tuple[tuple[str, Any], ...]) -> Any:
    """Create the file system of a bucket of S3; without a region, the bucket is asked for it."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    named = {name: value for name, value in arguments if value is not None}
    if "proxy_options" in named:
        named["proxy_options"] = dict(named["proxy_options"])
    if "region" not in named:
        named["region"] = resolve_s3_region(bucket)
    named |= {"request_timeout": _SECONDS, "connect_timeout": 10.0}
    named["retry_strategy"] = AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
    try:
        return S3FileSystem(**named, allow_delayed_open=True)
    except TypeError:  # before pyarrow 20; a write then has three requests
        return S3FileSystem(**named)


def _open_azure(table: str, location: Location, settings: Settings) -> Store:
    """Open a container of Azure, as Hadoop's ABFS is configured."""
    container, _, host = location.authority.rpartition("@")
    account, _, suffix = host.partition(".")
    if not (container and account and suffix):
        raise KdslError(
            f"{table}: {location} does not name a container and an account; write "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
        )
    suffix = suffix.partition(".")[2]  # after dfs. or blob.

    def find(name: str) -> str | None:
        hosts = dict.fromkeys((host, f"{account}.dfs.{suffix}", f"{account}.blob.{suffix}"))
        named = (settings(f"fs.azure.{name}.{of}") for of in hosts)
        return next(filter(None, named), None) or settings(f"fs.azure.{name}") or None

    arguments: dict[str, Any] = {
        "blob_storage_authority": f".blob.{suffix}",
        "dfs_storage_authority": f".dfs.{suffix}",
    }
    key, token = find("account.key"), find("sas.fixed.token")
    client, secret = find("account.oauth2.client.id"), find("account.oauth2.client.secret")
    if key is not None:
        arguments["account_key"] = key
    elif token is not None:
        arguments["sas_token"] = token
    elif client is not None and secret is not None:
        endpoint = find("account.oauth2.client.endpoint") or ""
        tenant = endpoint.partition("://")[2].partition("/")[2].partition("/")[0]
        if not tenant:
            raise KdslError(
                f"{table}: fs.azure.account.oauth2.client.id is set, but no tenant; set "
                "fs.azure.account.oauth2.client.endpoint to https://login.microsoftonline.com/TENANT/oauth2/token"
            )
        arguments |= {"client_id": client, "client_secret": secret, "tenant_id": tenant}
    elif client is not None:
        arguments["client_id"] = client
    system = _create_azure(table, account, tuple(sorted(arguments.items())))
    # Azure's messages quote URLs with the parts of the token.
    parts = [value for value, *_ in parse_qs(token or "").values() if len(value) > 20]
    return Store(location, system, tuple(value for value in (key, token, secret, *parts) if value), fewest=4)


@cache
def _create_azure(table: str, account: str, arguments: tuple[tuple[str, str], ...]) -> Any:
    """Create the file system of an account of Azure."""
    system = getattr(importlib.import_module("pyarrow.fs"), "AzureFileSystem", None)
    if system is None:
        raise KdslError(f"{table}: the installed pyarrow has no file system for Azure (abfss://); install pyarrow 20")
    return system(account_name=account, **dict(arguments))


def _open_gcs(table: str, location: Location, settings: Settings) -> Store:
    """Open a bucket of Google Cloud Storage, with the default credentials, which a file may contain."""
    chosen = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    names = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
    file = next(filter(None, map(settings, names)), None)
    if file is not None and file != chosen:
        raise KdslError(
            f"{table}: a file with a service account is set for gs:// ({file}), but kdsl's tasks find it only in the "
            "environment variable GOOGLE_APPLICATION_CREDENTIALS; set it for workers, as with "
            "spark.executorEnv.GOOGLE_APPLICATION_CREDENTIALS"
        )
    if settings("fs.gs.auth.service.account.private.key") or settings("fs.gs.auth.service.account.private.key.id"):
        raise KdslError(
            f"{table}: fs.gs.auth.service.account.private.key contains a key, which kdsl cannot use; write the service "
            "account to a file on the workers, and name it in the environment variable GOOGLE_APPLICATION_CREDENTIALS"
        )
    anonymous = (settings("fs.gs.auth.type") or "").upper() == "UNAUTHENTICATED" or (
        settings("fs.gs.auth.null.enable") or "false"
    ).lower() in _TRUE
    system = _create_gcs(anonymous, settings("fs.gs.storage.root.url") or None)
    return Store(location, system, reads_by_size=False, fewest=4)


@cache
def _create_gcs(anonymous: bool, url: str | None) -> Any:
    """Create the file system of Google Cloud Storage, or of another server with its interface."""
    from pyarrow.fs import GcsFileSystem

    if url is None:
        return GcsFileSystem(anonymous=anonymous)
    scheme, _, host = url.rpartition("://")
    return GcsFileSystem(anonymous=anonymous, scheme=scheme or "https", endpoint_override=host.rstrip("/"))


def _open_hdfs(table: str, location: Location, _: Settings) -> Store:
    """Open HDFS through Hadoop's library."""
    return Store(location, _create_hdfs(table, location.authority), (), False, True, 1, True)


@cache
def _create_hdfs(table: str, authority: str) -> Any:
    """Create the file system of HDFS."""
    from pyarrow.fs import HadoopFileSystem

    host, _, port = authority.partition(":")
    try:
        return HadoopFileSystem(host or "default", int(port or 0))
    except (OSError, ImportError) as e:
        raise KdslError(
            f"{table}: hdfs:// needs Hadoop's native library on every worker (libhdfs.so in ARROW_LIBHDFS_DIR or "
            f"HADOOP_HOME, and Hadoop's jars in CLASSPATH), which cannot be loaded: {e}; install it, or name another "
            "place with state_location= ('scan.changelog.state.location')"
        ) from None


_OPENERS: dict[str, Callable[[str, Location, Settings], Store]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _open_s3),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _open_azure),
    "gs": _open_gcs,
    "hdfs": _open_hdfs,
}
