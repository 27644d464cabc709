"""The formats of kdsl: plug-ins of the entry-point group ``kdsl.formats``, one module each."""

from __future__ import annotations
