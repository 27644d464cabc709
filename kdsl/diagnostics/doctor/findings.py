"""The findings of checks."""

from __future__ import annotations

from typing import Literal

import attrs

State = Literal["ok", "warning", "error", "skipped"]


@attrs.frozen
class Finding:
    """The result of one check.

    Attributes:
        check: What was checked, as ``topic orders``.
        state: ``ok``; ``warning``: works, but is probably not intended; ``error``: a job would fail or lose records;
            ``skipped``: could not be checked, and why.
        message: The result.
        fix: What to do about it; empty if there is nothing to do.
    """

    check: str
    state: State
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """Create a finding without a problem."""
    return Finding(check, "ok", message)


def warning(check: str, message: str, fix: str) -> Finding:
    """Create a finding that something is probably not intended."""
    return Finding(check, "warning", message, fix)


def error(check: str, message: str, fix: str) -> Finding:
    """Create a finding that a job would fail or lose records."""
    return Finding(check, "error", message, fix)


def skip(check: str, message: str, fix: str = "") -> Finding:
    """Create a finding that something could not be checked."""
    return Finding(check, "skipped", message, fix)
