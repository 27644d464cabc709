"""Cases: input messages or rows of a declaration, and what should come of them, in YAML; ``kdsl test`` runs them.

Nothing is imported before it is used: pytest loads the package in which this one is.
"""

from __future__ import annotations

ENDINGS = (".test.yaml", ".test.yml")
"""How the names of files of cases end."""
