"""Formats whose schemas stand in a schema registry, for those who are no such format, or make one: what all share."""

from __future__ import annotations

from kdsl_formats._registry.options import RegistryFormat

__all__ = ["RegistryFormat"]
