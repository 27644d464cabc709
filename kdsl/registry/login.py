"""How the client of a registry says who it is: a user, a token, or tokens of an identity provider."""

from __future__ import annotations

import time
from collections.abc import Generator

import httpx

from kdsl.registry.errors import RegistryError, RegistryRefusedError
from kdsl.registry.settings import OAuth, Settings

_BEFORE = 30.0  # seconds before its end in which a token is asked for anew


def login(settings: Settings) -> httpx.Auth | None:
    """What signs the requests; None where nobody has to."""
    if settings.basic is not None:
        return httpx.BasicAuth(*settings.basic)
    if settings.token is not None:
        return _Bearer(settings.token)
    if settings.oauth is not None:
        return _Tokens(settings.oauth)
    return None


class _Bearer(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class _Tokens(httpx.Auth):
    """Tokens for a client's credentials (OAuth 2.0); one is used until shortly before its end, or until refused."""

    requires_response_body = True

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._token, self._end = "", 0.0

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        fresh = time.monotonic() >= self._end
        if fresh:
            self._keep((yield self._asking()))
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == httpx.codes.UNAUTHORIZED and not fresh:
            self._keep((yield self._asking()))
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request

    def _asking(self) -> httpx.Request:
        form = {"grant_type": "client_credentials", **({"scope": self._oauth.scope} if self._oauth.scope else {})}
        asking = httpx.Request("POST", self._oauth.url, data=form, headers={"Accept": "application/json"})
        signed = httpx.BasicAuth(self._oauth.id, self._oauth.secret).auth_flow(asking)
        return next(signed)

    def _keep(self, response: httpx.Response) -> None:
        at = f"the identity provider {self._oauth.url}"
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise httpx.ConnectError(f"{at} answers HTTP {response.status_code}", request=response.request)
        if response.status_code != httpx.codes.OK:
            raise RegistryRefusedError(
                f"{at} gives no token: HTTP {response.status_code}; see bearer.auth.client.id, "
                "bearer.auth.client.secret and bearer.auth.scope"
            )
        try:
            answer = response.json()
            self._token = str(answer["access_token"])
            lasts = float(answer.get("expires_in") or 300)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RegistryError(f"{at} gives no token: its answer has no access_token") from None
        self._end = time.monotonic() + max(0.0, lasts - _BEFORE)
