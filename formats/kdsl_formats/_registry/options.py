"""The options that the formats with a schema registry share, and their application to a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import UUID

import attrs
import pyarrow as pa

from kdsl.client_settings.properties import Properties, Value
from kdsl.cluster import Registry
from kdsl.errors import KdslError, Problem
from kdsl.formats import (
    ALONE,
    SCHEMA_HEADERS,
    BadRecord,
    Decoded,
    Direction,
    Encoded,
    Encoder,
    Format,
    Side,
    Use,
)
from kdsl.options import option
from kdsl.registry.settings import is_login, registry_problems
from kdsl.secrets import Secret
from kdsl.types import model as t
from kdsl_formats._registry.differences import Parts, describe_differences
from kdsl_formats._registry.framing import (
    Frames,
    add_frames,
    describe_schema,
    frame_of,
    join_frames,
    read_frame,
    split_frames,
)

if TYPE_CHECKING:
    from kdsl.registry import RegisteredSchema, RegistryClient, SubjectVersion

_OLD_PREFIX = "schema-registry."
_OWN = (
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "basic-auth.credentials-source",
    "basic-auth.user-info",
    "bearer-auth.credentials-source",
    "bearer-auth.token",
)
NO_REGISTRY = "registry-missing"


def _option(key: str, doc: str, **more: Any) -> Any:
    """Declare an option that also has an older key, with the prefix ``schema-registry.``; for `more` see `option`."""
    return option(key, doc, aliases=(f"{_OLD_PREFIX}{key}",), **more)


def _merge_settings(cluster_settings: Properties, own: Properties) -> Properties:
    """Override the cluster's settings with the format's; a login of the format replaces all of the cluster's login."""
    if any(is_login(name) for name in own):
        cluster_settings = Properties({name: value for name, value in cluster_settings.items() if not is_login(name)})
    return cluster_settings.merge(own)


class RegistryFormat(Format):
    """A format whose messages name their schema by its id in a registry, with the options of all such formats.

    A message names its schema in a frame before its body, or in a header of its record: if the record has the header,
    that counts, as for Confluent's deserializers.
    """

    metadata: ClassVar[Mapping[str, t.DataType]] = {"schema-id": t.Int()}
    needs_registry: ClassVar[bool] = True
    frame_headers: ClassVar[Mapping[Side, str]] = SCHEMA_HEADERS
    connection: ClassVar[tuple[str, ...]] = ("url", "ssl.", "basic-auth.", "bearer-auth.", "properties.")

    url: str | None = _option(
        "url",
        "The address of the schema registry, or several, separated by commas; by default the registry of the cluster "
        "(`Cluster(registry=…)`).",
        default=None,
        secret="address",  # noqa: S106
    )
    subject: str | None = _option(
        "subject",
        "Write: the subject that the schema is registered under; `<topic>-value` by default, `<topic>-key` for a key "
        "(see subject-name-strategy).",
        default=None,
    )
    subject_name_strategy: Literal["topic", "record", "topic-record"] = option(
        "subject-name-strategy",
        "Write: how subjects are named: after the topic (`orders-value`), the record's full name (`shop.Order`), or "
        "both (`orders-shop.Order`).",
        default="topic",
        ignore_case=True,
    )
    auto_register: bool = option(
        "auto-register",
        "Write: whether to register a schema that is not registered under the subject; otherwise it is an error.",
        default=True,
    )
    use_latest_version: bool = option(
        "use-latest-version",
        "Write: whether to write rows with the latest schema of the subject instead of the table's schema.",
        default=False,
    )
    normalize: bool = option(
        "normalize",
        "Write: whether the registry normalizes a schema before comparing or storing it.",
        default=False,
    )
    schema_id_location: Literal["prefix", "header"] = option(
        "schema-id-location",
        "Write: where a message names its schema: `prefix` is five bytes with its id before the body; `header` is the "
        "header `__value_schema_id` (`__key_schema_id` for a key) with the schema's GUID, or with its id if the "
        "registry has no GUIDs, and the message is the body alone. Both are read, whatever this option says. Flink "
        "does not have this option.",
        default="prefix",
        ignore_case=True,
    )
    ssl_keystore_location: str | None = _option(
        "ssl.keystore.location", "The keystore with the client's key (JKS, PKCS12 or PEM).", default=None
    )
    ssl_keystore_password: str | Secret | None = _option(
        "ssl.keystore.password", "The password of the keystore.", default=None, secret=True
    )
    ssl_truststore_location: str | None = _option(
        "ssl.truststore.location",
        "The truststore with the trusted authorities (JKS, PKCS12 or PEM); by default those of the machine.",
        default=None,
    )
    ssl_truststore_password: str | Secret | None = _option(
        "ssl.truststore.password", "The password of the truststore.", default=None, secret=True
    )
    basic_auth_credentials_source: str | None = _option(
        "basic-auth.credentials-source",
        "The source of user and password: `URL`, `USER_INFO` (basic-auth.user-info) or `SASL_INHERIT` (those of the "
        "Kafka clients).",
        default=None,
    )
    basic_auth_user_info: str | Secret | None = _option(
        "basic-auth.user-info", "User and password, separated by a colon.", default=None, secret=True
    )
    bearer_auth_credentials_source: str | None = _option(
        "bearer-auth.credentials-source",
        "The source of the token: `STATIC_TOKEN` (bearer-auth.token), `OAUTHBEARER` (an identity provider, see "
        "properties.bearer.auth.issuer.endpoint.url) or `SASL_OAUTHBEARER_INHERIT` (that of the Kafka clients).",
        default=None,
    )
    bearer_auth_token: str | Secret | None = _option("bearer-auth.token", "The token.", default=None, secret=True)
    properties: Mapping[str, Value] = option(
        "properties.*",
        "Settings of the registry client, under Java's names (`properties.http.read.timeout.ms`).",
        default=Properties(),
        aliases=(f"{_OLD_PREFIX}properties.*",),
    )

    def registry(self, cluster_registry: Registry | None) -> Registry | None:
        """The registry of a use: the cluster's settings, overridden by the format's if its address is the same or none.

        A login of the format replaces the whole login of the cluster. At another address only the Kafka clients' login
        (``sasl.``) remains, which the format may inherit. None if neither has an address.
        """
        own = Properties(self._settings())
        if self.url is None:
            return (
                None
                if cluster_registry is None or not cluster_registry.url
                else Registry(cluster_registry.url, _merge_settings(cluster_registry.properties, own))
            )
        mine = Registry(self.url.reveal() if isinstance(self.url, Secret) else self.url, own)
        if cluster_registry is None:
            return mine
        if cluster_registry.url == mine.url:
            return Registry(mine.url, _merge_settings(cluster_registry.properties, mine.properties))
        login = {name: text for name, text in cluster_registry.properties.items() if name.startswith("sasl.")}
        return Registry(mine.url, Properties(login).merge(mine.properties))

    def _settings(self) -> dict[str, Value]:
        """The client settings from the format's options: ``properties.*``, overridden by those of keys and logins."""
        named = {key: getattr(self, key.replace(".", "_").replace("-", "_")) for key in _OWN}
        return {**self.properties, **{key: value for key, value in named.items() if value is not None}}

    def require_registry(self, use: Use) -> Registry:
        """The registry of a use."""
        registry = self.registry(use.registry)
        if registry is None:
            raise KdslError(str(self._no_registry()))
        return registry

    def join_frames(
        self, side: Side, messages: pa.BinaryArray, frames: pa.BinaryArray
    ) -> tuple[pa.BinaryArray, tuple[BadRecord, ...]]:
        """Put the frames from headers before messages, those of records without the header stay as they are.

        Args:
            side: Whether they are keys or values.
            messages: The messages; null is a null message, which stays null.
            frames: The header's value for each message; null for a record without it, or with a null value.

        Returns:
            The messages with frames; and those whose header does not name a schema, which are null.
        """
        return join_frames(messages, frames, self.read_frame, self.frame_headers[side])

    def find_form(self, message: bytes) -> str:
        """The frame before a message, in hexadecimal digits; empty if there is none."""
        try:
            return self.read_frame(message).hex()
        except ValueError:
            return ""

    @abstractmethod
    def form_encoder(self, row: t.Row, form: str, use: Use = ALONE) -> Encoder:
        """An encoder of messages with the frame `form`, which asks the registry for its schema when rows are encoded.

        Its errors are those of the registry, and a KdslError if the schema cannot hold the rows.
        """

    def schema_named(self, frame: bytes, use: Use) -> tuple[RegistryClient, RegisteredSchema, str]:
        """The client of the registry of a use, the schema that a frame names there, and what it is in messages."""
        from kdsl.registry import registry_client

        client = registry_client(self.require_registry(use))
        ((schema_id, _),) = split_frames(pa.array([frame], pa.binary())).groups()
        description = f"{describe_schema(schema_id)} in the registry {client.address}"
        return client, client.schema(schema_id), description

    def read_frame(self, frame: bytes) -> bytes:
        """The frame in a header's value, without the bytes that follow it; ValueError if there is none."""
        return read_frame(frame)

    def choose_frame_header(self, side: Side) -> str | None:
        """The header that gets the frame of a written message; None if the frame comes before the body."""
        return self.frame_headers[side] if self.schema_id_location.lower() == "header" else None

    def add_frames(self, encoded: Encoded, id: int, use: Use, indexes: bytes = b"") -> Encoded:  # noqa: A002
        """Name the schema of encoded bodies: by its id before each body; or in `Encoded.frame`, for a header.

        In a header it is the schema's GUID, or the id if the registry has no GUIDs.

        Args:
            encoded: The bodies; a null body is a null message.
            id: The id of the schema in the registry of the use.
            use: How the format is used.
            indexes: Further bytes of the frame, as for Protobuf.
        """
        if self.choose_frame_header(use.side) is None:
            return Encoded(add_frames(frame_of(id) + indexes, encoded.messages), encoded.bad)
        from kdsl.registry import registry_client

        guid = registry_client(self.require_registry(use)).guid(id)
        return Encoded(encoded.messages, encoded.bad, frame_of(id if guid is None else guid) + indexes)

    def add_schema_ids(self, decoded: Decoded, frames: Frames, use: Use) -> Decoded:
        """Add the metadata of a use: the schema id of each row's message, NULL if a GUID's id is not known."""

        def find_id(guid: UUID) -> int | None:
            from kdsl.registry import registry_client

            return registry_client(self.require_registry(use)).find_id(guid)

        return frames.add_schema_ids(decoded, use.metadata, find_id)

    def check_registry(self, registry: Registry | None) -> Iterable[Problem]:
        """Report a missing registry (rule SR-5), and wrong settings of its client."""
        resolved = self.registry(registry)
        return (self._no_registry(),) if resolved is None else registry_problems(resolved)

    def _no_registry(self) -> Problem:
        """Create the problem of a format without a registry."""
        return Problem(
            NO_REGISTRY,
            f"{self.title} needs a schema registry: neither the format ('url') nor the cluster has one",
            f"set {type(self).__name__}(url='http://HOST:PORT') ('{self.identifier}.url'), or pass "
            "Cluster(…, registry='http://HOST:PORT')",
        )

    def check_use(self, row: Any, use: Use, direction: Direction) -> Iterable[Problem]:
        """Report a sink whose subject is named after the topic, but which has several or a pattern (rule SR-3)."""
        if direction == "write" and self.subject is None and self.names_subject_after("topic") and len(use.topics) != 1:
            topics = f"{len(use.topics)} topics" if use.topics else "a pattern of topics"
            yield Problem(
                "registry-subject",
                f"{self.title} registers its schema under a subject that is named after the topic, but the table has "
                f"{topics}",
                "declare one topic, or set 'subject', or set 'subject-name-strategy' to 'record', and set 'schema'",
            )

    def registry_schemas(self) -> RegistryFormat:
        """The format itself."""
        return self

    def find_subject(self, row: t.Row, use: Use, client: RegistryClient) -> str:
        """The subject under which a write registers its schema; the registry is asked only for the record's name."""
        named = self.subject is None and self.names_subject_after("record")
        return self.subject_of(use, self.sink_schema(row, client)[0] if named else "")

    def names_subject_after(self, what: Literal["topic", "record"]) -> bool:
        """Whether a derived subject is named after the topic or the record (or both)."""
        return what in self.subject_name_strategy.split("-")

    def subject_of(self, use: Use, record: str) -> str:
        """The subject of a use (SR-1, SR-2): that of the option, or the one that the strategy names.

        This is ``<topic>-key`` or ``<topic>-value``, ``<record>``, or ``<topic>-<record>``.

        Args:
            use: How the format is used.
            record: The full name of the written record.
        """
        if self.subject is not None:
            return self.subject
        if self.subject_name_strategy == "record":
            return record
        if len(use.topics) != 1:
            raise KdslError("; ".join(str(problem) for problem in self.check_use(None, use, "write")))
        return f"{use.topics[0]}-{record if self.names_subject_after('record') else use.side}"

    @abstractmethod
    def sink_schema(self, row: t.Row, client: RegistryClient) -> tuple[str, RegisteredSchema]:
        """The full name of the record that a sink writes, and the schema that it registers."""

    @abstractmethod
    def schema_misfit(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient, direction: Direction) -> str:
        """Why rows of a type cannot be read or written with a registered schema; empty if they can."""

    def schema_parts(self, schema: RegisteredSchema, client: RegistryClient) -> Parts:
        """The parts of a schema in words, by which differences are named; by default none are."""
        del schema, client
        return {}

    def find_or_register(self, client: RegistryClient, subject: str, schema: RegisteredSchema, row: t.Row) -> int:
        """Register the schema of written rows, or look it up if `auto_register` is false; returns its id."""
        if self.auto_register:
            return client.register(subject, schema, normalize=self.normalize)
        return self.look_up(client, subject, schema, row).id

    def look_up(self, client: RegistryClient, subject: str, schema: RegisteredSchema, row: t.Row) -> SubjectVersion:
        """Look up the schema of written rows under a subject."""
        from kdsl.registry import UnknownSubjectError

        try:
            return client.look_up(subject, schema, normalize=self.normalize)
        except UnknownSubjectError as e:
            if self.auto_register:
                raise
            reason = self._explain_unregistered(client, subject, schema, row)
            raise UnknownSubjectError(f"{e}, and 'auto-register' is false; {reason}") from None

    def _explain_unregistered(self, client: RegistryClient, subject: str, schema: RegisteredSchema, row: t.Row) -> str:
        """How the latest schema of a subject differs from that of the written rows, and what to do; see `look_up`."""
        from kdsl.registry import UnknownSubjectError

        register = f"register the schema there, or set 'auto-register' to 'true': {schema.text}"
        try:
            latest = client.request_latest(subject)
        except UnknownSubjectError:
            return f"the registry has no such subject; {register}"
        if not self.normalize:
            with suppress(UnknownSubjectError):
                version = client.look_up(subject, schema, normalize=True).version
                return f"only the form of version {version} differs: set 'normalize' to 'true'"
        what = f"the latest schema (version {latest.version}, id {latest.id})"
        with suppress(KdslError):
            registered, own = self.schema_parts(latest.schema, client), self.schema_parts(schema, client)
            if differences := describe_differences(registered, own):
                what = f"{what} differs: {differences}"
        misfit = self.schema_misfit(row, latest.schema, client, "write")
        if misfit:
            return f"{what}; the table's rows cannot be written with it: {misfit}; change the columns, or {register}"
        advice = "set 'use-latest-version' to 'true', and rows are written with it"
        if self._fits_as_option(latest.schema, row):
            advice += "; or set 'schema' to its text"
        return f"{what}; {advice}; or {register}"

    def _fits_as_option(self, schema: RegisteredSchema, row: t.Row) -> bool:
        """Whether a schema can be the option ``schema`` of a format that has one and for which it is not set."""
        if schema.references or getattr(self, "schema", "") is not None:
            return False
        chosen = attrs.evolve(self, schema=schema.text)  # type: ignore[misc]
        return not any(problem.severity == "error" for problem in chosen.check(row, "write"))

    def find_replaced_nulls(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient) -> Mapping[str, Any]:
        """The defaults of nullable columns that Kafka Connect's converter may have written in place of NULL, by column.

        None by default, and where the schema is not one of Kafka Connect.
        """
        del row, schema, client
        return {}

    def option_problems(self, *, named: bool, direction: Direction) -> Iterator[Problem]:
        """Report options that contradict each other on writing; nothing for reading.

        These are a subject and a strategy for naming one, a subject named after the record of a derived schema, and a
        schema with `use_latest_version`.

        Args:
            named: Whether the user sets the schema, and with it the record's name.
            direction: Whether the table is read or written.
        """
        if direction == "read":
            return
        if self.subject is not None and self.subject_name_strategy != "topic":
            yield Problem(
                "registry-subject",
                f"{self.title} has the subject {self.subject!r}, and also the strategy "
                f"{self.subject_name_strategy!r} for naming one",
                "keep one of 'subject' and 'subject-name-strategy'",
            )
        elif self.names_subject_after("record") and not named:
            yield Problem(
                "registry-subject",
                f"{self.title} names the subject after the record (subject-name-strategy "
                f"{self.subject_name_strategy!r}), but a schema that is derived from a table has the same name in "
                "every table",
                "set 'schema', whose record has a name of its own, or replace 'subject-name-strategy' by 'subject'",
            )
        if self.use_latest_version and named:
            yield Problem(
                "registry-latest",
                f"{self.title} has a 'schema', but should use the latest schema of the registry (use-latest-version)",
                "keep one of them",
            )
