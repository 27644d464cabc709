"""The client against a real registry; a web server in front of it refuses and fails where the registry does not."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import format_exception
from typing import Any
from urllib.parse import quote, unquote

import pytest

from kdsl.cluster import Registry
from kdsl.errors import ResolveError
from kdsl.registry import (
    IncompatibleSchemaError,
    RegisteredSchema,
    RegistryClient,
    RegistryError,
    RegistryRefusedError,
    RegistryUnreachableError,
    SchemaReference,
    SubjectVersion,
    UnknownSchemaError,
    UnknownSubjectError,
    registry_client,
)
from kdsl.testing import LocalRegistry
from kdsl.testing.certificates import Certificates
from kdsl.testing.tokens import TokenService
from kdsl_formats._registry.references import whole_schema
from tests.registry.front import Front, Request, forward

QUICK = {"retries.wait.ms": 1, "retries.max.wait.ms": 1}


def record(name: str, *fields: tuple[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(
        json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": k} for n, k in fields]})
    )


ORDER = record("Order", ("id", "long"))


@pytest.fixture
def subject() -> str:
    return f"subject-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(kdsl_registry: LocalRegistry) -> Iterator[RegistryClient]:
    result = kdsl_registry.client()
    yield result
    result.close()


@pytest.fixture
def front(kdsl_registry: LocalRegistry) -> Iterator[Front]:
    with Front(forward(kdsl_registry.url)) as actual:
        yield actual


def connect(front: Front, **arguments: str | int) -> RegistryClient:
    names = {name.replace("__", "-").replace("_", "."): value for name, value in arguments.items()}
    return RegistryClient(Registry(front.url, {**QUICK, **names}))


class TestWhatItHolds:
    def test_a_schema_is_registered_once_and_found_by_its_id(self, client: RegistryClient, subject: str) -> None:
        number = client.register(subject, ORDER)

        assert client.register(subject, ORDER) == number
        assert client.look_up(subject, ORDER) == SubjectVersion(subject, 1, number, ORDER)
        assert json.loads(client.schema(number).text) == json.loads(ORDER.text)
        assert client.versions(subject) == (1,)
        assert subject in client.subjects()

    def test_a_new_version_is_the_latest(self, client: RegistryClient, subject: str) -> None:
        client.register(subject, ORDER)
        second = record("Order", ("id", "long"), ("note", ["null", "string"]))
        text = json.loads(second.text)
        text["fields"][1]["default"] = None
        number = client.register(subject, RegisteredSchema(json.dumps(text)))

        result = client.latest(subject)

        assert (result.version, result.id) == (2, number)
        assert json.loads(client.version(subject, 1).schema.text) == json.loads(ORDER.text)

    def test_subjects_may_have_any_name(self, client: RegistryClient) -> None:
        name = f"a/b c?{uuid.uuid4().hex}%-value"

        assert client.register(name, ORDER) == client.look_up(name, ORDER).id

    def test_what_a_schema_makes_use_of_is_found(self, client: RegistryClient, subject: str) -> None:
        client.register(f"{subject}-zip", RegisteredSchema('{"type":"enum","name":"shop.Land","symbols":["DE","CH"]}'))
        address = record("shop.Address", ("land", "shop.Land"), ("other", ["null", "Land"]))
        address = RegisteredSchema(address.text, references=(SchemaReference("shop.Land", f"{subject}-zip", 1),))
        client.register(f"{subject}-address", address)
        order = record("shop.Order", ("to", "shop.Address"), ("by", ["null", "Address"]), ("land", "Land"))
        order = RegisteredSchema(order.text, references=(SchemaReference("shop.Address", f"{subject}-address", 1),))
        number = client.register(subject, order)

        result: Any = whole_schema(client, client.schema(number))

        to, by, land = (field["type"] for field in result["fields"])
        assert [f["name"] for f in to["fields"]] == ["land", "other"]
        assert to["fields"][0]["type"]["symbols"] == ["DE", "CH"]
        assert (by, land) == (["null", "shop.Address"], "shop.Land")

    def test_schemas_of_other_languages_are_supported_too(self, client: RegistryClient, subject: str) -> None:
        proto = RegisteredSchema('syntax = "proto3"; message A { string b = 1; }', "PROTOBUF")
        number = client.register(subject, proto)

        assert client.schema(number).kind == "PROTOBUF"


class TestWhatItDoesNotHold:
    def test_an_unknown_id_is_reported(self, client: RegistryClient) -> None:
        with pytest.raises(UnknownSchemaError, match=r"has no schema with the id 987654 \(.*40403\)"):
            client.schema(987654)

    def test_an_unknown_id_is_asked_for_again_after_some_seconds_only(
        self, front: Front, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        actual = connect(front)
        monkeypatch.setattr(RegistryClient, "unknown_for", 3600.0)
        for _ in range(3):
            with pytest.raises(UnknownSchemaError, match="has no schema with the id 987655"):
                actual.schema(987655)
        assert front.count("/schemas/ids/987655") == 1

        front.fail = [(200, {"schema": ORDER.text})]
        monkeypatch.setattr(RegistryClient, "unknown_for", 0.0)
        assert actual.schema(987655) == ORDER
        assert front.count("/schemas/ids/987655") == 2

    def test_an_unknown_subject_is_reported(self, client: RegistryClient) -> None:
        with pytest.raises(UnknownSubjectError, match="the version latest of the subject 'nobody-value'"):
            client.latest("nobody-value")
        with pytest.raises(UnknownSubjectError, match="does not have this schema under the subject 'nobody-value'"):
            client.look_up("nobody-value", ORDER)

    def test_a_schema_incompatible_with_the_others_is_reported(self, client: RegistryClient, subject: str) -> None:
        client.register(subject, ORDER)

        with pytest.raises(IncompatibleSchemaError, match=f"under the subject '{subject}'"):
            client.register(subject, record("Order", ("id", "string")))

    def test_an_invalid_schema_is_reported(self, client: RegistryClient, subject: str) -> None:
        with pytest.raises(IncompatibleSchemaError, match="cannot be registered"):
            client.register(subject, RegisteredSchema('{"type":"rekord"}'))

    def test_a_path_without_a_registry_is_reported(self, front: Front) -> None:
        front.fail = [(404, b"<html>Not Found</html>")]

        with pytest.raises(RegistryError, match=r"answers HTTP 404 as no schema registry does.*check the path"):
            connect(front).schema(1)

    def test_an_invalid_answer_is_reported(self, front: Front) -> None:
        front.fail = [(200, b"<html>Welcome</html>")]

        with pytest.raises(RegistryError, match="check that this is the address of a schema registry"):
            connect(front).schema(1)

    @pytest.mark.parametrize(
        "document", [b"", b"[" * 100_000, [], None, {}, {"schema": "x", "references": 5}, {"id": "no", "version": 1}]
    )
    def test_documents_of_other_shapes_are_reported(self, front: Front, document: Any) -> None:
        asks: list[Callable[[RegistryClient], object]] = [
            lambda value: value.schema(1),
            lambda value: value.latest("s"),
            lambda value: value.look_up("s", ORDER),
            lambda value: value.register("s", ORDER),
            lambda value: value.refusal("s", ORDER),
        ]
        for ask in asks:
            front.fail = [(200, document)]
            with pytest.raises(RegistryError, match="check that this is the address of a schema registry"):
                ask(connect(front))

    @pytest.mark.parametrize("document", [b"<html>Sign in</html>", {"subjects": []}])
    def test_a_document_that_should_be_a_list_is_reported(self, front: Front, document: Any) -> None:
        front.fail = [(200, document)] * 2

        with pytest.raises(RegistryError, match="check that this is the address of a schema registry"):
            connect(front).subjects()
        with pytest.raises(RegistryError, match="check that this is the address of a schema registry"):
            connect(front).versions("s")

    def test_a_redirection_is_reported_and_not_followed(self) -> None:
        with (
            Front(lambda _: (302, b""), headers={"Location": "https://sso.shop/login?token=HUSH"}) as front,
            pytest.raises(RegistryError, match=r"answers HTTP 302 \(to https://sso\.shop/login\);") as caught,
        ):
            connect(front).schema(1)
        assert "HUSH" not in str(caught.value)

    def test_a_page_instead_of_an_answer_is_reported(self) -> None:
        with (
            Front(lambda _: (200, b"<html>"), headers={"Content-Type": "text/html; charset=utf-8"}) as front,
            pytest.raises(RegistryError, match="answers HTTP 200 with a document of the type text/html; check"),
        ):
            connect(front).schema(1)

    def test_circular_references_of_schemas_are_reported(self) -> None:
        used = {"a": "b", "b": "a"}

        def answers(request: Request) -> tuple[int, Any]:
            subject = request.path.split("/")[2]
            reference = {"name": used[subject], "subject": used[subject], "version": 1}
            return 200, {"schema": "{}", "id": 1, "version": 1, "references": [reference]}

        with Front(answers) as front:
            actual = connect(front)
            first = actual.version("a", 1).schema
            with pytest.raises(RegistryError, match=r"in a circle: b 1 -> a 1 -> b 1"):
                actual.references(first)

    def test_an_incompatible_schema_is_reported_and_not_registered(self, client: RegistryClient, subject: str) -> None:
        assert client.refusal(subject, ORDER) == ""
        client.register(subject, ORDER)

        assert client.refusal(subject, ORDER) == ""
        assert client.refusal(subject, record("Order", ("id", "string"))) != ""
        assert client.versions(subject) == (1,)
        with pytest.raises(IncompatibleSchemaError, match=f"does not accept a schema for the subject '{subject}'"):
            client.refusal(subject, RegisteredSchema('{"type":"rekord"}'))


class TestAnswersThatHarm:
    @pytest.mark.parametrize("status", [200, 404, 503])
    def test_an_answer_without_an_end_is_not_read_to_its_end(
        self, front: Front, monkeypatch: pytest.MonkeyPatch, status: int
    ) -> None:
        monkeypatch.setattr(RegistryClient, "largest", 1 << 20)
        front.fail = [(status, b'{"schema": "' + b" " * (2 << 20) + b'"}')]

        with pytest.raises(RegistryError, match=f"the registry {front.url} answers with more than 1 MiB") as e:
            connect(front).schema(1)

        assert not isinstance(e.value, RegistryUnreachableError)
        assert len(front.requests) == 1

    def test_an_answer_that_is_packed_small_is_bounded_by_what_it_unpacks_to(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RegistryClient, "largest", 1 << 20)
        packed = gzip.compress(b" " * (8 << 20))
        with (
            Front(lambda _: (200, packed), headers={"Content-Encoding": "gzip"}) as front,
            pytest.raises(RegistryError, match="answers with more than 1 MiB"),
        ):
            connect(front).schema(1)

    def test_an_answer_up_to_the_bound_is_read(self, front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
        document = json.dumps({"schema": "x" * 1000}).encode()
        monkeypatch.setattr(RegistryClient, "largest", len(document))
        front.fail = [(200, document)]

        assert connect(front).schema(1).text == "x" * 1000

    def test_the_answer_of_an_identity_provider_is_bounded_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kdsl.registry.login.LARGEST", 1 << 20)
        with Front(lambda _: (200, b" " * (2 << 20))) as front:
            settings = {
                "bearer.auth.credentials.source": "OAUTHBEARER",
                "bearer.auth.issuer.endpoint.url": front.url.replace("://", "://me:HUSH@"),
                "bearer.auth.client.id": "id",
                "bearer.auth.client.secret": "HUSH",
            }
            actual = RegistryClient(Registry(front.url, {**QUICK, **settings}))
            with pytest.raises(RegistryError, match=r"provider http://me:\*\*\*@localhost:.* more than 1 MiB"):
                actual.schema(1)

    @pytest.mark.parametrize(
        "settings",
        [
            {"basic.auth.user.info": "me:HUSH HUSH"},
            {"bearer.auth.token": "HUSH-HUSH"},
        ],
    )
    def test_a_secret_that_a_registry_repeats_is_hidden(self, settings: dict[str, str]) -> None:
        def repeat(request: Request) -> tuple[int, Any]:
            shown = request.headers["Authorization"]
            plain = base64.b64decode(shown.split()[1]).decode() if shown.startswith("Basic") else shown
            return 401, {"error_code": 401, "message": f"nobody here is {shown}, {plain}"}

        with Front(repeat) as front, pytest.raises(RegistryRefusedError, match="nobody here is") as e:
            RegistryClient(Registry(front.url, {**QUICK, **settings})).schema(1)
        assert "HUSH" not in str(e.value)
        assert base64.b64encode(b"me:HUSH HUSH").decode() not in str(e.value)

    def test_a_redirection_to_nowhere_is_reported(self) -> None:
        with (
            Front(lambda _: (302, b""), headers={"Location": "http://[HUSH"}) as front,
            pytest.raises(RegistryError, match=r"answers HTTP 302 \(to no address\)"),
        ):
            connect(front).schema(1)


class TestUnusualSecrets:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("bearer.auth.token", "HUSH\n"),
            ("bearer.auth.token", "HÜSH"),
            ("request.header.Authorization", "HUSH\r\nX: y"),
            ("bearer.auth.identity.pool.id", "HUSH\x00"),
        ],
    )
    def test_an_invalid_header_value_is_reported_before_it_is_sent(
        self, front: Front, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        written = [value]
        if "\x00" not in value:  # which no variable can hold
            monkeypatch.setenv("KDSL_TEST_TOKEN", value)
            written.append("${env:KDSL_TEST_TOKEN}")
        for item in written:
            with pytest.raises(ResolveError) as e:
                RegistryClient(Registry(front.url, {name: item}))

            assert f"the value of '{name}' has a character that a header cannot contain" in str(e.value)
            assert "USH" not in "".join(format_exception(e.value))
        assert front.requests == []

    def test_the_name_of_a_header_is_valid(self, front: Front) -> None:
        with pytest.raises(ResolveError) as e:
            RegistryClient(Registry(front.url, {"request.header.a b": "c"}))

        assert "'request.header.a b' is not a valid name of an HTTP header" in str(e.value)

    @pytest.mark.parametrize("password", ["HU@SH", "HU,SH", "HU SH", "HÜSH", "HU%SH", "HU:SH", "HU/SH", "HU'\"SH"])
    @pytest.mark.parametrize("written", [True, False])
    def test_a_login_in_an_address_is_sent_and_not_shown(
        self, monkeypatch: pytest.MonkeyPatch, password: str, written: bool
    ) -> None:
        if written and " " in password:
            password = quote(password)
        elif not written:
            password = quote(password, safe="@,:/'")
        with Front(lambda _: (404, {"error_code": 40403, "message": "none"})) as front:
            address = front.url.replace("://", f"://me:{password}@")
            monkeypatch.setenv("KDSL_TEST_ADDRESS", address)
            registry = Registry(address if written else "${env:KDSL_TEST_ADDRESS}", QUICK)
            actual = RegistryClient(registry)
            with pytest.raises(UnknownSchemaError) as e:
                actual.schema(1)

        shown = base64.b64decode(front.requests[0].headers["Authorization"].split()[1]).decode()
        assert shown == f"me:{unquote(password)}"
        assert actual.address == front.url
        assert "SH" not in f"{registry!r} {e.value} {actual.address}"

    @pytest.mark.parametrize("url", ["http://h:HUSH", "http://[HUSH", "ftp://h", "http://", "h:1"])
    def test_an_invalid_address_is_reported(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KDSL_TEST_ADDRESS", url)
        with pytest.raises(ResolveError) as e:
            RegistryClient(Registry("${env:KDSL_TEST_ADDRESS}"))

        assert [problem.code for problem in e.value.problems] == ["registry-url"]

    def test_an_invalid_proxy_address_is_reported(self) -> None:
        with pytest.raises(ResolveError) as e:
            RegistryClient(Registry("http://r", {"proxy.host": "me:HU/SH@h", "proxy.port": "1"}))

        assert "'proxy.host' and 'proxy.port' are not a valid host and port" in str(e.value)
        assert "HU" not in str(e.value)


class TestOutages:
    def test_an_answer_that_may_come_later_is_asked_for_again(self, front: Front, subject: str) -> None:
        front.fail = [(503, {}), (500, {"error_code": 50001, "message": "leader"}), (429, {})]

        assert connect(front).register(subject, ORDER) > 0
        assert len(front.requests) == 4

    def test_what_comes_of_no_answer_names_the_address_and_what_was_asked(self, front: Front) -> None:
        front.fail = [(503, {})] * 9
        with pytest.raises(RegistryUnreachableError) as caught:
            connect(front, max_retries=2).schema(7)

        assert f"the registry {front.url} does not answer, asked 3 times for the schema with the id 7: HTTP 503" in str(
            caught.value
        )
        assert len(front.requests) == 3

    def test_an_answer_that_is_packed_wrongly_is_asked_for_again(self) -> None:
        with Front(lambda _: (200, b"no gzip"), headers={"Content-Encoding": "gzip"}) as front:
            actual = connect(front, max_retries=1)
            with pytest.raises(RegistryUnreachableError, match="asked 2 times for the schema with the id 1"):
                actual.schema(1)

    def test_an_unreachable_address_is_reported(self) -> None:
        gone = RegistryClient(Registry("http://me:HUSH@127.0.0.1:9/path", {"max.retries": 0}))
        with pytest.raises(RegistryUnreachableError) as caught:
            gone.look_up("orders-value", ORDER)

        assert "the registry http://127.0.0.1:9/path does not answer, asked once for a schema under the subject" in str(
            caught.value
        )
        assert "HUSH" not in str(caught.value)

    def test_another_address_answers_where_one_does_not(self, front: Front, subject: str) -> None:
        actual = RegistryClient(Registry(f"http://127.0.0.1:9,{front.url}", {"max.retries": 0}))

        assert actual.register(subject, ORDER) > 0

    def test_what_was_asked_once_needs_no_registry(self, front: Front, subject: str) -> None:
        actual = connect(front, max_retries=0)
        number = actual.register(subject, ORDER)
        other = connect(front, max_retries=0)
        other.schema(number)
        other.latest(subject)
        count = len(front.requests)
        front.fail = [(503, {})] * 9

        assert (actual.schema(number), actual.register(subject, ORDER)) == (ORDER, number)
        assert (other.schema(number).kind, other.latest(subject).id) == ("AVRO", number)
        assert len(front.requests) == count

    def test_the_latest_version_can_be_requested_again(self) -> None:
        versions = iter((1, 2, 3))

        def answer(request: Request) -> tuple[int, Any]:
            version = next(versions)
            return 200, {"schema": ORDER.text, "id": version, "version": version, "subject": request.path.split("/")[2]}

        with Front(answer) as front:
            actual = connect(front)
            numbers = [actual.latest("s"), actual.request_latest("s"), actual.latest("s"), actual.request_latest("s")]

        assert [one.version for one in numbers] == [1, 2, 1, 3]

    def test_a_process_has_one_client_of_a_registry(self) -> None:
        assert registry_client(Registry("http://a")) is registry_client(Registry("http://a"))
        assert registry_client(Registry("http://a")) is not registry_client(Registry("http://b"))

    def test_a_client_that_was_closed_is_replaced(self) -> None:
        registry = Registry("http://closed")
        closed = registry_client(registry)
        closed.close()

        assert registry_client(registry) is not closed
        closed.close()
        assert registry_client(registry) is registry_client(registry)


def authorization(wanted: str) -> Any:
    return lambda request: 200 if request.headers.get("Authorization") == wanted else 401


class TestLogins:
    def test_a_user(self, kdsl_registry: LocalRegistry, subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("REGISTRY_PASSWORD", "pw")
        with Front(forward(kdsl_registry.url, authorization("Basic bWU6cHc="))) as front:
            address = front.url.replace("://", "://me:pw@")
            for registry in (
                Registry(front.url, {"basic-auth.user-info": "me:pw"}),
                Registry(front.url, {"basic-auth.user-info": "me:${env:REGISTRY_PASSWORD}"}),
                Registry(address, {"basic-auth.credentials-source": "URL"}),
            ):
                assert RegistryClient(registry).register(subject, ORDER) > 0
            with pytest.raises(RegistryRefusedError, match=r"does not know who asks .*\(HTTP 401\)"):
                RegistryClient(Registry(front.url, {"basic-auth.user-info": "me:wrong"})).schema(1)
            assert len(front.requests) == 4  # a login that is refused is not tried again

    def test_missing_rights_are_reported_as_such(self, kdsl_registry: LocalRegistry) -> None:
        message = pytest.raises(RegistryRefusedError, match=r"does not let this user ask for .*\(HTTP 403\)")
        with Front(forward(kdsl_registry.url, lambda _: 403)) as front, message:
            connect(front).schema(1)

    def test_a_token(self, kdsl_registry: LocalRegistry, subject: str) -> None:
        with Front(forward(kdsl_registry.url, authorization("Bearer T0KEN"))) as front:
            assert connect(front, bearer__auth_token="T0KEN").register(subject, ORDER) > 0

    def test_tokens_of_an_identity_provider_are_used_until_they_are_refused(
        self, kdsl_registry: LocalRegistry, subject: str
    ) -> None:
        tokens = TokenService({"me": "pw"})
        tokens.start()
        refused: list[str] = []

        def allows(request: Request) -> int:
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            return 200 if token.count(".") == 2 and token not in refused else 401

        try:
            with Front(forward(kdsl_registry.url, allows)) as front:
                actual = connect(
                    front,
                    bearer_auth_credentials_source="OAUTHBEARER",
                    bearer_auth_issuer_endpoint_url=tokens.url,
                    bearer_auth_client_id="me",
                    bearer_auth_client_secret="pw",
                )
                actual.register(subject, ORDER)
                actual.register(f"{subject}-2", ORDER)
                assert tokens.issued == 1
                refused.append(front.requests[-1].headers["Authorization"].removeprefix("Bearer "))
                actual.register(f"{subject}-3", ORDER)
                assert tokens.issued == 2
                wrong = connect(
                    front,
                    bearer_auth_credentials_source="OAUTHBEARER",
                    bearer_auth_issuer_endpoint_url=tokens.url,
                    bearer_auth_client_id="me",
                    bearer_auth_client_secret="HUSH",
                )
                with pytest.raises(RegistryRefusedError, match="returns no token") as caught:
                    wrong.register(f"{subject}-4", ORDER)
                assert "HUSH" not in str(caught.value)
        finally:
            tokens.stop()

    def test_headers_that_are_asked_for_are_sent(self, front: Front, subject: str) -> None:
        connect(front, bearer_auth_logical_cluster="lsrc-1", bearer_auth_token="T").register(subject, ORDER)

        assert front.requests[0].headers["target-sr-cluster"] == "lsrc-1"

    def test_wrong_settings_are_reported_before_any_request(self, front: Front) -> None:
        with pytest.raises(ResolveError, match="the schema registry"):
            connect(front, max_retries="many")
        assert front.requests == []


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("keys"))


class TestTls:
    @pytest.fixture
    def secure(self, kdsl_registry: LocalRegistry, certificates: Certificates) -> Iterator[Front]:
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.authority))
        server.load_cert_chain(str(certificates.server))
        server.verify_mode = ssl.CERT_REQUIRED
        with Front(forward(kdsl_registry.url), server) as actual:
            yield actual

    @pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
    def test_stores_of_every_type_contain_the_keys(
        self, secure: Front, certificates: Certificates, subject: str, kind: Any
    ) -> None:
        passwords = (
            {}
            if kind == "PEM"
            else {
                "ssl.truststore.password": certificates.password,
                "ssl.keystore.password": certificates.password,
            }
        )
        settings = {
            "ssl.truststore.location": str(certificates.trust_store(kind)),
            "ssl.truststore.type": kind,
            "ssl.keystore.location": str(certificates.key_store("me", kind)),
            "ssl.keystore.type": kind,
            **passwords,
        }

        assert RegistryClient(Registry(secure.url, {**QUICK, **settings})).register(subject, ORDER) > 0

    def test_an_untrusted_server_is_reported_at_once(self, secure: Front) -> None:
        with pytest.raises(RegistryUnreachableError, match=r"is not trusted: .*CERTIFICATE_VERIFY_FAILED"):
            RegistryClient(Registry(secure.url)).schema(1)

    def test_a_certificate_of_another_host_is_reported_at_once(self, secure: Front, certificates: Certificates) -> None:
        settings = {"ssl.truststore.location": str(certificates.authority), "ssl.truststore.type": "PEM"}
        elsewhere = secure.url.replace("localhost", "127.1")

        with pytest.raises(
            RegistryUnreachableError, match=r"has the certificate of another host: .*write the host name that is in its"
        ):
            RegistryClient(Registry(elsewhere, settings)).schema(1)

    def test_a_server_without_tls_is_reported_at_once(self, front: Front) -> None:
        with pytest.raises(RegistryUnreachableError, match=r"does not speak TLS: .*; write http://"):
            RegistryClient(Registry(front.url.replace("http:", "https:"))).schema(1)

    def test_a_store_without_an_authority_does_not_mean_those_of_the_machine(self, tmp_path: Path) -> None:
        key_only = tmp_path / "trust.pem"
        key_only.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
        settings = {"ssl.truststore.location": str(key_only), "ssl.truststore.type": "PEM"}

        with pytest.raises(RegistryError, match=r"trust\.pem: there is no certificate of an authority"):
            RegistryClient(Registry("https://r", settings))

    def test_a_missing_store_is_reported(self, tmp_path: Path) -> None:
        settings = {"ssl.truststore.location": str(tmp_path / "none.jks")}

        with pytest.raises(RegistryError, match=r"none\.jks"):
            RegistryClient(Registry("https://r", settings))
