"""An identity provider for tests: signs tokens (RS256) and issues them to clients that send their secret.

It serves OAuth's client credentials grant on the loopback interface, as an identity provider would, and writes the key
set that brokers check the tokens with.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.json_server import JsonHandler, start_server

AUDIENCE = "kafka"
_KEY_ID = "kdsl"


class TokenService:
    """Signs tokens, and serves them between `start` and `stop`.

    Args:
        users: The secrets of the clients by their ids; a token's subject is the client's id.
        life: For how many seconds a token is valid.
        port: The port to serve at; 0 is a free one.
        key: The key that signs tokens; None creates one.

    Attributes:
        issued: How many tokens it has issued.
    """

    def __init__(
        self, users: Mapping[str, str], life: int = 300, *, port: int = 0, key: rsa.RSAPrivateKey | None = None
    ) -> None:
        self._users, self._life, self._port = dict(users), life, port
        self._key = key or rsa.generate_private_key(65537, 2048)
        self.issued = 0
        self._server: ThreadingHTTPServer | None = None

    def write_keys(self, path: Path) -> Path:
        """Write the public keys (JWKS) to a file, and return its path.

        Raises:
            OSError: It cannot be written.
        """
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": _KEY_ID,
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        path.write_text(json.dumps({"keys": [key]}), encoding="utf-8")
        return path

    def token(self, subject: str) -> str:
        """Create a signed token for a subject, which expires after ``life`` seconds; it is not counted as issued."""
        now = int(time.time())
        claims = {
            "iss": "kdsl",
            "sub": subject,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + self._life,
            "jti": uuid.uuid4().hex,
        }
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
        text = f"{_part(head)}.{_part(claims)}"
        return f"{text}.{_base64(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    @property
    def url(self) -> str:
        """The URL at which clients request tokens; AssertionError before the first start, unless a port was given."""
        assert self._port
        return f"http://127.0.0.1:{self._port}/token"

    def start(self) -> None:
        """Start the server in threads of this process; the port is chosen if none was given.

        Raises:
            OSError: The port is in use.
        """
        self._server = _start_server(self._port, self._answer)
        self._port = self._server.server_address[1]

    def stop(self) -> None:
        """Stop the server, and close its port; nothing happens if it does not run."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def hand_over(self, mark: str) -> int:
        """Stop the service here, and start it in its own process, which outlives this one, with its address and key.

        Args:
            mark: An argument on its command line, by which a watchdog recognizes it.

        Returns:
            Its process id.

        Raises:
            LocalKafkaError: The process ends before it serves; the service is stopped then.
        """
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        key = self._key.private_bytes(serialization.Encoding.PEM, *form).decode()
        arguments = {"users": self._users, "life": self._life, "port": self._port, "key": key}
        self.stop()
        root = str(Path(__file__).parents[2])
        process = subprocess.Popen(
            [sys.executable, "-m", "kdsl.testing.token_process", mark],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(arguments).encode())
        process.stdin.close()
        serves = process.stdout.readline()
        process.stdout.close()
        if not serves:
            raise LocalKafkaError(
                f"the identity provider cannot serve at {self.url} in its own process: it ended at once; check that "
                "its port is free"
            )
        process.returncode = 0  # it outlives this process, which does not wait for it
        return process.pid

    def _answer(self, client: str, secret: str) -> tuple[int, Mapping[str, object]]:
        """Return the HTTP status and the document of an answer: a token, which is counted, if the secret is right."""
        if not secret or self._users.get(client) != secret:
            return 401, {"error": "invalid_client"}
        self.issued += 1
        return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": self._life}


def _start_server(port: int, answer: Callable[[str, str], tuple[int, Mapping[str, object]]]) -> ThreadingHTTPServer:
    """Start a server on 127.0.0.1, in daemon threads; ``answer`` gets the client's id and secret of each request."""

    class Handler(JsonHandler):
        def do_POST(self) -> None:  # noqa: N802  # http.server's name
            form = self.read_body().decode(errors="replace")
            self.answer(*answer(*_parse_login(self.headers.get("Authorization", ""), form)))

    return start_server(port, Handler, "kdsl-tokens")


def _parse_login(authorization: str, form: str) -> tuple[str, str]:
    """Return the client's id and secret, which are in the header or in the form; empty strings if they are not."""
    kind, _, text = authorization.partition(" ")
    if kind == "Basic":
        try:
            client, _, secret = base64.b64decode(text).decode().partition(":")
        except ValueError:
            return "", ""
        return unquote(client), unquote(secret)
    fields = parse_qs(form)
    return fields.get("client_id", [""])[0], fields.get("client_secret", [""])[0]


def _base64(data: bytes) -> str:
    """Encode bytes in Base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _part(document: Mapping[str, object]) -> str:
    """Encode a document as one part of a JWT."""
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def _number(number: int) -> str:
    """Encode a number as JWKS does."""
    return _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))
