"""SQL text to syntax trees: the readers of expressions and queries, the tree, locations in the text, and errors."""

from __future__ import annotations
