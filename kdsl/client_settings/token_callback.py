"""Tokens that this process creates for librdkafka: with a cloud's library, with a Python function, or from a file.

A client of librdkafka calls back for a token when it starts, and again after 80 % of the token's life. It calls from a
thread of its own, so a client that nobody polls stays logged in. Consumers, producers and admin clients work the same.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

from kdsl.client_settings.cloud_logins import CLOUDS
from kdsl.client_settings.key_files import KeyFileError, find_file
from kdsl.client_settings.token_errors import TokenError
from kdsl.errors import nearest

_log = logging.getLogger(__name__)
_JWT = re.compile(r"[\w-]+\.([\w-]+)\.[\w-]*")


@attrs.frozen
class TokenCallback:
    """What clients of librdkafka call for a token; equal for the same tokens, because pools compare settings.

    Attributes:
        provider: The name of a cloud's login, ``package.module:function``, or a ``file:`` URL, whose content is the
            token.
        options: The keyword arguments of the function, which returns a JWT.
        extensions: The SASL extensions that are sent with a token.
    """

    provider: str
    options: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False, hash=False)
    extensions: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False, hash=False)

    def __call__(self, _: str | None = None) -> tuple[str, float, str, dict[str, str]]:
        """Create a token.

        Returns:
            The token, when it expires (seconds since 1970), the principal's name for messages, and the extensions.
        """
        try:
            token, expires, principal = self._create_token()
        except Exception as e:  # noqa: BLE001  # the provider's own; its message may contain the options
            reason = f"the token provider {self.provider!r} failed with {type(e).__name__}"
            error = TokenError(str(e) if isinstance(e, TokenError | KeyFileError) else reason)
            _log.warning("%s", error)
            raise error from None
        return token, expires, principal, dict(self.extensions)

    def _create_token(self) -> tuple[str, float, str]:
        """Create a token; return it with when it expires, and its principal."""
        cloud = CLOUDS.get(self.provider)
        if self.provider.lower().startswith("file:"):
            token: Any = Path(find_file(self.provider)).read_text(encoding="utf-8").strip()
        else:
            token = _import_function(cloud.function if cloud else self.provider)(**self.options)
        if cloud and isinstance(token, tuple):  # of Amazon, whose tokens are not JWTs
            return *token, self.provider
        claims = _read_claims(token)
        if claims is None:
            raise TokenError(f"the token provider {self.provider!r} returned no JWT")
        if not isinstance(expires := claims.get("exp"), int | float):
            raise TokenError(f"the token provider {self.provider!r} returned a JWT without the time 'exp'")
        if expires <= time.time():
            raise TokenError(f"the token provider {self.provider!r} returned a JWT that has expired")
        return token, expires, str(claims.get("sub") or self.provider)


def _import_function(name: str) -> Callable[..., Any]:
    """Import the function of a token provider, named as ``module:function``."""
    module, _, function_name = name.partition(":")
    try:
        imported: Any = import_module(module)
    except Exception as e:  # noqa: BLE001  # the module's own; its message may contain a token
        reason = e if isinstance(e, ImportError) else type(e).__name__
        raise TokenError(
            f"the token provider {name!r} cannot be imported: {reason}; install it here, as on the driver"
        ) from None
    function = getattr(imported, function_name, None)
    if not callable(function):
        raise TokenError(
            f"the token provider {name!r} cannot be used: the module {module!r} has no function {function_name!r}"
            f"{nearest(function_name, dir(imported))}; name one of its functions"
        )
    return function  # type: ignore[no-any-return]


def _read_claims(token: object) -> Mapping[str, object] | None:
    """Read the claims of a JWT, whose signature is not checked; None if it is not a JWT."""
    match = _JWT.fullmatch(token) if isinstance(token, str) else None
    if match is None:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(match[1] + "=" * (-len(match[1]) % 4)))
    except ValueError:
        return None
    return claims if isinstance(claims, dict) else None
