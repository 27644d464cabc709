from __future__ import annotations

import pytest

from kdsl.client_settings.model import CLIENT_KINDS, Client
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.secrets import resolve
from tests.client_settings.installed import DATA, create
from tests.problem_texts import without_code

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SHADED = "org.apache.flink.kafka.shaded."
URL = "https://127.0.0.1:1/token"


def sasl(mechanism: str, jaas: str = "", **more: str) -> dict[str, str]:
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return {**settings, **{key.replace("__", "."): value for key, value in more.items()}}


def problems_of(settings: dict[str, str]) -> list[str]:
    return [without_code(problem) for problem in librdkafka_settings(settings, "consumer").problems]


@pytest.mark.parametrize("client", CLIENT_KINDS)
@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", PLAIN),
        ("plain", SHADED + PLAIN),
        ("PLAIN", SCRAM),
        ("SCRAM-SHA-256", SCRAM),
        ("SCRAM-SHA-512", SHADED + SCRAM),
    ],
)
def test_a_login_module_becomes_a_name_and_a_password(client: Client, mechanism: str, module: str) -> None:
    result = sasl(mechanism, f'{module} required username="bob" password="pa\\"ss;";')

    translated = librdkafka_settings(result, client)

    assert translated.problems == ()
    assert translated.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism.upper(),
        "sasl.username": "bob",
        "sasl.password": 'pa"ss;',
    }
    assert create(client, translated.client_config()) == []


@pytest.mark.parametrize("client", CLIENT_KINDS)
def test_librdkafka_s_own_name_and_password_are_enough(client: Client) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}
    settings |= {"sasl.username": "bob", "sasl.password": "pw"}

    translated = librdkafka_settings(settings, client)

    assert translated.problems == ()
    assert create(client, translated.client_config()) == []


@pytest.mark.parametrize("client", CLIENT_KINDS)
@pytest.mark.parametrize(
    ("sample", "settings"),
    [
        (
            sasl(
                "OAUTHBEARER",
                f'{OAUTH} required clientId="me" clientSecret="pw" scope="s" extension_a="1" extension_b="2";',
                sasl__oauthbearer__token__endpoint__url=URL,
                sasl__login__callback__handler__class=f"{OAUTH[:-11]}LoginCallbackHandler",
            ),
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "pw",
                "sasl.oauthbearer.scope": "s",
                "sasl.oauthbearer.extensions": "a=1,b=2",
                "sasl.oauthbearer.token.endpoint.url": URL,
            },
        ),
        (
            sasl(
                "OAUTHBEARER",
                sasl__oauthbearer__token__endpoint__url=URL,
                sasl__oauthbearer__client__credentials__client__id="me",
                sasl__oauthbearer__client__credentials__client__secret="pw",
                sasl__oauthbearer__scope="s",
                sasl__oauthbearer__sub__claim__name="azp",
            ),
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "pw",
                "sasl.oauthbearer.token.endpoint.url": URL,
                "sasl.oauthbearer.scope": "s",
                "sasl.oauthbearer.sub.claim.name": "azp",
            },
        ),
        (
            sasl(
                "OAUTHBEARER",
                sasl__oauthbearer__token__endpoint__url=URL,
                sasl__oauthbearer__jwt__retriever__class=f"{OAUTH.rpartition('.')[0]}.JwtBearerJwtRetriever",
                sasl__oauthbearer__assertion__private__key__file=str(DATA / "client.key"),
                sasl__oauthbearer__assertion__algorithm="es256",
                sasl__oauthbearer__assertion__claim__exp__seconds="60",
                sasl__oauthbearer__assertion__claim__nbf__seconds="0",
                sasl__oauthbearer__assertion__claim__jti__include="TRUE",
                sasl__oauthbearer__assertion__claim__iss="i",
                sasl__oauthbearer__assertion__template__file="t.json",
            ),
            {
                "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": URL,
                "sasl.oauthbearer.assertion.private.key.file": str(DATA / "client.key"),
                "sasl.oauthbearer.assertion.algorithm": "ES256",
                "sasl.oauthbearer.assertion.claim.exp.seconds": "60",
                "sasl.oauthbearer.assertion.claim.nbf.seconds": "0",
                "sasl.oauthbearer.assertion.claim.jti.include": "true",
                "sasl.oauthbearer.assertion.claim.iss": "i",
                "sasl.oauthbearer.assertion.jwt.template.file": "t.json",
            },
        ),
        (
            sasl(
                "OAUTHBEARER",
                f'{OAUTH} required unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|a|b" '
                'unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_trace="7";',
            ),
            {
                "sasl.oauthbearer.config": "principal=alice scope=a,b lifeSeconds=60 extension_trace=7",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
            },
        ),
    ],
)
def test_ways_to_get_a_token(client: Client, sample: dict[str, str], settings: dict[str, str]) -> None:
    translated = librdkafka_settings(sample, client)

    assert translated.problems == ()
    assert translated.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        **settings,
    }
    assert create(client, translated.client_config()) == []


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        (
            sasl("GSSAPI"),
            [
                "'sasl.mechanism' is GSSAPI (Kerberos), which the librdkafka in confluent-kafka's wheels does not "
                "support; use Spark's own Kafka connector "
                "(transport='jvm'), or another mechanism: 'PLAIN', 'SCRAM-SHA-256', "
                "'SCRAM-SHA-512' and "
                "'OAUTHBEARER'"
            ],
        ),
        (
            {"security.protocol": "SASL_SSL"},
            [
                "'sasl.mechanism' is GSSAPI, the default (Kerberos), which the librdkafka in confluent-kafka's wheels "
                "does not support; use Spark's own Kafka connector "
                "(transport='jvm'), or another mechanism: 'PLAIN', 'SCRAM-SHA-256', "
                "'SCRAM-SHA-512' and 'OAUTHBEARER'"
            ],
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.jaas.config": f'{PLAIN} required username="u" password="HUSH";'},
            [
                "'sasl.jaas.config' names PlainLoginModule, but 'sasl.mechanism' is not set, which means GSSAPI; "
                "write sasl.mechanism=PLAIN"
            ],
        ),
        (
            sasl("SCRAM-SHA-1"),
            [
                "'sasl.mechanism' is 'SCRAM-SHA-1', which librdkafka does not have (did you mean 'SCRAM-SHA-512'?); "
                "write one of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512' and 'OAUTHBEARER', or use Spark's "
                "own Kafka connector (transport='jvm')"
            ],
        ),
        (
            sasl("PLAIN"),
            [
                "'sasl.mechanism' is 'PLAIN', but 'sasl.jaas.config' is not set; "
                f'write sasl.jaas.config={PLAIN} required username="…" password="${{env:NAME}}";'
            ],
        ),
        (
            sasl("PLAIN", f'{PLAIN} required username="u" password="HUSH"'),
            [
                "'sasl.jaas.config' cannot be parsed at character 94: the configuration must end with ';'; "
                'write: LoginModuleClass required option="value" option="value";'
            ],
        ),
        (
            sasl("PLAIN", f'{PLAIN} required username="" ;'),
            [
                "'sasl.jaas.config' has no username, or an empty one; add username=\"…\"",
                "'sasl.jaas.config' has no password, or an empty one; add password=\"…\"",
            ],
        ),
        (
            sasl("SCRAM-SHA-512", f'{PLAIN} required username="u" password="HUSH";'),
            [
                "'sasl.jaas.config' names the login module 'PlainLoginModule', which does not fit "
                f"'sasl.mechanism' 'SCRAM-SHA-512'; write {SCRAM}"
            ],
        ),
        (
            sasl("PLAIN", 'a.PlainLoginModul required username="u" password="HUSH";'),
            [
                "'sasl.jaas.config' names the login module 'PlainLoginModul' (did you mean 'PlainLoginModule'?), "
                f"which does not fit 'sasl.mechanism' 'PLAIN'; write {PLAIN}"
            ],
        ),
        (
            sasl("SCRAM-SHA-256", f'{SCRAM} required username="u" password="HUSH" tokenauth="true";'),
            [
                "'sasl.jaas.config' logs in with a delegation token (tokenauth), which librdkafka does not have; "
                "log in with a name and a password, or use Spark's own Kafka connector (transport='jvm')"
            ],
        ),
        (
            sasl(
                "PLAIN", f'{PLAIN} required username="u" password="HUSH";', sasl__login__callback__handler__class="x.Y"
            ),
            [
                "'sasl.login.callback.handler.class' cannot be set: it names a Java class; "
                "remove it, or use Spark's own Kafka connector (transport='jvm')"
            ],
        ),
        (
            sasl("PLAIN", f'{PLAIN} required username="u" password="HUSH";', sasl__oauthbearer__scope="s"),
            ["'sasl.oauthbearer.scope' has no effect, because 'sasl.mechanism' is 'PLAIN'; remove it"],
        ),
        (
            sasl("PLAIN", f'{PLAIN} required username="u" password="HUSH";', sasl__password="other HUSH"),
            [
                "'sasl.jaas.config' and 'sasl.password' mean the same, but one is set to a secret and the other "
                "to a secret; keep 'sasl.jaas.config'"
            ],
        ),
        (
            sasl("OAUTHBEARER"),
            [
                "'sasl.mechanism' is OAUTHBEARER, but 'sasl.oauthbearer.token.endpoint.url' is not set; "
                "write sasl.oauthbearer.token.endpoint.url=https://… of the identity provider",
                "'sasl.mechanism' is OAUTHBEARER, but neither 'sasl.oauthbearer.client.credentials.client.id' nor the "
                "option clientId of 'sasl.jaas.config' is set; write sasl.oauthbearer.client.credentials.client.id",
                "'sasl.mechanism' is OAUTHBEARER, but neither 'sasl.oauthbearer.client.credentials.client.secret' nor "
                "the option clientSecret of 'sasl.jaas.config' is set; "
                "write sasl.oauthbearer.client.credentials.client.secret",
            ],
        ),
        (
            sasl("OAUTHBEARER", sasl__oauthbearer__token__provider="no function"),
            [
                "'sasl.oauthbearer.token.provider' has the value 'no function', which is not the name of a function; "
                "write package.module:function, or a cloud's login: 'aws_msk_iam', 'entra' and 'gcp'"
            ],
        ),
        (
            sasl(
                "OAUTHBEARER",
                sasl__oauthbearer__token__provider="my.tokens:make",
                sasl__oauthbearer__token__endpoint__url="https://idp/token",
            ),
            [
                "'sasl.oauthbearer.token.provider' and 'sasl.oauthbearer.token.endpoint.url' are both set, but tokens "
                "can come from only one of them; keep one of the two"
            ],
        ),
        (
            sasl("OAUTHBEARER", sasl__login__callback__handler__class="com.example.Handler"),
            [
                "'sasl.login.callback.handler.class' cannot be set: it names a Java class; "
                "remove it, or use Spark's own Kafka connector (transport='jvm')"
            ],
        ),
        (
            sasl("OAUTHBEARER", f'{OAUTH} required unsecuredLoginStringClaim_x="HUSH";'),
            [
                "'sasl.jaas.config' has the option 'unsecuredLoginStringClaim_x', which librdkafka's unsecured tokens "
                "do not have; remove it; the options are 'unsecuredLoginStringClaim_sub', "
                "'unsecuredLoginPrincipalClaimName', 'unsecuredLoginLifetimeSeconds', 'unsecuredLoginScopeClaimName', "
                "'unsecuredLoginStringClaim_scope', "
                "'unsecuredLoginListClaim_scope' and 'unsecuredLoginExtension_NAME'",
                "'sasl.jaas.config' has no unsecuredLoginStringClaim_sub; add it, with the user's name",
            ],
        ),
    ],
)
def test_impossible_settings_are_reported_without_secrets(settings: dict[str, str], messages: list[str]) -> None:
    assert problems_of(settings) == messages
    assert "HUSH" not in str(problems_of(settings))


@pytest.mark.parametrize(
    ("jaas", "more", "message"),
    [
        (
            f'{PLAIN} required username="u" password="HUSH";',
            {},
            "'sasl.jaas.config' names the login module 'PlainLoginModule', which does not fit 'sasl.mechanism' "
            f"'OAUTHBEARER'; write {OAUTH}",
        ),
        (
            f'{OAUTH} required clientId="i" clientSecret="HUSH" extension_x="HUSH,HUSH";',
            {},
            "'sasl.jaas.config' has an extension with a comma in its value; remove it, or use Spark's "
            "own Kafka connector (transport='jvm')",
        ),
        (
            f'{OAUTH} required clientId="i" clientSecret="HUSH" other="HUSH";',
            {},
            "'sasl.jaas.config' has the option 'other', which librdkafka does not have; remove it",
        ),
        (
            f'{OAUTH} required clientId="i" clientSecret="HUSH";',
            {"sasl.oauthbearer.jwt.retriever.class": "a.FileJwtRetriever"},
            "'sasl.oauthbearer.jwt.retriever.class' cannot be 'FileJwtRetriever': librdkafka has two ways to get a "
            "token; write one of 'DefaultJwtRetriever', 'ClientCredentialsJwtRetriever' and 'JwtBearerJwtRetriever', "
            "or use Spark's own Kafka connector (transport='jvm')",
        ),
    ],
)
def test_missing_features_of_librdkafka_s_tokens_are_reported(jaas: str, more: dict[str, str], message: str) -> None:
    result = sasl("OAUTHBEARER", jaas, sasl__oauthbearer__token__endpoint__url=URL)

    assert problems_of({**result, **more}) == [message]


def test_librdkafka_s_own_way_to_a_token_is_left_alone() -> None:
    settings = {"sasl.oauthbearer.config": "principal=a", "enable.sasl.oauthbearer.unsecure.jwt": "true"}

    translated = librdkafka_settings({**sasl("OAUTHBEARER"), **settings}, "consumer")

    assert translated.problems == ()
    assert create("consumer", translated.client_config()) == []


@pytest.mark.parametrize("mechanism", ["${env:MECHANISM}", "OAUTHBEARER", "PLAIN"])
def test_settings_that_depend_on_a_reference_are_not_checked(mechanism: str) -> None:
    assert problems_of(sasl(mechanism, "${env:JAAS}")) == []


def test_an_unresolvable_reference_in_a_jaas_string_is_reported_once() -> None:
    result = sasl("PLAIN", f'{PLAIN} required username="u" password="${{env:KDSL_UNSET}}";')

    (problem,) = librdkafka_settings(result, "consumer", resolve).problems

    assert problem.code == "secret-reference"
    assert "the environment variable 'KDSL_UNSET' is not set" in problem.message


def test_settings_of_sasl_without_sasl_are_a_warning() -> None:
    translated = librdkafka_settings({"security.protocol": "SSL", "sasl.mechanism": "PLAIN"}, "consumer")

    assert [without_code(problem) for problem in translated.problems] == [
        "'sasl.mechanism' without effect, because 'security.protocol' is 'SSL'; "
        "write security.protocol=SASL_SSL or SASL_PLAINTEXT, or remove them"
    ]
    assert [problem.severity for problem in translated.problems] == ["warning"]


def test_a_jaas_string_that_is_one_reference_is_parsed_after_it_is_resolved() -> None:
    result = sasl("PLAIN", "${secret_values.kafka}")
    text = f'{PLAIN} required username="u" password="p";'

    early, late = (
        librdkafka_settings(result, "consumer"),
        librdkafka_settings(result, "consumer", lambda t: t.replace("${secret_values.kafka}", text)),
    )

    assert early.problems == ()
    assert late.problems == ()
    assert late.settings["sasl.password"] == "p"


def test_references_in_a_jaas_string_are_resolved_after_it_is_parsed() -> None:
    result = sasl("PLAIN", f'{PLAIN} required username="u" password="${{env:PW}}";')

    early = librdkafka_settings(result, "consumer")
    late = librdkafka_settings(result, "consumer", lambda t: t.replace("${env:PW}", 'a";\nb'))

    assert early.settings["sasl.password"] == "${env:PW}"
    assert late.settings["sasl.password"] == 'a";\nb'
    assert (early.problems, late.problems) == ((), ())
