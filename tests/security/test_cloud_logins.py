"""Logins of clouds at a real broker, which lets a server of the test decide about tokens as a cloud's brokers do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kdsl import Cluster, Col, Json, KafkaTable
from kdsl.cli.app import app
from kdsl.client_settings import aws_tokens, entra_tokens, gcp_tokens, machine
from kdsl.errors import KdslError, UnreachableError
from kdsl.java import find_java
from kdsl.retry import Deadline
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.librdkafka.consumers import SIZES, PooledConsumer
from kdsl.run.librdkafka.producer import Producer
from kdsl.run.offsets.stored import Range
from kdsl.testing import LocalKafka
from kdsl.testing.kafka_jars import find_kafka
from kdsl.testing.security import jaas
from tests.clouds import ACCOUNT, ROLE, Clouds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

CHECK = Path(__file__).parent / "brokers" / "TokenCheck.java"
IAM = "software.amazon.msk.auth.iam"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGINS = {
    "AWS_MSK_IAM": {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f'{IAM}.IAMLoginModule required awsRoleArn="{ROLE}";',
        "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
    },
    "entra": {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": "entra"},
    "gcp": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH} required;",
        "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
    },
}
PRINCIPALS = {
    "AWS_MSK_IAM": f"{ROLE}/aws-msk-iam-auth/",
    "entra": "machine@https://127.0.0.1",
    "gcp": ACCOUNT,
}


def add_check(folder: Path) -> Path:
    """A folder with Kafka's jars and that of the check, which is compiled for it."""
    java = find_java()
    kafka = find_kafka(java=java)
    for jar in kafka.jars:
        (folder / jar.name).symlink_to(jar)
    classes = folder / "classes"
    compiler = Path(os.path.realpath(java)).with_name("javac")
    subprocess.run([compiler, "-cp", kafka.classpath, "-d", classes, CHECK], check=True, timeout=120)
    with zipfile.ZipFile(folder / "token-check.jar", "w") as archive:
        for path in classes.rglob("*.class"):
            archive.write(path, path.relative_to(classes))
    return folder


@pytest.fixture(scope="module")
def clouds() -> Iterator[Clouds]:
    with Clouds() as clouds:
        yield clouds


@pytest.fixture(scope="module")
def kafka(clouds: Clouds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    prefix = "listener.name.oauth."
    properties = {
        f"{prefix}oauthbearer.sasl.server.callback.handler.class": "kdsl.tests.TokenCheck",
        f"{prefix}oauthbearer.sasl.jaas.config": jaas(
            "OAuthBearerLoginModule", unsecuredLoginStringClaim_sub="broker", check=f"{clouds.url}/check"
        ),
        f"{prefix}oauthbearer.connections.max.reauth.ms": "3600000",
    }
    jars = add_check(tmp_path_factory.mktemp("jars"))
    with LocalKafka(security=("plaintext", "oauthbearer"), jars=jars, properties=properties) as kafka:
        yield kafka


@pytest.fixture
def environment(clouds: Clouds, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that has an identity in each of the three clouds."""
    return {**clouds.aws(), **clouds.azure(), **clouds.google(tmp_path)}


@pytest.fixture(autouse=True)
def fresh(clouds: Clouds, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    clouds.life, clouds.longest, clouds.refuses = 3600, 3600.0, False
    clouds.accepted.clear()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_tokens, "_renewable", {})
    monkeypatch.setattr(machine, "_first_tokens", {})
    gcp_tokens._credentials.cache_clear()
    entra_tokens._credential.cache_clear()


def cluster_of(kafka: LocalKafka, login: str) -> Cluster:
    properties = {"security.protocol": "SASL_PLAINTEXT", **LOGINS[login]}
    return Cluster(kafka.through("oauthbearer").bootstrap_servers, properties=properties)


def read_all(consumer: PooledConsumer, ranges: list[Range]) -> list[bytes]:
    """The values of ranges, read to their ends."""
    consumer.assign(ranges)
    values: list[bytes] = []
    while len(values) < sum(len(r) for r in ranges):
        with consumer.consume(10, 1) as messages:
            values += messages.records().build("value").to_pylist()
        assert consumer.lasting_error is None
    return values


@pytest.mark.parametrize("login", LOGINS)
def test_each_kind_of_client_logs_in(kafka: LocalKafka, clouds: Clouds, login: str) -> None:
    """Clients of confluent-kafka and clients that kdsl creates through librdkafka's functions."""
    cluster = cluster_of(kafka, login)
    topic = kafka.through("plaintext").create_topic(f"by-{login.lower()}")
    admin = LibrdkafkaAdmin(cluster, "Orders")
    assert list(admin.topics([topic])) == [topic]

    producer = Producer(cluster.producer({"group.id": "orders"}))
    assert producer.look_up(topic, 60) == 0
    producer.close()
    kafka.through("plaintext").produce(topic, b"a", b"b")
    consumer = PooledConsumer(cluster.consumer({"group.id": "orders", **SIZES[0].settings}), "servers")
    assert read_all(consumer, [Range(topic, 0, 0, 2)]) == [b"a", b"b"]
    consumer.close()
    admin.commit("orders", {(topic, 0): 1})
    assert admin.committed("orders", [(topic, 0)]) == {(topic, 0): 1}
    assert {accepted.principal for accepted in clouds.accepted} == {PRINCIPALS[login]}


@pytest.mark.parametrize("login", ["AWS_MSK_IAM", pytest.param("gcp", marks=pytest.mark.reliability)])
def test_a_consumer_stays_logged_in_with_tokens_that_expire(
    kafka: LocalKafka, clouds: Clouds, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker closes a connection whose client does not log in again before its token expires."""
    monkeypatch.setattr(aws_tokens, "LIFE", 4.0)
    clouds.longest = 5.0
    topic = kafka.through("plaintext").create_topic(f"renewed-{login.lower()}")
    consumer = PooledConsumer(cluster_of(kafka, login).consumer({"group.id": "orders", **SIZES[0].settings}), "servers")
    consumer.assign([Range(topic, 0, 0, 1)])

    deadline = Deadline(120)
    while len(clouds.accepted) < 5 and not deadline.has_passed:
        consumer.consume(1, 0.5)
    kafka.through("plaintext").produce(topic, b"a")

    assert read_all(consumer, [Range(topic, 0, 0, 1)]) == [b"a"]
    consumer.close()
    assert len(clouds.accepted) >= 5
    assert {accepted.principal for accepted in clouds.accepted} == {PRINCIPALS[login]}


@pytest.mark.reliability
def test_a_login_that_cannot_be_renewed_for_a_while_goes_on(
    kafka: LocalKafka, clouds: Clouds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker closes the connection meanwhile; the reason is logged."""
    monkeypatch.setattr(aws_tokens, "LIFE", 4.0)
    clouds.longest = 5.0
    topic = kafka.through("plaintext").create_topic("renewed-later")
    settings = {"group.id": "orders", **SIZES[0].settings}
    consumer = PooledConsumer(cluster_of(kafka, "AWS_MSK_IAM").consumer(settings), "servers")
    consumer.assign([Range(topic, 0, 0, 1)])
    deadline = Deadline(120)
    while not clouds.accepted and not deadline.has_passed:
        consumer.consume(1, 0.5)

    def fail(*_: object) -> tuple[str, float]:
        raise OSError("the network is down")

    with monkeypatch.context() as patch:
        patch.setattr(aws_tokens, "_sign", fail)
        while "Failed to acquire SASL" not in str(consumer.last_error) and not deadline.has_passed:
            consumer.consume(1, 0.5)
        assert "Amazon MSK's IAM returned no credentials (OSError: the network is down)" in caplog.text
    kafka.through("plaintext").produce(topic, b"a")

    assert read_all(consumer, [Range(topic, 0, 0, 1)]) == [b"a"]
    consumer.close()


ADVICE = {
    "AWS_MSK_IAM": "they do not accept the token of Amazon MSK's IAM; check that its policy allows "
    "kafka-cluster:Connect on this cluster, that the region and this machine's clock are right, and that "
    "bootstrap.servers has the port of IAM (9098, or 9198 from outside)",
    "entra": "they do not accept the token of Microsoft Entra; check that the identity has a role for the namespace",
    "gcp": "they do not accept the token of Google Cloud; check that the service account has the role "
    "roles/managedkafka.client",
}


@pytest.mark.parametrize("login", LOGINS)
def test_a_refused_token_is_explained(kafka: LocalKafka, clouds: Clouds, login: str) -> None:
    clouds.refuses = True

    with pytest.raises(UnreachableError) as e:
        LibrdkafkaAdmin(cluster_of(kafka, login), "Orders").topics(["orders"])

    assert ADVICE[login] in str(e.value)


def find_errors(kafka: LocalKafka, login: str) -> str:
    """What ``kdsl doctor`` prints about a cluster with a login, as far as it is an error."""
    settings = {"security.protocol": "SASL_PLAINTEXT", **LOGINS[login]}
    options = [part for name, value in settings.items() for part in ("--property", f"{name}={value}")]
    servers = kafka.through("oauthbearer").bootstrap_servers
    result = CliRunner().invoke(app, ["doctor", "--json", "--bootstrap", servers, *options])
    findings = json.loads(result.stdout[result.stdout.index("{") :])["findings"]
    return "\n".join(finding["message"] for finding in findings if finding["state"] == "error")


@pytest.mark.reliability
def test_doctor_explains_what_prevents_a_login(
    kafka: LocalKafka, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not find_errors(kafka, "AWS_MSK_IAM")
    clouds.refuses = True
    assert ADVICE["AWS_MSK_IAM"] in find_errors(kafka, "AWS_MSK_IAM")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(aws_tokens, "_renewable", {})
    monkeypatch.setattr(machine, "_first_tokens", {})  # as in another process
    assert "Amazon MSK's IAM returned no credentials (NoCredentialsError" in find_errors(kafka, "AWS_MSK_IAM")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("login", "setting", "library"),
    [
        ("AWS_MSK_IAM", "sasl.client.callback.handler.class", "software.amazon.msk:aws-msk-iam-auth"),
        ("gcp", "sasl.login.callback.handler.class", "com.google.cloud.hosted.kafka:managed-kafka-auth-login-handler"),
    ],
)
def test_java_s_clients_need_the_library_of_the_cloud(
    spark: SparkSession, login: str, setting: str, library: str
) -> None:
    class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest", transport="jvm"):
        id: Col[int]

    cluster = Cluster("127.0.0.1:1", properties={"security.protocol": "SASL_PLAINTEXT", **LOGINS[login]})
    message = f"Orders: the session does not have the class {LOGINS[login][setting]}, which {setting!r} names; start"
    for use in (
        lambda: Orders.read(spark, cluster),
        lambda: Orders.write(Orders.rows([Orders(id=1)], spark=spark), cluster),
    ):
        with pytest.raises(KdslError) as e:
            use()
        assert str(e.value).startswith(message)
        assert library in str(e.value)


_JOB = """
import json, os, sys

from kdsl import Cluster, Col, Json, KafkaTable
from kdsl.testing import SparkCluster

servers, topic, properties, executors = json.loads(sys.argv[1])
cluster = Cluster(servers, properties=properties)

class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest"):
    id: Col[int]

class Once(Orders, topic=topic, exactly_once="direct", delivery="exactly-once", transactional_id_prefix=topic):
    pass

with SparkCluster(workers=1) as machines:
    settings = {f"spark.executorEnv.{name}": value for name, value in executors.items()}
    spark = machines.builder({"spark.log.level": "OFF", **settings}).getOrCreate()
    Orders.write(Orders.rows([Orders(id=1), Orders(id=2)], spark=spark), cluster)
    for _ in range(2):
        Once.write(Once.rows([Once(id=3)], spark=spark), cluster, write_id="once")
    print(sorted(row.id for row in Orders.read(spark, cluster).collect()))
    plan = Orders.read(spark, cluster)._jdf.queryExecution().toString()
    spark.stop()
assert os.environ["AWS_SECRET_ACCESS_KEY"] not in plan
"""


@pytest.mark.parametrize(
    "login", [pytest.param(name, marks=pytest.mark.reliability) for name in ("AWS_MSK_IAM", "entra", "gcp")]
)
def test_executors_log_in_by_themselves(
    kafka: LocalKafka, clouds: Clouds, environment: dict[str, str], login: str
) -> None:
    """Rows are written, also in a transaction, and read by executors in processes of their own.

    They find their credentials themselves.
    """
    topic = kafka.through("plaintext").create_topic(f"executors-{login.lower()}")
    properties = {"security.protocol": "SASL_PLAINTEXT", **LOGINS[login]}
    # The cluster's processes inherit this environment, as those of a machine that has an identity.
    arguments = (kafka.through("oauthbearer").bootstrap_servers, topic, properties, environment)

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _JOB, json.dumps(arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("[1, 2, 3]")
    # Clients of earlier tests may log in again meanwhile.
    assert PRINCIPALS[login] in {accepted.principal for accepted in clouds.accepted}
