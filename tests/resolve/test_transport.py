"""What each transport can do, and what real-time mode can."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from kdsl.cluster import Cluster
from kdsl.declare.config import Scalar, WatermarkConfig
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.plan.build import read_plan
from kdsl.plan.show import show
from kdsl.resolve import problems, resolve
from kdsl.resolve.transport import CAPABILITIES, choose_transport, transport_note
from kdsl.table import Table
from tests.resolve.tables import codes, errors, table

DOCS = Path(__file__).parents[2] / "docs"
JVM: dict[str, Scalar] = {"transport": "jvm"}
REALTIME: dict[str, Scalar] = {"transport": "jvm", "latency": "realtime", "format": "raw"}


def only(*columns: str, direction: Direction = "read", options: dict[str, Scalar] | None = None) -> Problem:
    """The one error of a table on the transport jvm."""
    (problem,) = errors(table(*columns, options={**JVM, **(options or {})}), direction)
    return problem


class TestCapabilities:
    def test_a_table_without_specialities_works_on_both(self) -> None:
        for transport in ("librdkafka", "jvm"):
            definition = table(options={"transport": transport})
            assert codes(definition) == codes(definition, "write") == []

    def test_the_transport_goes_into_the_plan_in_small_letters(self) -> None:
        assert resolve(table(options={"transport": "JVM"}), "read").table.options.transport in ("JVM", "jvm")

    @pytest.mark.parametrize(
        ("direction", "name"), [("read", "register.consumer.metrics"), ("write", "register.producer.metrics")]
    )
    def test_metrics_of_kafkas_clients_are_not_asked_for_in_vain(self, direction: Direction, name: str) -> None:
        definition = table(options={**JVM, f"properties.{name}": "true"})

        (warning,) = [p for p in problems(definition, direction) if p.code == "client-metrics"]

        assert warning.severity == "warning"
        assert warning.message.startswith(f"the client property {name!r} has no effect with 'transport': 'jvm'")
        assert warning.fix == "remove it, or write 'transport': 'librdkafka'"
        assert not codes(table(options={f"properties.{name}": "true"}), direction)

    def test_the_leader_epoch(self) -> None:
        problem = only("id INT", "epoch INT METADATA FROM leader-epoch VIRTUAL")

        assert problem.code == "transport"
        assert problem.where.column == "epoch"
        assert problem.message == (
            "the metadata 'leader-epoch' does not work with 'transport': 'jvm': Spark's source does not provide it"
        )
        assert problem.fix == "write 'transport': 'librdkafka', or remove the column"
        assert codes(table("id INT", "epoch INT METADATA FROM leader-epoch VIRTUAL", options=JVM), "write") == []

    def test_a_timestamp_that_is_written(self) -> None:
        columns = ("id INT", "ts TIMESTAMP_LTZ(3) METADATA FROM timestamp")
        problem = only(*columns, direction="write")

        assert "writing the metadata 'timestamp' does not work with 'transport': 'jvm'" in problem.message
        assert codes(table(*columns, options=JVM), "read") == []
        assert codes(table(*columns), "write") == []

    def test_exactly_once(self) -> None:
        options: dict[str, Scalar] = {
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": "orders-1",
        }
        problem = only(direction="write", options=options)

        assert "'sink.delivery-guarantee': 'exactly-once' does not work with 'transport': 'jvm'" in problem.message
        assert problem.fix == "write 'transport': 'librdkafka', or write 'sink.delivery-guarantee': 'at-least-once'"

    def test_a_limit_of_each_partition(self) -> None:
        problem = only(options={"scan.max-records-per-partition": 10})

        assert "'scan.max-records-per-partition': 10 does not work with" in problem.message

    def test_alignment(self) -> None:
        definition = table(
            "id INT",
            "ts TIMESTAMP(3)",
            watermark=WatermarkConfig(column="ts", delay="5 s"),
            options={
                **JVM,
                "scan.watermark.alignment.group": "g",
                "scan.watermark.alignment.max-drift": "10 s",
            },
        )

        assert codes(definition) == ["transport"]

    def test_internal_topics_by_a_pattern(self) -> None:
        options: dict[str, Scalar] = {
            **JVM,
            "topic-pattern": "__.*",
            "properties.exclude.internal.topics": "false",
        }

        assert codes(table(options=options, without=("topic",))) == ["transport"]

    def test_real_time_mode_is_the_other_transports(self) -> None:
        (problem,) = errors(table("text STRING", options={"latency": "realtime", "format": "raw"}))

        assert problem.fix == "write 'transport': 'jvm', or write 'latency': 'micro-batch'"

    def test_the_page_has_each_capability(self) -> None:
        page = (DOCS / "transports.md").read_text(encoding="utf-8")

        for capability in CAPABILITIES:
            assert capability.doc.rstrip(".") in page, capability.name


class TestKerberos:
    """A login with GSSAPI chooses the transport that has it."""

    KERBEROS: ClassVar[dict[str, Scalar]] = {
        "properties.security.protocol": "SASL_SSL",
        "properties.sasl.mechanism": "gssapi",
        "properties.connector.kerberos.principal": "ann",
        "properties.connector.kerberos.keytab": "/etc/ann.keytab",
    }

    def test_it_chooses_the_transport_jvm_with_a_reason(self) -> None:
        resolved = resolve(table(options=self.KERBEROS), "read")

        assert read_plan(resolved).transport == "jvm"
        assert "transport jvm, for the login with GSSAPI (Kerberos)" in show(read_plan(resolved))
        assert transport_note(resolved.table) == (
            "orders logs in with GSSAPI (Kerberos), which confluent-kafka's librdkafka does not support, so it "
            "uses Spark's own Kafka connector ('transport': 'jvm')"
        )

    @pytest.mark.parametrize(
        ("direction", "name"), [("read", "register.consumer.metrics"), ("write", "register.producer.metrics")]
    )
    def test_metrics_of_kafkas_clients_have_no_effect(self, direction: Direction, name: str) -> None:
        definition = table(options={**self.KERBEROS, f"properties.{name}": "true"})

        (warning,) = [p for p in problems(definition, direction) if p.code == "client-metrics"]

        assert "with the transport 'jvm', which a login with GSSAPI (Kerberos) needs" in warning.message
        assert warning.fix == "remove it"

    def test_a_declared_transport_stays_and_needs_no_note(self) -> None:
        assert transport_note(table(options={**JVM, **self.KERBEROS})) is None
        assert codes(table(options={"transport": "librdkafka", **self.KERBEROS})) == ["sasl-gssapi"]

    @pytest.mark.parametrize(
        ("properties", "transport"),
        [
            ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "librdkafka"),
            ({"security.protocol": "PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "librdkafka"),
            ({"security.protocol": "SASL_SSL"}, "librdkafka"),  # the mechanism is missing, and nothing says Kerberos
            ({"security.protocol": "SASL_SSL", "connector.kerberos.keytab": "k"}, "jvm"),
            ({"security.protocol": "SASL_SSL", "sasl.kerberos.principal": "ann"}, "jvm"),
            (
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;",
                },
                "jvm",
            ),
        ],
    )
    def test_what_counts_as_kerberos(self, properties: dict[str, str], transport: str) -> None:
        assert choose_transport(None, properties) == transport

    def test_the_cluster_may_be_what_asks_for_it(self) -> None:
        settings = {key.removeprefix("properties."): str(value) for key, value in self.KERBEROS.items()}

        assert Table(table()).read_plan(cluster=Cluster("k:9092", properties=settings)).transport == "jvm"

    @pytest.mark.parametrize(
        ("columns", "options", "direction", "message", "fix"),
        [
            (
                ("id INT", "epoch INT METADATA FROM leader-epoch VIRTUAL"),
                {},
                "read",
                "the metadata 'leader-epoch' does not work with the transport 'jvm', which a login with GSSAPI "
                "(Kerberos) needs: Spark's source does not provide it",
                "remove the column, or log in without Kerberos",
            ),
            (
                ("id INT", "at TIMESTAMP(3) METADATA FROM timestamp"),
                {},
                "write",
                "writing the metadata 'timestamp' does not work with the transport 'jvm', which a login with GSSAPI "
                "(Kerberos) needs: Spark's sink silently ignores it",
                "declare the column virtual, or log in without Kerberos",
            ),
            (
                ("id INT",),
                {"scan.check.duplicated.group.id": "true"},
                "read",
                "'scan.check.duplicated.group.id': 'true' does not work with a login with GSSAPI (Kerberos): the group "
                "is reserved by a client of librdkafka, which cannot log in",
                "remove it, or log in without Kerberos",
            ),
            (
                ("id INT",),
                {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"},
                "write",
                "'sink.delivery-guarantee': 'exactly-once' does not work with the transport 'jvm', which a login with "
                "GSSAPI (Kerberos) needs: Spark's sink does not support transactions",
                "write 'sink.delivery-guarantee': 'at-least-once', or log in without Kerberos",
            ),
        ],
    )
    def test_what_the_transport_lacks_is_an_error_with_the_reason(
        self, columns: tuple[str, ...], options: dict[str, Scalar], direction: Direction, message: str, fix: str
    ) -> None:
        (problem,) = errors(table(*columns, options={**self.KERBEROS, **options}), direction)

        assert (problem.message, problem.fix) == (message, fix)


class TestClientProperties:
    def test_javas_settings_are_judged(self) -> None:
        kerberos: dict[str, Scalar] = {
            "properties.security.protocol": "SASL_PLAINTEXT",
            "properties.sasl.mechanism": "GSSAPI",
            "properties.sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required keyTab="k";',
        }

        assert codes(table(options={**JVM, **kerberos})) == []
        assert codes(table(options={"transport": "librdkafka", **kerberos})) == ["sasl-gssapi"]

    def test_a_transactional_id_is_refused(self) -> None:
        assert codes(table(options={**JVM, "properties.transactional.id": "mine"}), "write") == ["client-setting-owned"]


class TestRealtime:
    @pytest.mark.parametrize("kind", ["STRING", "BYTES", "VARCHAR(10)", "STRING NOT NULL"])
    def test_raw_strings_and_bytes(self, kind: str) -> None:
        definition = table(f"text {kind}", options=REALTIME)

        assert codes(definition) == codes(definition, "write") == []

    @pytest.mark.parametrize(
        ("column", "options", "message"),
        [
            ("id INT", {"format": "json"}, "the format 'json' needs it"),
            ("id INT", {"format": "csv"}, "the format 'csv' needs it"),
            ("id BIGINT", {}, "the format 'raw' of 'BIGINT' needs it"),
            ("text STRING", {"raw.charset": "GBK"}, "the charset 'GBK' needs it"),
            ("text STRING", {"raw.line-delimiter": ";"}, "the option 'line-delimiter' needs it"),
        ],
    )
    def test_a_format_that_python_decodes(self, column: str, options: dict[str, Scalar], message: str) -> None:
        (problem,) = errors(table(column, options={**REALTIME, **options}))

        assert problem.code == "realtime-format"
        assert message in problem.message
        assert "with the format 'raw'" in problem.fix

    def test_metadata_in_its_own_type(self) -> None:
        good = ("text STRING", "at BIGINT METADATA FROM offset VIRTUAL", "ts TIMESTAMP_LTZ(3) METADATA FROM timestamp")
        assert codes(table(*good, options=REALTIME)) == []

        (problem,) = errors(table("text STRING", "at STRING METADATA FROM offset VIRTUAL", options=REALTIME))
        assert problem.code == "realtime-metadata"

    @pytest.mark.parametrize("key", ["scan.max-records-per-trigger", "scan.parallelism"])
    def test_options_of_a_read_without_effect(self, key: str) -> None:
        assert codes(table("text STRING", options={**REALTIME, key: 2})) == ["realtime-option"]

    @pytest.mark.parametrize(("key", "value"), [("sink.parallelism", 2), ("sink.partitioner", "fixed")])
    def test_options_of_a_write_that_need_python_or_a_shuffle(self, key: str, value: Scalar) -> None:
        assert codes(table("text STRING", options={**REALTIME, key: value}), "write") == ["realtime-option"]
