"""All differences, and what was done about them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kdsl.deployment.model import Difference, Mark
from kdsl.deployment.show import show_differences, summarize
from kdsl.notebooks import make_html, table_html


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

    def _repr_html_(self) -> str:
        """The differences as notebooks show them."""
        return make_html(_table_html(summarize(self.differences), self.differences))


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

    def _repr_html_(self) -> str:
        """What was done and what was not, as notebooks show it; without anything, that nothing was to be done."""
        parts = (
            ("done", self.done),
            (f"failed: {self.error}", () if self.failed is None else (self.failed,)),
            ("not done, because one failed before", self.left),
            ("not done, needs to be allowed", self.not_allowed),
        )
        tables = [_table_html(title, differences) for title, differences in parts if differences]
        return make_html(*(tables or [_table_html("nothing to do", ())]))


def _table_html(title: str, differences: Iterable[Difference]) -> str:
    """Write differences as a table in HTML; without any, only its caption says so."""
    rows = [
        (d.mark, f"{d.kind} {d.name}", d.what, d.live, d.declared, d.consequence, d.location, d.place)
        for d in differences
    ]
    names = ("", "what", "part", "live", "declared", "consequence", "declared in", "on")
    return table_html(title, names if rows else (), rows)
