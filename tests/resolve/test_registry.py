"""Formats whose schemas stand in a registry: the registry, the subject, the schema, secrets (RULES section 9)."""

from __future__ import annotations

from typing import Any

import pytest

from kdsl import AvroConfluent, CheckpointError, Cluster, DebeziumAvroConfluent, Json, KafkaTable, Key, Registry
from kdsl.errors import ResolveError
from kdsl.formats import Use
from kdsl.plan.model import WritePlan
from kdsl.plan.show import show
from kdsl.plan.text import plan_text, read_plan_text, split_secrets, with_secrets
from kdsl.run.checkpoint.manifest import Manifest
from kdsl.run.records.registry import without_literal_secrets
from kdsl.table import Table
from kdsl_formats.registry import RegistryFormat

URL = "http://registry:8081"
ORDER = (
    '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"]}]}'
)

TURNED = '{"type":"record","name":"A","fields":[{"name":"note","type":["null","string"]},{"name":"id","type":"long"}]}'
STAGED = {"exactly_once": "staged", "delivery": "exactly-once", "transactional_id_prefix": "p"}


def table(value: Any = None, topic: str | list[str] = "orders", **options: Any) -> Table:
    class Orders(KafkaTable, topic=topic, value=value or AvroConfluent(url=URL), **options):
        id: int
        note: str | None

    return Table(Orders.definition())


def problems_of(actual: Table, direction: str = "write", cluster: Cluster | None = None) -> list[tuple[str, str]]:
    try:
        actual.write_plan(cluster) if direction == "write" else actual.read_plan(cluster=cluster)
    except ResolveError as e:
        return [(p.problem.code, p.problem.message) for p in e.exceptions if hasattr(p, "problem")]
    return []


class TestTheRegistry:
    def test_without_one_both_ways_to_set_it_are_named(self) -> None:
        result = table(AvroConfluent())
        with pytest.raises(ResolveError) as caught:
            result.read_plan(cluster=Cluster("k:1"))
        (error,) = caught.value.exceptions
        text = str(error)

        assert "needs a schema registry: neither the format ('url') nor the cluster has one" in text
        assert "AvroConfluent(url='http://HOST:PORT')" in text
        assert "Cluster(…, registry='http://HOST:PORT')" in text

    def test_a_table_that_names_its_brokers_needs_no_cluster(self) -> None:
        result = table(AvroConfluent(), properties={"bootstrap.servers": "k:1"})

        assert [code for code, _ in problems_of(result)] == ["registry-missing"]

    def test_a_plan_needs_none_as_long_as_the_cluster_is_not_known(self) -> None:
        assert problems_of(table(AvroConfluent())) == []

    @pytest.mark.parametrize("direction", ["read", "write"])
    def test_that_of_the_cluster_will_do(self, direction: str) -> None:
        assert problems_of(table(AvroConfluent()), direction, Cluster("k:1", registry=URL)) == []

    def test_its_settings_are_judged_too(self) -> None:
        cluster = Cluster("k:1", registry=Registry(URL, {"basic.auth.credentials.source": "USER_INFO"}))

        assert [code for code, _ in problems_of(table(AvroConfluent()), "read", cluster)] == ["registry-login"]

    def test_the_format_s_own_settings_win(self) -> None:
        registry = Registry(URL, {"basic.auth.user.info": "a:b", "max.retries": "1"})

        own = AvroConfluent(properties={"max.retries": 3}).registry(registry)

        assert own == Registry(URL, {"basic.auth.user.info": "a:b", "max.retries": "3"})

    def test_a_login_of_the_format_s_replaces_that_of_the_cluster(self) -> None:
        registry = Registry(URL, {"basic.auth.user.info": "a:b", "bearer.auth.logical.cluster": "c"})
        wanted = Registry(URL, {"bearer.auth.logical.cluster": "c", "bearer-auth.token": "t"})

        assert AvroConfluent(bearer_auth_token="t").registry(registry) == wanted
        assert AvroConfluent(url=URL, bearer_auth_token="t").registry(registry) == wanted

    def test_a_login_of_the_cluster_s_goes_to_no_other_address(self) -> None:
        registry = Registry(URL, {"basic.auth.user.info": "a:b"})

        assert AvroConfluent(url="http://other").registry(registry) == Registry("http://other")
        assert AvroConfluent(url=URL).registry(registry) == registry


class TestTheSubject:
    @pytest.mark.parametrize(
        ("value", "use", "subject"),
        [
            (AvroConfluent(), Use(topics=("orders",)), "orders-value"),
            (AvroConfluent(), Use("key", topics=("orders",)), "orders-key"),
            (AvroConfluent(subject="mine"), Use(topics=("orders", "other")), "mine"),
            (AvroConfluent(subject_name_strategy="record"), Use(topics=()), "shop.Order"),
            (AvroConfluent(subject_name_strategy="topic-record"), Use(topics=("orders",)), "orders-shop.Order"),
            (DebeziumAvroConfluent(), Use(topics=("orders",)), "orders-value"),
        ],
    )
    def test_it_is_named_after_the_topic_by_default(self, value: RegistryFormat, use: Use, subject: str) -> None:
        assert value.subject_of(use, "shop.Order") == subject

    @pytest.mark.parametrize("value", [AvroConfluent(url=URL), DebeziumAvroConfluent(url=URL)])
    def test_a_sink_whose_topic_is_not_known_needs_it(self, value: RegistryFormat) -> None:
        several = table(value, topic=["a", "b"])

        assert "registry-subject" in [code for code, _ in problems_of(several)]
        assert problems_of(several, "read") == []

    def test_a_declared_schema_suffices_for_several_topics(self) -> None:
        codes = [code for code, _ in problems_of(table(AvroConfluent(url=URL, subject="s"), topic=["a", "b"]))]

        assert "registry-subject" not in codes

    @pytest.mark.parametrize(
        ("value", "part"),
        [
            (
                AvroConfluent(url=URL, subject="s", subject_name_strategy="record", schema=ORDER),
                "has the subject 's', and",
            ),
            (AvroConfluent(url=URL, subject_name_strategy="topic-record"), "the same name in every table"),
            (AvroConfluent(url=URL, use_latest_version=True, schema=ORDER), "use-latest-version"),
        ],
    )
    def test_contradictory_options_are_reported(self, value: AvroConfluent, part: str) -> None:
        ((_, message),) = problems_of(table(value))

        assert part in message
        assert problems_of(table(value), "read") == []


class TestTheSchema:
    def test_it_fits_the_table(self) -> None:
        assert problems_of(table(AvroConfluent(url=URL, schema=ORDER))) == []

    @pytest.mark.parametrize(
        ("schema", "part"),
        [
            ("{", "this is not"),
            ('"long"', "cannot be used"),
            (ORDER.replace('"id"', '"idd"'), "it has no 'id'; the table has no 'idd'"),
            (ORDER.replace('"long"', '"int"'), "'id' is INT NOT NULL in it, but BIGINT NOT NULL in the table"),
            (
                ORDER.replace('["null","string"]', '"string"'),
                "'note' is STRING NOT NULL in it, but STRING in the table",
            ),
            (
                '{"type":"record","name":"A","fields":[{"name":"note","type":["null","string"]},{"name":"id","type":"long"}]}',
                "in another order",
            ),
        ],
    )
    def test_a_mismatch_is_reported_with_the_difference(self, schema: str, part: str) -> None:
        ((code, message),) = problems_of(table(AvroConfluent(url=URL, schema=schema)))

        assert code == "registry-schema"
        assert part in message

    def test_the_schema_of_changes_contains_the_envelope(self) -> None:
        ((_, message),) = problems_of(table(DebeziumAvroConfluent(url=URL, schema=ORDER)))

        assert "it has no 'before', 'after', 'op'; the table has no 'id', 'note'" in message

    def test_columns_that_avro_cannot_represent_are_reported(self) -> None:
        class Odd(KafkaTable, topic="t", value=AvroConfluent(url=URL)):
            counts: dict[int, str]

        assert problems_of(Table(Odd.definition()), "read") != []


class TestSecrets:
    SECRET = AvroConfluent(url=URL, basic_auth_user_info="me:HUSH", properties={"bearer.auth.client.secret": "HUSH"})

    def test_a_plan_shows_none_and_keeps_none(self) -> None:
        plan = table(self.SECRET).write_plan()
        texts = [plan_text(plan), show(plan), repr(plan), repr(split_secrets(plan)[0])]

        assert "HUSH" not in "".join(texts)
        assert plan == table(self.SECRET).write_plan()

    def test_literals_travel_separately_and_are_restored(self) -> None:
        plan = table(self.SECRET).write_plan()
        apart, literals = split_secrets(plan)

        assert with_secrets(read_plan_text(plan_text(plan), WritePlan), literals) == plan
        assert literals == {
            "format.value.basic-auth.user-info": "me:HUSH",
            "format.value.properties.bearer.auth.client.secret": "HUSH",
        }
        assert plan_text(apart) == plan_text(plan)

    @pytest.mark.parametrize(
        "options",
        [{"transport": "jvm"}, {"exactly_once": "staged", "delivery": "exactly-once", "transactional_id_prefix": "p"}],
    )
    def test_a_literal_secret_is_refused_where_it_would_be_visible(self, options: dict[str, Any]) -> None:
        problems = problems_of(table(self.SECRET, **options))

        assert [code for code, _ in problems] == ["secret-literal"] * 2
        assert "HUSH" not in str(problems)
        assert problems_of(table(AvroConfluent(url=URL, basic_auth_user_info="${env:INFO}"), **options)) == []

    @pytest.mark.parametrize(
        ("value", "settings", "sent"),
        [
            (AvroConfluent(), {"basic-auth.user-info": "${env:I}"}, {"basic-auth.user-info": "${env:I}"}),
            (AvroConfluent(url="http://other"), {"basic-auth.user-info": "me:HUSH", "max.retries": "1"},
             {"max.retries": "1"}),
            (AvroConfluent(bearer_auth_token="${env:T}"), {"basic-auth.user-info": "me:HUSH"}, {}),
            (AvroConfluent(), {"sasl.password": "HUSH", "sasl.username": "me"}, {"sasl.username": "me"}),
            (Json(), {"basic-auth.user-info": "me:HUSH"}, None),
        ],
    )  # fmt: skip
    def test_an_unused_registry_is_not_sent(self, value: Any, settings: Any, sent: Any) -> None:
        result = without_literal_secrets(table(value).read_plan(), Registry(URL, settings))

        assert result == (None if sent is None else Registry(URL, sent))

    @pytest.mark.parametrize(
        ("value", "settings", "name"),
        [
            (AvroConfluent(), {"basic-auth.user-info": "me:HUSH"}, "basic-auth.user-info"),
            (AvroConfluent(url=URL), {"ssl.keystore.location": "/k.jks", "ssl.keystore.password": "HUSH"},
             "ssl.keystore.password"),
            (AvroConfluent(basic_auth_credentials_source="SASL_INHERIT"),
             {"sasl.username": "me", "sasl.password": "HUSH"}, "sasl.password"),
            (AvroConfluent(bearer_auth_token="HUSH"), {}, "bearer-auth.token"),
        ],
    )  # fmt: skip
    def test_one_that_a_format_uses_is_refused(self, value: Any, settings: Any, name: str) -> None:
        with pytest.raises(ResolveError) as caught:
            without_literal_secrets(table(value).read_plan(), Registry(URL, settings))
        (error,) = caught.value.exceptions

        assert f"the secret {name!r} is a literal" in str(error)
        assert "HUSH" not in str(error)


def test_a_key_may_have_one_too() -> None:
    class Keyed(KafkaTable, topic="orders", key=AvroConfluent(), value=Json()):
        id: Key[int]
        note: str | None

    actual = Table(Keyed.definition())

    assert [code for code, _ in problems_of(actual, "write", Cluster("k:1"))] == ["registry-missing"]
    assert problems_of(actual, "write", Cluster("k:1", registry=URL)) == []


def test_a_query_may_continue_with_another_login_but_not_with_another_schema() -> None:
    before = table(AvroConfluent(url=URL, basic_auth_user_info="me:HUSH", bearer_auth_token="${env:T}")).write_plan()
    manifest = Manifest(plan=plan_text(before))
    after = table(AvroConfluent(url="http://other", basic_auth_user_info="me:NEW")).write_plan()

    assert manifest.check_change(before, "place", False) == []
    assert manifest.check_change(after, "place", False) != []
    with pytest.raises(CheckpointError, match="not every change is safe"):
        manifest.check_change(table(AvroConfluent(url=URL, schema=ORDER)).write_plan(), "place", False)
