"""All differences, and what was done about them."""

from __future__ import annotations

import attrs

from kdsl.deployment.model import Difference, Mark
from kdsl.deployment.show import show_differences, summarize


@attrs.frozen
class Diff:
    """All differences between declarations and what is live.

    Attributes:
        differences: The differences, in the order in which `kdsl apply` makes its changes.
    """

    differences: tuple[Difference, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything differs, or cannot be looked at."""
        return bool(self.differences)

    def count(self, mark: Mark) -> int:
        """How many differences have a mark."""
        return sum(d.mark == mark for d in self.differences)

    def __str__(self) -> str:
        """Return the lines that `kdsl diff` prints."""
        return "\n".join([*show_differences(self.differences), summarize(self.differences)])


@attrs.frozen
class Applied:
    """What `kdsl apply` did.

    Attributes:
        done: The changes that were made, in order.
        failed: The change that failed; None if none did.
        error: Why it failed.
        left: The changes that were not tried, because one failed before.
        not_allowed: The changes that the user must allow first.
        diff: All differences before the changes.
    """

    done: tuple[Difference, ...]
    failed: Difference | None = None
    error: str = ""
    left: tuple[Difference, ...] = ()
    not_allowed: tuple[Difference, ...] = ()
    diff: Diff = attrs.field(factory=Diff)
