"""What notebooks and consoles show of tables, plans and options."""

from __future__ import annotations

import inspect
import pickle
from datetime import timedelta
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import attrs
import pytest

from kdsl import Col, Json, KafkaTable, Key, UpsertTable, Virtual, col, virtual
from kdsl.declare.connector import KafkaOptions
from kdsl.deployment.model import Difference
from kdsl.deployment.result import Applied, Diff
from kdsl.diagnostics.lag import Lag, PartitionLag
from kdsl.errors import Problem, ResolveError, Where
from kdsl.formats import format_class, format_names
from kdsl.notebooks import MOST_ROWS, PlanText, make_html, table_html
from kdsl.options import Options
from kdsl.resolve import resolve
from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics


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


BAD = "<script>alert('1')</script>"
SHOWN = "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;"


def test_tables_have_html_in_which_names_and_comments_are_escaped() -> None:
    table = Orders.as_table()
    for shown in (table._repr_html_(), resolve(table.definition, "read")._repr_html_()):
        assert "<caption>Orders: kafka, topic orders</caption>" in shown
        assert [cell.text for cell in read_rows(shown)[1]][:3] == ["id", "BIGINT NOT NULL", "message key"]
        assert "metadata offset, read only" in shown
        assert "&lt;b&gt;bold&lt;/b&gt; &amp; more" in shown
        assert "<b>" not in shown


def test_a_plan_keeps_its_lines_in_html() -> None:
    assert f"<pre>Read {SHOWN}\n  source</pre>" in PlanText(f"Read {BAD}\n  source")._repr_html_()
    assert "<pre>Read Orders\n" in Orders.explain()._repr_html_()  # type: ignore[attr-defined]


PROBLEM = Problem(BAD, BAD, BAD, Where(BAD, file=BAD, line=3, excerpt=f"{BAD}\n  ^"), "warning")
DIFFERENCE = Difference("~", "topic", BAD, BAD, BAD, BAD, BAD, Where(file=BAD, line=1), BAD)
OBJECTS = {
    "problem": PROBLEM,
    "error": ResolveError(BAD, [PROBLEM, PROBLEM]),
    "lag": Lag(
        BAD, (PartitionLag(BAD, 0, 10, 0, 1_000, 1_000, 990, 88.5), PartitionLag(BAD, 1, None, 0, 5, 5, None, None))
    ),
    "diff": Diff((DIFFERENCE,)),
    "applied": Applied((DIFFERENCE,), DIFFERENCE, BAD, (DIFFERENCE,), (DIFFERENCE,)),
    "metrics": QueryMetrics(BAD, "r", BAD, 7, (SourceMetrics(BAD, num_rule_violations={BAD: 2}),), (SinkMetrics(BAD),)),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_html_is_well_formed_and_all_text_in_it_is_escaped(name: str) -> None:
    shown: str = OBJECTS[name]._repr_html_()  # type: ignore[attr-defined]

    assert SHOWN in shown
    assert "<script" not in shown
    ET.fromstring(f"<div>{shown}</div>")  # every tag is closed


def test_a_problem_shows_place_message_fix_code_and_excerpt() -> None:
    shown = Problem(
        "key-prefix", "wrong", "right", Where("Orders", file="o.sql", line=3, excerpt="a b\n  ^")
    )._repr_html_()

    assert '<span class="error">error</span> <b>Orders (o.sql:3)</b> wrong' in shown
    assert '<pre class="excerpt">a b\n  ^</pre>' in shown
    assert "<i>fix:</i> right <code>key-prefix</code>" in shown
    both = ResolveError("Orders has 2 problems", [PROBLEM, PROBLEM])
    assert '<p class="title">Orders has 2 problems</p>' in both._repr_html_()
    assert both._repr_html_().count("<i>fix:</i>") == 2


def test_lags_are_numbers_by_partition_with_the_total_in_the_caption() -> None:
    shown = OBJECTS["lag"]._repr_html_()  # type: ignore[attr-defined]

    assert f"<caption>{SHOWN}: 990 records behind, 88.5 s</caption>" in shown
    first, second = ([cell.text for cell in row] for row in read_rows(shown)[1:])
    assert first == [BAD, "0", "10", "1,000", "1,000", "990", "88.5"]
    assert second == [BAD, "1", "none", "5", "5", None, None]
    assert [cell.get("class") for cell in read_rows(shown)[1]][1:] == ["number"] * 6


def test_differences_and_what_was_done_about_them_are_tables() -> None:
    assert "1 to change." in Diff((DIFFERENCE,))._repr_html_()
    assert "<caption>nothing differs.</caption>" in Diff()._repr_html_()
    assert "<caption>nothing to do</caption>" in Applied(())._repr_html_()
    shown = Applied((), attrs.evolve(DIFFERENCE, name="orders"), "no rights")._repr_html_()
    assert "<caption>failed: no rights</caption>" in shown
    assert "topic orders" in shown


def test_metrics_are_those_of_the_report() -> None:
    query = QueryMetrics("id", "run", None, None, (SourceMetrics("Orders", num_records_in=1_234),))
    shown = query._repr_html_()

    assert "<caption>id: metrics, before the first batch</caption>" in shown
    assert [cell.text for cell in read_rows(shown)[1]] == [None, "running", "1", "queries"]
    assert [cell.text for cell in read_rows(shown)[2]] == ["Orders", "numRecordsIn", "1,234", "records"]


def test_a_long_table_says_how_many_rows_are_not_shown() -> None:
    shown = make_html(table_html("t", ["n"], [[n] for n in range(MOST_ROWS + 3)]))

    assert len(read_rows(shown)) == 1 + MOST_ROWS
    assert "… 3 more rows" in shown


def test_the_signature_of_a_base_of_tables_lists_the_keywords_of_class_statements() -> None:
    kafka, upserts = inspect.signature(KafkaTable).parameters, inspect.signature(UpsertTable).parameters

    assert (kafka["transport"].default, kafka["discovery"].default) == (None, timedelta(minutes=5))
    assert (kafka["startup"].annotation, kafka["topic"].annotation) == ("Startup", "str | Sequence[str]")
    assert (upserts["buffer_rows"].default, "partitioner" in upserts, "partitioner" in kafka) == (0, False, True)
    keywords = {*kafka} - {"dew_endpoint", "dew_secret", "dew_fields", "dew_version"}
    assert keywords > {a.name for a in KafkaOptions.declarations() if a.name in ("topic", "delivery", "latency")}


def test_the_signature_of_a_table_lists_the_columns_that_a_row_takes() -> None:
    signature = inspect.signature(Orders)

    assert list(signature.parameters) == ["id", "note"]  # offset is filled in by Kafka
    assert signature.parameters["id"].default is inspect.Parameter.empty
    row = Orders(*signature.bind(id=1, note="a").args, **signature.bind(id=1, note="a").kwargs)
    assert (row.id, row.note) == (1, "a")


def read_rows(html: str) -> list[Element]:
    """The rows of all tables, the names of the columns first."""
    return list(ET.fromstring(f"<div>{html}</div>").iter("tr"))


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
