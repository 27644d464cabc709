"""Tokens of Google Cloud, for its Managed Service for Apache Kafka: the access token within a JWT of Google's kind.

The brokers accept no plain access token. They expect three parts, as Google's own clients send them: a header with the
algorithm ``GOOG_OAUTH2_TOKEN``, claims, and the access token. https://github.com/googleapis/managedkafka
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC
from functools import lru_cache
from threading import Lock
from typing import Any

from kdsl.client_settings.cloud_logins import explain_failure, import_library
from kdsl.client_settings.token_errors import TokenError

NAME = "gcp"
PRINCIPAL = "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"
"""The environment variable for the account, as in Google's Java library."""
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_HEADER = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
_lock = Lock()


def provide_token(**options: str) -> str:
    """Return a token for the brokers: the access token of the default credentials, with its account and its end.

    Header, claims and access token are in base64, joined by dots, as Google's own login handler for Kafka sends them.
    google-auth renews the credentials before they expire.

    Args:
        options: ``principal``, the account, by default that of the environment variable (`PRINCIPAL`), else of the
            credentials; other options are ignored.
    """
    try:
        with _lock:  # google-auth's credentials may be refreshed by one thread at a time
            credentials, request = _credentials(os.getpid())
            if not credentials.valid:
                credentials.refresh(request)
    except TokenError:
        raise
    except Exception as e:  # noqa: BLE001  # those of google-auth and requests have no common base
        raise explain_failure(NAME, e, options) from None
    account = options.get("principal") or os.environ.get(PRINCIPAL) or _account(credentials)
    if credentials.expiry is None:
        raise TokenError(
            "Google Cloud's credentials do not say when their token expires, which the brokers must know; use those of "
            "a service account or of a user (GOOGLE_APPLICATION_CREDENTIALS)"
        )
    if not account:
        raise TokenError(
            f"the account of Google Cloud's credentials is not known; set {PRINCIPAL}, or write the option principal"
        )
    claims = {
        "exp": int(credentials.expiry.replace(tzinfo=UTC).timestamp()),
        "iss": "Google",
        "iat": int(time.time()),
        "scope": "kafka",
        "sub": account,
    }
    return ".".join([_encode_json(_HEADER), _encode_json(claims), _encode(credentials.token.encode())])


def _account(credentials: Any) -> str:
    """The account of some credentials; empty if they do not name one."""
    return str(getattr(credentials, "service_account_email", None) or getattr(credentials, "account", None) or "")


@lru_cache(maxsize=2)
def _credentials(_: int) -> tuple[Any, Any]:
    """Find the application default credentials, once in each process, and what refreshes them."""
    auth, requests = import_library(NAME, "google.auth", "google.auth.transport.requests")
    return auth.default(scopes=[_SCOPE])[0], requests.Request()


def _encode(data: bytes) -> str:
    """Encode one part of a JWT in Base64, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _encode_json(document: Mapping[str, object]) -> str:
    """Encode a JSON document as one part of a JWT."""
    return _encode(json.dumps(document).encode())
