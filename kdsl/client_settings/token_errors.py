"""The error of tokens that cannot be provided."""

from __future__ import annotations

from kdsl.errors import KdslError


class TokenError(KdslError):
    """Tokens cannot be provided; the message contains the function and the reason, never a token."""
