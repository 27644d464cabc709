"""What kdsl costs and gains: timings that are no tests."""

from __future__ import annotations
