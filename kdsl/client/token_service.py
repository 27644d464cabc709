"""Tokens of a Python function for librdkafka's OAUTHBEARER.

librdkafka asks an identity provider for tokens, and asks again before one expires. Where the tokens come from a
function of the user's, this process plays the identity provider: it answers on the loopback interface, to whoever names
the secret that only this process and its clients know. So consumers, producers and admin clients are all served alike.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from kdsl.client.key_files import local_path
from kdsl.client.token_server import Granted, Refused, TokenRequest, serve
from kdsl.errors import KdslError, nearest

Provider = Callable[..., str]
"""Gives a token (a JWT); takes the options of the login module as keyword arguments."""

_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*")
_lock = threading.Lock()
_served: dict[tuple[int, str, tuple[tuple[str, str], ...]], Endpoint] = {}


class TokenError(KdslError):
    """Tokens that cannot be had; the text names the function and the reason, never a token."""


@attrs.frozen
class Endpoint:
    """Where tokens are asked for, and by whom.

    Attributes:
        url: The address.
        id: The client's id.
        secret: The client's secret.
    """

    url: str
    id: str
    secret: str = attrs.field(repr=False)


def endpoint(provider: str, options: Mapping[str, str]) -> Endpoint:
    """Serve the tokens of a function, once a process.

    Args:
        provider: ``package.module:function``, or a ``file:`` address, whose content is the token.
        options: What the function is told, as keyword arguments.

    Raises:
        TokenError: There is no such function.
    """
    make = _from_file(provider) if provider.startswith("file:") else _function(provider)
    key = (os.getpid(), provider, tuple(sorted(options.items())))  # a thread does not outlive a fork
    with _lock:
        if key not in _served:
            _served[key] = _serve(provider, make, dict(options))
        return _served[key]


def _function(provider: str) -> Provider:
    module, _, name = provider.partition(":")
    try:
        found: Any = import_module(module)
    except ImportError as e:
        raise TokenError(
            f"the token provider {provider!r} cannot be imported: {e}; install it here, as on the driver"
        ) from None
    function = getattr(found, name, None)
    if not callable(function):
        raise TokenError(f"the module {module!r} has no function {name!r}{nearest(name, dir(found))}")
    made: Provider = function  # pyright: ignore[reportAssignmentType]
    return made


def _from_file(location: str) -> Provider:
    path = urlsplit(location).path

    def token(**_: str) -> str:
        return Path(local_path(path)).read_text(encoding="utf-8").strip()

    return token


def _serve(provider: str, make: Provider, options: Mapping[str, str]) -> Endpoint:
    name, secret, path = "kdsl", secrets.token_urlsafe(32), f"/{secrets.token_urlsafe(16)}"

    def answer(request: TokenRequest) -> Granted | Refused:
        shown = f"{request.client}:{request.secret}".encode()
        if request.path != path or not hmac.compare_digest(shown, f"{name}:{secret}".encode()):
            return Refused(401, "invalid_client")
        try:
            token: object = make(**options)
        except Exception as e:  # noqa: BLE001  # its text may hold what it was told
            return Refused(400, f"the token provider {provider!r} failed with {type(e).__name__}")
        if not isinstance(token, str) or not _JWT.fullmatch(token):
            return Refused(400, f"the token provider {provider!r} gave no JWT")
        return Granted(token)

    server = serve(answer)
    return Endpoint(f"http://127.0.0.1:{server.server_address[1]}{path}", name, secret)
