"""Benchmarks of kdsl, which print figures and never fail on a slow machine."""

from __future__ import annotations
