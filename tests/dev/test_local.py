"""Where declarations point, and what becomes of them on the local cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest

from kdsl import Cluster
from kdsl.dev.declared import Declared, load_targets
from kdsl.dev.local import find_addresses, to_local, to_writable
from kdsl.dev.rows import SampleRows
from kdsl.dev.values import Samples
from kdsl.table import Table

LOCAL = Cluster("127.0.0.1:9092", registry="http://127.0.0.1:8081/apis/ccompat/v7")


def load(folder: Path, *tables: str) -> list[Declared]:
    file = folder / "tables.sql"
    file.write_text("\n".join(f"CREATE TABLE {table};" for table in tables), encoding="utf-8")
    declared, problems = load_targets([str(file)], {})
    assert not problems
    return declared


def test_addresses_on_this_machine_and_variables_are_found(tmp_path: Path) -> None:
    url = "http://localhost:8082/apis/ccompat/v7"
    declared = load(
        tmp_path,
        "a (x INT) WITH ('connector'='kafka','topic'='a','format'='json',"
        "'properties.bootstrap.servers'='[::1]:9093,localhost:9094',"
        "'properties.security.protocol'='SASL_SSL','properties.sasl.jaas.config'='${env:JAAS}')",
        f"b (x INT) WITH ('connector'='kafka','topic'='b','format'='avro-confluent','avro-confluent.url'='{url}')",
        "c (x INT) WITH ('connector'='kafka','topic'='c','format'='avro-confluent',"
        "'avro-confluent.url'='${env:REGISTRY}','properties.bootstrap.servers'='${env:KAFKA}')",
    )

    addresses = find_addresses(declared)

    assert list(addresses.ports) == [9093]
    assert list(addresses.registry_ports) == [8082]
    assert addresses.variables == {"KAFKA": False, "REGISTRY": True}
    assert [owner.partition(" ")[0] for owner in addresses.logins] == ["a"]
    assert addresses.needs_registry
    for one in declared:
        table = to_local(one.declaration.item, LOCAL)
        assert isinstance(table, Table)
        assert table.cluster(LOCAL) == LOCAL
        value = table.definition.value_format
        assert value is not None
        assert value.registry(LOCAL.registry) == (LOCAL.registry if value.needs_registry else None)


@pytest.mark.parametrize(
    ("columns", "options", "names"),
    [
        (
            "x INT, topic STRING METADATA, o BIGINT METADATA FROM 'offset', k BYTES METADATA FROM '__raw_key__'",
            "'topic'='a;b','format'='json'",
            {"x", "k"},
        ),
        ("x INT, v BYTES METADATA FROM '__raw_value__'", "'topic-pattern'='a.*','format'='json'", {"x"}),
        ("x INT", "'topic'='a','format'='json','direction'='read','scan.dead-letter.topic'='dead'", {"x"}),
    ],
)
def test_what_is_only_read_is_left_out_of_sample_rows(
    tmp_path: Path, columns: str, options: str, names: set[str]
) -> None:
    (one,) = load(tmp_path, f"t ({columns}) WITH ('connector'='kafka',{options})")
    table = to_local(one.declaration.item, LOCAL)
    assert isinstance(table, Table)

    writable = to_writable(table, "a", LOCAL)
    plan = writable.write_plan(LOCAL)

    assert plan.topics.names == ("a",)
    (row,) = islice(SampleRows(writable.definition, plan, Samples()).rows(lambda _: datetime.now(UTC)), 1)
    assert set(row) == names
