"""Why a value cannot be read or written, and where it is in the record."""

from __future__ import annotations


class FieldError(ValueError):
    """A value cannot be read or written; functions add their part of the path while it passes through them."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def inside(self, step: str) -> FieldError:
        """The same error, one step further out."""
        self.path = step + (self.path if self.path.startswith("[") or not self.path else f".{self.path}")
        return self

    def __str__(self) -> str:
        return f"field {self.path!r}: {self.reason}" if self.path else self.reason
