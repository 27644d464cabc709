"""The logins of clouds: Java's way to write them, the tokens, their renewal, and errors without secrets."""

from __future__ import annotations

import base64
import importlib
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import google.oauth2.credentials
import pytest
from typer.testing import CliRunner

from kdsl.cli.app import app
from kdsl.client_settings import aws_tokens, cloud_logins, entra_tokens, gcp_tokens, machine
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.model import CLIENT_KINDS, Client
from kdsl.client_settings.to_java import java_settings
from kdsl.client_settings.to_librdkafka import TOKEN_CALLBACK, librdkafka_settings
from kdsl.client_settings.token_callback import TokenCallback
from kdsl.client_settings.token_errors import TokenError
from tests.client_settings.installed import create
from tests.clouds import ACCOUNT, CONTAINER, KEY_ID, ROLE, SECRET, Clouds, unpad

MSK = "b-1.orders.abc123.c2.kafka.us-east-1.amazonaws.com:9098"
IAM = "software.amazon.msk.auth.iam"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JAVA_IAM = {
    "bootstrap.servers": MSK,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
}
JAVA_OAUTH = {
    "bootstrap.servers": MSK,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{OAUTH} required;",
    "sasl.login.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
    "sasl.client.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
}
NAMED = {
    "bootstrap.servers": MSK,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.provider": "aws_msk_iam",
}
GCP = {
    "bootstrap.servers": "bootstrap.orders.europe-west1.managedkafka.project.cloud.goog:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{OAUTH} required;",
    "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
}
ENTRA = {
    "bootstrap.servers": "orders.servicebus.windows.net:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.provider": "entra",
}


@pytest.fixture(scope="module")
def services() -> Iterator[Clouds]:
    with Clouds() as clouds:
        yield clouds


@pytest.fixture
def clouds(services: Clouds) -> Clouds:
    services.requests.clear()
    services.life = 3600
    services.now = lambda: datetime.now(UTC).timestamp()
    return services


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing that this machine or an earlier test knows of a cloud."""
    for name in (
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_DEFAULT_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_REGION", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(aws_tokens, "_renewable", {})
    monkeypatch.setattr(machine, "_first_tokens", {})
    gcp_tokens._credentials.cache_clear()
    entra_tokens._credential.cache_clear()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Moves the clock that signs requests, and that renews credentials."""

    def move(time: datetime) -> None:
        monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: time.replace(tzinfo=None))
        monkeypatch.setattr("botocore.credentials._local_now", lambda: time)
        monkeypatch.setattr(aws_tokens, "_now", lambda: time)

    return move


def set_all(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("declared", [JAVA_IAM, JAVA_OAUTH, NAMED], ids=["mechanism", "handlers", "provider"])
@pytest.mark.parametrize("client", CLIENT_KINDS)
def test_each_way_to_write_iam_becomes_a_callback(
    declared: dict[str, str], client: Client, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(monkeypatch, clouds.aws())
    early, late = librdkafka_settings(declared, client), librdkafka_settings(declared, client, machine=Machine())

    assert (early.problems, late.problems) == ((), ())
    assert TOKEN_CALLBACK not in early.client_config()
    config = late.client_config()
    assert config["sasl.mechanism"] == "OAUTHBEARER"
    token, _, _, _ = config.pop(TOKEN_CALLBACK)(None)
    assert create(client, config) == []
    assert clouds.check(token) is not None


def test_clients_with_the_same_options_share_a_callback(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools compare settings."""
    set_all(monkeypatch, clouds.aws())
    one, other = (librdkafka_settings(JAVA_IAM, "producer", machine=Machine()).client_config() for _ in range(2))

    assert one == other


def test_a_token_is_byte_equal_to_that_of_aws_s_signer(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, at: Callable[[datetime], None]
) -> None:
    signer = importlib.import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    set_all(monkeypatch, {**clouds.aws(), "AWS_SESSION_TOKEN": "session/+="})
    at(datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC))

    token, _ = aws_tokens.provide_token(servers=MSK)

    assert token == signer.generate_auth_token("us-east-1")[0]
    query = parse_qs(urlsplit(unpad(token).decode()).query)
    assert query["X-Amz-Date"] == ["20260301T120005Z"]
    # Computed once with AWS's signer 1.0.2: a new version of it or of botocore must not change the signature.
    assert query["X-Amz-Signature"] == ["2b259933a5993788a42524293f435ba41a7d37130e4d28ce278c8c38e28bea0d"]


def test_the_token_of_a_role_has_a_fixed_session_name(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is part of the principal, which must not change when a login is renewed."""
    set_all(monkeypatch, clouds.aws())
    options = {"servers": MSK, "awsRoleArn": ROLE, "awsRoleExternalId": "shop", "awsStsRegion": "eu-west-1"}

    token, _ = aws_tokens.provide_token(**options)

    accepted = clouds.check(token)
    assert accepted is not None
    assert accepted.principal == f"{ROLE}/aws-msk-iam-auth/shop"
    assert clouds.requests == ["/sts"]


def test_keys_in_options_are_those_of_the_role_s_source(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"{clouds.url}/sts")
    declared = {
        **JAVA_IAM,
        "sasl.jaas.config": f'{IAM}.IAMLoginModule required awsRoleArn="{ROLE}" awsRoleAccessKeyId="${{env:ID}}" '
        'awsRoleSecretAccessKey="${env:KEY}" awsRoleSessionName="job";',
    }

    translated = librdkafka_settings(
        declared, "producer", lambda t: t.replace("${env:ID}", KEY_ID).replace("${env:KEY}", SECRET), Machine()
    )

    assert translated.problems == ()
    accepted = clouds.check(translated.client_config()[TOKEN_CALLBACK](None)[0])
    assert accepted is not None
    assert accepted.principal == f"{ROLE}/job/"
    assert SECRET not in repr(translated)


def test_a_token_and_its_credentials_are_renewed_before_they_expire(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, at: Callable[[datetime], None]
) -> None:
    """librdkafka asks again after 80 % of the stated time, and botocore renews what has 10 minutes left."""
    start = datetime.now(UTC)
    clouds.life = 1000
    set_all(monkeypatch, clouds.aws())
    create_token = TokenCallback("aws_msk_iam", {"servers": MSK, "awsRoleArn": ROLE})
    renewed = []
    time = start
    for _ in range(4):
        at(time)
        clouds.now = time.timestamp
        token, expires, _, _ = create_token(None)
        accepted = clouds.check(token)
        assert accepted is not None
        assert time.timestamp() < expires <= accepted.expires
        next_time = time + 0.8 * timedelta(seconds=expires - time.timestamp())
        assert (next_time - time).total_seconds() < 9 * 60
        clouds.now = next_time.timestamp
        assert clouds.check(token) is not None  # the last moment at which it is used
        renewed.append(clouds.requests.count("/sts"))
        time = next_time

    assert renewed == [1, 2, 3, 4]  # what has 10 minutes left is not enough for the next token


def test_static_credentials_are_read_again(clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of credentials may be written again by another program."""
    file = tmp_path / "credentials"
    file.write_text("[job]\naws_access_key_id = OLD\naws_secret_access_key = old\n")
    create_token = TokenCallback("aws_msk_iam", {"servers": MSK, "awsProfileName": "job"})
    create_token()
    file.write_text(f"[job]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n")

    assert clouds.check(create_token(None)[0]) is not None


def test_the_role_of_a_container_is_used(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, clouds.aws_container())

    accepted = clouds.check(aws_tokens.provide_token(servers=MSK)[0])

    assert accepted is not None
    assert accepted.principal == "container"


@pytest.mark.parametrize(
    ("servers", "variables", "region"),
    [
        (MSK, {"AWS_REGION": "eu-west-1"}, "us-east-1"),
        ("boot-x.c1.kafka-serverless.ap-south-1.amazonaws.com:9098", {}, "ap-south-1"),
        ("kafka.example:9098", {"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        ("kafka.example:9098", {"AWS_DEFAULT_REGION": "eu-north-1"}, "eu-north-1"),
    ],
)
def test_the_region_is_that_of_the_brokers_or_of_the_environment(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, servers: str, variables: dict[str, str], region: str
) -> None:
    set_all(monkeypatch, clouds.aws())
    monkeypatch.delenv("AWS_REGION")
    set_all(monkeypatch, variables)

    token, _ = aws_tokens.provide_token(servers=servers)

    assert urlsplit(unpad(token).decode()).netloc == f"kafka.{region}.amazonaws.com"


def reason_of(options: dict[str, str]) -> str:
    with pytest.raises(TokenError) as e:
        TokenCallback("aws_msk_iam", options)()
    return str(e.value)


def test_missing_credentials_and_regions_are_explained(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert reason_of({"servers": MSK}) == (
        "Amazon MSK's IAM returned no credentials (NoCredentialsError: Unable to locate credentials); set AWS_PROFILE, "
        "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role"
    )
    assert "Unable to locate credentials" in caplog.text
    assert "ProfileNotFound: The config profile (no-such) could not be found" in reason_of(
        {"servers": MSK, "awsProfileName": "no-such"}
    )
    set_all(monkeypatch, clouds.aws())
    assert "AccessDenied" in reason_of({"servers": MSK, "awsRoleArn": "arn:aws:iam::1:role/other"})
    monkeypatch.delenv("AWS_REGION")
    assert "the region of Amazon MSK's IAM is not known" in reason_of({"servers": "kafka.example:9098"})


@pytest.mark.parametrize(("login", "extra"), [(JAVA_IAM, "aws"), (ENTRA, "azure"), (GCP, "gcp")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, login: dict[str, str], extra: str) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(cloud_logins, "import_module", missing)

    (problem,) = librdkafka_settings(login, "consumer", machine=Machine()).problems

    assert problem.severity == "error"
    assert f"install 'kdsl-kafka[{extra}]', on the driver and on every executor" in problem.message


def test_a_managed_identity_gets_a_token_of_entra(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, clouds.azure())
    servers = ENTRA["bootstrap.servers"]

    own = clouds.check(entra_tokens.provide_token(servers=servers))
    named = clouds.check(entra_tokens.provide_token(servers=servers, clientId="app", scope="https://other/.default"))

    assert own is not None
    assert own.principal == "machine@https://orders.servicebus.windows.net"
    assert named is not None
    assert named.principal == "app@https://other"


def test_a_service_account_gets_a_token_of_google(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_all(monkeypatch, clouds.google(tmp_path))

    token = gcp_tokens.provide_token()

    accepted = clouds.check(token)
    assert accepted is not None
    assert accepted.principal == ACCOUNT
    head, claims = (json.loads(unpad(part)) for part in token.split(".")[:2])
    assert head == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert claims.keys() == {"exp", "iss", "iat", "scope", "sub"}
    assert gcp_tokens.provide_token().split(".")[2] == token.split(".")[2]  # still valid
    named = clouds.check(gcp_tokens.provide_token(principal="me@example.com"))
    assert named is not None
    assert named.principal == "me@example.com"


def test_a_token_of_google_is_renewed_before_it_expires(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_all(monkeypatch, clouds.google(tmp_path))
    first = gcp_tokens.provide_token()
    later = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=clouds.life - 120)
    monkeypatch.setattr("google.auth._helpers.utcnow", lambda: later)

    assert gcp_tokens.provide_token().split(".")[2] != first.split(".")[2]


def test_credentials_of_google_without_an_expiry_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = google.oauth2.credentials.Credentials("token")  # type: ignore[no-untyped-call]
    monkeypatch.setattr(gcp_tokens, "_credentials", lambda _: (credentials, None))

    with pytest.raises(TokenError, match="do not say when their token expires"):
        gcp_tokens.provide_token(principal="me@example.com")


@pytest.mark.parametrize(
    ("subject", "declared", "variables"),
    [
        ("machine@https://orders.servicebus.windows.net", ENTRA, lambda c, _: c.azure()),
        (ACCOUNT, GCP, lambda c, folder: c.google(folder)),
    ],
)
def test_tokens_that_are_jwts_end_when_their_claims_say(
    clouds: Clouds,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    subject: str,
    declared: dict[str, str],
    variables: Callable[[Clouds, Path], dict[str, str]],
) -> None:
    set_all(monkeypatch, variables(clouds, tmp_path))

    translated = librdkafka_settings(declared, "consumer", machine=Machine())

    config = translated.client_config()
    token, expires, principal, extensions = config.pop(TOKEN_CALLBACK)(None)
    assert translated.problems == ()
    accepted = clouds.check(token)
    assert accepted is not None
    assert (int(expires), principal, extensions) == (int(accepted.expires), subject, {})
    assert create("consumer", config) == []


def test_what_a_cloud_refuses_is_a_problem_with_its_reason(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (path,) = clouds.google(tmp_path).values()
    Path(path).write_text(Path(path).read_text().replace(ACCOUNT, "other@example.com"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)

    (problem,) = librdkafka_settings(GCP, "consumer", machine=Machine()).problems

    assert problem.code == "sasl-login"
    assert "Google Cloud returned no credentials (RefreshError: " in problem.message
    assert "unknown account" in problem.message
    assert "set GOOGLE_APPLICATION_CREDENTIALS" in problem.message


def test_nothing_is_created_while_planning() -> None:
    for declared in (JAVA_IAM, JAVA_OAUTH, NAMED, GCP, ENTRA):
        assert librdkafka_settings(declared, "consumer").problems == ()


def messages(declared: dict[str, str]) -> list[str]:
    return [f"{p.severity}: {p.message}; {p.fix}" for p in librdkafka_settings(declared, "consumer").problems]


def jaas(options: str, declared: dict[str, str] = JAVA_IAM) -> dict[str, str]:
    return {**declared, "sasl.jaas.config": declared["sasl.jaas.config"].replace(";", f" {options};")}


def test_options_without_effect_are_a_warning() -> None:
    options = "'awsProfileName', 'awsRoleArn', 'awsRoleSessionName', 'awsRoleExternalId', 'awsRoleAccessKeyId', "
    options += "'awsRoleSecretAccessKey', 'awsRoleSessionToken' and 'awsStsRegion'"

    assert messages(jaas('awsDebugCreds=true awsRolArn="HUSH"')) == [
        "warning: 'sasl.jaas.config' has the option 'awsDebugCreds', which has no effect on the login with Amazon "
        f"MSK's IAM; remove it; the options are {options}",
        "warning: 'sasl.jaas.config' has the option 'awsRolArn', which has no effect on the login with Amazon MSK's "
        f"IAM (did you mean 'awsRoleArn'?); remove it; the options are {options}",
    ]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            jaas('awsProfileName="p" awsRoleArn="arn"'),
            "error: 'sasl.jaas.config' has awsProfileName and awsRoleArn, but Java's login module uses only the "
            "profile then; keep one of them; a profile can assume a role by itself (role_arn in AWS's configuration "
            "file)",
        ),
        (
            jaas('awsRoleArn="arn" awsRoleAccessKeyId="HUSH"'),
            "error: 'sasl.jaas.config' has only one of awsRoleAccessKeyId and awsRoleSecretAccessKey; write both, or "
            "neither",
        ),
        (
            jaas('awsRoleSessionName="job" awsRoleAccessKeyId="HUSH" awsRoleSecretAccessKey="HUSH"'),
            "warning: 'sasl.jaas.config' has 'awsRoleAccessKeyId', 'awsRoleSecretAccessKey' and 'awsRoleSessionName' "
            "without awsRoleArn, the role to assume, and so without effect; add awsRoleArn, or remove them; access "
            "keys are set as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        *(
            (
                {**JAVA_IAM, "sasl.oauthbearer.token.provider": provider},
                f"error: 'sasl.oauthbearer.token.provider' is {provider!r}, which does not fit 'sasl.mechanism' "
                "'AWS_MSK_IAM'; remove it, or write sasl.mechanism=OAUTHBEARER",
            )
            for provider in ("gcp", "shop.tokens:create")
        ),
        (
            {**JAVA_IAM, "sasl.mechanism": "AWS_MSK_IAMM"},
            "error: 'sasl.mechanism' is 'AWS_MSK_IAMM', which librdkafka does not have (did you mean 'AWS_MSK_IAM'?); "
            "write one of",
        ),
        (
            {**JAVA_IAM, "sasl.jaas.config": f"{OAUTH} required;"},
            "error: 'sasl.jaas.config' names the login module 'OAuthBearerLoginModule', which does not fit "
            f"'sasl.mechanism' 'AWS_MSK_IAM'; write {IAM}.IAMLoginModule",
        ),
        (
            {**JAVA_IAM, "sasl.client.callback.handler.class": "com.example.Handler"},
            "error: 'sasl.client.callback.handler.class' cannot be set: it names a Java class; remove it, or use "
            "Spark's own Kafka connector (transport='jvm')",
        ),
        (
            {**NAMED, "sasl.oauthbearer.token.endpoint.url": "https://idp/token"},
            "error: 'sasl.oauthbearer.token.provider' and 'sasl.oauthbearer.token.endpoint.url' are both set, but "
            "tokens can come from only one of them; keep one of the two",
        ),
        (
            {k: v for k, v in JAVA_IAM.items() if k != "sasl.mechanism"},
            "error: 'sasl.jaas.config' names IAMLoginModule, but 'sasl.mechanism' is not set, which means GSSAPI; "
            "write sasl.mechanism=AWS_MSK_IAM",
        ),
        (
            {
                **JAVA_OAUTH,
                "sasl.login.callback.handler.class": "com.ibm.oauth.client.IAMOAuthBearerLoginCallbackHandler",
            },
            "error: 'sasl.login.callback.handler.class' cannot be set: it names a Java class; remove it, or use "
            "Spark's own Kafka connector (transport='jvm')",
        ),
    ],
)
def test_contradictions_are_errors(declared: dict[str, str], message: str) -> None:
    assert any(m.startswith(message) for m in messages(declared))


def test_keys_of_a_role_that_is_not_named_are_not_used(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Java."""
    set_all(monkeypatch, clouds.aws())

    keys = {"awsRoleAccessKeyId": "other", "awsRoleSecretAccessKey": "other", "awsRoleArn": ""}
    token, _ = aws_tokens.provide_token(servers=MSK, **keys)

    accepted = clouds.check(token)
    assert accepted is not None
    assert accepted.principal == f"user/{KEY_ID}"


def test_a_shaded_class_counts_as_the_cloud_s_own() -> None:
    shaded = {name: value.replace("software.amazon", "shaded.software.amazon") for name, value in JAVA_IAM.items()}

    assert librdkafka_settings(shaded, "consumer").problems == ()


def test_java_gets_what_its_own_library_needs() -> None:
    short = {name: JAVA_IAM[name] for name in ("bootstrap.servers", "security.protocol", "sasl.mechanism")}

    for declared in (JAVA_IAM, short):
        java = java_settings(declared, "consumer")
        assert java.problems == ()
        assert dict(java.settings) == JAVA_IAM
    assert dict(java_settings(GCP, "consumer").settings) == GCP
    (problem,) = java_settings(NAMED, "consumer").problems
    assert "its tokens are created in Python" in problem.message


def test_no_secret_of_an_option_shows() -> None:
    declared = jaas(
        f'awsRoleArn="{ROLE}" awsRoleAccessKeyId="HUSH" awsRoleSecretAccessKey="HUSH" awsRoleSessionToken="HUSH"'
    )
    translated = librdkafka_settings(declared, "consumer")

    assert "HUSH" not in f"{translated}{translated.problems}{java_settings(declared, 'consumer')}"


def test_an_error_hides_the_secrets_of_options() -> None:
    error = cloud_logins.explain_failure(
        "aws_msk_iam", ValueError(f"bad key {SECRET} and {CONTAINER}"), {"awsRoleSecretAccessKey": SECRET}
    )

    assert SECRET not in str(error)
    assert base64.b64encode(SECRET.encode()).decode() not in str(error)


def test_doctor_says_why_there_is_no_token() -> None:
    """Before anything is asked of a broker."""
    options = [part for name, value in JAVA_IAM.items() for part in ("--property", f"{name}={value}")]

    result = CliRunner().invoke(app, ["doctor", "--json", "--bootstrap", "127.0.0.1:1", *options[2:]])

    assert result.exit_code == 1
    (finding,) = (f for f in json.loads(result.stdout[result.stdout.index("{") :])["findings"] if f["state"] == "error")
    assert finding["message"].startswith("Amazon MSK's IAM returned no credentials (NoCredentialsError: Unable to")
