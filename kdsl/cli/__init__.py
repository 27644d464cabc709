"""The command line: ``kdsl demo check plan schema peek produce lag doctor verify run ingest kafka dlq state``."""

from __future__ import annotations

import sys

from kdsl.extras import MissingPackageError, missing_package

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process; a missing package is named in one sentence, and the exit code is then 1."""
    purpose = "the command line"
    try:
        from kdsl.cli.start import run

        purpose = f"kdsl {' '.join(sys.argv[1:2])}".strip()
        run()
    except ModuleNotFoundError as e:
        missing = missing_package(purpose, e)
        if missing is None:
            raise
        sys.exit(f"kdsl: {missing}")
    except MissingPackageError as e:
        sys.exit(f"kdsl: {e}")
