"""The whole command line as one object, for tests and for the pages of the documentation."""

from __future__ import annotations

from kdsl.cli.start import COMMANDS, make_app

app = make_app(COMMANDS.find_all())
