"""The text of a query in a script, and the locations of its parts."""

from __future__ import annotations

import re

import attrs

from kdsl.ddl.statements import Fragment
from kdsl.errors import Where


@attrs.frozen
class QueryText:
    """A query with ``TABLE t`` expanded to ``SELECT``.

    Attributes:
        text: The query.
        fragment: The query as it was written.
    """

    text: str
    fragment: Fragment

    @classmethod
    def of(cls, fragment: Fragment) -> QueryText:
        """Return the query of a fragment."""
        bare = re.match(r"\s*TABLE\s+", fragment.text, re.IGNORECASE)
        return cls(f"SELECT * FROM {fragment.text[bare.end() :]}" if bare else fragment.text, fragment)  # noqa: S608

    def position(self, position: int) -> int:
        """The position in the fragment of what is at a position in the query."""
        return max(0, position - len(self.text) + len(self.fragment.text))

    def where(self, position: int, length: int) -> Where:
        """The location of what is at a position in the query, with a number of characters."""
        return self.fragment.where(self.position(position), length)
