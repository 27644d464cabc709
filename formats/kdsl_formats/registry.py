"""The base class of formats with a schema registry, for other modules and for plug-ins."""

from __future__ import annotations

from kdsl_formats._registry.options import RegistryFormat

__all__ = ["RegistryFormat"]
