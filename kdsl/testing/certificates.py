"""Certificates of a local Kafka: an authority of its own, the brokers' certificate, one for each user.

The users' certificates come from an authority in between, as they often do, so that a client must send its whole chain.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from kdsl.java import find_java
from kdsl.testing.errors import LocalKafkaError

StoreType = Literal["PEM", "JKS", "PKCS12"]

_YEAR = timedelta(days=365)
_PASSWORD = "store-secret"  # noqa: S105


@attrs.frozen
class Pair:
    """A certificate with its key and the certificates between it and the root."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    between: tuple[x509.Certificate, ...] = ()

    @property
    def chain(self) -> str:
        """The certificate and those between it and the root, as PEM."""
        return "".join(_pem(one) for one in (self.certificate, *self.between))

    def key_pem(self, password: str | None = None) -> str:
        """Write the key as PEM, encrypted if a password is given."""
        lock = form.BestAvailableEncryption(password.encode()) if password else form.NoEncryption()
        return self.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, lock).decode()


def make_pair(
    name: str,
    signer: Pair | None = None,
    *,
    hosts: Sequence[str] = (),
    authority: bool = False,
    valid: tuple[timedelta, timedelta] = (-timedelta(days=1), _YEAR),
) -> Pair:
    """Create a key and its certificate.

    Args:
        name: Its common name.
        signer: The signer; None for a self-signed certificate.
        hosts: The host names and addresses that it is for.
        authority: Whether it may sign others.
        valid: The start and the end of its validity, relative to now.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.certificate.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid[0])
        .not_valid_after(now + valid[1])
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if hosts:
        names = [x509.IPAddress(ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(signer.key if signer else key, hashes.SHA256())
    root = signer is None or signer.certificate.issuer == signer.certificate.subject
    return Pair(certificate, key, () if root or signer is None else (signer.certificate, *signer.between))


class Certificates:
    """The certificates and stores of one local Kafka, made as they are asked for.

    Args:
        folder: Where the files go; it is emptied, and made readable for this user alone.
        password: The password of all stores.

    Raises:
        OSError: The folder cannot be created.
    """

    def __init__(self, folder: Path, password: str = _PASSWORD) -> None:
        """Delete the folder, and create it again."""
        shutil.rmtree(folder, ignore_errors=True)  # of an authority that no longer exists
        folder.mkdir(mode=0o700, parents=True)
        self._folder, self.password = folder, password

    @cached_property
    def root(self) -> Pair:
        """The authority that brokers and clients trust."""
        return make_pair("kdsl test authority", authority=True)

    @cached_property
    def middle(self) -> Pair:
        """The authority that signs the users' certificates."""
        return make_pair("kdsl test authority for users", self.root, authority=True)

    @cached_property
    def authority(self) -> Path:
        """The root's certificate, a PEM file that is written on first use."""
        return self._write("ca.pem", _pem(self.root.certificate))

    @cached_property
    def server(self) -> Path:
        """The brokers' key and certificate, made by this process: one PEM file that is written on first use."""
        pair = make_pair("broker", self.root, hosts=("localhost", "127.0.0.1"))
        return self._write("server.pem", pair.key_pem() + pair.chain)

    def user(self, name: str) -> Pair:
        """Return a user's key and certificate, which has the user's name; created once, in memory, by `middle`."""
        if name not in self._users:
            self._users[name] = make_pair(name, self.middle)
        return self._users[name]

    @cached_property
    def _users(self) -> dict[str, Pair]:
        """The users' certificates that were created, by name."""
        return {}

    def key_store(self, user: str, kind: StoreType = "PEM") -> Path:
        """Write a store with a user's key and chain, once for each type, and return its path.

        JKS and PKCS12 have the password, PEM has none. For JKS, the PKCS12 store is written, too, and converted with
        keytool: LocalKafkaError if that is missing or fails. OSError if a file cannot be written.
        """
        pair, name = self.user(user), user.encode()
        if kind == "PEM":
            return self._once(f"{user}.pem", lambda path: self._write(path.name, pair.key_pem() + pair.chain))
        lock = form.BestAvailableEncryption(self.password.encode())
        data = pkcs12.serialize_key_and_certificates(name, pair.key, pair.certificate, pair.between, lock)
        p12 = self._once(f"{user}.p12", lambda path: self._write(path.name, data))
        if kind == "PKCS12":
            return p12
        return self._once(f"{user}.jks", lambda path: self._import_key_store(path, p12))

    def trust_store(self, kind: StoreType = "PEM") -> Path:
        """Write a store with the root's certificate, once, and return its path; JKS and PKCS12 have the password.

        They are made by keytool: LocalKafkaError if it is missing or fails.
        """
        if kind == "PEM":
            return self.authority
        return self._once(
            f"ca.{'jks' if kind == 'JKS' else 'p12'}",
            lambda path: self._keytool(
                *("-importcert", "-noprompt", "-alias", "ca", "-file", str(self.authority)),
                *("-keystore", str(path), "-storetype", kind, "-storepass:env", "KDSL_STORE"),
            ),
        )

    def _import_key_store(self, path: Path, p12: Path) -> None:
        """Convert a PKCS12 store to a JKS store with keytool; errors as in `_keytool`."""
        self._keytool(
            *("-importkeystore", "-noprompt", "-srckeystore", str(p12), "-srcstoretype", "PKCS12"),
            *("-srcstorepass:env", "KDSL_STORE", "-deststorepass:env", "KDSL_STORE"),
            *("-destkeystore", str(path), "-deststoretype", "JKS"),
        )

    def _keytool(self, *arguments: str) -> None:
        """Run keytool with the password of the stores."""
        beside = find_java().with_name("keytool")
        program = str(beside) if beside.exists() else shutil.which("keytool")
        if program is None:
            raise LocalKafkaError(f"a JKS store needs keytool of a JDK, and there is none beside {find_java()}")
        done = subprocess.run(
            [program, *arguments],
            env={**os.environ, "KDSL_STORE": self.password},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LocalKafkaError(f"keytool failed: {(done.stdout + done.stderr).strip()[-300:]}")

    def _once(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return the path of a file, created by a function if it does not exist."""
        path = self._folder / name
        if not path.exists():
            make(path)
        return path

    def _write(self, name: str, content: str | bytes) -> Path:
        """Write a file that only this user may read, and return its path."""
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


def _pem(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM text."""
    return certificate.public_bytes(form.Encoding.PEM).decode()
