"""How fresh a client's view of the cluster is: its knowledge of brokers, leaders and connections."""

from __future__ import annotations

import time

_FRESH = 30.0
"""For how many seconds the client's view of leaders and connections is trusted.

A request for offsets neither reconnects nor looks for new leaders: without a connection it may wait without end, and
after a change of leaders it fails without end. Therefore topics are described first when the view is older than this,
and after errors.
"""
_REFRESH_INTERVAL = 1.0
"""How many seconds to trust a broker's answer after an error, while errors continue."""


class MetadataView:
    """How fresh the client's knowledge of brokers and leaders is."""

    def __init__(self) -> None:
        self._described = self._refreshed = float("-inf")
        self._invalid = False

    @property
    def is_stale(self) -> bool:
        """Whether topics must be described before a request goes to their leaders."""
        return time.monotonic() - self._described > _FRESH

    @property
    def needs_refresh(self) -> bool:
        """Whether to ask any broker for the list of brokers, after an error."""
        return self._invalid and time.monotonic() - self._refreshed > _REFRESH_INTERVAL

    def note_description(self) -> None:
        """Note that topics were described now."""
        self._described = time.monotonic()

    def note_refresh(self) -> None:
        """Note that the client's metadata were refreshed now, so that the view is valid."""
        self._invalid, self._refreshed = False, time.monotonic()

    def note_success(self) -> None:
        """Note that the brokers answered, so that the view is valid."""
        self._invalid = False

    def expire(self) -> None:
        """Let the next question describe the topics again."""
        self._described = float("-inf")

    def note_error(self) -> None:
        """Note that the view may be invalid."""
        self._invalid = True
