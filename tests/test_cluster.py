from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from traceback import format_exception

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from kdsl.client_settings.properties import Properties, Value
from kdsl.cluster import Cluster, Registry
from kdsl.errors import ResolveError, SecretError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LITERAL = f'{PLAIN} required username="u" password="HUSH";'
REFERRED = f'{PLAIN} required username="u" password="${{env:KDSL_TEST_PW}}";'


def login(jaas: str) -> dict[str, Value]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def lines(error: ResolveError) -> list[str]:
    return str(error).splitlines()


def test_a_cluster_is_a_value() -> None:
    one = Cluster("a:1, b:2", properties={"linger.ms": 5, "check.crcs": True}, name="c", registry="http://r")
    other = Cluster(
        ["a:1", "b:2"], properties={"check.crcs": "true", "linger.ms": "5"}, name="c", registry=Registry("http://r")
    )

    assert one == other
    assert hash(one) == hash(other)
    assert one != Cluster("a:1")
    assert one.bootstrap_servers == "a:1,b:2"


def test_a_cluster_with_references_is_pickled() -> None:
    cluster = Cluster("a:1", properties=login(REFERRED), registry="http://r")

    assert pickle.loads(pickle.dumps(cluster)) == cluster


def test_a_cluster_prints_no_secret_and_does_not_pickle_one() -> None:
    cluster = Cluster(
        "a:1",
        properties={**login(LITERAL), "ssl.key.password": "HUSH"},
        registry=Registry("http://u:HUSH@r", Properties({"bearer-auth.token": "HUSH"})),
    )

    assert "HUSH" not in f"{cluster!r} {cluster} {cluster.registry} {cluster.properties} {cluster.problems()}"
    with pytest.raises(SecretError):
        pickle.dumps(cluster)


def test_a_detached_cluster_travels_without_the_literals_that_travel_apart() -> None:
    cluster = Cluster(
        "a:1",
        properties=login(LITERAL),
        registry=Registry("http://r", Properties({"basic-auth.user-info": "HUSH:HUSH"})),
    )

    detached, literals = cluster.split_literals()

    assert b"HUSH" not in pickle.dumps(detached)
    assert "HUSH" not in repr(detached)
    assert literals == {"sasl.jaas.config": LITERAL, "registry.basic-auth.user-info": "HUSH:HUSH"}
    assert pickle.loads(pickle.dumps(detached)).with_literals(literals) == cluster
    assert detached.with_literals(literals).consumer() == cluster.consumer()


def test_a_detached_cluster_without_its_literals_names_what_is_missing() -> None:
    detached, _ = Cluster("a:1", properties=login(LITERAL)).split_literals()

    with pytest.raises(ResolveError) as e:
        detached.consumer()

    assert (
        "the value of 'sasl.jaas.config' was given literally on the driver, and this process does not have it"
        in str(e.value)
    )
    assert detached.problems() == ()


def test_a_user_and_a_password_in_a_registry_s_address_become_a_property() -> None:
    registry = Registry("https://me:p%40w@one:8081,https://two")

    assert registry.url == "https://one:8081,https://two"
    assert registry.properties.reveal() == {"basic-auth.user-info": "me:p@w"}
    assert "p@w" not in repr(registry)


@pytest.mark.parametrize("secret", [LITERAL, REFERRED])
def test_clients_are_made_from_the_settings_with_secrets_resolved(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_TEST_PW", "HUSH")
    cluster = Cluster("127.0.0.1:1", properties={**login(secret), "group.id": "g", "linger.ms": 7})

    consumer, producer, admin = cluster.consumer({"queued.min.messages": 9}), cluster.producer(), cluster.admin()

    assert [item["sasl.password"] for item in (consumer, producer, admin)] == ["HUSH"] * 3
    assert consumer["queued.min.messages"] == "9"
    assert producer["linger.ms"] == "7"
    confluent_kafka.Consumer(consumer).close()
    confluent_kafka.Producer(producer).poll(0)
    AdminClient({**admin}).poll(0)


def test_a_reference_is_resolved_by_the_process_that_makes_the_client() -> None:
    cluster = Cluster("a:1", properties=login(REFERRED))
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).consumer()['sasl.password'])"
    root = Path(__file__).parents[1]
    env = {**os.environ, "KDSL_TEST_PW": "only there", "PYTHONPATH": str(root)}

    output = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(cluster), capture_output=True, env=env)

    assert output.stdout.decode().strip() == "only there"
    assert "KDSL_TEST_PW" not in os.environ


def test_references_that_this_process_cannot_resolve_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDSL_TEST_PW", raising=False)
    registry = Registry("http://r", Properties({"bearer-auth.token": "${file:/no/such/file}"}))
    cluster = Cluster("a:1", properties={**login(REFERRED), "ssl.key.password": "HUSH"}, registry=registry)

    results = [problem.message for problem in cluster.check_references()]

    assert len(results) == 2
    assert results[0].startswith(
        "the value of 'sasl.jaas.config' cannot be resolved: ${env:KDSL_TEST_PW} cannot be resolved"
    )
    assert results[1].startswith("the value of 'bearer-auth.token' cannot be resolved: ${file:/no/such/file} cannot be")


def test_all_problems_are_reported_at_once_and_none_before_they_are_requested() -> None:
    cluster = Cluster(
        "kafka, b:99999",
        properties={"bootstrap.servers": "c:3", "linger.ms": "x", "fetch.min.bytes": "y", "lingr.ms": "1"},
    )

    assert [problem.code for problem in cluster.problems()] == [
        "bootstrap-servers-twice",
        "bootstrap-servers",
        "bootstrap-servers",
        "client-setting-value",
        "client-setting-unknown",
        "client-setting-value",
    ]


def test_a_wrong_cluster_creates_no_client() -> None:
    cluster = Cluster("a:1", properties={"bootstrap.servers": "b:2", "acks": "some"}, name="prod")

    with pytest.raises(ResolveError) as e:
        cluster.producer()

    assert lines(e.value) == [
        "the cluster 'prod' has 2 problems:",
        "  bootstrap_servers is 'a:1', but the properties have 'bootstrap.servers' 'b:2'; "
        "remove 'bootstrap.servers' from the properties [bootstrap-servers-twice]",
        "  'acks' has the value 'some'; use one of 'all', '-1', '0' and '1' [client-setting-value]",
    ]


def test_the_same_brokers_among_the_properties_are_not_a_problem() -> None:
    assert Cluster("a:1,b:2", properties={"bootstrap.servers": "a:1, b:2"}).problems() == ()


def test_a_table_s_properties_win_over_the_cluster_s() -> None:
    cluster = Cluster("a:1", properties={"linger.ms": 1, "acks": "all"}).with_properties({"linger.ms": 2})

    assert cluster.properties == Properties({"linger.ms": "2", "acks": "all"})


def test_the_settings_of_kdsl_are_read_once_and_stay_out_of_pickles_and_comparisons() -> None:
    cluster = Cluster("a:1", properties={"group.id": "g", **login(LITERAL)})
    before, shown = cluster.__getstate__(), repr(cluster)

    settings = cluster.kdsl_settings

    assert cluster.kdsl_settings is settings
    assert cluster.__getstate__() == before
    assert (repr(cluster), "HUSH" in repr(settings)) == (shown, False)
    assert cluster == Cluster("a:1", properties={"group.id": "g", **login(LITERAL)})
    assert cluster.with_properties({"group.id": "h"}).kdsl_settings.group_id == "h"
    assert pickle.loads(pickle.dumps(cluster.split_literals()[0])).kdsl_settings.group_id == "g"


def test_the_connector_s_and_java_s_settings_come_from_the_same_properties() -> None:
    cluster = Cluster("a:1", properties={"group.id": "g", "fetch.max.wait.ms": 5, "client.id.prefix": "p"})

    assert cluster.kdsl_settings.client_id_prefix == "p"
    assert cluster.java("consumer").settings == {"group.id": "g", "fetch.max.wait.ms": "5", "bootstrap.servers": "a:1"}


def test_a_cluster_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "SHOP_BOOTSTRAP_SERVERS": "a:1",
        "SHOP_PROPERTIES_SECURITY_PROTOCOL": "SASL_SSL",
        "SHOP_PROPERTIES_SASL_JAAS_CONFIG": LITERAL,
        "SHOP_REGISTRY": "http://r",
        "SHOP_REGISTRY_PROPERTIES_BEARER-AUTH_TOKEN": "${file:/run/token}",
        "SHOP_CLUSTER_NAME": "shop",
    }.items():
        monkeypatch.setenv(key, value)

    assert Cluster.from_env("SHOP_") == Cluster(
        "a:1",
        properties={"security.protocol": "SASL_SSL", "sasl.jaas.config": LITERAL},
        name="shop",
        registry=Registry("http://r", Properties({"bearer-auth.token": "${file:/run/token}"})),
    )


def test_an_environment_without_brokers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDSL_BOOTSTRAP_SERVERS", raising=False)

    with pytest.raises(ResolveError) as e:
        Cluster.from_env()

    assert lines(e.value) == [
        "the environment describes no cluster:",
        "  the environment variable 'KDSL_BOOTSTRAP_SERVERS' is not set; set it to host:port of the brokers "
        "[cluster-missing]",
    ]


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "clusters.yaml"
    path.write_text(
        dedent(
            """
            clusters:
              production:
                bootstrap_servers: [a:1, "b:2"]
                properties: {security.protocol: SSL, linger.ms: 5, enable.idempotence: true}
                registry: {url: "https://r", properties: {basic-auth.user-info: "${env:USER_INFO}"}}
              flat:
                properties.bootstrap.servers: c:3
                properties.acks: all
                registry: http://r
              bad:
                bootstrap.servers: 9092
                propertys: {a: b}
                properties: {a: [1], b: null}
                properties.c: {d: e}
                registry: {address: x}
              text: a:1
            """
        ),
        encoding="utf-8",
    )
    return path


def test_a_cluster_comes_from_a_document(document: Path) -> None:
    assert Cluster.from_yaml(document, "production") == Cluster(
        "a:1,b:2",
        properties={"security.protocol": "SSL", "linger.ms": "5", "enable.idempotence": "true"},
        name="production",
        registry=Registry("https://r", Properties({"basic-auth.user-info": "${env:USER_INFO}"})),
    )


def test_a_cluster_may_be_written_with_flink_s_keys(document: Path) -> None:
    assert Cluster.from_yaml(document, "flat") == Cluster(
        "c:3", properties={"acks": "all"}, name="flat", registry="http://r"
    )


def test_the_one_cluster_of_a_document_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("clusters: {dev: {bootstrap_servers: a:1}}", encoding="utf-8")

    assert Cluster.from_yaml(str(path)) == Cluster("a:1", name="dev")


def test_all_problems_of_a_document_are_reported_with_their_locations(document: Path) -> None:
    with pytest.raises(ResolveError) as e:
        Cluster.from_yaml(document, "bad")

    message = "".join(lines(e.value)).replace(str(document), "clusters.yaml")
    assert [f"$.clusters.bad.{path}: " in message for path in PLACES] == [True] * len(PLACES)
    assert len(e.value.problems) == len(PLACES)


PLACES = ("bootstrap.servers", "propertys", "properties.a", "properties.b", "c", "registry")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", None, "$.clusters: there is no mapping of clusters by name; write clusters: {name: …}"),
        ("clusters: []", None, "$.clusters: there is no mapping of clusters by name; write clusters: {name: …}"),
        (
            "clusters: {a: {}, b: {}}",
            None,
            "$.clusters: there are several clusters, and none is chosen; pass one of the names 'a' and 'b'",
        ),
        (
            "clusters: {prod: {}}",
            "prd",
            "there is no cluster 'prd' (did you mean 'prod'?); pass one of the names 'prod'",
        ),
        (
            "clusters: {a: x}",
            "a",
            "$.clusters.a: the cluster is not a mapping; write 'bootstrap_servers', 'properties'",
        ),
        (
            "clusters: {a: {}}",
            "a",
            "$.clusters.a: the cluster has no bootstrap_servers; write bootstrap_servers: host:port",
        ),
    ],
)
def test_a_document_without_the_cluster_is_an_error(tmp_path: Path, text: str, name: str | None, message: str) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ResolveError) as e:
        Cluster.from_yaml(path, name)

    assert message in str(e.value)
    assert str(path) in str(e.value)


def test_a_login_in_an_address_without_a_scheme_is_hidden_too() -> None:
    registry = Registry("me:hush@host:8081,http://you:hush@other")

    assert registry.url == "host:8081,http://other"
    assert "hush" not in repr(registry)


def test_a_password_in_an_address_may_contain_a_comma() -> None:
    registry = Registry("http://me:hu,sh@host:8081")

    assert registry.url == "http://host:8081"
    assert registry.properties.reveal() == {"basic-auth.user-info": "me:hu,sh"}
    assert "sh@" not in repr(registry)


BROKEN_DOCUMENTS = (
    "sasl.jaas.config: a.PlainLoginModule required username=u password: HUSH;",
    "ssl.key.password: *HUSH",
    'ssl.key.password: "HUSH',
    "ssl.key.password: 'HUSH",
    "ssl.key.password: !HUSH",
    "ssl.key.password: !HU!SH",
    "ssl.key.password: {HUSH",
    "ssl.key.password: [HUSH",
    "ssl.key.password: @HUSH",
    "ssl.key.password: `HUSH",
    "ssl.key.password: %HUSH",
    "ssl.key.password: &HUSH\n      ssl.keystore.password: &HUSH x",
    'ssl.key.password: "HUSH\\q"',
    'ssl.key.password: "HUSH\\xZZ"',
    "ssl.key.password: HUSH\n   more: HUSH",
    "ssl.key.password: |HUSH",
    "ssl.key.password: HUSH\x07",
    "ssl.key.password: !!binary HUSHü",
    "ssl.key.password: {HUSH: HUSH}",
    "ssl.key.password: [HUSH, HUSH]",
    "<<: HUSH",
    "? [HUSH]\n      : HUSH",
)


@pytest.mark.parametrize("text", BROKEN_DOCUMENTS)
def test_an_error_in_a_document_names_the_line_and_quotes_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(
        f"clusters:\n  prod:\n    bootstrap_servers: k:1\n    properties:\n      {text}\n", encoding="utf-8"
    )

    with pytest.raises(ResolveError) as e:
        Cluster.from_yaml(path)

    assert f"{path}:" in str(e.value).replace(f"{path}: ", "")
    assert "HU" not in "".join(format_exception(e.value)) + repr(e.value)


def test_the_values_of_settings_are_strings_as_written(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(
        "clusters: {a: {bootstrap_servers: k:1, properties: {ssl.key.password: 0123, sasl.password: 1e5, b: yes},\n"
        "  registry: {url: http://r, properties: {basic-auth.user-info: 12:30}}}}"
    )

    cluster = Cluster.from_yaml(path)

    assert cluster.properties.reveal() == {"ssl.key.password": "0123", "sasl.password": "1e5", "b": "yes"}
    assert cluster.registry is not None
    assert cluster.registry.properties.reveal() == {"basic-auth.user-info": "12:30"}


def test_a_duplicate_setting_in_a_document_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text("clusters: {a: {bootstrap_servers: k:1, properties: {acks: all, acks: all}}}")

    with pytest.raises(ResolveError) as e:
        Cluster.from_yaml(path)

    assert "'acks' is declared twice, first in line 1; remove one" in str(e.value)
