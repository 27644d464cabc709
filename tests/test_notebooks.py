"""What notebooks and consoles show of tables, plans and options."""

from __future__ import annotations

import inspect
import pickle

import pytest

from kdsl import Col, Json, KafkaTable, Key, Virtual, col, virtual
from kdsl.declare.connector import KafkaOptions
from kdsl.formats import format_class, format_names
from kdsl.notebooks import PlanText
from kdsl.options import Options
from kdsl.resolve import resolve


class Orders(KafkaTable, topic="orders", key=Json(), value=Json(), value_fields="EXCEPT_KEY"):
    id: Key[int]
    note: Col[str] = col(comment="<b>bold</b> & more")
    offset: Virtual[int] = virtual("offset")


def test_a_plan_is_shown_as_its_lines() -> None:
    plan = Orders.explain()

    assert repr(plan) == plan == str(plan)
    assert plan.startswith("Read Orders\n")
    assert isinstance(plan, str)
    again = pickle.loads(pickle.dumps(plan))
    assert (type(again), again) == (PlanText, plan)


def test_tables_have_html_in_which_names_and_comments_are_escaped() -> None:
    table = Orders.as_table()
    for shown in (table._repr_html_(), resolve(table.definition, "read")._repr_html_()):
        assert "<caption>Orders: kafka, topic orders</caption>" in shown
        assert "<td>id</td><td>BIGINT NOT NULL</td><td>message key</td>" in shown
        assert "<td>metadata offset, read only</td>" in shown
        assert "&lt;b&gt;bold&lt;/b&gt; &amp; more" in shown
        assert "<b>" not in shown


@pytest.mark.parametrize("group", [KafkaOptions, *(format_class(name) for name in format_names())])
def test_the_signature_of_options_lists_them_and_the_constructor_takes_it(group: type[Options]) -> None:
    signature = inspect.signature(group)
    declared = {a.name: a for a in group.declarations()}

    assert set(signature.parameters) == set(declared)
    for name, parameter in signature.parameters.items():
        assert parameter.default in (declared[name].default, inspect.Parameter.empty)
        assert parameter.annotation == declared[name].type
    defaults = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    bound = signature.bind_partial(**defaults)
    assert group(*bound.args, **bound.kwargs) == group()
