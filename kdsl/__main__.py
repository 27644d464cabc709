"""``python -m kdsl`` is the command line."""

from __future__ import annotations

from kdsl.cli import main

main()
