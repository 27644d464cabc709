"""The client of a schema registry, which caches the answers.

The schema of an id never changes, so each process requests it once, and an outage of the registry goes unnoticed until
a new id appears. That an id is unknown is remembered for some seconds: messages with it come in many batches, and it
may be registered later. Requests without an answer are retried at each address, with growing pauses.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote
from uuid import UUID

import httpx

from kdsl.cluster import Registry
from kdsl.errors import fail_on
from kdsl.registry.documents import (
    LARGEST,
    Answer,
    body_of,
    content_type,
    error_details,
    error_of,
    guid_of,
    id_in_context,
    id_of,
    list_of,
    read_bounded,
    refusal_of,
    schema_of,
    version_and_id,
)
from kdsl.registry.errors import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryRefusedError,
    RegistryUnreachableError,
    UnknownSchemaError,
    UnknownSubjectError,
)
from kdsl.registry.login import make_login
from kdsl.registry.model import RegisteredSchema, SchemaId, SchemaReference, SubjectVersion
from kdsl.registry.settings import Settings, read_settings
from kdsl.registry.tls import make_context
from kdsl.retry import Backoff, Deadline
from kdsl.secrets import resolve

_log = logging.getLogger("kdsl.registry")
_JSON = "application/vnd.schemaregistry.v1+json"
_RETRIABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_OTHER_IDS = (
    "if one of Apicurio's serializers or converters wrote the message, it has numbers of its own for schemas: set "
    "apicurio.registry.use-id=contentId there"
)
_NO_GUIDS = (
    "only Confluent's registries have GUIDs, from version 8, and each has the same GUID for the same schema; name the "
    "registry of the writer"
)
_MANY = 10_000
# Errors that a retry cannot fix, by what OpenSSL reports.
_PERMANENT = {
    "mismatch, certificate is not valid for": "{where} has the certificate of another host: {reason}; write the host "
    "name that is in its certificate",
    "certificate has expired": "{where} is not trusted: {reason}; its certificate must be renewed",
    "CERTIFICATE_VERIFY_FAILED": "{where} is not trusted: {reason}; name the store of its authority "
    "(ssl.truststore.location)",
    "WRONG_VERSION_NUMBER": "{where} does not speak TLS: {reason}; write http:// if it does not use TLS",
}
T = TypeVar("T")
_lock = threading.Lock()
_clients: dict[tuple[int, Registry], RegistryClient] = {}


def registry_client(registry: Registry) -> RegistryClient:
    """Get the client of a registry, created once per process, and again after it was closed.

    Secrets are resolved when it is created.

    Raises:
        ResolveError: The settings have errors; all are reported.
        SecretError: A reference cannot be resolved in this process.
        RegistryError: The keys or certificates for TLS cannot be used.
    """
    key = (os.getpid(), registry)  # connections do not outlive a fork
    with _lock:
        if key not in _clients:
            _clients[key] = RegistryClient(registry)
        return _clients[key]


class RegistryClient:
    """The client of a schema registry; several threads may use it.

    Args:
        registry: The address and the settings; references are resolved now.

    Raises:
        ResolveError: The settings have errors; all are reported.
        SecretError: A reference cannot be resolved in this process.
        RegistryError: The keys or certificates for TLS cannot be used.

    Attributes:
        unknown_for: For how many seconds an unknown id is not requested again.
        largest: The maximum size of an answer in bytes.
    """

    unknown_for: ClassVar[float] = 10.0
    largest: ClassVar[int] = LARGEST

    def __init__(self, registry: Registry) -> None:
        """Read the settings and create the HTTP client, which sends nothing yet; errors as in `registry_client`."""
        settings, problems = read_settings(registry, resolve)
        fail_on(problems, "the schema registry")
        self._settings = settings
        self._first = 0
        self._http = _http(settings)
        self._login = make_login(settings, self._http)
        weakref.finalize(self, self._http.close)
        self._schemas: dict[SchemaId, RegisteredSchema] = {}
        self._missing: dict[SchemaId, tuple[float, str]] = {}
        self._guids: dict[int, UUID | None] = {}
        self._ids: dict[UUID, int | None] = {}
        self._versions: dict[tuple[str, int], SubjectVersion] = {}
        self._registered: dict[tuple[str, RegisteredSchema, bool], int] = {}
        self._subject_versions: dict[tuple[str, RegisteredSchema, bool], SubjectVersion] = {}
        self._latest: dict[str, SubjectVersion] = {}

    @property
    def address(self) -> str:
        """The addresses of the registry, without logins."""
        return ", ".join(self._settings.urls)

    def schema(self, id: SchemaId) -> RegisteredSchema:  # noqa: A002  # its name in the registry
        """Return the schema of an id or GUID, requested once; an unknown one is requested again after some seconds.

        Raises:
            UnknownSchemaError: The registry has no schema with this id or GUID.
            RegistryError: The registry does not answer, or refuses.
        """
        schema_ = self._schemas.get(id)
        if schema_ is None:
            asked_at, refusal = self._missing.get(id, (0.0, ""))
            if refusal and time.monotonic() < asked_at + self.unknown_for:
                raise UnknownSchemaError(refusal)
            by_guid = isinstance(id, UUID)
            name = f"the {'GUID' if by_guid else 'id'} {id}"
            what = f"the schema with {name}"
            path, query = (f"/schemas/guids/{id}", None) if by_guid else (f"/schemas/ids/{id}", {"fetchMaxId": "false"})
            answer = self._ask("GET", path, what, query, may_lack_path=by_guid)
            if answer.status == httpx.codes.NOT_FOUND:
                advice = _NO_GUIDS if by_guid else _OTHER_IDS
                refusal = f"the registry {self.address} has no schema with {name}{error_details(answer)}; {advice}"
                if len(self._missing) >= _MANY:  # arbitrary bytes may look like ids
                    self._missing = {}
                self._missing[id] = time.monotonic(), refusal
                raise UnknownSchemaError(refusal)
            schema_ = self._schemas[id] = self._read(answer, what, schema_of)
        return schema_

    def guid(self, id: int) -> UUID | None:  # noqa: A002  # its name in the registry
        """Return the GUID of the schema with an id, requested once; None if the registry has no GUIDs.

        Raises:
            RegistryError: The registry does not have the schema, does not answer, or refuses.
        """
        if id not in self._guids:
            what = f"the schema with the id {id}"
            answer = self._ask("GET", f"/schemas/ids/{id}", what, {"fetchMaxId": "false"})
            self._guids[id] = self._read(answer, what, guid_of)
        return self._guids[id]

    def find_id(self, guid: UUID) -> int | None:
        """Return the id of the schema with a GUID in the default context, requested once; None if it is not known.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        if guid not in self._ids:
            what = f"the ids of the schema with the GUID {guid}"
            answer = self._ask("GET", f"/schemas/guids/{guid}/ids", what, may_lack_path=True)
            missing = answer.status == httpx.codes.NOT_FOUND
            self._ids[guid] = None if missing else self._read(answer, what, id_in_context)
        return self._ids[guid]

    def references(self, schema: RegisteredSchema) -> Mapping[str, RegisteredSchema]:
        """Return the schemas that a schema references, directly or not, by name; a referenced schema comes first.

        Each is requested once.

        Raises:
            RegistryError: The registry does not have one of them, does not answer, or refuses; or schemas reference
                each other in a circle.
        """
        used_schemas: dict[str, RegisteredSchema] = {}
        self._follow(schema, used_schemas, ())
        return used_schemas

    def _follow(
        self,
        schema: RegisteredSchema,
        used_schemas: dict[str, RegisteredSchema],
        ancestors: tuple[SchemaReference, ...],
    ) -> None:
        """Fetch what a schema references, directly or not, and add it to ``used_schemas`` by name, inner ones first.

        What has a name that is there already is skipped.
        """
        for reference in schema.references:
            if reference in ancestors:
                circle = " -> ".join(f"{one.subject} {one.version}" for one in (*ancestors, reference))
                raise RegistryError(
                    f"the registry {self.address} has schemas that reference each other in a circle: {circle}; "
                    "register a version of one of them without the reference"
                )
            if reference.name not in used_schemas:
                used = self.version(reference.subject, reference.version).schema
                self._follow(used, used_schemas, (*ancestors, reference))
                used_schemas[reference.name] = used

    def version(self, subject: str, version: int) -> SubjectVersion:
        """Return a version of a subject, requested once.

        Raises:
            UnknownSubjectError: There is no such subject or version.
            RegistryError: The registry does not answer, or refuses.
        """
        if (subject, version) not in self._versions:
            self._versions[subject, version] = self._version(subject, str(version))
        return self._versions[subject, version]

    def latest(self, subject: str) -> SubjectVersion:
        """Return the version of a subject that was the latest when this client requested it first; requested once.

        Raises:
            UnknownSubjectError: There is no such subject.
            RegistryError: The registry does not answer, or refuses.
        """
        if subject not in self._latest:
            self._latest[subject] = self.request_latest(subject)
        return self._latest[subject]

    def request_latest(self, subject: str) -> SubjectVersion:
        """Request the latest version of a subject, in each call; what `latest` returns stays the same.

        Raises:
            UnknownSubjectError: There is no such subject.
            RegistryError: The registry does not answer, or refuses.
        """
        return self._version(subject, "latest")

    def _version(self, subject: str, version: str) -> SubjectVersion:
        """Fetch a version of a subject, and cache its schema by its id."""
        what = f"the version {version} of the subject {subject!r}"
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}", what)
        if answer.status == httpx.codes.NOT_FOUND:
            raise UnknownSubjectError(f"the registry {self.address} does not have {what}{error_details(answer)}")
        subject_version = self._read(answer, what, lambda d: SubjectVersion(subject, *version_and_id(d), schema_of(d)))
        self._schemas.setdefault(subject_version.id, subject_version.schema)
        return subject_version

    def subjects(self) -> tuple[str, ...]:
        """Request the names of all subjects, in each call, and return them sorted.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        return tuple(sorted(self._list("/subjects", "the subjects", str)))

    def versions(self, subject: str) -> tuple[int, ...]:
        """Request the numbers of the versions of a subject, in each call, and return them sorted.

        Raises:
            UnknownSubjectError: There is no such subject.
            RegistryError: The registry does not answer, or refuses.
        """
        return tuple(sorted(self._list(f"/subjects/{quote(subject, safe='')}/versions", f"{subject!r}", int)))

    def register(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> int:
        """Register a schema under a subject, unless it is registered there; requested once in the life of the client.

        Args:
            subject: The subject.
            schema: The schema.
            normalize: Whether the registry normalizes the schema before it compares.

        Returns:
            The schema's id.

        Raises:
            IncompatibleSchemaError: It is not compatible with the subject's schemas, or is not a valid schema.
            RegistryError: The registry does not answer, or refuses.
        """
        key = (subject, schema, normalize)
        if key not in self._registered:
            self._registered[key] = self._post(subject, schema, id_of, normalize=normalize, register=True)
            self._schemas.setdefault(self._registered[key], schema)
        return self._registered[key]

    def look_up(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> SubjectVersion:
        """Look up the version under which a schema is registered in a subject; requested once if it is.

        Raises:
            UnknownSubjectError: It is not registered there, or there is no such subject.
            IncompatibleSchemaError: It is not a valid schema.
            RegistryError: The registry does not answer, or refuses.
        """
        key = (subject, schema, normalize)
        if key not in self._subject_versions:
            version, number = self._post(subject, schema, version_and_id, normalize=normalize, register=False)
            self._subject_versions[key] = subject_version = SubjectVersion(subject, version, number, schema)
            self._schemas.setdefault(subject_version.id, schema)
        return self._subject_versions[key]

    def _post(
        self, subject: str, schema: RegisteredSchema, read: Callable[[Any], T], *, normalize: bool, register: bool
    ) -> T:
        """Register a schema under a subject, or look it up there, and parse the answer."""
        what = f"a schema under the subject {subject!r}"
        path = f"/subjects/{quote(subject, safe='')}{'/versions' if register else ''}"
        answer = self._ask("POST", path, what, {"normalize": str(normalize).lower()}, body_of(schema))
        if answer.status == httpx.codes.NOT_FOUND and not register:
            raise UnknownSubjectError(
                f"the registry {self.address} does not have this schema under the subject {subject!r}"
                f"{error_details(answer)}"
            )
        if answer.status in (httpx.codes.CONFLICT, httpx.codes.UNPROCESSABLE_ENTITY):
            reason = "cannot be registered" if register else "cannot be looked up"
            raise IncompatibleSchemaError(
                f"the registry {self.address}: the schema {reason} under the subject "
                f"{subject!r}{error_details(answer)}: "
                f"{schema.text}"
            )
        return self._read(answer, what, read)

    def refusal(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> str:
        """Ask the registry why a schema is not compatible with the latest version of a subject.

        The result has at most 500 characters. It is empty if it is compatible, or if there is no such subject yet.

        Raises:
            IncompatibleSchemaError: It is not a valid schema.
            RegistryError: The registry does not answer, or refuses.
        """
        what = f"a schema for the subject {subject!r}"
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest"
        query = {"verbose": "true", "normalize": str(normalize).lower()}
        answer = self._ask("POST", path, what, query, body_of(schema))
        if answer.status == httpx.codes.NOT_FOUND:
            return ""
        if answer.status == httpx.codes.UNPROCESSABLE_ENTITY:
            raise IncompatibleSchemaError(
                f"the registry {self.address} does not accept {what} as valid{error_details(answer)}; change the "
                "columns or the option 'schema'"
            )
        return self._read(answer, what, refusal_of)

    def compatibility(self, subject: str) -> str:
        """Ask for the compatibility level of a subject, such as ``BACKWARD``: its own, or that of the registry.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        what = f"the compatibility of the subject {subject!r}"
        answer = self._ask("GET", f"/config/{quote(subject, safe='')}", what, {"defaultToGlobal": "true"})
        if answer.status == httpx.codes.NOT_FOUND:
            answer = self._ask("GET", "/config", what)
        return self._read(answer, what, lambda document: str(document["compatibilityLevel"]))

    def close(self) -> None:
        """Close the connections; the client cannot send requests afterwards, and `registry_client` creates another."""
        with _lock:
            for key in [key for key, client in _clients.items() if client is self]:
                del _clients[key]
        self._http.close()

    def _list(self, path: str, what: str, convert: Callable[[Any], T]) -> list[T]:
        """Request a list, and convert its elements; ``what`` names it in messages."""
        answer = self._ask("GET", path, what)
        if answer.status == httpx.codes.NOT_FOUND:
            raise UnknownSubjectError(f"the registry {self.address} does not have {what}{error_details(answer)}")
        return self._read(answer, what, lambda document: [convert(one) for one in list_of(document)])

    def _read(self, answer: Answer, what: str, read: Callable[[Any], T]) -> T:
        """Parse an answer of a schema registry with a function."""
        try:
            if answer.status == httpx.codes.OK:
                return read(answer.json())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        to = answer.moved_to
        moved = "" if to is None else f" (to {to})"
        raise RegistryError(
            f"the registry {self.address}: asked for {what}, it answers HTTP "
            f"{answer.status}{moved}{error_details(answer)}"
            f"{'' if to else content_type(answer)}; check that this is the address of a schema registry with "
            "Confluent's API"
        )

    def _ask(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        may_lack_path: bool = False,
    ) -> Answer:
        """Send a request to each address until one answers, with retries; the next request starts with that address.

        A registry of another version or maker may lack the path, which is not an error with ``may_lack_path``. The
        caller checks for the statuses 404, 409 and 422.
        """
        settings = self._settings
        reason = ""
        backoff = Backoff(settings.wait, settings.max_wait, jitter=(0.5, 1))
        pauses = (0.0, *islice(backoff.pauses(), settings.retries))
        deadline = Deadline(sum(pauses) + settings.read_timeout)
        tries = 0
        for pause in pauses:
            time.sleep(pause)
            if tries and deadline.has_passed:
                break
            tries += 1
            for offset in range(len(settings.urls)):
                at = (self._first + offset) % len(settings.urls)
                try:
                    answer = self._send_request(
                        method, settings.urls[at], path, query, body, max(deadline.remaining, 0.001)
                    )
                except httpx.RequestError as e:
                    reason = _reason(e)
                    for sign, template in _PERMANENT.items():
                        if sign in reason:
                            message = template.format(where=f"the registry {settings.urls[at]}", reason=reason)
                            raise RegistryUnreachableError(message) from None
                    continue
                if answer.status in _RETRIABLE:
                    reason = f"HTTP {answer.status}{error_details(answer)}"
                    continue
                self._first = at
                if tries > 1:
                    _log.warning("the registry %s answers again, after %d tries for %s", self.address, tries, what)
                if not (may_lack_path and answer.status == httpx.codes.NOT_FOUND):
                    self._raise_for_refusal(answer, what)
                return answer
            if tries == 1 and settings.retries:
                _log.warning(
                    "the registry %s does not answer, asked for %s: %s; it is asked again for up to %.0f s "
                    "(the settings max.retries, retries.wait.ms and http.read.timeout.ms of the registry)",
                    self.address,
                    what,
                    reason,
                    max(deadline.remaining, 0),
                )
        times = f"{tries} times" if tries > 1 else "once"
        raise RegistryUnreachableError(
            f"the registry {self.address} does not answer, asked {times} for {what}: {reason}; check that it runs, "
            "and that it can be reached from here"
        )

    def _send_request(
        self,
        method: str,
        url: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        seconds: float,
    ) -> Answer:
        """Send a request once and read the whole answer, of any status. The login may request and store a token before.

        Neither the connection nor the answer is waited for longer than some ``seconds``.
        """
        timeout = httpx.Timeout(
            min(self._settings.read_timeout, seconds), connect=min(self._settings.connect_timeout, seconds)
        )
        with self._http.stream(
            method, url + path, params=query, json=body, auth=self._login, timeout=timeout
        ) as response:
            content = read_bounded(response, f"the registry {url}", self.largest)
            return Answer(response.status_code, response.headers, content, self._login.secrets)

    def _raise_for_refusal(self, answer: Answer, what: str) -> None:
        """Check that an answer is neither a refusal nor that of another server."""
        if answer.status == httpx.codes.UNAUTHORIZED:
            raise RegistryRefusedError(
                f"the registry {self.address} does not know who asks for {what} (HTTP 401){error_details(answer)}; "
                "set a user (basic-auth.user-info) or a token (bearer-auth.token)"
            )
        if answer.status == httpx.codes.FORBIDDEN:
            raise RegistryRefusedError(
                f"the registry {self.address} does not let this user ask for {what} (HTTP 403){error_details(answer)}"
                "; grant it access, or set another user"
            )
        if answer.status == httpx.codes.NOT_FOUND and not error_of(answer):
            raise RegistryError(
                f"{self.address} answers HTTP 404 as no schema registry does, asked for {what}; check the path of its "
                "URL"
            )


def _http(settings: Settings) -> httpx.Client:
    """Create the HTTP client for the settings."""
    secure = any(url.startswith("https:") for url in settings.urls) or settings.oauth is not None
    return httpx.Client(
        verify=make_context(settings.tls) if secure else False,
        headers={"Accept": f"{_JSON}, application/json", "Content-Type": _JSON, **settings.headers},
        timeout=httpx.Timeout(settings.read_timeout, connect=settings.connect_timeout),
        proxy=settings.proxy,
        follow_redirects=False,
    )


def _reason(error: httpx.RequestError) -> str:
    """Return why a request failed, without what was sent."""
    match error:
        case httpx.ConnectTimeout():
            return "no connection in time"
        case httpx.TimeoutException():
            return "no answer in time"
        case httpx.LocalProtocolError():  # its message quotes what would be sent
            return "the request cannot be sent"
        case _:
            return str(error) or type(error).__name__
