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
        self._draw = None if seed is None else random.Random(seed).random
        self._taken = taken
        self.choices: list[int] = []

    def choose(self, options: int, chance: float = 1.0) -> int:
        """Choose a number below ``options``.

        Args:
            options: How many there are, at least one.
            chance: The chance that it is not 0 without being chosen among all.
        """
        choices, taken, draw = self.choices, self._taken, self._draw
        if taken and len(choices) < len(taken):
            choice = min(taken[len(choices)], options - 1)
        elif draw is None or options == 1 or (chance < 1.0 and draw() >= chance):
            choice = 0
        else:
            choice = int(draw() * options)
        choices.append(choice)
        return choice

    def happens(self, chance: float) -> bool:
        """Decide whether something happens that has a chance."""
        choices, taken, draw = self.choices, self._taken, self._draw
        if taken and len(choices) < len(taken):
            choice = taken[len(choices)] > 0
        else:
            choice = draw is not None and draw() < chance
        choices.append(1 if choice else 0)
        return choice
