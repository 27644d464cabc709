"""Row rules as they are declared: conditions that each row of a table should meet, and what happens to other rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import attrs

from kdsl.errors import Problem, Where, nearest

OnFail = Literal["warn", "drop", "fail", "dead_letter"]
ACTIONS: tuple[OnFail, ...] = get_args(OnFail)
PREFIX = "scan.expect."
"""The prefix of the options that declare rules: ``scan.expect.<name>`` is the condition."""
ON_FAIL = ".on-fail"
"""The end of the option that says what happens to rows that violate a rule."""
_NAME = re.compile(r"[^\W\d][\w-]*")


@attrs.frozen
class RowRuleDef:
    """A declared row rule.

    Attributes:
        name: Its name, unique in its table.
        condition: The condition, an expression of Flink SQL.
        on_fail: What happens to a row for which the condition is false.
        where: Where it was declared.
    """

    name: str
    condition: str
    on_fail: OnFail = "warn"
    where: Where = attrs.field(factory=Where, eq=False)


def rule_problems(rules: Sequence[RowRuleDef]) -> Iterator[Problem]:
    """Yield the problems of the names and actions of rules, such as repeated names; conditions are not checked here."""
    for i, rule in enumerate(rules):
        name: object = rule.name  # a user's program may pass anything
        on_fail: object = rule.on_fail
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            message = f"the row rule has the name {rule.name!r}"
            fix = "use letters, digits, _ and -, beginning with a letter: expect(..., name='positive_amount')"
            yield Problem("row-rule", message, fix, rule.where)
        elif any(other.name == rule.name for other in rules[:i]):
            message = f"there are two row rules {rule.name!r}"
            yield Problem("row-rule", message, "give one of them another name: expect(..., name='...')", rule.where)
        if rule.on_fail not in ACTIONS:
            hint = nearest(on_fail, ACTIONS) if isinstance(on_fail, str) else ""
            message = f"the row rule {rule.name!r} has on_fail={rule.on_fail!r}{hint}"
            yield Problem("row-rule", message, f"use one of {', '.join(map(repr, ACTIONS))}", rule.where)


def read_rule_options(
    options: Mapping[str, str], locations: Mapping[str, Where]
) -> tuple[tuple[RowRuleDef, ...], tuple[Problem, ...]]:
    """Read the rules in the options of a ``WITH`` clause or a YAML document.

    Actions are read in any letter case, and with ``-`` for ``_``.

    Args:
        options: The options whose keys begin with `PREFIX`, in their order.
        locations: The location of each option.

    Returns:
        The rules, with ``warn`` for an unknown action; and the mistakes: unknown actions, actions without a condition,
        and those of `rule_problems`.
    """
    actions = {key.removesuffix(ON_FAIL): key for key in options if key.endswith(ON_FAIL)}
    conditions = {key: text for key, text in options.items() if not key.endswith(ON_FAIL)}
    rules, problems = [], []
    for key, condition in conditions.items():
        action = options[actions[key]].strip().lower().replace("-", "_") if key in actions else "warn"
        where = locations.get(key, Where())
        if key in actions and action not in ACTIONS:
            message = f"{actions[key]!r} has the value {options[actions[key]]!r}{nearest(action, ACTIONS)}"
            fix = f"use one of {', '.join(map(repr, ACTIONS))}"
            problems.append(Problem("row-rule", message, fix, locations.get(actions[key], where)))
            action = "warn"
        rules.append(RowRuleDef(key.removeprefix(PREFIX), condition, action, where))  # type: ignore[arg-type]
    for key, option in actions.items():
        if key not in conditions:
            message = f"{option!r} belongs to no row rule{nearest(key, conditions)}"
            problems.append(
                Problem("row-rule", message, f"add the condition, {key!r} = '...'", locations.get(option, Where()))
            )
    return tuple(rules), (*problems, *rule_problems(rules))


def rule_options(rules: Sequence[RowRuleDef]) -> dict[str, str]:
    """The options that declare rules, by Flink-like keys; actions only if they are not ``warn``."""
    options: dict[str, str] = {}
    for rule in rules:
        options[f"{PREFIX}{rule.name}"] = rule.condition
        if rule.on_fail != "warn":
            options[f"{PREFIX}{rule.name}{ON_FAIL}"] = rule.on_fail
    return options
