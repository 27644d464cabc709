"""Tokens of Amazon MSK's IAM: a request for ``kafka-cluster:Connect``, signed with the credentials of this process.

AWS's own signer creates them; this module finds the credentials that the options of Java's login module describe, and
the region. A token is not a JWT, so its end is returned with it.

The signer: https://github.com/aws/aws-msk-iam-sasl-signer-python. The options:
https://github.com/aws/aws-msk-iam-auth.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kdsl.client_settings.cloud_logins import SERVERS, explain_failure, import_library
from kdsl.client_settings.token_errors import TokenError

NAME = "aws_msk_iam"
SESSION_NAME = "aws-msk-iam-auth"
"""The session name of an assumed role, as in Java. It must stay the same: it is part of the principal, and brokers
refuse a login that is renewed with another principal."""
LIFE = 600.0
"""For how many seconds a token is used at most; librdkafka requests the next one after 80 % of them. A token is valid
for 900 seconds, but only as long as the credentials that signed it, which botocore renews when 10 minutes are left."""
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")

_renewable: dict[tuple[int, tuple[tuple[str, str], ...]], Any] = {}
"""The credentials that botocore renews, by process (their locks do not survive a fork) and options."""


def provide_token(**options: str) -> tuple[str, float]:
    """Sign a token.

    Args:
        options: The options of the login module, and ``servers``.

    Returns:
        The token, and when to replace it, in seconds since 1970.
    """
    session, botocore_credentials, signer = _open_session(options)
    key = (os.getpid(), tuple(sorted(options.items())))
    try:
        credentials = _renewable.get(key) or _find_credentials(session, botocore_credentials, options)
        if hasattr(credentials, "refresh_needed"):  # others may change, such as those in a file
            _renewable[key] = credentials
        token, expires = _sign(signer, botocore_credentials, credentials, _find_region(session, options))
    except TokenError:
        raise
    except Exception as e:  # noqa: BLE001  # botocore's errors have no common base with those of urllib3
        raise explain_failure(NAME, e, options) from None
    return token, min(expires, _now().timestamp() + LIFE)


def _open_session(options: Mapping[str, str]) -> tuple[Any, Any, Any]:
    """Return a session of botocore for the profile of the options, its module of credentials, and AWS's signer."""
    botocore_session, botocore_credentials, signer = import_library(
        NAME, "botocore.session", "botocore.credentials", "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
    )
    return botocore_session.Session(profile=options.get("awsProfileName")), botocore_credentials, signer


def _find_credentials(session: Any, botocore_credentials: Any, options: Mapping[str, str]) -> Any:
    """Find the credentials that the options describe; those of a role are fetched at their first use, and renewed."""
    role = options.get("awsRoleArn")
    own = [options.get(f"awsRole{name}") for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
    source = botocore_credentials.Credentials(*own) if role and own[0] and own[1] else session.get_credentials()
    if source is None:
        (exceptions,) = import_library(NAME, "botocore.exceptions")
        raise exceptions.NoCredentialsError
    if not role:
        return source
    region = options.get("awsStsRegion") or _find_region(session, options)
    more = {"RoleSessionName": options.get("awsRoleSessionName", SESSION_NAME)}
    if external := options.get("awsRoleExternalId"):
        more["ExternalId"] = external

    def create_client(service: str, **settings: Any) -> Any:
        return session.create_client(service, region_name=region, **settings)

    fetcher = botocore_credentials.AssumeRoleCredentialFetcher(create_client, source, role, more)
    return botocore_credentials.DeferredRefreshableCredentials(
        fetcher.fetch_credentials, "assume-role", time_fetcher=lambda: _now()
    )


def _now() -> datetime:
    """The present time in UTC, with which the ends of credentials and tokens are compared."""
    return datetime.now(UTC)


def _find_region(session: Any, options: Mapping[str, str]) -> str:
    """Find the region: of the brokers' names, else of AWS_REGION, else of botocore's settings."""
    match = _HOST.search(options.get(SERVERS, ""))
    region = match[1] if match else os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not region:
        raise TokenError(
            "the region of Amazon MSK's IAM is not known: the names in bootstrap.servers contain none; set AWS_REGION "
            "for the driver and the executors (spark.executorEnv.AWS_REGION)"
        )
    return str(region)


def _sign(signer: Any, botocore_credentials: Any, credentials: Any, region: str) -> tuple[str, float]:
    """Sign a token with the current credentials; return it and when it expires, in seconds since 1970.

    Credentials of a role are fetched or renewed first, if that is due; errors of botocore are passed on.
    """

    class Current(botocore_credentials.CredentialProvider):  # type: ignore[misc]  # a module imported at run time
        def load(self) -> Any:
            return credentials.get_frozen_credentials()

    token, expires = signer.generate_auth_token_from_credentials_provider(region, Current())
    return str(token), expires / 1000
