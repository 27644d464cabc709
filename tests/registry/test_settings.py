from __future__ import annotations

import pytest

from kdsl.cluster import Registry
from kdsl.registry.settings import OAuth, Settings, read_settings, registry_problems

URL = "http://registry:8081"


def settings(url: str = URL, **arguments: str) -> Settings:
    result, problems = read_settings(
        Registry(url, {name.replace("__", "-").replace("_", "."): v for name, v in arguments.items()})
    )
    assert problems == ()
    return result


def test_several_addresses_are_tried_in_their_order_and_slashes_at_their_ends_do_not_matter() -> None:
    assert settings("http://a:1/ , https://b/apis/v7/").urls == ("http://a:1", "https://b/apis/v7")


def test_defaults_outlast_the_restart_of_a_registry() -> None:
    result = settings()

    assert (result.connect_timeout, result.read_timeout) == (10, 60)
    assert sum(min(result.wait * 2**i, result.max_wait) for i in range(result.retries)) > 50


@pytest.mark.parametrize(
    "name", ["basic.auth.user.info", "basic-auth.user-info", "schema.registry.basic.auth.user.info"]
)
def test_a_setting_has_java_s_name_flink_s_and_the_one_within_client_properties(name: str) -> None:
    result, problems = read_settings(Registry(URL, {name: "me:pw:x"}))

    assert (result.basic, problems) == (("me", "pw:x"), ())


def test_user_and_password_come_out_of_the_address() -> None:
    result = settings("http://me:p%40w@registry:8081", **{"basic__auth.credentials__source": "URL"})

    assert (result.urls, result.basic) == ((URL,), ("me", "p@w"))


def test_the_user_is_that_of_the_kafka_clients() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="pw";'
    sample = {"basic.auth.credentials.source": "SASL_INHERIT", "sasl.jaas.config": jaas}

    assert read_settings(Registry(URL, sample))[0].basic == ("me", "pw")


def test_the_tokens_are_those_of_the_kafka_clients() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    sample = {
        "bearer.auth.credentials.source": "SASL_OAUTHBEARER_INHERIT",
        "sasl.jaas.config": f'{module} required clientId="me" clientSecret="pw";',
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    }
    result, problems = read_settings(Registry(URL, sample))

    assert (result.oauth, problems) == (OAuth("https://idp/token", "me", "pw"), ())


def test_a_token_needs_no_source() -> None:
    assert settings(bearer__auth_token="T").token == "T"


def test_headers_are_those_that_are_asked_for() -> None:
    sample = {"request.header.X-One": "1", "bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "p"}
    result, problems = read_settings(Registry(URL, sample))

    assert result.headers == {"X-One": "1", "target-sr-cluster": "lsrc-1", "Confluent-Identity-Pool-Id": "p"}
    assert problems == ()


def test_a_file_with_the_name_of_pem_needs_no_type() -> None:
    pem = settings(ssl_truststore_location="c.PEM").tls
    stores = settings(ssl_truststore_location="a.p12", ssl_keystore_location="x.pem", ssl_keystore_type="pem").tls

    assert pem == {"security.protocol": "SSL", "ssl.truststore.location": "c.PEM", "ssl.truststore.type": "PEM"}
    assert "ssl.truststore.type" not in stores
    assert stores["ssl.keystore.type"] == "pem"


def test_references_are_checked_when_they_are_resolved() -> None:
    sample = {"basic-auth.user-info": "${env:INFO}", "http.read.timeout.ms": "${env:TIMEOUT}"}
    values = {"${env:INFO}": "me:pw", "${env:TIMEOUT}": "5000"}

    assert registry_problems(Registry(URL, sample)) == ()
    result, problems = read_settings(Registry(URL, sample), lambda text: values.get(text, text))
    assert (result.basic, result.read_timeout, problems) == (("me", "pw"), 5, ())


SASL = "basic.auth.credentials.source"
BEARER = "bearer.auth.credentials.source"
WRONG = {
    "no address": ("", {}, "registry-url", "the registry has no address"),
    "no web address": ("registry:8081", {}, "registry-url", "'registry:8081' is not an http or https URL"),
    "another scheme": ("ftp://r", {}, "registry-url", "'ftp://r' is not an http"),
    "an unknown setting": (URL, {"basic.auth.user.inf": "x"}, "registry-setting-unknown", "did you mean"),
    "twice, differently": (
        URL,
        {"basic.auth.user.info": "a:b", "basic-auth.user-info": "a:c"},
        "registry-setting-twice",
        "'basic.auth.user.info' and 'basic-auth.user-info' mean the same but differ",
    ),
    "no number": (URL, {"max.retries": "many"}, "registry-setting-value", "'max.retries' has the value 'many'"),
    "a negative number": (URL, {"http.read.timeout.ms": "-1"}, "registry-setting-value", "'-1'"),
    "an unknown source": (URL, {SASL: "USERINFO"}, "registry-login", "did you mean 'USER_INFO'"),
    "a Java class": (URL, {BEARER: "CUSTOM"}, "registry-login", "names a Java class"),
    "no user": (URL, {SASL: "USER_INFO"}, "registry-login", "is USER_INFO, but there is no"),
    "no user in the address": (URL, {SASL: "URL"}, "registry-login", "address has no user"),
    "no colon": (URL, {"basic.auth.user.info": "me"}, "registry-login", "has no colon"),
    "no login to inherit": (URL, {SASL: "SASL_INHERIT"}, "registry-login", "has no 'sasl.jaas.config'"),
    "a broken login": (
        URL,
        {SASL: "SASL_INHERIT", "sasl.jaas.config": "x required"},
        "registry-login",
        "cannot be parsed at character",
    ),
    "no token": (URL, {BEARER: "STATIC_TOKEN"}, "registry-login", "there is no 'bearer.auth.token'"),
    "no identity provider": (URL, {BEARER: "OAUTHBEARER"}, "registry-login", "bearer.auth.issuer.endpoint.url"),
    "no endpoint to inherit": (
        URL,
        {
            BEARER: "SASL_OAUTHBEARER_INHERIT",
            "sasl.jaas.config": 'x.OAuthBearerLoginModule required clientId="a" clientSecret="b";',
        },
        "registry-login",
        "has no 'sasl.oauthbearer.token.endpoint.url'",
    ),
    "a user and a token": (
        URL,
        {"basic.auth.user.info": "a:b", "bearer.auth.token": "t"},
        "registry-login",
        "the registry has a user",
    ),
    "a store that nobody can fetch": (
        URL,
        {"ssl.truststore.location": "obs://bucket/trust.jks"},
        "tls-store",
        "it is not a local file",
    ),
    "a password without a store": (URL, {"ssl.keystore.password": "x"}, "tls-store", "without a store"),
    "a key without certificates": (
        URL,
        {"ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nHUSH\n-----END PRIVATE KEY-----"},
        "tls-store",
        "'ssl.keystore.key' is set without 'ssl.keystore.certificate.chain'",
    ),
    "an odd check of the host": (
        URL,
        {"ssl.endpoint.identification.algorithm": "ldap"},
        "client-setting-value",
        "'ldap'",
    ),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_mistakes_are_reported_with_what_to_write(case: str) -> None:
    url, value, code, part = WRONG[case]
    (problem,) = registry_problems(Registry(url, value))

    assert problem.code == code
    assert part in problem.message
    assert problem.fix


@pytest.mark.parametrize("case", list(WRONG))
def test_no_problem_shows_a_secret(case: str) -> None:
    url, value, *_ = WRONG[case]
    secrets = {"basic.auth.user.info": "me:HUSH", "bearer.auth.token": "HUSH", "bearer.auth.client.secret": "HUSH"}
    message = registry_problems(Registry(url, {**secrets, **value}))

    assert "HUSH" not in " ".join(map(str, message))
