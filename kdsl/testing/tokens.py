"""An identity provider for tests: signs tokens (RS256) and gives them to clients that name their secret.

It serves OAuth's client credentials grant on the loopback interface, as an identity provider would, and writes the key
set that brokers check the tokens with.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections.abc import Mapping
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE = "kafka"
_KEY_ID = "kdsl"


class TokenService:
    """Signs tokens and serves them.

    Args:
        users: The secrets of the clients by their ids; a token's subject is the client's id.
        life: For how many seconds a token holds.
    """

    def __init__(self, users: Mapping[str, str], life: int = 300) -> None:
        self._users, self._life = dict(users), life
        self.given = 0
        self._server: ThreadingHTTPServer | None = None

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(65537, 2048)

    def write_keys(self, path: Path) -> Path:
        """Write the public keys (JWKS) to a file."""
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
        """A signed token."""
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
        """Where tokens are asked for."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def start(self) -> None:
        """Begin to serve."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())
                subject = service._subject(self.headers.get("Authorization", ""), form)
                if subject is None:
                    self._answer(401, {"error": "invalid_client"})
                    return
                service.given += 1
                self._answer(
                    200,
                    {
                        "access_token": service.token(subject),
                        "token_type": "Bearer",
                        "expires_in": service._life,
                    },
                )

            def _answer(self, status: int, document: Mapping[str, object]) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def stop(self) -> None:
        """Serve no longer."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _subject(self, authorization: str, form: Mapping[str, list[str]]) -> str | None:
        if authorization.startswith("Basic "):
            name, _, secret = base64.b64decode(authorization[6:]).decode().partition(":")
        else:
            name, secret = form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
        name, secret = unquote(name), unquote(secret)
        return name if secret and self._users.get(name) == secret else None


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _part(document: Mapping[str, object]) -> str:
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def _number(number: int) -> str:
    return _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))
