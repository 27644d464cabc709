from __future__ import annotations

import copy
import json
import pickle
from contextlib import suppress
from pathlib import Path
from traceback import format_exception
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given, strategies as st

from kdsl import AvroConfluent, Cluster, Col, Json, KafkaTable, Registry
from kdsl.changelog import jdbc
from kdsl.client_settings.properties import Value
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.errors import KdslError, SecretError
from kdsl.load import tables
from kdsl.plan.text import plan_text
from kdsl.registry import RegistryClient
from kdsl.registry.settings import read_settings
from kdsl.secrets import (
    Reference,
    Secret,
    escape_references,
    has_reference,
    is_reference,
    read_properties,
    references,
    resolve,
)
from kdsl.secrets.hiding import contains_secret, hide_secrets, is_secret, redact, redact_value
from kdsl.table import Table
from tests.installed_plugins import InstallPlugins


@pytest.fixture
def provider(tmp_path: Path, install_plugins: InstallPlugins) -> None:
    """An installed package that registers two providers; the second knows the secret 'token'."""
    (tmp_path / "vault_for_tests.py").write_text(
        "def empty(name):\n    raise KeyError(name)\n\ndef full(name):\n    return {'token': 'HUSH'}[name]\n"
        "def told(name, endpoint, version):\n    return f'{name} of {endpoint}, {version}'\n"
        "def bad(name):\n    if name == 'number':\n        return 1\n"
        "    if name == 'boom':\n        raise RuntimeError('HUSH')\n    raise KeyError(name)\n"
    )
    names = {"a-empty": "empty", "b-full": "full", "c-told": "told", "d-bad": "bad"}
    install_plugins({"kdsl.secrets": {name: f"vault_for_tests:{function}" for name, function in names.items()}})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("plain $ { text", []),
        ("${env:NAME}", [Reference("env", "NAME")]),
        ("a${file:/run/pw}b", [Reference("file", "/run/pw")]),
        ("${file:/run/p.properties:db.pw}", [Reference("file", "/run/p.properties", "db.pw")]),
        (
            "${secret_values.a.b}:${given:sasl.password}",
            [Reference("secret_values", "a.b"), Reference("given", "sasl.password")],
        ),
        ("$${env:NAME} ${env:N}", [Reference("env", "N")]),
    ],
)
def test_references_are_found(text: str, values: list[Reference]) -> None:
    assert list(references(text)) == values
    assert has_reference(text) == bool(values)


@pytest.mark.parametrize("text", ["${env:NAME}", "${file:/p}", "${file:/p:k}", "${secret_values.x}", "${given:k}"])
def test_a_reference_is_written_as_it_was_read(text: str) -> None:
    assert [str(reference) for reference in references(text)] == [text]
    assert is_reference(text)


@pytest.mark.parametrize("text", ["${HUSH}", "${}", "${env}", "${env:}", "${secret_values:HUSH}", "${kafka.HUSH}"])
def test_an_invalid_reference_is_an_error_that_does_not_show_it(text: str) -> None:
    with pytest.raises(SecretError) as e:
        list(references(text))

    assert "is not a reference" in str(e.value)
    assert "'${env:NAME}', '${file:PATH}', '${file:PATH:KEY}' and '${secret_values.NAME}'" in str(e.value)
    assert "HUSH" not in str(e.value)
    assert has_reference(text)
    assert not is_reference(text)


def test_an_environment_variable_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_TEST_PW", "pa${env:OTHER}ss")

    assert resolve("a ${env:KDSL_TEST_PW} $${env:X}") == "a pa${env:OTHER}ss ${env:X}"


def test_a_file_is_resolved_without_the_blanks_around_it(tmp_path: Path) -> None:
    path = tmp_path / "pw"
    path.write_text("\n pass word \r\n\n", encoding="utf-8")

    assert resolve(f"${{file:{path}}}") == "pass word"


def test_a_key_of_a_properties_file_is_resolved(tmp_path: Path) -> None:
    path = tmp_path / "db.properties"
    path.write_text("# comment\ndb.password = p=w\n", encoding="utf-8")

    assert resolve(f"${{file:{path}:db.password}}") == "p=w"


@pytest.mark.usefixtures("provider")
def test_providers_are_asked_in_the_order_of_their_names() -> None:
    assert resolve("${secret_values.token}") == "HUSH"


@pytest.mark.usefixtures("provider")
def test_a_secret_that_no_provider_has_is_an_error_that_names_them(
    install_plugins: InstallPlugins,
) -> None:
    install_plugins({"kdsl.secrets": {"a-empty": "vault_for_tests:empty", "b-full": "vault_for_tests:full"}})
    with pytest.raises(SecretError, match="asked 'a-empty' and 'b-full'"):
        resolve("${secret_values.other}")


def test_a_folder_with_one_file_per_secret_is_a_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("HUSH\n", encoding="utf-8")
    monkeypatch.setenv("KDSL_SECRETS_DIR", str(tmp_path))

    assert resolve("${secret_values.token}") == "HUSH"
    with pytest.raises(SecretError, match="no such file"):
        resolve("${secret_values.../token}")
    (tmp_path / "key").write_bytes(b"\xff")
    with pytest.raises(SecretError, match="key: it is not UTF-8"):
        resolve("${secret_values.key}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${env:KDSL_UNSET}", "the environment variable 'KDSL_UNSET' is not set; set it for the driver and the exec"),
        ("${file:/no/such/file}", "/no/such/file: No such file or directory; put the file there on the driver"),
        (
            "${given:sasl.password}",
            "the value of 'sasl.password' was given literally on the driver, and this process does not have it",
        ),
        ("${secret_values.x}", "no package registers a provider"),
    ],
)
def test_what_cannot_be_resolved_names_the_reference_and_the_host(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KDSL_UNSET", raising=False)
    monkeypatch.delenv("KDSL_SECRETS_DIR", raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "worker-7")

    with pytest.raises(SecretError) as e:
        resolve(text)

    assert str(e.value).startswith(f"{text} cannot be resolved on worker-7: ")
    assert message in str(e.value)
    assert isinstance(e.value, KdslError)


def test_a_missing_key_of_a_file_names_the_keys_and_no_values(tmp_path: Path) -> None:
    path = tmp_path / "db.properties"
    path.write_text("db.password=HUSH\n", encoding="utf-8")

    with pytest.raises(SecretError) as e:
        resolve(f"${{file:{path}:db.pasword}}")

    assert "the file has no key 'db.pasword' (did you mean 'db.password'?); a file with a key" in str(e.value)
    assert "HUSH" not in str(e.value)


@pytest.mark.parametrize(
    "content",
    [
        "HUSH",
        "HUSH-key",
        "HUSH key",
        "HUSHkey==",
        "db.password=hunter2\nHUSHkey=\n",
        "-----BEGIN PRIVATE KEY-----\nMIIEvHUSH+key\nHUSHkey==\n-----END PRIVATE KEY-----\n",
        '{"HUSH": "HUSHkey"}',
        "Client { org.apache.kafka.PlainLoginModule required\n HUSH-key=HUSH; };",
    ],
)
def test_of_a_file_without_properties_nothing_is_quoted(tmp_path: Path, content: str) -> None:
    path = tmp_path / "pw"
    path.write_text(content, encoding="utf-8")

    for key in ("password", "key", "hUSHkey", "HUSH-keys", "----BEGIN", "db.pasword"):
        with pytest.raises(SecretError) as e:
            resolve(f"${{file:{path}:{key}}}")
        shown = str(e.value).replace(f":{key}}}", "").replace(repr(key), "").replace(f"line {key}=VALUE", "")
        assert "HUSH" not in shown
        assert "BEGIN" not in shown
        assert f"${{file:{path}}} is the whole content of a file" in shown


def test_a_binary_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pw"
    path.write_bytes(b"\xffHUSH")

    with pytest.raises(SecretError, match="it is not UTF-8") as e:
        resolve(f"${{file:{path}}}")

    assert e.value.__cause__ is None


@given(st.text())
def test_an_escaped_string_resolves_to_itself(text: str) -> None:
    assert resolve(escape_references(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1\nb:2\nc 3\nd\n", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("  a  =  1 2  \n", {"a": "1 2  "}),
        ("# a=1\n! b=2\nc=#3\n", {"c": "#3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a = x\\\n   y\\\r\n z\nb=1", {"a": "xyz", "b": "1"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a\\ b\\=c\\:d = \\u00fc\\t\\n\\q", {"a b=c:d": "ü\t\nq"}),
        ("a=p=q:r", {"a": "p=q:r"}),
    ],
)
def test_properties_files_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jaas.config",
        "properties.sasl.jaas.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.config",
        "avro-confluent.basic-auth.user-info",
        "value.avro-confluent.bearer-auth.token",
        "key.avro-confluent.ssl.keystore.password",
        "aws.secret.access.key",
        "clientSecret",
        "apiKey",
        "cluster.secret",
        "basic.auth.user.inf",
        "value.avro-confluent.basic-auth.usr-info",
        "bearer.auth.tokn",
    ],
)
def test_names_of_secrets(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "sasl.username",
        "sasl.mechanism",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.client.credentials.client.id",
        "ssl.keystore.location",
        "ssl.ca.pem",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "key.fields",
        "key.format",
        "key.fields-prefix",
        "dew.csms.secretName",
        "group.id",
        "linger.ms",
        "basic.auth.credentials.source",
        "bearer.auth.credentials.source",
        "schema.registry.url",
        "auto.register.schemas",
    ],
)
def test_names_of_other_settings(key: str) -> None:
    assert not is_secret(key)


PLAIN = 'a.PlainLoginModule required username="u" password="{}";'


@pytest.mark.parametrize(
    ("key", "text", "holds"),
    [
        ("sasl.password", "HUSH", True),
        ("sasl.password", "${env:PW}", False),
        ("sasl.password", "HUSH${env:PW}", True),
        ("sasl.password", "$${env:PW}", True),
        ("sasl.password", "", False),
        ("sasl.jaas.config", PLAIN.format("HUSH"), True),
        ("sasl.jaas.config", PLAIN.format("${env:PW}"), False),
        ("properties.sasl.jaas.config", PLAIN.format("${env:PW}"), False),
        ("sasl.jaas.config", "${secret_values.jaas}", False),
        ("sasl.jaas.config", "HUSH", True),
        ("schema.registry.url", "https://u:HUSH@h:8081", True),
        ("schema.registry.url", "https://u:${env:PW}@h:8081", False),
        ("schema.registry.url", "https://h:8081/@x", False),
        ("linger.ms", "5", False),
    ],
)
def test_values_that_contain_a_secret(key: str, text: str, holds: bool) -> None:
    assert contains_secret(key, text) == holds
    assert ("HUSH" in redact_value(key, text)) is False


def test_a_redacted_mapping_keeps_values_that_are_not_secret() -> None:
    settings = {
        "linger.ms": 5,
        "sasl.password": "HUSH",
        "ssl.key.password": "${env:PW}",
        "any": Secret("HUSH"),
        "registry": "https://u:HUSH@h,https://h2",
    }

    assert redact(settings) == {
        "linger.ms": "5",
        "sasl.password": "***",
        "ssl.key.password": "${env:PW}",
        "any": "***",
        "registry": "https://u:***@h,https://h2",
    }


def test_a_secret_shows_and_pickles_nowhere() -> None:
    secret = Secret("HUSH")

    assert "HUSH" not in f"{secret!r} {secret} {[secret]} %s" % secret
    assert secret.reveal() == "HUSH"
    assert secret == Secret("HUSH")
    assert secret != Secret("OTHER")
    assert len({secret, Secret("HUSH")}) == 1
    assert copy.deepcopy([secret]) == [secret]
    with pytest.raises(SecretError) as pickled:
        pickle.dumps(secret)
    with pytest.raises(TypeError) as dumped:
        json.dumps(secret)
    assert "HUSH" not in f"{pickled.value} {dumped.value}"


@pytest.mark.parametrize("key", ["sasl.pasword", "ssl.keystore.pasword", "sasl.jaas.confg"])
def test_a_misspelled_secret_is_a_secret_too(key: str) -> None:
    assert redact({key: "hunter2"}) == {key: "***"}


@pytest.mark.parametrize("key", ["ssl.keystore.type", "ssl.keystore.location", "sasl.username", "client.id"])
def test_settings_near_a_secret_stay_readable(key: str) -> None:
    assert redact({key: "shown"}) == {key: "shown"}


@pytest.mark.usefixtures("provider")
def test_a_provider_is_asked_by_its_name() -> None:
    assert list(references("${b-full:token}")) == [Reference("b-full", "token")]
    assert is_reference("${b-full:token}")
    assert resolve("pre ${b-full:token}") == "pre HUSH"
    with pytest.raises(SecretError, match="the provider 'a-empty' has no secret with the key 'token'"):
        resolve("${a-empty:token}")


@pytest.mark.usefixtures("provider")
def test_a_provider_receives_what_follows_the_key() -> None:
    text = "${c-told:token?endpoint=kms.example%3A443&version=v1}"

    assert [str(reference) for reference in references(text)] == [text]
    assert resolve(text) == "token of kms.example:443, v1"


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("key", ["boom", "number"])
def test_a_provider_that_fails_is_named_and_its_words_are_not_repeated(key: str) -> None:
    with pytest.raises(SecretError, match=r"'d-bad' .*(failed with RuntimeError|returned a int)") as e:
        resolve(f"${{d-bad:{key}}}")

    assert "HUSH" not in str(e.value)
    assert e.value.__cause__ is None


ODD = (
    "", "@x@", '"', "'", "\\", "\n", " ", "ü中😀", "%40", ":", "/", "://", "?a&b=", ";", ",", "# ", "{", "}", "${",
)  # fmt: skip
"""What a secret may hold; each is looked for by the word at its ends."""


def make_secret(text: str) -> str:
    return f"HUSH{text}HUSH"


def everything(thing: object) -> list[str]:
    """What can be seen of a thing, or of the error that it raises."""
    try:
        result = thing() if callable(thing) else thing
    except Exception as e:  # noqa: BLE001
        seen = [repr(e), *format_exception(e), *(str(problem) for problem in getattr(e, "problems", ()))]
        with suppress(Exception):
            seen.append(pickle.dumps(e).decode("latin-1"))
        return seen
    seen = [repr(result), str(result)]
    if isinstance(result, bytes):
        seen.append(result.decode("latin-1"))
    return seen


def seen_of_a_cluster(cluster: Cluster, *, tables_too: bool) -> list[str]:
    properties = cluster.properties.reveal()

    class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest", properties=properties):
        id: Col[int]

    class Typed(KafkaTable, topic="orders", value=AvroConfluent(), startup="earliest"):
        id: Col[int]

    things: list[object] = [
        cluster, cluster.properties, cluster.registry, cluster.split_literals()[0], lambda: cluster.problems(),
        lambda: cluster.problems("jvm"), lambda: pickle.dumps(cluster),
        lambda: pickle.dumps(cluster.split_literals()[0]),
        lambda: cluster.check_references(), lambda: cluster.kdsl_settings, lambda: copy.deepcopy(cluster),
    ]  # fmt: skip
    things += [lambda: cluster.java("consumer"), lambda: librdkafka_settings(cluster.settings(), "consumer")]
    if cluster.registry is not None:
        registry = cluster.registry
        things += [lambda: read_settings(registry), lambda: RegistryClient(registry)]
    for table in (Orders, Typed) if tables_too else ():
        declared = Table(table.definition())
        things += [
            declared, table.definition(), lambda t=table: t.explain(cluster=cluster),
            lambda t=table: t.explain("write", cluster=cluster),
            lambda d=declared: plan_text(d.read_plan(cluster=cluster)),
            lambda d=declared: pickle.dumps(d.write_plan(cluster)),
        ]  # fmt: skip
    return [text for thing in things for text in everything(thing)]


@pytest.mark.parametrize("text", ODD)
def test_unusual_secrets_are_hidden_in_everything_that_a_cluster_returns(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secret = make_secret(text)
    quoted = secret.replace("\\", "\\\\").replace('"', '\\"')
    in_url = quote(secret, safe="@:=&;,!*'") if any(c in text for c in '/?#%[]\\ {}|<>`\n\r\t"') else secret
    givens: tuple[dict[str, Value], ...] = (
        {"sasl.jaas.config": f'a.PlainLoginModule required username="u" password="{quoted}";'},
        {"sasl.jaas.config": f'a.PlainLoginModule required password={secret} "{secret}";', "sasl.jaas.confg": secret},
        {
            "sasl.jaas.config": f'a.PlainLoginModule required username=\\"u\\" password=\\"{secret}\\";',
            "ssl.keystore.location": "/none",
            "ssl.keystore.password": secret,
            "ssl.key.password": f"{secret}2",
            "sasl.username": "u",
            "sasl.password": secret,
            "sasl.pasword": secret,
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"https://u:{in_url}@idp/token?client_secret={quote(secret)}",
            "sasl.oauthbearer.client.credentials.client.secret": secret,
            "sasl.oauthbearer.config": secret,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": secret,
            "ssl.keystore.certificate.chain": secret,
            "ssl.truststore.certificates": secret,
            "ssl.key.pem": secret,
        },
    )
    for number, declared in enumerate(givens):
        protocol: dict[str, Value] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        registry = Registry(
            f"https://me:{in_url}@registry,https://you:{in_url}@other",
            {
                "basic-auth.user-info": f"me:{secret}",
                "bearer.auth.token": secret,
                "request.header.Authorization": f"Bearer {secret}",
                "bearer.auth.client.secret": secret,
                "ssl.keystore.password": secret,
                "max.retries": 0,
            },
        )
        cluster = Cluster("h:1", properties={**protocol, **declared}, registry=registry, name="prod")

        assert [text for text in seen_of_a_cluster(cluster, tables_too=not number) if "HUSH" in text] == []
    assert "HUSH" not in caplog.text


@pytest.mark.parametrize("text", ODD)
def test_unusual_secrets_are_hidden_in_every_message_about_a_document(text: str, tmp_path: Path) -> None:
    secret, bare = make_secret(text), make_secret(text).replace("\n", " ")
    login = f'a.PlainLoginModule required username="u" password="{secret}";'
    options = {"properties.sasl.jaas.config": login, "properties.ssl.key.password": secret, "topic": "t"}
    result = ",\n".join(f"'{key}' = '{value.replace(chr(39), chr(39) * 2)}'" for key, value in options.items())
    documents = {
        "good.yaml": yaml.safe_dump({"tables": [{"name": "t", "options": options}]}),
        "wrong.yaml": yaml.safe_dump({"tables": [{"name": "t", "options": {**options, "valu.format": "json"}}]}),
        "bare.yaml": f"tables:\n- name: t\n  options:\n    topic: t\n    properties.ssl.key.password: {secret}\n",
        "clusters.yaml": f"clusters:\n a:\n  bootstrap_servers: h:1\n  properties:\n   sasl.password: {secret}\n",
        "good.sql": f"CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafka',\n{result});",
        "wrong.sql": f"CREATE TABLE t (id BIGIN) WITH ('connector' = 'kafka'\n{result} {result});",
        "bare.sql": f"CREATE TABLE t (id INT) WITH ('properties.ssl.key.password' = {bare}, 'topic' = );",
        "broken.sql": f"CREATE TABLE t (id INT) WITH ('properties.ssl.key.password' = '{secret}",
    }
    shown = []
    for name, content in documents.items():
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        if name == "clusters.yaml":
            shown += everything(lambda p=path: Cluster.from_yaml(p))
        else:
            shown += everything(lambda p=path: [(t, t.explain()) for t in tables(str(p))])

    assert [text for text in shown if "HUSH" in text] == []


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://u:{}@db/x", "jdbc:oracle:thin:scott/{}@//db:1521/svc", "jdbc:db2://h:1/db:user=u;password={};",
        "jdbc:teradata://h/USER=u,PASSWORD={}", "jdbc:sqlserver://h;user=u;password={}", "jdbc:mysql://h/x?password={}",
        "jdbc:h2:mem:x;PASSWORD={}", "jdbc:mysql://address=(host=h)(password={})/x",
    ],
)  # fmt: skip
def test_unusual_secrets_are_hidden_in_every_message_about_a_jdbc_address(url: str, text: str) -> None:
    secret = make_secret(text)
    target = jdbc(url.format(secret), "t", {"password": secret, "user": "u"})

    assert "HUSH" not in f"{target!r} {target}"
    if "odd" not in url:
        message = target._hide_secrets(
            f"cannot connect to {url.format(secret)}: {secret} {json.dumps(secret)} {secret!r}"
        )
        assert "HUSH" not in message
        assert "cannot connect to" in message


@pytest.mark.parametrize(
    ("text", "secrets", "expected"),
    [
        ("password authentication failed", ["a"], "password authentication failed"),
        ("user=u;password=a;x=ab", ["a"], "user=u;password=***;x=ab"),
        ("given 'a', \"a\", (a) and [a]", ["a"], "given '***', \"***\", (***) and [***]"),
        ("a.b: hunter2/x", ["hunter2", "a"], "a.b: ***/x"),
        ("xhunter2x", ["hunter2"], "x***x"),
        ("p%40ss! and p@ss!", ["p@ss!"], "*** and ***"),
        ("**** stars", ["*"], "**** stars"),
        ("nothing", ["", " "], "nothing"),
        ("pass and password", ["pass", "password"], "*** and ***"),
        ("in JSON: a\\nbc", ["a\nbc"], "in JSON: ***"),
    ],
)
def test_secrets_in_messages_of_other_software_are_hidden(text: str, secrets: list[str], expected: str) -> None:
    assert hide_secrets(text, secrets) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://u:p@ss@host/x", "http://u:***@host/x"),
        ("http://u:p@s@s@host:1,https://v:q@other", "http://u:***@host:1,https://v:***@other"),
        ("http://u:p/ss@host", "http://u:***@host"),
        ("http://host:8081/a@b", "http://host:8081/a@b"),
        ("http://host:8081,http://u:p@other", "http://host:8081,http://u:***@other"),
        ("https://h/token?client_secret=x&a=b", "https://h/token?client_secret=***&a=b"),
        ("https://h/token?client_secret=${env:X}&a=b", "https://h/token?client_secret=${env:X}&a=b"),
        ("http://u:${env:X}@h", "http://u:${env:X}@h"),
    ],
)
def test_secrets_in_an_address_are_hidden(address: str, expected: str) -> None:
    assert redact_value("registry.url", address) == expected
