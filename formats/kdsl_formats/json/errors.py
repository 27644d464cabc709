"""The error of a value that cannot be read or written, with its path in the record."""

from __future__ import annotations

from kdsl.shown_values import quote_path


class FieldError(ValueError):
    """A value cannot be read or written; each function that the error passes adds its part of the path."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def inside(self, step: str) -> FieldError:
        """Put a step in front of this error's path, in place, and return the error."""
        self.path = step + (self.path if self.path.startswith("[") or not self.path else f".{self.path}")
        return self

    def __str__(self) -> str:
        return f"field {quote_path(self.path)}: {self.reason}" if self.path else self.reason
