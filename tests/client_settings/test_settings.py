from __future__ import annotations

import confluent_kafka
import pytest

from kdsl.client_settings import librdkafka
from kdsl.client_settings.model import LibrdkafkaProperty, Setting
from kdsl.client_settings.settings import TABLE, settings_of
from tests.client_settings.installed import Property, read_installed_properties

NEWEST = pytest.mark.skipif(
    not confluent_kafka.libversion()[0].startswith("2.16."), reason="the lists are those of librdkafka 2.16"
)


def has(prop: Property, client: str) -> bool:
    return prop.clients == "*" or client[0].upper() in prop.clients


@NEWEST
def test_every_property_of_librdkafka_is_in_the_table_or_in_the_lists() -> None:
    names = {p.name for p in read_installed_properties()}

    ours = set(TABLE) | librdkafka.all_properties() | set(librdkafka.OWNED)

    assert names - ours == set()


@NEWEST
def test_the_lists_contain_what_only_librdkafka_has_for_each_kind_of_client() -> None:
    alone = {p.name: p for p in read_installed_properties() if p.name not in TABLE and p.name not in librdkafka.OWNED}

    assert {n for n, p in alone.items() if p.clients == "*"} == librdkafka.ANY
    assert {n for n, p in alone.items() if p.clients == "C"} == librdkafka.CONSUMER
    assert {n for n, p in alone.items() if p.clients == "P"} == librdkafka.PRODUCER


@NEWEST
def test_callbacks_are_owned() -> None:
    assert {p.name for p in read_installed_properties() if p.callback} - set(librdkafka.OWNED) == set()


@NEWEST
def test_second_names_are_those_of_librdkafka() -> None:
    aliases = {
        frozenset((p.name, p.alias)) for p in read_installed_properties() if p.alias and p.alias not in librdkafka.OWNED
    }

    ours = {frozenset((p.name, librdkafka.canonical(p.name))) for p in read_installed_properties()}

    assert aliases - ours == set()
    assert {pair for pair in ours if len(pair) == 2} - aliases == set()


@NEWEST
@pytest.mark.parametrize(
    ("row", "target"), [(r, t) for r in TABLE.values() for t in r.targets], ids=lambda v: getattr(v, "name", "")
)
def test_a_target_is_a_property_whose_range_contains_the_target_s(row: Setting, target: LibrdkafkaProperty) -> None:
    results = [p for p in read_installed_properties() if p.name == target.name]

    assert results
    if target.low is not None and target.high is not None:
        assert all(p.low is not None and p.low <= target.low for p in results)
        assert all(p.high is not None and target.high <= p.high for p in results)


@NEWEST
@pytest.mark.parametrize("row", [r for r in TABLE.values() if r.default], ids=lambda r: r.name)
def test_a_default_is_set_only_where_librdkafka_has_another(row: Setting) -> None:
    target = row.targets[0]
    theirs = {p.default for p in read_installed_properties() if p.name == target.name}

    assert theirs.isdisjoint(row.default.values())


def test_rows_name_their_clients_and_what_to_write_instead() -> None:
    for row in TABLE.values():
        assert set(row.clients) <= set("cpa")
        assert bool(row.instead) == (row.act in ("owned", "refused"))
        assert bool(row.targets) == (row.act in ("same", "renamed"))
        assert row.note or row.act in ("same", "renamed")


def test_no_name_is_both_java_s_and_librdkafka_s_alone() -> None:
    assert set(TABLE) & (librdkafka.all_properties() | set(librdkafka.OWNED)) == set()


def test_the_java_name_of_a_property_is_in_the_table_or_is_a_property() -> None:
    assert set(librdkafka.JAVA.values()) - set(TABLE) - librdkafka.all_properties() == set()


def test_settings_of_returns_the_rows_of_one_kind_of_client() -> None:
    names = {row.name for row in settings_of("admin")}

    assert "request.timeout.ms" in names
    assert "linger.ms" not in names
    assert "fetch.min.bytes" not in names
