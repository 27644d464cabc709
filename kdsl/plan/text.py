"""A plan as text and back: one readable JSON document, which is what travels to the executors.

Types are written in SQL, formats as their name and options. Client properties do not travel in a plan: the run merges
them into the cluster, which knows how secrets travel. A secret that was written out in a format's options does not
stand in the text: it is a reference there (``${given:…}``), and travels beside it (`detached`, `attached`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from kdsl.formats import Format, format_class
from kdsl.plan.model import Part, ReadPlan, WritePlan
from kdsl.types import model as t
from kdsl.types.parse import parse_type

P = TypeVar("P", ReadPlan, WritePlan)
Q = TypeVar("Q", bound=ReadPlan | WritePlan)
VERSION = 1


def _converter() -> Converter:
    made = Converter(omit_if_default=True, forbid_extra_keys=True)
    made.register_unstructure_hook_func(_is_a(t.DataType), str)
    made.register_structure_hook_func(_is_a(t.DataType), lambda text, _: parse_type(text))
    made.register_unstructure_hook_func(_is_a(Format), _write_format)
    made.register_structure_hook_func(_is_a(Format), lambda value, _: _read_format(value))
    made.register_unstructure_hook(timedelta, timedelta.total_seconds)
    made.register_structure_hook(timedelta, lambda value, _: timedelta(seconds=value))
    for plan in (ReadPlan, WritePlan):
        out = make_dict_unstructure_fn(plan, made, _cattrs_omit_if_default=True, properties=override(omit=True))
        made.register_unstructure_hook(plan, out)
        made.register_structure_hook(plan, make_dict_structure_fn(plan, made, properties=override(omit=True)))
    return made


def _is_a(base: type) -> Any:
    return lambda kind: isinstance(kind, type) and issubclass(kind, base)


def _write_format(value: Format) -> dict[str, Any]:
    return {"format": value.identifier, "options": value.to_strings()}


def _read_format(value: dict[str, Any]) -> Format:
    return format_class(value["format"]).from_strings(value["options"])


_CONVERTER = _converter()


def plan_text(plan: ReadPlan | WritePlan) -> str:
    """A plan as JSON, without its client properties and literal secrets; equal plans give equal texts."""
    document = {"version": VERSION, **_CONVERTER.unstructure(detached(plan)[0])}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def read_plan_text(text: str, kind: type[P]) -> P:
    """A plan from its JSON.

    Args:
        text: What `plan_text` gave.
        kind: ReadPlan or WritePlan.

    Raises:
        ValueError: The text was written by another version of kdsl.
    """
    document = json.loads(text)
    version = document.pop("version", None)
    if version != VERSION:
        raise ValueError(
            f"the plan has version {version}, this kdsl reads version {VERSION}; "
            "install the same kdsl on the driver and on the executors"
        )
    return _CONVERTER.structure(document, kind)


def detached(plan: Q) -> tuple[Q, dict[str, str]]:
    """A plan without the literal secrets of its formats, and those apart, by the names of their references."""
    parts: dict[str, Part] = {}
    literals: dict[str, str] = {}
    for side, part in (("key", plan.key), ("value", plan.value)):
        if part is None:
            continue
        chosen, found = part.format.split(_place(side))
        if found:
            parts[side] = attrs.evolve(part, format=chosen)
            literals.update(found)
    return (attrs.evolve(plan, **parts) if parts else plan), literals  # type: ignore[arg-type]


def attached(plan: Q, literals: Mapping[str, str]) -> Q:
    """The plan with the literal secrets that `detached` took out."""
    sides = {side: part for side, part in (("key", plan.key), ("value", plan.value)) if part is not None}
    parts = {side: attrs.evolve(p, format=p.format.joined(literals, _place(side))) for side, p in sides.items()}
    return attrs.evolve(plan, **parts) if literals else plan  # type: ignore[arg-type]


def _place(side: str) -> str:
    return f"format.{side}."
