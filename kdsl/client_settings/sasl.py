"""Java's ``sasl.*`` settings as librdkafka's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kdsl.client_settings.cloud_logins import (
    AWS_MECHANISM,
    CLIENT_HANDLER,
    CLOUDS,
    LOGIN_HANDLER,
    SERVERS,
    CloudLogin,
    find_cloud_login,
    is_handler,
)
from kdsl.client_settings.draft import JAAS, SettingsDraft
from kdsl.client_settings.kerberos import warn_of_unused_logins
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.model import MAX_INT, OVER_JVM, LibrdkafkaProperty
from kdsl.errors import listing, nearest
from kdsl.secrets import has_reference
from kdsl.secrets.jaas import MODULES, Login

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MECHANISM_OF = {
    "PlainLoginModule": "PLAIN",
    "ScramLoginModule": "SCRAM-SHA-256 or SCRAM-SHA-512",
    "OAuthBearerLoginModule": "OAUTHBEARER",
    "IAMLoginModule": AWS_MECHANISM,
}
_GRANTS = {
    "DefaultJwtRetriever": "client_credentials",
    "ClientCredentialsJwtRetriever": "client_credentials",
    "JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}
_OAUTH = "sasl.oauthbearer."
_URL = f"{_OAUTH}token.endpoint.url"
_CLIENT_ID = f"{_OAUTH}client.id"
_ID, _SECRET = f"{_OAUTH}client.credentials.client.id", f"{_OAUTH}client.credentials.client.secret"
_RENAMED = {
    _ID: _CLIENT_ID,
    _SECRET: f"{_OAUTH}client.secret",
    f"{_OAUTH}assertion.template.file": f"{_OAUTH}assertion.jwt.template.file",
}
_SAME = ("scope", "sub.claim.name", "token.endpoint.url")
KERBEROS = "sasl.kerberos."
_UNSECURED = "unsecuredLogin"
PROVIDER = f"{_OAUTH}token.provider"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_EXTENSION = "extension_"
_ROLE = (
    "awsRoleAccessKeyId",
    "awsRoleSecretAccessKey",
    "awsRoleSessionToken",
    "awsRoleSessionName",
    "awsRoleExternalId",
    "awsStsRegion",
)
"""The options of AWS that only describe how a role is assumed."""


def asks_for_kerberos(draft: SettingsDraft) -> bool:
    """Whether the login uses Kerberos: a SASL protocol with the mechanism GSSAPI, which is the default."""
    protocol = draft.java.get("security.protocol", "PLAINTEXT")
    return protocol.startswith("SASL_") and (draft.value("sasl.mechanism") or "GSSAPI").upper() == "GSSAPI"


def translate_sasl(draft: SettingsDraft, machine: Machine | None = None) -> None:
    """Translate the settings of SASL in a draft: set librdkafka's properties, and record problems.

    If the protocol does not use SASL, only warnings are recorded. Nothing is translated if the protocol or the
    mechanism is an unresolved reference. With a machine, a provider of kdsl creates a first token; without
    one (while planning) the provider is only checked.
    """
    names = [name for name in draft.java if name.startswith("sasl.")]
    protocol = draft.java.get("security.protocol", "PLAINTEXT")
    if draft.is_unresolved("security.protocol"):
        return
    if not draft.is_unresolved("sasl.mechanism"):
        warn_of_unused_logins(draft, gssapi=(draft.value("sasl.mechanism") or "GSSAPI").upper() == "GSSAPI")
    if not protocol.startswith("SASL_"):
        if names:
            draft.add_warning(
                "client-setting-unused",
                f"{', '.join(map(repr, names))} without effect, because 'security.protocol' is {protocol!r}",
                "write security.protocol=SASL_SSL or SASL_PLAINTEXT, or remove them",
                property=names[0],
            )
        return
    if draft.is_unresolved("sasl.mechanism"):
        return
    mechanism = (draft.value("sasl.mechanism") or "GSSAPI").upper()
    cloud = CLOUDS["aws_msk_iam"] if mechanism == AWS_MECHANISM else find_cloud_login(draft.java, PROVIDER)
    if cloud is not None and mechanism in (AWS_MECHANISM, "OAUTHBEARER"):
        _translate_cloud(draft, cloud, mechanism, machine)
        return
    if mechanism not in MECHANISMS:
        _refuse_mechanism(draft, mechanism)
        return
    draft.set("sasl.mechanism", mechanism, "sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        _translate_oauth(draft, machine)
        return
    _refuse_handler(draft)
    for name in names:
        if name.startswith(_OAUTH):
            message = f"{name!r} has no effect, because 'sasl.mechanism' is {mechanism!r}"
            draft.add_warning("client-setting-unused", message, "remove it", name)
    _translate_password(draft, mechanism)


def check_missing_mechanism(draft: SettingsDraft) -> bool:
    """Return True, and record an error, if the login module needs a mechanism and none is set; otherwise return False.

    Kafka's default mechanism, GSSAPI, has other login modules.
    """
    module = draft.login.kind if draft.login else ""
    if draft.value("sasl.mechanism") is not None or module not in _MECHANISM_OF:
        return False
    draft.add_error(
        "sasl-mechanism",
        f"{JAAS!r} names {module}, but 'sasl.mechanism' is not set, which means GSSAPI",
        f"write sasl.mechanism={_MECHANISM_OF[module]}",
        property=JAAS,
    )
    return True


def _refuse_mechanism(draft: SettingsDraft, mechanism: str) -> None:
    """Report a mechanism that librdkafka does not have, or that none is set although the login module needs one."""
    is_set = draft.value("sasl.mechanism") is not None
    if check_missing_mechanism(draft):
        return
    if mechanism == "GSSAPI":
        draft.add_error(
            "sasl-gssapi",
            f"'sasl.mechanism' is GSSAPI{'' if is_set else ', the default'} (Kerberos), which the librdkafka in "
            "confluent-kafka's wheels does not support",
            f"{OVER_JVM}, or another mechanism: {listing(MECHANISMS)}",
            property="sasl.mechanism",
        )
    else:
        draft.add_error(
            "sasl-mechanism",
            f"'sasl.mechanism' is {mechanism!r}, which librdkafka does not have"
            f"{nearest(mechanism, (*MECHANISMS, AWS_MECHANISM))}",
            f"write one of {listing(MECHANISMS)}, or {OVER_JVM}",
            property="sasl.mechanism",
        )


def _refuse_handler(draft: SettingsDraft, cloud: CloudLogin | None = None, *names: str) -> None:
    """Record an error for each callback handler that is set, because it names a Java class, unless it is the cloud's.

    ``names`` are the settings to check; by default those of both handlers.
    """
    for name in names or (LOGIN_HANDLER, CLIENT_HANDLER):
        if name in draft.java and not (cloud and is_handler(cloud, draft.java[name])):
            draft.add_error(
                "client-setting-refused",
                f"{name!r} cannot be set: it names a Java class",
                f"remove it, or {OVER_JVM}",
                property=name,
            )


def _refuse_module(draft: SettingsDraft, login: Login, mechanism: str) -> bool:
    """Return True, and record an error, if the login module does not fit the mechanism; otherwise return False.

    As in Java, PLAIN accepts the module of SCRAM as well.
    """
    fitting = {
        "PLAIN": ("PlainLoginModule", "ScramLoginModule"),
        "OAUTHBEARER": ("OAuthBearerLoginModule",),
        AWS_MECHANISM: ("IAMLoginModule",),
    }.get(mechanism, ("ScramLoginModule",))
    if login.kind in fitting:
        return False
    known = "" if login.kind in MODULES else nearest(login.kind, MODULES)
    draft.add_error(
        "sasl-mechanism",
        f"{JAAS!r} names the login module {login.kind!r}{known}, which does not fit 'sasl.mechanism' {mechanism!r}",
        f"write {MODULES[fitting[0]]}",
        property=JAAS,
    )
    return True


def _translate_password(draft: SettingsDraft, mechanism: str) -> None:
    """Translate a login with user and password (PLAIN, SCRAM); report a missing or unsuitable one.

    A missing one is not reported again if a problem of the JAAS configuration or of a reference is in the draft.
    """
    login = draft.login
    if login is None:
        if JAAS not in draft.java and not (draft.value("sasl.username") and draft.value("sasl.password")):
            is_reported = any(problem.code in ("jaas", "secret-reference") for problem in draft.problems)
            if not is_reported:
                module = MODULES["PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"]
                draft.add_error(
                    "sasl-login",
                    f"'sasl.mechanism' is {mechanism!r}, but {JAAS!r} is not set",
                    f'write sasl.jaas.config={module} required username="…" password="${{env:NAME}}";',
                    property="sasl.mechanism",
                )
        return
    if _refuse_module(draft, login, mechanism):
        return
    if login.options.get("tokenauth", "").lower() == "true":
        draft.add_error(
            "sasl-login",
            f"{JAAS!r} logs in with a delegation token (tokenauth), which librdkafka does not have",
            f"log in with a name and a password, or {OVER_JVM}",
            property=JAAS,
        )
    for option, target in (("username", "sasl.username"), ("password", "sasl.password")):
        value = login.options.get(option)
        if value:
            draft.set(target, value, JAAS)
        elif not draft.value(target):
            draft.add_error(
                "sasl-login", f"{JAAS!r} has no {option}, or an empty one", f'add {option}="…"', property=JAAS
            )


def _translate_oauth(draft: SettingsDraft, machine: Machine | None) -> None:
    """Translate a login with tokens: of an identity provider, of a provider of kdsl, or unsecured ones.

    Nothing is translated if the login's callback handler or module does not fit, which is recorded as a problem (as is
    any client callback handler), or if the JAAS configuration is an unresolved reference. The settings of an identity
    provider are not translated, either, if librdkafka's own properties configure the tokens. With a machine, a
    provider of kdsl creates a first token; without one, while planning, the provider is only checked.
    """
    _refuse_handler(draft, None, CLIENT_HANDLER)
    handler = draft.java.get(LOGIN_HANDLER, "OAuthBearerLoginCallbackHandler")
    if handler.rpartition(".")[2] not in (
        "OAuthBearerLoginCallbackHandler",
        "OAuthBearerUnsecuredLoginCallbackHandler",
    ):
        _refuse_handler(draft, None, LOGIN_HANDLER)
        return
    options = dict(draft.login.options) if draft.login else {}
    if draft.login and _refuse_module(draft, draft.login, "OAUTHBEARER"):
        return
    if draft.is_unresolved(JAAS) and draft.login is None:
        return
    provider = draft.java.get(PROVIDER)
    url = draft.value(_URL) or ""
    if provider is not None or url.lower().startswith("file:"):
        _translate_provider(draft, provider or url, options if provider else {}, machine)
    elif any(name.startswith(_UNSECURED) for name in options) or handler.endswith("UnsecuredLoginCallbackHandler"):
        _translate_unsecured(draft, options)
    elif draft.value(f"{_OAUTH}config") is None and draft.value(f"{_OAUTH}metadata.authentication.type") is None:
        _translate_oidc(draft, options)


def _translate_provider(draft: SettingsDraft, provider: str, options: dict[str, str], machine: Machine | None) -> None:
    """Let the client call for the tokens of a Python function, or of a file.

    A provider that is not a function's name, that is set beside an identity provider, or that creates no token is
    recorded as a problem. Without a machine (while planning) none is created.
    """
    if not provider.lower().startswith("file:") and not _FUNCTION.fullmatch(provider) and not has_reference(provider):
        draft.add_error(
            "client-setting-value",
            f"{PROVIDER!r} has the value {provider!r}, which is not the name of a function",
            f"write package.module:function, or a cloud's login: {listing(CLOUDS)}",
            property=PROVIDER,
        )
        return
    if not _refuse_two_providers(draft):
        _use_callback(draft, provider, options, machine)


def _refuse_two_providers(draft: SettingsDraft) -> bool:
    """Return True, and record an error, if tokens would come from a provider and from an identity provider."""
    both = [name for name in (_URL, _ID, _SECRET) if name in draft.java and PROVIDER in draft.java]
    if both:
        draft.add_error(
            "sasl-login",
            f"{PROVIDER!r} and {both[0]!r} are both set, but tokens can come from only one of them",
            "keep one of the two",
            property=PROVIDER,
        )
    return bool(both)


def _use_callback(draft: SettingsDraft, provider: str, options: dict[str, str], machine: Machine | None) -> None:
    """Set the callback for a provider's tokens, if there is a machine; record a problem if it creates no token."""
    if machine is not None:
        text = draft.value(f"{_OAUTH}extensions") or ""
        extensions = {name: value for name, _, value in (pair.partition("=") for pair in text.split(",")) if name}
        draft.token_callback = draft.attempt(lambda: machine.create_token_callback(provider, options, extensions))


def _translate_cloud(draft: SettingsDraft, cloud: CloudLogin, mechanism: str, machine: Machine | None) -> None:
    """Translate the login of a cloud: OAUTHBEARER, with tokens that this process creates.

    Handlers and a login module of another login, a profile beside a role, half of a role's keys, a second provider of
    tokens, and a token that cannot be created are recorded as errors, and options that the login does not have, or that
    belong to a role that is not named, as warnings. Nothing is created without a machine (while planning), or if the
    JAAS configuration is an unresolved reference.
    """
    draft.set("sasl.mechanism", "OAUTHBEARER", "sasl.mechanism")
    _refuse_handler(draft, cloud)
    options = dict(draft.login.options) if draft.login else {}
    if draft.login and _refuse_module(draft, draft.login, mechanism):
        return
    for name in options:
        if name not in cloud.options:
            draft.add_warning(
                "sasl-login",
                f"{JAAS!r} has the option {name!r}, which has no effect on the login with {cloud.title}"
                f"{'' if name in cloud.unused else nearest(name, cloud.options)}",
                f"remove it; the options are {listing(cloud.options)}",
                property=JAAS,
            )
    _check_role(draft, options)
    if options.get("awsProfileName") and options.get("awsRoleArn"):
        draft.add_error(
            "sasl-login",
            f"{JAAS!r} has awsProfileName and awsRoleArn, but Java's login module uses only the profile then",
            "keep one of them; a profile can assume a role by itself (role_arn in AWS's configuration file)",
            property=JAAS,
        )
    provider = draft.java.get(PROVIDER)
    if mechanism == AWS_MECHANISM and provider is not None and provider.lower() != cloud.name:
        draft.add_error(
            "sasl-login",
            f"{PROVIDER!r} is {provider!r}, which does not fit 'sasl.mechanism' {mechanism!r}",
            "remove it, or write sasl.mechanism=OAUTHBEARER",
            property=PROVIDER,
        )
    unresolved = draft.is_unresolved(JAAS) and draft.login is None
    if _refuse_two_providers(draft) or unresolved:
        return
    options = {name: text for name, text in options.items() if name in cloud.options}
    options[SERVERS] = draft.value("bootstrap.servers") or ""
    _use_callback(draft, cloud.name, options, machine)


def _check_role(draft: SettingsDraft, options: Mapping[str, str]) -> None:
    """Record a warning for options of a role that is not named, and an error for an access key without its secret."""
    of_role = [name for name in _ROLE if name in options]
    if of_role and not options.get("awsRoleArn"):
        draft.add_warning(
            "sasl-login",
            f"{JAAS!r} has {listing(of_role)} without awsRoleArn, the role to assume, and so without effect",
            "add awsRoleArn, or remove them; access keys are set as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            property=JAAS,
        )
    elif (_ROLE[0] in options) != (_ROLE[1] in options):
        draft.add_error(
            "sasl-login",
            f"{JAAS!r} has only one of {_ROLE[0]} and {_ROLE[1]}",
            "write both, or neither",
            property=JAAS,
        )


def _translate_unsecured(draft: SettingsDraft, options: dict[str, str]) -> None:
    """Translate unsigned tokens, for tests: librdkafka creates them as Java's default handler does.

    Options that librdkafka does not have, and a missing principal, are recorded as errors.
    """
    names = {
        "unsecuredLoginStringClaim_sub": "principal",
        "unsecuredLoginPrincipalClaimName": "principalClaimName",
        "unsecuredLoginLifetimeSeconds": "lifeSeconds",
        "unsecuredLoginScopeClaimName": "scopeClaimName",
        "unsecuredLoginStringClaim_scope": "scope",
        "unsecuredLoginListClaim_scope": "scope",
    }
    parts = []
    for name, value in options.items():
        if name in names:
            listed = name == "unsecuredLoginListClaim_scope" and value[:1] and not value[0].isalnum()
            parts.append(f"{names[name]}={','.join(value[1:].split(value[0])) if listed else value}")
        elif name.startswith("unsecuredLoginExtension_"):
            parts.append(f"{_EXTENSION}{name.partition('_')[2]}={value}")
        else:
            draft.add_error(
                "sasl-login",
                f"{JAAS!r} has the option {name!r}, which librdkafka's unsecured tokens do not have",
                f"remove it; the options are {listing([*names, 'unsecuredLoginExtension_NAME'])}",
                property=JAAS,
            )
    if not any(part.startswith("principal=") for part in parts):
        draft.add_error(
            "sasl-login",
            f"{JAAS!r} has no unsecuredLoginStringClaim_sub",
            "add it, with the user's name",
            property=JAAS,
        )
    draft.set(f"{_OAUTH}config", " ".join(parts), JAAS)
    draft.set("enable.sasl.oauthbearer.unsecure.jwt", "true", JAAS)


def _translate_oidc(draft: SettingsDraft, options: dict[str, str]) -> None:
    """Translate a login with tokens of an identity provider; report a missing URL, and what librdkafka does not have.

    For the credentials, and the ``options`` of the login module, see `_translate_credentials`.
    """
    url = draft.value(_URL)
    if url is None:
        draft.add_error(
            "sasl-login",
            f"'sasl.mechanism' is OAUTHBEARER, but {_URL!r} is not set",
            f"write {_URL}=https://… of the identity provider",
            property="sasl.mechanism",
        )
    retriever = draft.java.get(f"{_OAUTH}jwt.retriever.class", "DefaultJwtRetriever").rpartition(".")[2]
    if retriever not in _GRANTS:
        draft.add_error(
            "client-setting-refused",
            f"'{_OAUTH}jwt.retriever.class' cannot be {retriever!r}: librdkafka has two ways to get a token",
            f"write one of {listing(_GRANTS)}, or {OVER_JVM}",
            property=f"{_OAUTH}jwt.retriever.class",
        )
    elif _GRANTS[retriever] != "client_credentials":
        draft.set(f"{_OAUTH}grant.type", _GRANTS[retriever], f"{_OAUTH}jwt.retriever.class")
    draft.set(f"{_OAUTH}method", "oidc", "sasl.mechanism")
    _translate_credentials(draft, options, needed=_GRANTS.get(retriever) == "client_credentials")
    for name, text in draft.java.items():
        rest = name.removeprefix(_OAUTH)
        if name in (_ID, _SECRET) or name == rest:
            continue
        if rest.endswith("seconds"):
            draft.set_number(LibrdkafkaProperty(name, 1 if "exp" in rest else 0, MAX_INT), text, name)
        elif (
            name in _RENAMED or rest in _SAME or (rest.startswith("assertion.") and not rest.startswith("assertion.t"))
        ):
            draft.set(_RENAMED.get(name, name), text, name)


def _translate_credentials(draft: SettingsDraft, options: dict[str, str], *, needed: bool) -> None:
    """Translate the client's id, secret and scope, from their settings or else from the login module's ``options``.

    If they are ``needed``, a missing id or secret is recorded as an error. The module's extensions are translated, too;
    a comma in one of their values is an error. For options that librdkafka does not have a warning is recorded.
    """
    for option, name in (("clientId", _ID), ("clientSecret", _SECRET), ("scope", f"{_OAUTH}scope")):
        target = _RENAMED.get(name, name)
        value = draft.java.get(name) or options.get(option)
        if value:
            draft.set(target, value, name if name in draft.java else JAAS)
        elif needed and option != "scope" and not draft.value(target):
            draft.add_error(
                "sasl-login",
                f"'sasl.mechanism' is OAUTHBEARER, but neither {name!r} nor the option {option} of {JAAS!r} is set",
                f"write {name}",
                property="sasl.mechanism",
            )
    pairs = [(k.removeprefix(_EXTENSION), v) for k, v in options.items() if k.startswith(_EXTENSION)]
    if pairs:
        if any("," in value and not has_reference(value) for _, value in pairs):
            draft.add_error(
                "sasl-login",
                f"{JAAS!r} has an extension with a comma in its value",
                f"remove it, or {OVER_JVM}",
                property=JAAS,
            )
        draft.set(f"{_OAUTH}extensions", ",".join(f"{k}={v}" for k, v in pairs), JAAS)
    for name in options:
        if name not in ("clientId", "clientSecret", "scope") and not name.startswith(_EXTENSION):
            draft.add_warning(
                "sasl-login",
                f"{JAAS!r} has the option {name!r}, which librdkafka does not have",
                "remove it",
                property=JAAS,
            )
