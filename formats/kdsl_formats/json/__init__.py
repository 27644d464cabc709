"""The format ``json``: one JSON object (or an array of them) per message, with columns matched by name."""

from __future__ import annotations

from kdsl_formats.json.format import Json

__all__ = ["Json"]
