"""Asks a schema registry, and keeps what it answers.

What stands under an id never changes, so each process asks for an id once, and an outage of the registry goes unnoticed
as long as no new one comes up. That there is no such id is remembered for some seconds: messages that name it come in
many batches, and it may be registered yet. What has no answer is asked again, with longer and longer pauses, at each
address.
"""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from kdsl.cluster import Registry
from kdsl.errors import fail_on
from kdsl.registry.documents import body_of, error_of, id_of, listed, refusal_of, said, schema_of, shown, version_and_id
from kdsl.registry.errors import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryRefusedError,
    RegistryUnreachableError,
    UnknownSchemaError,
    UnknownSubjectError,
)
from kdsl.registry.login import login
from kdsl.registry.model import RegisteredSchema, SchemaReference, SubjectVersion
from kdsl.registry.settings import Settings, read_settings
from kdsl.registry.tls import context
from kdsl.secrets import resolve

_JSON = "application/vnd.schemaregistry.v1+json"
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_MANY = 10_000
# What no other try mends, by what OpenSSL says of it.
_FOR_GOOD = {
    "mismatch, certificate is not valid for": "{where} has the certificate of another host: {reason}; write the host's "
    "name as its certificate has it",
    "certificate has expired": "{where} is not trusted: {reason}; its certificate must be renewed",
    "CERTIFICATE_VERIFY_FAILED": "{where} is not trusted: {reason}; name the store of its authority "
    "(ssl.truststore.location)",
    "WRONG_VERSION_NUMBER": "{where} does not answer to TLS: {reason}; write http:// if it speaks without",
}
T = TypeVar("T")
_lock = threading.Lock()
_clients: dict[tuple[int, Registry], RegistryClient] = {}


def registry_client(registry: Registry) -> RegistryClient:
    """The client of a registry, made once a process; secrets are resolved here and now.

    Raises:
        ResolveError: The settings have errors; all are told.
        SecretError: A reference cannot be resolved in this process.
        RegistryError: A store cannot be read.
    """
    key = (os.getpid(), registry)  # connections do not outlive a fork
    with _lock:
        if key not in _clients:
            _clients[key] = RegistryClient(registry)
        return _clients[key]


class RegistryClient:
    """Asks a registry. Safe to be used by several threads.

    Args:
        registry: Where it is and what its client needs; references are resolved here.

    Raises:
        ResolveError: The settings have errors; all are told.
        SecretError: A reference cannot be resolved in this process.
        RegistryError: A store cannot be read.

    Attributes:
        patience: Seconds for which an id that the registry does not have is not asked for again.
    """

    patience: ClassVar[float] = 10.0

    def __init__(self, registry: Registry) -> None:
        settings, problems = read_settings(registry, resolve)
        fail_on(problems, "the schema registry")
        self._settings = settings
        self._first = 0
        self._http = _http(settings)
        weakref.finalize(self, self._http.close)
        self._schemas: dict[int, RegisteredSchema] = {}
        self._missing: dict[int, tuple[float, str]] = {}
        self._versions: dict[tuple[str, int], SubjectVersion] = {}
        self._registered: dict[tuple[str, RegisteredSchema, bool], int] = {}
        self._found: dict[tuple[str, RegisteredSchema, bool], SubjectVersion] = {}
        self._latest: dict[str, SubjectVersion] = {}

    @property
    def address(self) -> str:
        """Where the registry is, without any user."""
        return ", ".join(self._settings.urls)

    def schema(self, id: int) -> RegisteredSchema:  # noqa: A002  # its name in the registry
        """The schema of an id; asked for once, and one that the registry does not have, again after some seconds.

        Raises:
            UnknownSchemaError: The registry has none.
            RegistryError: The registry does not answer, or refuses.
        """
        found = self._schemas.get(id)
        if found is None:
            asked, told = self._missing.get(id, (0.0, ""))
            if told and time.monotonic() < asked + self.patience:
                raise UnknownSchemaError(told)
            what = f"the schema of the id {id}"
            answer = self._ask("GET", f"/schemas/ids/{id}", what, {"fetchMaxId": "false"})
            if answer.status_code == httpx.codes.NOT_FOUND:
                told = f"the registry {self.address} has no schema of the id {id}{said(answer)}"
                if len(self._missing) >= _MANY:  # bytes that are no ids at all may look like any
                    self._missing = {}
                self._missing[id] = time.monotonic(), told
                raise UnknownSchemaError(told)
            found = self._schemas[id] = self._read(answer, what, schema_of)
        return found

    def references(self, schema: RegisteredSchema) -> Mapping[str, RegisteredSchema]:
        """What a schema makes use of, directly or not, by the names that it is called; what is used comes first.

        Raises:
            RegistryError: The registry lacks one of them, does not answer, or refuses.
        """
        found: dict[str, RegisteredSchema] = {}
        self._follow(schema, found, ())
        return found

    def _follow(
        self, schema: RegisteredSchema, found: dict[str, RegisteredSchema], around: tuple[SchemaReference, ...]
    ) -> None:
        for reference in schema.references:
            if reference in around:
                circle = " -> ".join(f"{one.subject} {one.version}" for one in (*around, reference))
                raise RegistryError(
                    f"the registry {self.address} has schemas that use each other in a circle: {circle}"
                )
            if reference.name not in found:
                used = self.version(reference.subject, reference.version).schema
                self._follow(used, found, (*around, reference))
                found[reference.name] = used

    def version(self, subject: str, version: int) -> SubjectVersion:
        """A version of a subject; asked for once.

        Raises:
            UnknownSubjectError: There is none.
            RegistryError: The registry does not answer, or refuses.
        """
        if (subject, version) not in self._versions:
            self._versions[subject, version] = self._version(subject, str(version))
        return self._versions[subject, version]

    def latest(self, subject: str) -> SubjectVersion:
        """The latest version of a subject, as it is when this process asks first; asked for once.

        Raises:
            UnknownSubjectError: There is no such subject.
            RegistryError: The registry does not answer, or refuses.
        """
        if subject not in self._latest:
            self._latest[subject] = self._version(subject, "latest")
        return self._latest[subject]

    def _version(self, subject: str, version: str) -> SubjectVersion:
        what = f"the version {version} of the subject {subject!r}"
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}", what)
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise UnknownSubjectError(f"the registry {self.address} does not have {what}{said(answer)}")
        found = self._read(answer, what, lambda d: SubjectVersion(subject, *version_and_id(d), schema_of(d)))
        self._schemas.setdefault(found.id, found.schema)
        return found

    def subjects(self) -> tuple[str, ...]:
        """The names of all subjects, sorted.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        return tuple(sorted(map(str, self._list("/subjects", "the subjects"))))

    def versions(self, subject: str) -> tuple[int, ...]:
        """The versions of a subject.

        Raises:
            UnknownSubjectError: There is no such subject.
            RegistryError: The registry does not answer, or refuses.
        """
        return tuple(sorted(map(int, self._list(f"/subjects/{quote(subject, safe='')}/versions", f"{subject!r}"))))

    def register(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> int:
        """Put a schema under a subject, where it does not stand there yet; asked once.

        Args:
            subject: The subject.
            schema: The schema.
            normalize: Whether the registry brings it into its normal form before it compares.

        Returns:
            The schema's id.

        Raises:
            IncompatibleSchemaError: It does not go with the subject's schemas, or is none.
            RegistryError: The registry does not answer, or refuses.
        """
        key = (subject, schema, normalize)
        if key not in self._registered:
            self._registered[key] = self._post(subject, schema, id_of, normalize=normalize, register=True)
            self._schemas.setdefault(self._registered[key], schema)
        return self._registered[key]

    def look_up(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> SubjectVersion:
        """The version of a schema that stands under a subject; asked for once.

        Raises:
            UnknownSubjectError: It does not stand there, or there is no such subject.
            RegistryError: The registry does not answer, or refuses.
        """
        key = (subject, schema, normalize)
        if key not in self._found:
            version, number = self._post(subject, schema, version_and_id, normalize=normalize, register=False)
            self._found[key] = found = SubjectVersion(subject, version, number, schema)
            self._schemas.setdefault(found.id, schema)
        return self._found[key]

    def _post(
        self, subject: str, schema: RegisteredSchema, read: Callable[[Any], T], *, normalize: bool, register: bool
    ) -> T:
        what = f"a schema under the subject {subject!r}"
        path = f"/subjects/{quote(subject, safe='')}{'/versions' if register else ''}"
        answer = self._ask("POST", path, what, {"normalize": str(normalize).lower()}, body_of(schema))
        if answer.status_code == httpx.codes.NOT_FOUND and not register:
            raise UnknownSubjectError(
                f"the registry {self.address} does not have this schema under the subject {subject!r}"
                f"{said(answer)}; register it there, or let the format do so (auto-register): {schema.text}"
            )
        if answer.status_code in (httpx.codes.CONFLICT, httpx.codes.UNPROCESSABLE_ENTITY):
            why = "cannot be registered" if register else "cannot be looked up"
            raise IncompatibleSchemaError(
                f"the registry {self.address}: the schema {why} under the subject {subject!r}{said(answer)}: "
                f"{schema.text}"
            )
        return self._read(answer, what, read)

    def refusal(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> str:
        """Why a subject does not take a schema; empty where it does, or where there is no such subject yet.

        Raises:
            IncompatibleSchemaError: It is no schema.
            RegistryError: The registry does not answer, or refuses.
        """
        what = f"a schema for the subject {subject!r}"
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest"
        query = {"verbose": "true", "normalize": str(normalize).lower()}
        answer = self._ask("POST", path, what, query, body_of(schema))
        if answer.status_code == httpx.codes.NOT_FOUND:
            return ""
        if answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise IncompatibleSchemaError(f"the registry {self.address} does not take {what}{said(answer)}")
        return self._read(answer, what, refusal_of)

    def close(self) -> None:
        """Give up the connections."""
        self._http.close()

    def _list(self, path: str, what: str) -> list[Any]:
        answer = self._ask("GET", path, what)
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise UnknownSubjectError(f"the registry {self.address} does not have {what}{said(answer)}")
        return self._read(answer, what, listed)

    def _read(self, answer: httpx.Response, what: str, read: Callable[[Any], T]) -> T:
        """What an answer says, if it is one that a schema registry gives."""
        try:
            if answer.status_code == httpx.codes.OK:
                return read(answer.json())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        to = urlsplit(answer.headers.get("Location", "")) if answer.is_redirect else None
        moved = "" if to is None else f" (to {to.scheme}://{to.hostname or ''}{to.path})"
        raise RegistryError(
            f"the registry {self.address}: asked for {what}, it answers HTTP {answer.status_code}{moved}{said(answer)}"
            f"{'' if to else shown(answer)}; see that this is the address of a schema registry with Confluent's API"
        )

    def _ask(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        """The answer to a request: 200, or one that says what the registry does not have or not take."""
        settings = self._settings
        reason = ""
        for attempt in range(settings.retries + 1):
            if attempt:
                time.sleep(min(settings.wait * 2 ** (attempt - 1), settings.max_wait) * random.uniform(0.5, 1))  # noqa: S311
            for place in range(len(settings.urls)):
                at = (self._first + place) % len(settings.urls)
                try:
                    answer = self._http.request(method, settings.urls[at] + path, params=query, json=body)
                except httpx.RequestError as e:
                    reason = _reason(e)
                    for sign, told in _FOR_GOOD.items():
                        if sign in reason:
                            message = told.format(where=f"the registry {settings.urls[at]}", reason=reason)
                            raise RegistryUnreachableError(message) from None
                    continue
                if answer.status_code in _AGAIN:
                    reason = f"HTTP {answer.status_code}{said(answer)}"
                    continue
                self._first = at
                self._refused(answer, what)
                return answer
        times = f"{settings.retries + 1} times" if settings.retries else "once"
        raise RegistryUnreachableError(
            f"the registry {self.address} does not answer, asked {times} for {what}: {reason}; see that it runs, and "
            "that it can be reached from here"
        )

    def _refused(self, answer: httpx.Response, what: str) -> None:
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise RegistryRefusedError(
                f"the registry {self.address} does not know who asks for {what} (HTTP 401){said(answer)}; give it a "
                "user (basic-auth.user-info) or a token (bearer-auth.token)"
            )
        if answer.status_code == httpx.codes.FORBIDDEN:
            raise RegistryRefusedError(
                f"the registry {self.address} does not let this user ask for {what} (HTTP 403){said(answer)}"
            )
        if answer.status_code == httpx.codes.NOT_FOUND and not error_of(answer):
            raise RegistryError(
                f"{self.address} answers HTTP 404 as no schema registry does, asked for {what}; see the path of its "
                "address"
            )


def _http(settings: Settings) -> httpx.Client:
    secure = any(url.startswith("https:") for url in settings.urls) or settings.oauth is not None
    return httpx.Client(
        verify=context(settings.tls) if secure else False,
        auth=login(settings),
        headers={"Accept": f"{_JSON}, application/json", "Content-Type": _JSON, **settings.headers},
        timeout=httpx.Timeout(settings.read_timeout, connect=settings.connect_timeout),
        proxy=settings.proxy,
        follow_redirects=False,
    )


def _reason(error: httpx.RequestError) -> str:
    match error:
        case httpx.ConnectTimeout():
            return "no connection in time"
        case httpx.TimeoutException():
            return "no answer in time"
        case _:
            return str(error) or type(error).__name__
