"""Writes the generated pages: ``python -m docs.generate [ROOT]``, where ROOT is ``docs`` unless named."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate.explanations import write_explanations
from docs.generate.pages import ROOT, write_pages

write_explanations()  # from which pages are written
for path in write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT):
    sys.stdout.write(f"{path}\n")
