"""The base class of formats with a schema registry, and the frames of messages, for other modules and plug-ins."""

from __future__ import annotations

from kdsl_formats._registry.framing import GUID_FRAME, ID_FRAME, split_frames
from kdsl_formats._registry.options import RegistryFormat

__all__ = ["GUID_FRAME", "ID_FRAME", "RegistryFormat", "split_frames"]
