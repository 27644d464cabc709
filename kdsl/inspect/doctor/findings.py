"""What a check found."""

from __future__ import annotations

from typing import Literal

import attrs

State = Literal["ok", "warning", "error", "skipped"]


@attrs.frozen
class Finding:
    """The result of one check.

    Attributes:
        check: What was looked at, as ``topic orders``.
        state: ``ok``; ``warning``: works, but is likely not meant; ``error``: a job would fail or lose records;
            ``skipped``: could not be looked at, and why.
        message: What was found.
        fix: What to do about it; empty where nothing is to be done.
    """

    check: str
    state: State
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", message)


def warning(check: str, message: str, fix: str) -> Finding:
    """Something is likely not meant."""
    return Finding(check, "warning", message, fix)


def error(check: str, message: str, fix: str) -> Finding:
    """A job would fail, or lose records."""
    return Finding(check, "error", message, fix)


def skipped(check: str, message: str, fix: str = "") -> Finding:
    """It could not be looked at."""
    return Finding(check, "skipped", message, fix)
