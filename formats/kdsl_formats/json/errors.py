"""Why a value cannot be read or written, and where in the record it stands."""

from __future__ import annotations


class FieldError(ValueError):
    """A value that a column cannot hold; gathers its path on the way out."""

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
