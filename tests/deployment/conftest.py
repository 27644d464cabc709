from __future__ import annotations

from tests.changelog.conftest import postgres

__all__ = ["postgres"]
