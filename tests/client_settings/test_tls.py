from __future__ import annotations

from collections.abc import Mapping

import pytest

from kdsl.client_settings.machine import Machine
from kdsl.client_settings.model import CLIENT_KINDS, Client
from kdsl.client_settings.stores import Pem, Store
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.client_settings.token_callback import TokenCallback
from kdsl.errors import KdslError
from tests.client_settings.installed import DATA, create
from tests.problem_texts import without_code

SSL = {"security.protocol": "SSL"}
CA = (DATA / "ca.pem").read_text()
CERTIFICATE = (DATA / "client.crt").read_text()
ENCRYPTED, PASSWORD = (DATA / "client.enc.key").read_text(), "key-pw"
KEY = (DATA / "client.key").read_text()


def one_line(text: str) -> str:
    return text.replace("\n", " ")


def problems_of(settings: dict[str, str]) -> list[str]:
    return [without_code(problem) for problem in librdkafka_settings({**SSL, **settings}, "consumer").problems]


@pytest.mark.parametrize("client", CLIENT_KINDS)
@pytest.mark.parametrize(
    ("sample", "settings"),
    [
        ({"ssl.truststore.type": "pem", "ssl.truststore.location": str(DATA / "ca.pem")}, ["ssl.ca.location"]),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": one_line(CA)}, ["ssl.ca.pem"]),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(DATA / "keystore.pem"),
                "ssl.key.password": PASSWORD,
            },
            ["ssl.key.password", "ssl.key.location", "ssl.certificate.location"],
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": one_line(ENCRYPTED),
                "ssl.keystore.certificate.chain": one_line(CERTIFICATE + CA),
                "ssl.key.password": PASSWORD,
            },
            ["ssl.key.pem", "ssl.certificate.pem", "ssl.key.password"],
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, ["ssl.endpoint.identification.algorithm"]),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, ["ssl.endpoint.identification.algorithm"]),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
            ["ssl.cipher.suites"],
        ),
        ({"ssl.enabled.protocols": "TLSv1.3,TLSv1.2", "ssl.protocol": "TLSv1.3"}, []),
    ],
)
def test_librdkafka_takes_what_java_s_settings_become(
    client: Client, sample: dict[str, str], settings: list[str]
) -> None:
    translated = librdkafka_settings({**SSL, **sample}, client)

    assert translated.problems == ()
    assert list(translated.settings) == ["security.protocol", *settings]
    assert create(client, translated.client_config()) == []


@pytest.mark.parametrize(("value", "held"), [("", "none"), (" ", "none"), ("none", "none"), ("HTTPS", "https")])
def test_an_empty_endpoint_identification_means_none(value: str, held: str) -> None:
    settings = {**SSL, "ssl.endpoint.identification.algorithm": value}

    assert librdkafka_settings(settings, "consumer").settings["ssl.endpoint.identification.algorithm"] == held


def test_the_ciphers_of_tls_13_are_left_out_of_openssl_s_list() -> None:
    settings = {**SSL, "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,A"}

    assert (
        librdkafka_settings(settings, "consumer").settings["ssl.cipher.suites"]
        == "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:A"
    )


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        (
            {"ssl.truststore.location": "/x/ca.pem"},
            [
                "'ssl.truststore.location' is '/x/ca.pem', but the type of the truststore is JKS; "
                "write ssl.truststore.type=PEM"
            ],
        ),
        (
            {"ssl.truststore.location": "obs://bucket/client.jks"},
            [
                "'ssl.truststore.location' is 'obs://bucket/client.jks': it is not a local file (obs://), and "
                "no package registers a fetcher (an entry point of the group 'kdsl.files' with the name of the "
                "scheme); "
                "copy the file to the driver and to every executor and write its path, or install a fetcher"
            ],
        ),
        (
            {"ssl.ca.location": "obs://bucket/ca.pem"},
            [
                "'ssl.ca.location' is 'obs://bucket/ca.pem': it is not a local file (obs://), and "
                "no package registers a fetcher (an entry point of the group 'kdsl.files' with the name of the "
                "scheme); "
                "copy the file to the driver and to every executor and write its path, or install a fetcher"
            ],
        ),
        (
            {"ssl.truststore.certificates": CA},
            [
                "'ssl.truststore.certificates' contains PEM, but the type of the truststore is JKS; "
                "write ssl.truststore.type=PEM"
            ],
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CA, "ssl.truststore.location": "ca.pem"},
            ["'ssl.truststore.location' and 'ssl.truststore.certificates' are both set; keep one of the two"],
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "a", "ssl.truststore.password": "HUSH"},
            ["'ssl.truststore.password' is set, but a PEM truststore has no password; remove it"],
        ),
        (
            {"ssl.truststore.password": "HUSH"},
            ["'ssl.truststore.password' is set without a store; write ssl.truststore.location, or remove it"],
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "HUSH"},
            [
                "'ssl.truststore.certificates' contains no PEM block CERTIFICATE; "
                "write -----BEGIN … CERTIFICATE----- to -----END"
            ],
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": KEY},
            [
                "'ssl.keystore.key' is set without 'ssl.keystore.certificate.chain'; "
                "set ssl.keystore.certificate.chain too"
            ],
        ),
        (
            {"ssl.keystore.location": "a.p12", "ssl.keystore.password": "HUSH", "ssl.key.password": "HUSH HUSH"},
            [
                "'ssl.key.password' differs from 'ssl.keystore.password', but a PKCS12 store and its key have one "
                "password; change the key's password to that of the store (keytool -importkeystore), and set it once"
            ],
        ),
        (
            {"ssl.endpoint.identification.algorithm": "http"},
            [
                "'ssl.endpoint.identification.algorithm' has the value 'http' (did you mean 'https'?); "
                "use https, or an empty string to turn the check of the host name off"
            ],
        ),
        (
            {"ssl.enabled.protocols": "TLSv1.3"},
            [
                "'ssl.enabled.protocols' is TLSv1.3 only, but librdkafka always accepts TLSv1.2 as "
                "well; write TLSv1.2,TLSv1.3 and let the brokers refuse TLSv1.2, or use Spark's own "
                "Kafka connector (transport='jvm')"
            ],
        ),
        (
            {"ssl.protocol": "TLSv1"},
            ["'ssl.protocol' is 'TLSv1', which OpenSSL no longer supports; use TLSv1.2, TLSv1.3 or both"],
        ),
        (
            {"ssl.enabled.protocols": "TLSv12"},
            ["'ssl.enabled.protocols' has the value 'TLSv12' (did you mean 'TLSv1.2'?); use TLSv1.2, TLSv1.3 or both"],
        ),
        (
            {"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
            [
                "'ssl.enabled.protocols' is 'TLSv1.1,TLSv1.2', but librdkafka supports only TLSv1.2 and TLSv1.3; "
                "write TLSv1.2,TLSv1.3, or remove it"
            ],
        ),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"},
            [
                "'ssl.cipher.suites' lists suites of TLSv1.3 only, but librdkafka always accepts TLSv1.2 "
                "as well; add suites of TLSv1.2, or use Spark's own Kafka connector (transport='jvm')"
            ],
        ),
    ],
)
def test_impossible_settings_are_reported_without_secrets(settings: dict[str, str], messages: list[str]) -> None:
    assert problems_of(settings) == messages
    assert "HUSH" not in str(problems_of(settings))


def test_settings_of_tls_without_tls_are_a_warning() -> None:
    translated = librdkafka_settings({"ssl.truststore.location": "a.jks", "ssl.protocol": "TLS"}, "consumer")

    assert [without_code(problem) for problem in translated.problems] == [
        "'ssl.truststore.location', 'ssl.protocol' without effect, because 'security.protocol' is 'PLAINTEXT'; "
        "write security.protocol=SSL or SASL_SSL, or remove them"
    ]
    assert [problem.severity for problem in translated.problems] == ["warning"]
    assert translated.settings == {}


class Stores(Machine):
    """Stores that are not there; what was asked for is written down."""

    def __init__(self, chain: str = CERTIFICATE) -> None:
        self.asked: list[Store | str] = []
        self.chain = chain

    def read_store(self, store: Store) -> Pem:
        self.asked.append(store)
        return Pem(CA) if store.which == "truststore" else Pem(self.chain, KEY)

    def create_token_callback(
        self, provider: str, options: Mapping[str, str], extensions: Mapping[str, str]
    ) -> TokenCallback:
        raise AssertionError

    def find_file(self, location: str) -> str:
        self.asked.append(location)
        if "no-such" in location:
            raise KdslError(f"{location} is nowhere")
        return f"/here{location}"

    def read_file(self, location: str) -> bytes:
        self.asked.append(location)
        return (KEY + self.chain).encode()

    def write_file(self, name: str, text: str) -> str:
        self.asked.append(text)
        return f"/private/{name}"


STORES = {
    **SSL,
    "ssl.truststore.type": "PKCS12",
    "ssl.truststore.location": "/x/trust",
    "ssl.truststore.password": "t",
    "ssl.keystore.location": "/x/key.jks",
    "ssl.keystore.password": "s",
    "ssl.key.password": "k",
}


def test_a_java_store_is_made_pem_when_a_client_is_made() -> None:
    stores = Stores()
    translated = librdkafka_settings(STORES, "consumer", machine=stores)

    assert translated.problems == ()
    assert stores.asked == [
        Store("truststore", "/x/trust", "PKCS12", "t"),
        Store("keystore", "/x/key.jks", "JKS", "s", "k"),
    ]
    assert translated.settings == {
        "security.protocol": "SSL",
        "ssl.ca.pem": CA,
        "ssl.key.pem": KEY,
        "ssl.certificate.pem": CERTIFICATE,
    }
    assert create("consumer", translated.client_config()) == []


def test_stores_are_not_read_while_planning() -> None:
    assert librdkafka_settings(STORES, "consumer").problems == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.keystore.location": "/x/key.jks", "ssl.keystore.password": "s"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": KEY, "ssl.keystore.certificate.chain": CERTIFICATE + CA},
    ],
)
def test_a_certificate_chain_goes_into_a_file_from_which_librdkafka_sends_all_of_it(settings: dict[str, str]) -> None:
    stores = Stores(CERTIFICATE + CA)
    translated = librdkafka_settings({**SSL, **settings}, "consumer", machine=stores)

    assert translated.problems == ()
    assert CERTIFICATE + CA in stores.asked
    assert translated.settings["ssl.certificate.location"] == "/here/private/chain.pem"
    assert "ssl.certificate.pem" not in translated.settings


def test_the_path_of_a_file_is_the_one_on_this_machine() -> None:
    sample = {**SSL, "ssl.truststore.type": "PEM", "ssl.truststore.location": "/x/ca.pem", "ssl.crl.location": "/x/crl"}

    settings = librdkafka_settings(sample, "consumer", machine=Stores()).settings

    assert (settings["ssl.ca.location"], settings["ssl.crl.location"]) == ("/here/x/ca.pem", "/here/x/crl")


def test_every_unavailable_file_is_reported() -> None:
    settings = {
        **SSL,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/no-such/ca",
        "ssl.crl.location": "no-such",
    }

    messages = [
        without_code(problem)
        for problem in librdkafka_settings({**SSL, **settings}, "consumer", machine=Stores()).problems
    ]

    assert [text.split(";")[0] for text in messages] == ["/no-such/ca is nowhere", "no-such is nowhere"]


def test_references_in_stores_are_not_judged() -> None:
    settings = {
        **SSL,
        "ssl.truststore.location": "${env:TRUST}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "${file:/run/key.pem}",
        "ssl.keystore.certificate.chain": "${file:/run/chain.pem}",
    }

    assert librdkafka_settings(settings, "consumer").problems == ()
