"""How the registry client authenticates: with a user, a token, or tokens of an identity provider."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Generator

import httpx

from kdsl.registry.documents import LARGEST, read_bounded
from kdsl.registry.errors import RegistryError, RegistryRefusedError
from kdsl.registry.settings import OAuth, Settings, fits_header
from kdsl.secrets.hiding import redact_addresses

_RENEW_BEFORE = 30.0  # a token is renewed this many seconds before it expires


class Login(httpx.Auth):
    """Authenticates requests.

    Attributes:
        secrets: The credentials that it currently sends.
    """

    secrets: tuple[str, ...] = ()


def make_login(settings: Settings, http: httpx.Client) -> Login:
    """Create the object that adds the login to requests: basic, a fixed token, tokens of an identity provider, or none.

    A token is not requested before the first request.

    Args:
        settings: The settings, with references resolved.
        http: The client for requests to an identity provider.
    """
    if settings.basic is not None:
        return _Basic(*settings.basic)
    if settings.token is not None:
        return _Bearer(settings.token)
    if settings.oauth is not None:
        return _Tokens(settings.oauth, http)
    return Login()


class _Basic(Login):
    def __init__(self, user: str, password: str) -> None:
        self._signed = httpx.BasicAuth(user, password)
        self.secrets = (password, base64.b64encode(f"{user}:{password}".encode()).decode())

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add user and password to a request."""
        yield from self._signed.auth_flow(request)


class _Bearer(Login):
    def __init__(self, token: str) -> None:
        self.secrets = (token,)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the token to a request."""
        request.headers["Authorization"] = f"Bearer {self.secrets[0]}"
        yield request


class _Tokens(Login):
    """Tokens for client credentials (OAuth 2.0); each is used until shortly before it expires or is refused."""

    def __init__(self, oauth: OAuth, http: httpx.Client) -> None:
        self._oauth, self._http = oauth, http
        self._token, self._end = "", 0.0

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add a token to a request: the stored one, or a new one if that has expired or will soon.

        If the stored one is refused (HTTP 401), the request is sent once more with a new one.
        """
        fresh = time.monotonic() >= self._end
        if fresh:
            self._request_token()
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == httpx.codes.UNAUTHORIZED and not fresh:
            self._request_token()
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request

    def _request_token(self) -> None:
        """Request a token and store it.

        This does not happen within the request that needs the token, so that the size of the answer is limited.
        """
        request = self._create_token_request()
        response = self._http.send(request, stream=True, auth=None)
        try:
            self._store_token(response)
        finally:
            response.close()

    def _create_token_request(self) -> httpx.Request:
        """Create the request for a token, with the client's id and secret as they are in the settings."""
        form = {"grant_type": "client_credentials", **({"scope": self._oauth.scope} if self._oauth.scope else {})}
        asking = httpx.Request("POST", self._oauth.url, data=form, headers={"Accept": "application/json"})
        signed = httpx.BasicAuth(self._oauth.id, self._oauth.secret).auth_flow(asking)
        return next(signed)

    def _store_token(self, response: httpx.Response) -> None:
        """Store the token of an identity provider's answer, and when it expires; `secrets` then has the token, too."""
        at = f"the identity provider {redact_addresses(self._oauth.url)}"
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise httpx.ConnectError(f"{at} answers HTTP {response.status_code}", request=response.request)
        if response.status_code != httpx.codes.OK:
            raise RegistryRefusedError(
                f"{at} returns no token: HTTP {response.status_code}; check bearer.auth.client.id, "
                "bearer.auth.client.secret and bearer.auth.scope"
            )
        try:
            answer = json.loads(read_bounded(response, at, LARGEST))
            token = str(answer["access_token"])
            lasts = float(answer.get("expires_in") or 300)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            token, lasts = "", 0.0
        if not fits_header(token):
            raise RegistryError(
                f"{at} returns no token: its answer has no valid access_token; check that "
                "bearer.auth.issuer.endpoint.url is its token endpoint"
            )
        self._token, self.secrets = token, (self._oauth.secret, token)
        self._end = time.monotonic() + max(0.0, lasts - _RENEW_BEFORE)
