"""The token services of three clouds, on this machine: they issue credentials and tokens, and check tokens.

What a cloud's library asks of its cloud is answered here, in the form of the cloud's documentation: AWS's security
token service and its container credentials, Azure's instance metadata service, Google's token endpoint.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from kdsl.testing.tokens import TokenService

ACCOUNT = "orders@project.iam.gserviceaccount.com"
ROLE = "arn:aws:iam::123456789012:role/orders"
KEY_ID, SECRET = "AKIDEXAMPLE", "aws-HUSH-secret"
CONTAINER = "container-HUSH-token"


def unpad(text: str) -> bytes:
    """Decode Base64 of URLs without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@attrs.define
class Accepted:
    """A token that was accepted: by whose service, for whom, and until when, in seconds since 1970."""

    cloud: str
    principal: str
    expires: float


class Clouds:
    """The services on one port of the loopback interface; a context manager.

    Attributes:
        life: For how many seconds what is issued is valid.
        longest: For how many seconds a login lasts at most, by what brokers learn of a token.
        requests: The paths of the requests for credentials and tokens.
        accepted: The tokens that brokers had checked and accepted.
        refuses: Whether all tokens are refused.
    """

    def __init__(self) -> None:
        self.life, self.longest = 3600, 3600.0
        self.requests: list[str] = []
        self.accepted: list[Accepted] = []
        self.refuses = False
        self.now: Callable[[], float] = time.time
        self._keys: dict[str, tuple[str, str, str | None]] = {KEY_ID: (SECRET, f"user/{KEY_ID}", None)}
        self._google: dict[str, float] = {}
        self._entra_key = rsa.generate_private_key(65537, 2048)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def __enter__(self) -> Clouds:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def aws(self) -> dict[str, str]:
        """The environment of a process that has the keys of a user, and finds AWS's services here."""
        return {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL_STS": f"{self.url}/sts",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def aws_container(self) -> dict[str, str]:
        """The environment of a process whose container has a role."""
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.url}/aws-container",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": CONTAINER,
            "AWS_REGION": "eu-west-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def azure(self) -> dict[str, str]:
        """The environment of a process whose machine has a managed identity."""
        return {"AZURE_POD_IDENTITY_AUTHORITY_HOST": self.url, "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential"}

    def google(self, folder: Path) -> dict[str, str]:
        """The environment of a process with the key of a service account, which is written to a folder."""
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        key = rsa.generate_private_key(65537, 2048).private_bytes(serialization.Encoding.PEM, *form).decode()
        document = {
            "type": "service_account",
            "client_email": ACCOUNT,
            "private_key": key,
            "private_key_id": "1",
            "project_id": "project",
            "token_uri": f"{self.url}/google-token",
        }
        path = folder / "account.json"
        path.write_text(json.dumps(document))
        return {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}

    def check(self, token: str) -> Accepted | None:
        """Check a token as the brokers of the three clouds would; None if it is not accepted."""
        if self.refuses:
            return None
        if token.count(".") == 0:
            return self._check_aws(token)
        head = json.loads(unpad(token.split(".")[0]))
        return self._check_google(token) if head["alg"] == "GOOG_OAUTH2_TOKEN" else self._check_entra(token)

    def _check_aws(self, token: str) -> Accepted | None:
        """Check the signature of a request for kafka-cluster:Connect, by the rules of Signature Version 4."""
        url = urlsplit(unpad(token).decode())
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        key_id, day, region, service, _ = query["X-Amz-Credential"].split("/")
        secret, principal, session = self._keys[key_id]
        signed = {k: v for k, v in query.items() if k not in ("X-Amz-Signature", "User-Agent")}
        canonical = "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(signed.items()))
        empty = hashlib.sha256(b"").hexdigest()
        request = "\n".join(["GET", "/", canonical, f"host:{url.netloc}\n", "host", empty])
        scope = f"{day}/{region}/{service}/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, digest])
        key = f"AWS4{secret}".encode()
        for part in (day, region, service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        right = (
            query["X-Amz-Signature"] == hmac.new(key, text.encode(), "sha256").hexdigest()
            and (query["Action"], service, url.netloc)
            == ("kafka-cluster:Connect", "kafka-cluster", f"kafka.{region}.amazonaws.com")
            and query.get("X-Amz-Security-Token") == session
            and at - 300 <= self.now() <= at + int(query["X-Amz-Expires"])
        )
        return Accepted("aws", principal, at + int(query["X-Amz-Expires"])) if right else None

    def _check_google(self, token: str) -> Accepted | None:
        _, body, access = (unpad(part) for part in token.split("."))
        claims = json.loads(body)
        expires = self._google.get(access.decode(), 0.0)
        right = claims["exp"] <= expires + 1 and self.now() < expires and claims["iss"] == "Google"
        return Accepted("gcp", claims["sub"], expires) if right else None

    def _check_entra(self, token: str) -> Accepted | None:
        text, _, signature = token.rpartition(".")
        try:
            key = self._entra_key.public_key()
            key.verify(unpad(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return None
        claims = json.loads(unpad(text.split(".")[1]))
        return Accepted("entra", claims["sub"], claims["exp"]) if self.now() < claims["exp"] else None

    def _assume_role(self, form: Mapping[str, list[str]]) -> tuple[int, str]:
        """AWS's AssumeRole: https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html"""
        role, session = form["RoleArn"][0], form["RoleSessionName"][0]
        if role != ROLE:
            error = "<Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not allowed: sts:AssumeRole</Message>"
            return 403, f"<ErrorResponse>{error}</Error></ErrorResponse>"
        key_id, secret, token, expires = self._new_keys(f"{role}/{session}/{form.get('ExternalId', [''])[0]}")
        return 200, (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>{key_id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{expires}</Expiration></Credentials>"
            f"<AssumedRoleUser><Arn>{role}</Arn><AssumedRoleId>x</AssumedRoleId></AssumedRoleUser>"
            "</AssumeRoleResult></AssumeRoleResponse>"
        )

    def _new_keys(self, principal: str) -> tuple[str, str, str, str]:
        key_id, secret, token = f"ASIA{uuid.uuid4().hex[:12]}", uuid.uuid4().hex, f"{uuid.uuid4().hex}/+="
        self._keys[key_id] = (secret, principal, token)
        return key_id, secret, token, datetime.fromtimestamp(self.now() + self.life, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _answer(self, method: str, path: str, headers: Mapping[str, str], body: str) -> tuple[int, str]:
        place = urlsplit(path).path.rstrip("/")
        if place == "/check":
            accepted = self.check(body)
            if accepted is None:
                return 401, ""
            self.accepted.append(accepted)
            return 200, f"{accepted.principal}\n{int(min(accepted.expires, self.now() + self.longest) * 1000)}"
        self.requests.append(place)
        if place == "/sts" and method == "POST":
            return self._assume_role(parse_qs(body))
        if place == "/aws-container":
            if headers.get("Authorization") != CONTAINER:
                return 401, "{}"
            key_id, secret, token, expires = self._new_keys("container")
            names = ("AccessKeyId", "SecretAccessKey", "Token", "Expiration")
            return 200, json.dumps(dict(zip(names, (key_id, secret, token, expires), strict=True)))
        if place == "/metadata/identity/oauth2/token":
            if headers.get("Metadata") != "true":
                return 400, json.dumps({"error": "invalid_request"})
            query = dict(parse_qsl(urlsplit(path).query))
            service = TokenService({}, self.life, key=self._entra_key)
            token = service.token(query.get("client_id", "machine") + "@" + query["resource"])
            times = {"expires_in": str(self.life), "expires_on": str(int(self.now()) + self.life)}
            return 200, json.dumps({"access_token": token, "token_type": "Bearer", **times})
        if place == "/google-token" and method == "POST":
            claims = json.loads(unpad(parse_qs(body)["assertion"][0].split(".")[1]))
            if claims["iss"] != ACCOUNT:
                return 400, json.dumps({"error": "invalid_grant", "error_description": "unknown account"})
            token = f"ya29.{uuid.uuid4().hex}"
            self._google[token] = self.now() + self.life
            return 200, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": self.life})
        return 404, "{}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def _respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                status, text = answer(self.command, self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Type", "text/xml" if text.startswith("<") else "application/json")
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = _respond

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler
