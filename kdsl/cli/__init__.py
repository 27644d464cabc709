"""The command line: ``kdsl demo check plan schema peek lag doctor verify run ingest kafka dlq``."""

from __future__ import annotations

from kdsl.cli.app import main

__all__ = ["main"]
