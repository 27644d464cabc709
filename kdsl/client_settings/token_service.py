"""Tokens of a Python function for librdkafka's OAUTHBEARER.

librdkafka requests tokens from an identity provider, and requests another before one expires. If the tokens come from a
Python function, this process acts as the identity provider: it answers on the loopback interface, to requests with the
secret that only this process and its clients know. Consumers, producers and admin clients all work this way.
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
from urllib.parse import unquote, urlsplit

import attrs

from kdsl.client_settings.cloud_logins import CLOUDS
from kdsl.client_settings.key_files import find_file
from kdsl.client_settings.token_errors import TokenError
from kdsl.client_settings.token_server import Granted, Refused, TokenRequest, serve
from kdsl.errors import nearest

Provider = Callable[..., str]
"""Returns a token (a JWT); gets the options of the login module as keyword arguments."""

_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*")
_lock = threading.Lock()
_endpoints: dict[tuple[int, str, tuple[tuple[str, str], ...]], Endpoint] = {}


@attrs.frozen
class Endpoint:
    """Where to request tokens, and with which credentials.

    Attributes:
        url: The URL.
        id: The client's id.
        secret: The client's secret.
    """

    url: str
    id: str
    secret: str = attrs.field(repr=False)


def serve_tokens(provider: str, options: Mapping[str, str]) -> Endpoint:
    """Serve the tokens of a function, once per process for each function with its options, and return where.

    The function's module is imported, and a server is started that runs until the process ends.

    Args:
        provider: ``package.module:function``, a ``file:`` URL, whose content is the token, or the name of a cloud's
            login, whose first token is created at once, so that a failure is reported with its reason.
        options: The keyword arguments of the function.

    Raises:
        TokenError: The function does not exist, or its module cannot be imported, or a cloud returns no token. Whether
            a file exists is only known when a token is requested.
        OSError: No server can be started.
    """
    cloud = CLOUDS.get(provider)
    if cloud is not None:
        make = _import_provider(cloud.function)
        make(**options)
    else:
        make = _file_provider(provider) if provider.lower().startswith("file:") else _import_provider(provider)
    key = (os.getpid(), provider, tuple(sorted(options.items())))  # a thread does not outlive a fork
    with _lock:
        if key not in _endpoints:
            _endpoints[key] = _serve(provider, make, dict(options))
        return _endpoints[key]


def _import_provider(provider: str) -> Provider:
    """Import the function of a token provider, named as ``module:function``."""
    module, _, name = provider.partition(":")
    try:
        imported: Any = import_module(module)
    except Exception as e:  # noqa: BLE001  # the module's own; its message may contain a token
        reason = e if isinstance(e, ImportError) else type(e).__name__
        raise TokenError(
            f"the token provider {provider!r} cannot be imported: {reason}; install it here, as on the driver"
        ) from None
    function = getattr(imported, name, None)
    if not callable(function):
        raise TokenError(
            f"the token provider {provider!r} cannot be used: the module {module!r} has no function {name!r}"
            f"{nearest(name, dir(imported))}; name one of its functions"
        )
    provider_function: Provider = function  # pyright: ignore[reportAssignmentType]
    return provider_function


def _file_provider(location: str) -> Provider:
    """Return a provider that reads the token from the file of a ``file:`` URL at each call; only calls raise errors."""
    path = unquote(urlsplit(location).path)

    def token(**_: str) -> str:
        return Path(find_file(path)).read_text(encoding="utf-8").strip()

    return token


def _serve(provider: str, make: Provider, options: Mapping[str, str]) -> Endpoint:
    """Start a service on the loopback address for a provider's tokens; return its URL and its clients' credentials.

    The provider is not called before the first request. OSError if no server can be started.
    """
    name = provider if provider in CLOUDS else "kdsl"
    secret, path = secrets.token_urlsafe(32), f"/{secrets.token_urlsafe(16)}"

    def answer(request: TokenRequest) -> Granted | Refused:
        shown = f"{request.client}:{request.secret}".encode()
        if request.path != path or not hmac.compare_digest(shown, f"{name}:{secret}".encode()):
            return Refused(401, "invalid_client")
        try:
            token: object = make(**options)
        except TokenError as e:  # a cloud's
            return Refused(400, str(e))
        except Exception as e:  # noqa: BLE001  # its message may contain the options
            return Refused(400, f"the token provider {provider!r} failed with {type(e).__name__}")
        if not isinstance(token, str) or not _JWT.fullmatch(token):
            return Refused(400, f"the token provider {provider!r} returned no JWT")
        return Granted(token)

    server = serve(answer)
    return Endpoint(f"http://127.0.0.1:{server.server_address[1]}{path}", name, secret)
