"""Plans as JSON, the form in which they are sent to the executors.

Types are written in SQL, formats as their name and options. The JSON does not contain client properties: the run
merges them into the cluster, which knows how to send secrets. A literal secret in a format's options is replaced by a
reference (``${given:…}``), and is sent separately (`split_secrets`, `with_secrets`).
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
from kdsl.plan.model import DeadLetterTopic, Part, ReadPlan, WritePlan
from kdsl.types import model as t
from kdsl.types.parse import parse_type

P = TypeVar("P", ReadPlan, WritePlan)
Q = TypeVar("Q", bound=ReadPlan | WritePlan)
VERSION = 1


def _make_converter() -> Converter:
    """Create the converter between plans and JSON, without defaults and client properties."""
    converter = Converter(omit_if_default=True, forbid_extra_keys=True)
    converter.register_unstructure_hook_func(_is_a(t.DataType), str)
    converter.register_structure_hook_func(_is_a(t.DataType), lambda text, _: parse_type(text, allow_reserved=True))
    converter.register_unstructure_hook_func(_is_a(Format), _write_format)
    converter.register_structure_hook_func(_is_a(Format), lambda value, _: _read_format(value))
    converter.register_unstructure_hook(timedelta, timedelta.total_seconds)
    converter.register_structure_hook(timedelta, lambda value, _: timedelta(seconds=value))
    for plan in (DeadLetterTopic, ReadPlan, WritePlan):
        out = make_dict_unstructure_fn(plan, converter, _cattrs_omit_if_default=True, properties=override(omit=True))
        converter.register_unstructure_hook(plan, out)
        converter.register_structure_hook(plan, make_dict_structure_fn(plan, converter, properties=override(omit=True)))
    return converter


def _is_a(base: type) -> Any:
    """Return a predicate: whether a type is a subclass of ``base``."""
    return lambda kind: isinstance(kind, type) and issubclass(kind, base)


def _write_format(value: Format) -> dict[str, Any]:
    """Write a format as its identifier and those options that differ from their defaults."""
    return {"format": value.identifier, "options": value.to_strings()}


def _read_format(value: dict[str, Any]) -> Format:
    """Read a format from its identifier and options."""
    return format_class(value["format"]).from_strings(value["options"])


_CONVERTER = _make_converter()


def plan_text(plan: ReadPlan | WritePlan) -> str:
    """A plan as JSON, without its client properties and literal secrets; equal plans give equal strings."""
    document = {"version": VERSION, **_CONVERTER.unstructure(split_secrets(plan)[0])}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def read_plan_text(text: str, kind: type[P]) -> P:
    """Parse a plan from its JSON; client properties and literal secrets are missing."""
    document = json.loads(text)
    version = document.pop("version", None)
    if version != VERSION:
        raise ValueError(
            f"the plan has version {version}, this kdsl reads version {VERSION}; "
            "install the same kdsl on the driver and on the executors"
        )
    return _CONVERTER.structure(document, kind)


def split_secrets(plan: Q) -> tuple[Q, dict[str, str]]:
    """Return a plan with references (``${given:KEY}``) in place of its formats' literal secrets, and these by KEY.

    A plan without literal secrets is returned itself.
    """
    parts: dict[str, Part] = {}
    literals: dict[str, str] = {}
    for side, part in (("key", plan.key), ("value", plan.value)):
        if part is None:
            continue
        without_secrets, secrets = part.format.split(_prefix(side))
        if secrets:
            parts[side] = attrs.evolve(part, format=without_secrets)
            literals.update(secrets)
    return (attrs.evolve(plan, **parts) if parts else plan), literals  # type: ignore[arg-type]


def with_secrets(plan: Q, literals: Mapping[str, str]) -> Q:
    """Return a plan with the literal secrets that `split_secrets` separated in place of their references.

    Without literal secrets it is returned itself.
    """
    sides = {side: part for side, part in (("key", plan.key), ("value", plan.value)) if part is not None}
    parts = {side: attrs.evolve(p, format=p.format.with_literals(literals, _prefix(side))) for side, p in sides.items()}
    return attrs.evolve(plan, **parts) if literals else plan  # type: ignore[arg-type]


def _prefix(side: str) -> str:
    """Return what the references of a side's secrets begin with."""
    return f"format.{side}."
