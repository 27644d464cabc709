"""Column types: the model, and its translations from and to SQL, Python, Arrow and Spark; values as strings."""

from __future__ import annotations
