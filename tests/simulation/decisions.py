"""The decisions of a simulated run: made by a seed, or taken from a list, so that a run can be repeated and shrunk."""

from __future__ import annotations

import random
from collections.abc import Sequence


class Decisions:
    """Decides what happens next. 0 is always the harmless choice: a run whose decisions are all 0 has no fault.

    Args:
        seed: The seed of the decisions; None for 0 wherever ``taken`` has none left.
        taken: The first decisions.

    Attributes:
        choices: The decisions so far.
    """

    def __init__(self, seed: int | None, taken: Sequence[int] = ()) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._taken = taken
        self.choices: list[int] = []

    def choose(self, options: int, chance: float = 1.0) -> int:
        """Choose a number below ``options``.

        Args:
            options: How many there are, at least one.
            chance: The chance that it is not 0 without being chosen among all.
        """
        at = len(self.choices)
        if at < len(self._taken):
            choice = min(self._taken[at], options - 1)
        elif self._random is None or options == 1 or (chance < 1.0 and self._random.random() >= chance):
            choice = 0
        else:
            choice = int(self._random.random() * options)
        self.choices.append(choice)
        return choice

    def happens(self, chance: float) -> bool:
        """Decide whether something happens that has a chance."""
        at = len(self.choices)
        if at < len(self._taken):
            choice = self._taken[at] > 0
        else:
            choice = self._random is not None and self._random.random() < chance
        self.choices.append(int(choice))
        return choice
