"""The command line: ``kdsl demo check plan schema peek lag doctor verify kafka``."""

from __future__ import annotations

from kdsl.cli.app import main

__all__ = ["main"]
