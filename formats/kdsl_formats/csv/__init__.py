"""The format ``csv``: one line of delimited values per message, assigned to columns by their order."""

from __future__ import annotations

from kdsl_formats.csv.format import Csv

__all__ = ["Csv"]
