"""Dead letters: records that a read cannot use, written to a topic of their own with the reason."""

from __future__ import annotations
