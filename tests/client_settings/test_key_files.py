from __future__ import annotations

import pytest

from kdsl.client_settings.key_files import pem_blocks
from tests.client_settings.installed import DATA

CERTIFICATE = (DATA / "client.crt").read_text()
KEY = (DATA / "client.enc.key").read_text()
OLD_KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00FF\n\n"
    "QUJD\n-----END RSA PRIVATE KEY-----\n"
)


@pytest.mark.parametrize(
    "text",
    [
        CERTIFICATE,
        CERTIFICATE.replace("\n", " "),
        CERTIFICATE.replace("\n", ""),
        CERTIFICATE.replace("\n", "\r\n"),
        f"subject=CN\n{CERTIFICATE}# end",
        f"{KEY}{CERTIFICATE}",
    ],
)
def test_a_block_has_openssl_s_lines(text: str) -> None:
    assert pem_blocks(text, "CERTIFICATE") == CERTIFICATE


def test_blocks_of_one_sort_stay_in_their_order() -> None:
    other = (DATA / "ca.pem").read_text()

    assert pem_blocks(f"{CERTIFICATE} {KEY} {other}", "CERTIFICATE") == CERTIFICATE + other
    assert pem_blocks(f"{CERTIFICATE} {KEY} {other}", "PRIVATE KEY") == KEY


def test_the_header_of_an_old_encrypted_key_is_kept() -> None:
    assert pem_blocks(OLD_KEY, "PRIVATE KEY") == OLD_KEY


@pytest.mark.parametrize("text", ["", "QUJD", "-----BEGIN CERTIFICATE-----\nQUJD", KEY])
def test_there_may_be_no_such_block(text: str) -> None:
    assert pem_blocks(text, "CERTIFICATE") == ""
