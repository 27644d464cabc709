"""Problems of clusters, of clients and of registries; see `tests.advice.cases`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from kdsl.client_settings.machine import Machine
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.cluster import Cluster, Registry
from kdsl.registry.settings import registry_problems
from kdsl.secrets import resolve
from tests.advice.cases import Called, Shown, check_advice
from tests.client_settings.installed import DATA

HOSTS = "kafka:9092"
URL = "https://registry:8081"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN = f'{PLAIN} required username="me" password="${{env:PASSWORD}}";'


def client(servers: str = HOSTS, transport: str = "librdkafka", **properties: object) -> Callable[[], object]:
    """A call that returns the problems of a cluster; ``_`` in names stands for ``.``."""
    settings = {name.replace("_", "."): value for name, value in properties.items()}

    def find() -> object:
        return list(Cluster(servers, properties=settings).problems(transport))  # type: ignore[arg-type]

    return Shown(find, f"Cluster({servers!r}, properties={settings!r})" if settings else f"Cluster({servers!r})")


def registry(url: str = URL, **properties: str) -> Callable[[], object]:
    settings = {name.replace("__", "-").replace("_", "."): value for name, value in properties.items()}
    text = f"Registry({url!r}, {settings!r})" if settings else f"Registry({url!r})"
    return Shown(lambda: list(registry_problems(Registry(url, settings))), text)


def document(text: str, name: str | None = None) -> Callable[[], object]:
    def read() -> object:
        with TemporaryDirectory() as folder:
            path = Path(folder, "clusters.yaml")
            path.write_text(text)
            return Cluster.from_yaml(path, name)

    return Shown(read, text, "yaml")


def environment(values: Mapping[str, str], call: Callable[[], object]) -> Callable[[], object]:
    def read() -> object:
        with patch.dict(os.environ, values, clear=True):
            return call()

    return read


ONE = "clusters:\n  a:\n    bootstrap_servers: kafka:9092\n"
CLUSTERS = [
    Called("bootstrap-servers", client(""), "write host:port", client("host:9092")),
    Called("bootstrap-servers", client("me:pw@kafka:9092"), "the login in 'sasl.mechanism' and 'sasl.jaas.config'",
           client(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=LOGIN)),
    Called("bootstrap-servers", client("kafka"), "write 'kafka:9092'", client("kafka:9092")),
    Called("bootstrap-servers", client("kafka:99999"), "write the port", client("kafka:9092")),
    Called("bootstrap-servers", client("kafka:9092/x"), "host:port", client("kafka:9092")),
    Called("bootstrap-servers-twice", client(bootstrap_servers="other:9092"),
           "remove 'bootstrap.servers' from the properties", client()),
    Called("cluster-missing", environment({}, Cluster.from_env), "set it to host:port of the brokers",
           environment({"KDSL_BOOTSTRAP_SERVERS": HOSTS}, Cluster.from_env)),
    Called("secret-reference", environment({},
           lambda: Cluster(HOSTS, properties={"ssl.key.password": "${env:NONE}"}).check_references()),
           "make what the reference names available here",
           environment({"NONE": "x"}, lambda: Cluster(HOSTS,
           properties={"ssl.key.password": "${env:NONE}"}).check_references())),
    Called("cluster-document", document("a: 1"), "write clusters: {name: …}",
           document("clusters: {name: {bootstrap_servers: 'kafka:9092'}}")),
    Called("cluster-document", document(ONE + "  b:\n    bootstrap_servers: kafka:9093\n"),
           "pass one of the names 'a' and 'b' as name=",
           document(ONE + "  b:\n    bootstrap_servers: kafka:9093\n", "a")),
    Called("cluster-document", document(ONE, "c"), "pass one of the names 'a' as name=", document(ONE, "a")),
    Called("cluster-document", document("clusters:\n  a: kafka:9092\n"), "under its name", document(ONE)),
    Called("cluster-document", document("clusters:\n  a:\n    bootstrap_servers: 5\n"), "write host:port",
           document(ONE)),
    Called("cluster-document", document("clusters:\n  a: {name: x}\n"), "use only 'bootstrap_servers'", document(ONE)),
    Called("cluster-document", document("clusters:\n  a: {registry: 'https://r'}\n"),
           "write bootstrap_servers: host:port", document(ONE)),
    Called("cluster-document", document(ONE + "    properties: [1]\n"), "write settings by their names",
           document(ONE + "    properties: {acks: all}\n")),
    Called("cluster-document", document(ONE + "    registry: 5\n"), "write registry: https://…",
           document(ONE + "    registry: https://r\n")),
    Called("cluster-document", document(ONE + "    registry: {url: 'https://r', x: 1}\n"),
           "use only 'url' and 'properties'",
           document(ONE + "    registry: {url: 'https://r', properties: {}}\n")),
    Called("client-property-type", document(ONE + "    properties: {acks: [all]}\n"),
           "use a string, a number, true or false",
           document(ONE + "    properties: {acks: all}\n")),
    Called("client-property-type", client(acks=["all"]), "use a string, a number, true or false", client(acks="all")),
    Called("repeated-key", document(ONE + "    bootstrap_servers: kafka:9093\n"), "remove one", document(ONE)),
    Called("client-setting-unknown", client(compresion_type="gzip"),
           "write a name of Kafka's consumer or producer configuration",
           client(compression_type="gzip")),
    Called("client-setting-value", client(acks="some"), "use one of", client(acks="all")),
    Called("client-setting-value", client(enable_idempotence="yes"), "use true or false",
           client(enable_idempotence="true")),
    Called("client-setting-value", client(linger_ms="-5"), "use an integer from 0", client(linger_ms="5")),
    Called("client-setting-value", client(auto_offset_reset="by_duration:PT1H"), "use the startup mode timestamp",
           client()),
]  # fmt: skip

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SSL = {"security.protocol": "SSL"}
SASL = {"security.protocol": "SASL_SSL"}
PASSWORD = {**SASL, "sasl.mechanism": "PLAIN"}
TOKENS = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
UNSECURED = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="me";',
}
OIDC = {**TOKENS, "sasl.oauthbearer.token.endpoint.url": "https://idp/token"}
CREDENTIALS = f'{OAUTH} required clientId="me" clientSecret="pw"'
AWS = {**SASL, "sasl.mechanism": "AWS_MSK_IAM"}
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"
CA, CHAIN, KEY = ((DATA / name).read_text() for name in ("ca.pem", "client.crt", "client.key"))


def client_of(
    settings: Mapping[str, str], more: Mapping[str, str | None] | None = None, transport: str = "librdkafka"
) -> Callable[[], object]:
    """A call that returns the problems of a cluster with some settings and some more; None removes one."""
    properties = {name: text for name, text in {**settings, **(more or {})}.items() if text is not None}

    def find() -> object:
        return list(Cluster(HOSTS, properties=properties).problems(transport))  # type: ignore[arg-type]

    return Shown(find, write_properties(properties), "yaml")


def create(settings: Mapping[str, str]) -> Callable[[], object]:
    """A call that returns the problems of a consumer, whose files are read."""
    return Shown(
        lambda: list(librdkafka_settings(settings, "consumer", resolve, Machine()).problems),
        write_properties(settings),
        "yaml",
    )


def write_properties(properties: Mapping[str, str]) -> str:
    """The properties of a cluster in YAML, of values with several lines and of files of tests only the ends."""
    lines = ["properties:"]
    for name, text in properties.items():
        shown = f"…{text[-20:]}" if "\n" in text else text.replace(str(DATA), "…")
        lines.append(f"  {name}: {json.dumps(shown, ensure_ascii=False)}")
    return "\n".join(lines)


def follow(
    code: str, settings: Mapping[str, str], wrong: Mapping[str, str], advice: str, right: Mapping[str, str | None]
) -> Called:
    """The case of settings with some wrong ones, and what the advice says to write (None: to remove)."""
    return Called(code, client_of({**settings, **wrong}), advice, client_of({**settings, **wrong}, right))


JAAS = "sasl.jaas.config"
STORE, KEYS = "ssl.truststore", "ssl.keystore"
CLIENTS = [
    follow("client-setting-twice", {}, {"fetch.min.bytes": "5", "fetch.max.wait.ms": "7", "fetch.wait.max.ms": "8"},
           "keep 'fetch.max.wait.ms'", {"fetch.wait.max.ms": None}),
    follow("client-setting-range", {}, {"fetch.max.wait.ms": "400000"}, "write a value within the range",
           {"fetch.max.wait.ms": "300000"}),
    follow("client-setting-owned", {}, {"error_cb": "x"}, "remove it", {"error_cb": None}),
    follow("client-setting-value", TOKENS, {"sasl.oauthbearer.token.provider": "a b"},
           "write package.module:function", {"sasl.oauthbearer.token.provider": "shop.tokens:make"}),
    follow("client-setting-value", SSL, {"ssl.enabled.protocols": "TLSv1.4"}, "use TLSv1.2, TLSv1.3 or both",
           {"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}),
    follow("client-setting-value", SSL, {"ssl.endpoint.identification.algorithm": "http"}, "use https",
           {"ssl.endpoint.identification.algorithm": "https"}),
    follow("client-setting-value", {}, {"compression.type": "lz4", "compression.lz4.level": "40"},
           "use an integer from 1 to 17", {"compression.lz4.level": "12"}),
    follow("sasl-login", PASSWORD, {}, f'write sasl.jaas.config={PLAIN} required username="…"', {JAAS: LOGIN}),
    follow("sasl-login", PASSWORD, {JAAS: f'{PLAIN} required username="me";'}, 'add password="…"', {JAAS: LOGIN}),
    follow("sasl-login", {**SASL, "sasl.mechanism": "SCRAM-SHA-256"},
           {JAAS: f'{SCRAM} required username="a" password="b" tokenauth="true";'},
           "log in with a name and a password", {JAAS: f'{SCRAM} required username="a" password="b";'}),
    follow("sasl-login", TOKENS, {JAAS: f"{CREDENTIALS};"}, "write sasl.oauthbearer.token.endpoint.url=https://…",
           {"sasl.oauthbearer.token.endpoint.url": "https://idp/token"}),
    follow("sasl-login", OIDC, {JAAS: f'{CREDENTIALS} extension_a="b,c";'}, "remove it", {JAAS: f"{CREDENTIALS};"}),
    follow("sasl-login", OIDC, {JAAS: f'{CREDENTIALS} x="y";'}, "remove it", {JAAS: f"{CREDENTIALS};"}),
    follow("sasl-login", OIDC, {}, "write sasl.oauthbearer.client.credentials.client.id", {JAAS: f"{CREDENTIALS};"}),
    follow("sasl-login", UNSECURED,
           {JAAS: f'{OAUTH} required unsecuredLoginStringClaim_sub="me" unsecuredLoginX="y";'},
           "remove it; the options are",
           {JAAS: UNSECURED[JAAS]}),
    follow("sasl-login", UNSECURED, {JAAS: f'{OAUTH} required unsecuredLoginLifetimeSeconds="5";'},
           "add it, with the user's name", {JAAS: UNSECURED[JAAS]}),
    follow("sasl-login", OIDC, {JAAS: f"{CREDENTIALS};", "sasl.oauthbearer.token.provider": "shop.tokens:make"},
           "keep one of the two",
           {JAAS: None, "sasl.oauthbearer.token.endpoint.url": None}),
    follow("sasl-login", AWS, {JAAS: f'{IAM} awsProfileName="a" awsRoleArn="b";'}, "keep one of them",
           {JAAS: f'{IAM} awsProfileName="a";'}),
    follow("sasl-login", AWS, {JAAS: f'{IAM} awsRoleSessionName="a";'}, "add awsRoleArn, or remove them",
           {JAAS: f"{IAM};"}),
    follow("sasl-login", AWS, {JAAS: f'{IAM} awsRoleArn="r" awsRoleAccessKeyId="a";'}, "write both, or neither",
           {JAAS: f'{IAM} awsRoleArn="r";'}),
    follow("sasl-login", AWS, {JAAS: f'{IAM} awsProfile="a";'}, "remove it; the options are",
           {JAAS: f'{IAM} awsProfileName="a";'}),
    follow("sasl-login", AWS, {JAAS: f"{IAM};", "sasl.oauthbearer.token.provider": "shop.tokens:make"},
           "remove it, or write sasl.mechanism=OAUTHBEARER", {"sasl.oauthbearer.token.provider": None}),
    Called("key-file", create({**SSL, "ssl.truststore.location": "/none.p12"}),
           "correct the file, its location or its password",
           create({**SSL, "ssl.truststore.location": str(DATA / "ca.pem"), "ssl.truststore.type": "PEM"})),
    Called("sasl-kerberos", client_of({**SASL, "sasl.mechanism": "GSSAPI", "connector.kerberos.principal": "me@X"},
           transport="jvm"), "write connector.kerberos.keytab",
           client_of({**SASL, "sasl.mechanism": "GSSAPI", "connector.kerberos.principal": "me@X",
           "connector.kerberos.keytab": "/a.keytab"}, transport="jvm")),
    Called("sasl-kerberos", client_of({**SASL, "sasl.mechanism": "GSSAPI", "connector.kerberos.principal": "me@X",
           "connector.kerberos.keytab": "abfs://a.keytab"}, transport="jvm"),
           "copy the file to the driver and to every executor and write its path",
           client_of({**SASL, "sasl.mechanism": "GSSAPI", "connector.kerberos.principal": "me@X",
           "connector.kerberos.keytab": "/a.keytab"}, transport="jvm")),
    Called("sasl-gssapi", client_of({**SASL, "sasl.mechanism": "GSSAPI"}),
           "use Spark's own Kafka connector (transport='jvm')",
           client_of({**SASL, "sasl.mechanism": "GSSAPI"}, transport="jvm")),
    Called("sasl-gssapi", client_of(SASL), "or another mechanism: 'PLAIN'", client_of({**PASSWORD, JAAS: LOGIN})),
    follow("sasl-mechanism", SASL, {JAAS: LOGIN}, "write sasl.mechanism=PLAIN", {"sasl.mechanism": "PLAIN"}),
    follow("sasl-mechanism", {**SASL, "sasl.mechanism": "SCRAM-SHA-256"}, {JAAS: LOGIN}, f"write {SCRAM}",
           {JAAS: LOGIN.replace(PLAIN, SCRAM)}),
    follow("sasl-mechanism", SASL, {"sasl.mechanism": "DIGEST-MD5"}, "write one of 'PLAIN'",
           {"sasl.mechanism": "PLAIN", JAAS: LOGIN}),
    follow("client-setting-unused", {}, {JAAS: LOGIN, "sasl.mechanism": "PLAIN"}, "write security.protocol=SASL_SSL",
           {"security.protocol": "SASL_SSL"}),
    follow("client-setting-unused", {**PASSWORD, JAAS: LOGIN}, {"sasl.oauthbearer.scope": "x"}, "remove it",
           {"sasl.oauthbearer.scope": None}),
    follow("client-setting-unused", {}, {"ssl.truststore.location": "/a.p12"}, "write security.protocol=SSL",
           {"security.protocol": "SSL"}),
    follow("client-setting-unused", {}, {"connector.kerberos.principal": "me", "connector.kerberos.keytab": "/k"},
           "or remove them",
           {"connector.kerberos.principal": None, "connector.kerberos.keytab": None}),
    Called("client-setting-unused", client_of({**SASL, "sasl.mechanism": "GSSAPI",
           "security.kerberos.login.principal": "me", "security.kerberos.login.keytab": "/k"}, transport="jvm"),
           "write security.kerberos.login.contexts=KafkaClient",
           client_of({**SASL, "sasl.mechanism": "GSSAPI", "security.kerberos.login.principal": "me",
           "security.kerberos.login.keytab": "/k", "security.kerberos.login.contexts": "KafkaClient"},
           transport="jvm")),
    follow("client-setting-refused", OIDC,
           {JAAS: f"{CREDENTIALS};", "sasl.oauthbearer.jwt.retriever.class": "x.Mine"}, "write one of",
           {"sasl.oauthbearer.jwt.retriever.class": "DefaultJwtRetriever"}),
    follow("client-setting-refused", {**PASSWORD, JAAS: LOGIN}, {"sasl.login.callback.handler.class": "x.Mine"},
           "remove it", {"sasl.login.callback.handler.class": None}),
    follow("client-setting-refused", SSL, {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "add suites of TLSv1.2",
           {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}),
    follow("client-setting-refused", SSL, {"ssl.enabled.protocols": "TLSv1.3"}, "write TLSv1.2,TLSv1.3",
           {"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}),
    follow("client-setting-refused", SSL, {"ssl.protocol": "TLSv1.1"}, "use TLSv1.2, TLSv1.3 or both",
           {"ssl.protocol": "TLSv1.2,TLSv1.3"}),
    follow("client-setting-dropped", SSL, {"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
           "write TLSv1.2,TLSv1.3, or remove it", {"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}),
    follow("client-setting-dropped", {}, {"max.poll.records": "5"}, "remove it", {"max.poll.records": None}),
    Called("client-setting-dropped", client_of({"queued.min.messages": "5"}, transport="jvm"), "remove it",
           client_of({}, transport="jvm")),
    Called("client-setting-dropped", client_of({"fetch.wait.max.ms": "5"}, transport="jvm"),
           "write fetch.max.wait.ms", client_of({"fetch.max.wait.ms": "5"}, transport="jvm")),
    Called("client-setting-refused", client_of({**TOKENS, "sasl.oauthbearer.token.provider": "a:b"}, transport="jvm"),
           "or use transport='librdkafka'",
           client_of({**TOKENS, "sasl.oauthbearer.token.provider": "a:b"})),
    follow("tls-pem", SSL, {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"},
           "write -----BEGIN … CERTIFICATE-----", {"ssl.truststore.certificates": CA}),
    follow("tls-store", SSL, {"ssl.truststore.location": "/a.pem"}, "write ssl.truststore.type=PEM",
           {"ssl.truststore.type": "PEM"}),
    follow("tls-store", SSL, {"ssl.keystore.location": "/a.p12", "ssl.keystore.type": "PKCS12",
           "ssl.keystore.password": "a", "ssl.key.password": "b"}, "and set it once", {"ssl.key.password": None}),
    follow("tls-store", SSL, {"ssl.keystore.type": "PEM", "ssl.keystore.key": KEY},
           "set ssl.keystore.certificate.chain too", {"ssl.keystore.certificate.chain": CHAIN}),
    follow("tls-store", SSL, {"ssl.truststore.location": "https://a/b.p12", "ssl.truststore.type": "PKCS12"},
           "copy the file", {"ssl.truststore.location": "/b.p12"}),
    follow("tls-store", SSL, {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/a.pem",
           "ssl.truststore.password": "x"}, "remove it", {"ssl.truststore.password": None}),
    follow("tls-store", SSL, {"ssl.truststore.password": "x"}, "write ssl.truststore.location, or remove it",
           {"ssl.truststore.location": "/a.jks"}),
    follow("tls-store", SSL, {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/a.pem",
           "ssl.truststore.certificates": CA}, "keep one of the two", {"ssl.truststore.location": None}),
    follow("tls-store", SSL, {"ssl.truststore.certificates": CA}, "write ssl.truststore.type=PEM",
           {"ssl.truststore.type": "PEM"}),
    follow("tls-store", SSL, {"ssl.ca.location": "https://a/b.pem"}, "copy the file", {"ssl.ca.location": "/b.pem"}),
    Called("tls-store", client_of(SSL, {"ssl.truststore.location": "https://a/b.p12"}, "jvm"), "copy the file",
           client_of(SSL, {"ssl.truststore.location": "/b.p12"}, "jvm")),
    follow("producer-idempotence", {}, {"enable.idempotence": "true", "acks": "1"},
           "write acks=all and retries above 0", {"acks": "all"}),
    follow("producer-idempotence", {}, {"enable.idempotence": "true", "acks": "1"}, "or enable.idempotence=false",
           {"enable.idempotence": "false"}),
    follow("producer-idempotence", {}, {"acks": "1"}, "or enable.idempotence=false if that is intended",
           {"enable.idempotence": "false"}),
    follow("producer-idempotence", {}, {"max.in.flight.requests.per.connection": "9"},
           "write max.in.flight.requests.per.connection=5 or less", {"max.in.flight.requests.per.connection": "5"}),
    follow("producer-delivery-timeout", {}, {"delivery.timeout.ms": "1"}, "write delivery.timeout.ms=",
           {"delivery.timeout.ms": "30005"}),
]  # fmt: skip
REGISTRIES = [
    Called("registry-url", registry(""), "write url: https://HOST:PORT", registry("https://HOST:8081")),
    Called("registry-url", registry("registry:8081"), "write https://HOST:PORT", registry("https://registry:8081")),
    Called("registry-setting-twice", registry(basic_auth_user_info="a:b", basic__auth_user__info="c:d"),
           "keep one of the two",
           registry(basic_auth_user_info="a:b")),
    Called("registry-setting-unknown", registry(max_retrys="3"), "use one of its settings", registry(max_retries="3")),
    Called("registry-setting-value", registry(max_retries="many"), "use an integer, 0 or more",
           registry(max_retries="3")),
    Called("client-setting-value", registry(ssl_endpoint_identification_algorithm="http"),
           "use https, or an empty string",
           registry(ssl_endpoint_identification_algorithm="https")),
    Called("registry-setting-value", registry(proxy_host="a b", proxy_port="x"),
           "write the host name and the port number",
           registry(proxy_host="proxy", proxy_port="3128")),
    Called("registry-header", registry(**{"request_header_X Y": "1"}), "write the header's name",
           registry(**{"request_header_X-Y": "1"})),
    Called("registry-header", registry(request_header_X="a\n"), "write only the value", registry(request_header_X="a")),
    Called("registry-header", registry(bearer_auth_token="a\n"), "a variable or file may end with a line end",
           registry(bearer_auth_token="a")),
    Called("registry-login", registry(basic_auth_user_info="a:b", bearer_auth_token="t"), "remove one of the two",
           registry(bearer_auth_token="t")),
    Called("registry-login", registry(basic_auth_credentials_source="CUSTOM"), "write one of",
           registry(basic_auth_credentials_source="USER_INFO", basic_auth_user_info="a:b")),
    Called("registry-login", registry(basic_auth_credentials_source="USER_INFO"),
           "write basic-auth.user-info=USER:${env:PASSWORD}",
           registry(basic_auth_credentials_source="USER_INFO", basic__auth_user__info="USER:${env:PASSWORD}")),
    Called("registry-login", registry(basic_auth_credentials_source="USER_INFO"),
           "or remove 'basic.auth.credentials.source'", registry()),
    Called("registry-login", registry(basic_auth_credentials_source="URL"),
           "write basic-auth.user-info=USER:${env:PASSWORD}",
           registry(basic_auth_credentials_source="URL", basic__auth_user__info="USER:${env:PASSWORD}")),
    Called("registry-login", registry(basic_auth_user_info="a"), "write USER:PASSWORD",
           registry(basic_auth_user_info="a:b")),
    Called("registry-login", registry(basic_auth_credentials_source="SASL_INHERIT"),
           "add it to the cluster's properties",
           registry(basic_auth_credentials_source="SASL_INHERIT", sasl_jaas_config=LOGIN)),
    Called("registry-login", registry(basic_auth_credentials_source="SASL_INHERIT"),
           "or write USER_INFO in its place, and set 'basic.auth.user.info'",
           registry(basic_auth_credentials_source="USER_INFO", basic_auth_user_info="a:b")),
    Called("registry-login", registry(basic_auth_credentials_source="SASL_INHERIT", sasl_jaas_config="x"),
           "write: LoginModuleClass required",
           registry(basic_auth_credentials_source="SASL_INHERIT", sasl_jaas_config=LOGIN)),
    Called("registry-login", registry(bearer_auth_credentials_source="STATIC_TOKEN"),
           "write bearer-auth.token=${env:TOKEN}",
           registry(bearer_auth_credentials_source="STATIC_TOKEN", bearer__auth_token="${env:TOKEN}")),
    Called("registry-login", registry(bearer_auth_credentials_source="OAUTHBEARER"),
           "set 'bearer.auth.issuer.endpoint.url'",
           registry(bearer_auth_credentials_source="OAUTHBEARER", bearer_auth_issuer_endpoint_url="https://idp/token",
                    bearer_auth_client_id="me", bearer_auth_client_secret="${env:SECRET}")),
    Called("registry-login", registry(bearer_auth_credentials_source="OAUTHBEARER",
           bearer_auth_issuer_endpoint_url="idp/token",
                    bearer_auth_client_id="me", bearer_auth_client_secret="${env:SECRET}"),
                    "write https://HOST/PATH of the identity provider",
           registry(bearer_auth_credentials_source="OAUTHBEARER", bearer_auth_issuer_endpoint_url="https://idp/token",
                    bearer_auth_client_id="me", bearer_auth_client_secret="${env:SECRET}")),
    Called("registry-login", registry(bearer_auth_credentials_source="SASL_OAUTHBEARER_INHERIT",
           sasl_jaas_config=f'{OAUTH} required clientId="me" clientSecret="pw";'),
           "add it to the cluster's properties",
           registry(bearer_auth_credentials_source="SASL_OAUTHBEARER_INHERIT",
           sasl_jaas_config=f'{OAUTH} required clientId="me" clientSecret="pw";',
                    sasl_oauthbearer_token_endpoint_url="https://idp/token")),
    Called("registry-login", registry(bearer_auth_credentials_source="SASL_OAUTHBEARER_INHERIT"),
           "or write OAUTHBEARER in its place, and set 'bearer.auth.issuer.endpoint.url'",
           registry(bearer_auth_credentials_source="OAUTHBEARER", bearer_auth_issuer_endpoint_url="https://idp/token",
                    bearer_auth_client_id="me", bearer_auth_client_secret="${env:SECRET}")),
    Called("tls-store", registry(ssl_keystore_key=KEY), "set ssl.keystore.certificate.chain too",
           registry(ssl_keystore_key=KEY, ssl_keystore_certificate_chain=CHAIN)),
    Called("tls-store", registry(ssl_truststore_password="x"), "write ssl.truststore.location",
           registry(ssl_truststore_password="x", ssl_truststore_location="/a.p12")),
    Called("tls-store", registry(ssl_truststore_location="https://a/b.jks"), "copy the file",
           registry(ssl_truststore_location="/b.jks")),
]  # fmt: skip
CASES = [*CLUSTERS, *CLIENTS, *REGISTRIES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.advice[:30]}")
def test_the_advice_for_a_setting_works(case: Called) -> None:
    check_advice(case)
