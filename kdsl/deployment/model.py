"""How declarations differ from what is live, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from kdsl.errors import Where

Mark = Literal["+", "~", "!", "?"]
"""What `kdsl apply` does: it creates (``+``), changes (``~``), or refuses (``!``); ``?`` cannot be looked at."""
Kind = Literal["cluster", "topic", "group", "registry", "subject", "table", "checkpoint"]


@attrs.frozen
class Difference:
    """One thing that is declared and differs from what is live.

    Attributes:
        mark: What `kdsl apply` does about it.
        kind: What differs.
        name: Its name, such as that of the topic.
        consequence: What follows from it, or why it is refused or cannot be looked at, and what to do.
        what: What of it differs, such as ``partitions``; empty for the whole thing.
        live: The live value; None if there is none.
        declared: The declared value; None if there is none.
        where: Where it is declared.
        place: The cluster, registry, folder or database; never with a secret.
    """

    mark: Mark
    kind: Kind
    name: str
    consequence: str
    what: str = ""
    live: str | None = None
    declared: str | None = None
    where: Where = attrs.field(factory=Where)
    place: str = ""

    @property
    def values(self) -> str:
        """The live and the declared value; only the declared one of what is created."""
        if self.mark == "+" or (self.live is None and self.declared is None):
            return self.declared or ""
        return f"{self.live or 'none'} → {self.declared or 'none'}"

    @property
    def location(self) -> str:
        """The file and the line of the declaration."""
        return attrs.evolve(self.where, path=None, position=None).location


@attrs.frozen
class Step:
    """A difference, with what `kdsl apply` does about it.

    Attributes:
        difference: The difference.
        run: Makes the change; None if it is refused or cannot be looked at.
        needs: What the user must allow before.
    """

    difference: Difference
    run: Callable[[], None] | None = attrs.field(default=None, repr=False)
    needs: Literal["partitions"] | None = None


@attrs.frozen
class Resource:
    """What is compared, such as a topic, for its differences.

    Attributes:
        kind: What it is.
        name: Its name.
        where: Where it is declared.
        place: The cluster, registry, folder or database.
    """

    kind: Kind
    name: str
    where: Where = attrs.field(factory=Where)
    place: str = ""

    def step(
        self,
        mark: Mark,
        what: str,
        live: str | None,
        declared: str | None,
        consequence: str,
        run: Callable[[], None] | None = None,
        needs: Literal["partitions"] | None = None,
        *,
        where: Where | None = None,
    ) -> Step:
        """Create a difference of the resource, with its change; ``where`` is the location of what differs, if known."""
        difference = Difference(
            mark, self.kind, self.name, consequence, what, live, declared, where or self.where, self.place
        )
        return Step(difference, run, needs)
