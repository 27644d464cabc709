"""Java's ``sasl.*`` settings, read together, as librdkafka's."""

from __future__ import annotations

import re

from kdsl.client.draft import JAAS, Draft
from kdsl.client.jaas import MODULES, Login
from kdsl.client.machine import Machine
from kdsl.client.model import MAX_INT, OVER_JVM, Target
from kdsl.errors import listing, nearest
from kdsl.secrets import has_reference

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_GOES_WITH = {
    "PlainLoginModule": "PLAIN",
    "ScramLoginModule": "SCRAM-SHA-256 or SCRAM-SHA-512",
    "OAuthBearerLoginModule": "OAUTHBEARER",
}
_GRANTS = {
    "DefaultJwtRetriever": "client_credentials",
    "ClientCredentialsJwtRetriever": "client_credentials",
    "JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}
_OAUTH = "sasl.oauthbearer."
_URL = f"{_OAUTH}token.endpoint.url"
_ID, _SECRET = f"{_OAUTH}client.credentials.client.id", f"{_OAUTH}client.credentials.client.secret"
_RENAMED = {
    _ID: f"{_OAUTH}client.id",
    _SECRET: f"{_OAUTH}client.secret",
    f"{_OAUTH}assertion.template.file": f"{_OAUTH}assertion.jwt.template.file",
}
_SAME = ("scope", "sub.claim.name", "token.endpoint.url")
_UNSECURED = "unsecuredLogin"
PROVIDER = f"{_OAUTH}token.provider"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_EXTENSION = "extension_"


def sasl(draft: Draft, machine: Machine | None = None) -> None:
    """Translate the settings of SASL."""
    names = [name for name in draft.given if name.startswith("sasl.")]
    protocol = draft.given.get("security.protocol", "PLAINTEXT")
    if draft.hidden("security.protocol"):
        return
    if not protocol.startswith("SASL_"):
        if names:
            draft.warn(
                "client-setting-unused",
                f"{', '.join(map(repr, names))} without effect, since 'security.protocol' is {protocol!r}",
                "write security.protocol=SASL_SSL or SASL_PLAINTEXT, or remove them",
            )
        return
    if draft.hidden("sasl.mechanism"):
        return
    mechanism = (draft.value("sasl.mechanism") or "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        _refused(draft, mechanism)
        return
    draft.put("sasl.mechanism", mechanism, "sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        _oauth(draft, machine)
        return
    _no_handler(draft)
    for name in names:
        if name.startswith(_OAUTH):
            message = f"{name!r} changes nothing, since 'sasl.mechanism' is {mechanism!r}"
            draft.warn("client-setting-unused", message, "remove it")
    _password(draft, mechanism)


def mechanism_is_missing(draft: Draft) -> bool:
    """Tell a login module that only goes with a mechanism that is not given; Kafka's default is GSSAPI."""
    module = draft.login.kind if draft.login else ""
    if draft.value("sasl.mechanism") is not None or module not in _GOES_WITH:
        return False
    draft.tell(
        "sasl-mechanism",
        f"{JAAS!r} names {module}, but 'sasl.mechanism' is not given, which means GSSAPI",
        f"write sasl.mechanism={_GOES_WITH[module]}",
    )
    return True


def _refused(draft: Draft, mechanism: str) -> None:
    given = draft.value("sasl.mechanism")
    if mechanism_is_missing(draft):
        return
    if mechanism == "GSSAPI":
        draft.tell(
            "sasl-gssapi",
            f"'sasl.mechanism' is GSSAPI{'' if given else ', the default'} (Kerberos), which the librdkafka in "
            "confluent-kafka's wheels is built without",
            f"{OVER_JVM}, or another mechanism: {listing(MECHANISMS)}",
        )
    else:
        draft.tell(
            "sasl-mechanism",
            f"'sasl.mechanism' is {mechanism!r}, which librdkafka does not have{nearest(mechanism, MECHANISMS)}",
            f"write one of {listing(MECHANISMS)}, or {OVER_JVM}",
        )


def _no_handler(draft: Draft) -> None:
    name = "sasl.login.callback.handler.class"
    if name in draft.given:
        draft.tell(
            "client-setting-refused", f"{name!r} cannot be set: it names a Java class", f"remove it, or {OVER_JVM}"
        )


def _wrong_module(draft: Draft, login: Login, mechanism: str) -> bool:
    """Tell a login module that the mechanism does not go with; Java's PLAIN takes the one of SCRAM too."""
    fitting = {
        "PLAIN": ("PlainLoginModule", "ScramLoginModule"),
        "OAUTHBEARER": ("OAuthBearerLoginModule",),
    }.get(mechanism, ("ScramLoginModule",))
    if login.kind in fitting:
        return False
    known = "" if login.kind in MODULES else nearest(login.kind, MODULES)
    draft.tell(
        "sasl-mechanism",
        f"{JAAS!r} names the login module {login.kind!r}{known}, which does not go with 'sasl.mechanism' {mechanism!r}",
        f"write {MODULES[fitting[0]]}",
    )
    return True


def _password(draft: Draft, mechanism: str) -> None:
    login = draft.login
    if login is None:
        if JAAS not in draft.given and not (draft.value("sasl.username") and draft.value("sasl.password")):
            told = any(problem.code in ("jaas", "secret-reference") for problem in draft.problems)
            if not told:
                module = MODULES["PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"]
                draft.tell(
                    "sasl-login",
                    f"'sasl.mechanism' is {mechanism!r}, but {JAAS!r} is not given",
                    f'write sasl.jaas.config={module} required username="…" password="${{env:NAME}}";',
                )
        return
    if _wrong_module(draft, login, mechanism):
        return
    if login.options.get("tokenauth", "").lower() == "true":
        draft.tell(
            "sasl-login",
            f"{JAAS!r} logs in with a delegation token (tokenauth), which librdkafka does not have",
            f"log in with a name and a password, or {OVER_JVM}",
        )
    for option, target in (("username", "sasl.username"), ("password", "sasl.password")):
        value = login.options.get(option)
        if value:
            draft.put(target, value, JAAS)
        elif not draft.value(target):
            draft.tell("sasl-login", f"{JAAS!r} has no {option}, or an empty one", f'add {option}="…"')


def _oauth(draft: Draft, machine: Machine | None) -> None:
    handler = draft.given.get("sasl.login.callback.handler.class", "OAuthBearerLoginCallbackHandler")
    if handler.rpartition(".")[2] not in (
        "OAuthBearerLoginCallbackHandler",
        "OAuthBearerUnsecuredLoginCallbackHandler",
    ):
        _no_handler(draft)
        return
    options = dict(draft.login.options) if draft.login else {}
    if draft.login and _wrong_module(draft, draft.login, "OAUTHBEARER"):
        return
    if draft.hidden(JAAS) and draft.login is None:
        return
    provider = draft.given.get(PROVIDER)
    url = draft.value(_URL) or ""
    if provider is not None or url.lower().startswith("file:"):
        _provided(draft, provider or url, options if provider else {}, machine)
    elif any(name.startswith(_UNSECURED) for name in options) or handler.endswith("UnsecuredLoginCallbackHandler"):
        _unsecured(draft, options)
    elif draft.value(f"{_OAUTH}config") is None and draft.value(f"{_OAUTH}metadata.authentication.type") is None:
        _oidc(draft, options)


def _provided(draft: Draft, provider: str, options: dict[str, str], machine: Machine | None) -> None:
    """Tokens of a Python function, or of a file: this process serves them to librdkafka."""
    if not provider.lower().startswith("file:") and not _FUNCTION.fullmatch(provider) and not has_reference(provider):
        draft.tell(
            "client-setting-value",
            f"{PROVIDER!r} has the value {provider!r}, which names no function",
            "write package.module:function",
        )
        return
    both = [name for name in (_URL, _ID, _SECRET) if name in draft.given and PROVIDER in draft.given]
    if both:
        draft.tell(
            "sasl-login",
            f"{PROVIDER!r} and {both[0]!r} both say where tokens come from",
            "keep one of the two",
        )
        return
    served = draft.tried(lambda: machine.tokens(provider, options)) if machine is not None else None
    if served is not None:
        draft.settings.update(
            {
                f"{_OAUTH}method": "oidc",
                _URL: served.url,
                f"{_OAUTH}client.id": served.id,
                f"{_OAUTH}client.secret": served.secret,
            }
        )


def _unsecured(draft: Draft, options: dict[str, str]) -> None:
    """Tokens that nobody signed, for tests: librdkafka makes them as Java's default handler does."""
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
            draft.tell(
                "sasl-login",
                f"{JAAS!r} has the option {name!r}, which librdkafka's unsecured tokens do not have",
                f"remove it; there are {listing([*names, 'unsecuredLoginExtension_NAME'])}",
            )
    if not any(part.startswith("principal=") for part in parts):
        draft.tell("sasl-login", f"{JAAS!r} has no unsecuredLoginStringClaim_sub", "add it, with the user's name")
    draft.put(f"{_OAUTH}config", " ".join(parts), JAAS)
    draft.put("enable.sasl.oauthbearer.unsecure.jwt", "true", JAAS)


def _oidc(draft: Draft, options: dict[str, str]) -> None:
    url = draft.value(_URL)
    if url is None:
        draft.tell(
            "sasl-login",
            f"'sasl.mechanism' is OAUTHBEARER, but {_URL!r} is not given",
            f"write {_URL}=https://… of the identity provider",
        )
    retriever = draft.given.get(f"{_OAUTH}jwt.retriever.class", "DefaultJwtRetriever").rpartition(".")[2]
    if retriever not in _GRANTS:
        draft.tell(
            "client-setting-refused",
            f"'{_OAUTH}jwt.retriever.class' cannot be {retriever!r}: librdkafka has two ways to get a token",
            f"write one of {listing(_GRANTS)}, or {OVER_JVM}",
        )
    elif _GRANTS[retriever] != "client_credentials":
        draft.put(f"{_OAUTH}grant.type", _GRANTS[retriever], f"{_OAUTH}jwt.retriever.class")
    draft.put(f"{_OAUTH}method", "oidc", "sasl.mechanism")
    _credentials(draft, options, needed=_GRANTS.get(retriever) == "client_credentials")
    for name, text in draft.given.items():
        rest = name.removeprefix(_OAUTH)
        if name in (_ID, _SECRET) or name == rest:
            continue
        if rest.endswith("seconds"):
            draft.put_number(Target(name, 1 if "exp" in rest else 0, MAX_INT), text, name)
        elif (
            name in _RENAMED or rest in _SAME or (rest.startswith("assertion.") and not rest.startswith("assertion.t"))
        ):
            draft.put(_RENAMED.get(name, name), text, name)


def _credentials(draft: Draft, options: dict[str, str], *, needed: bool) -> None:
    """The client's id, secret and scope, from their own settings or from the options of the login module."""
    for option, name in (("clientId", _ID), ("clientSecret", _SECRET), ("scope", f"{_OAUTH}scope")):
        target = _RENAMED.get(name, name)
        value = draft.given.get(name) or options.get(option)
        if value:
            draft.put(target, value, name if name in draft.given else JAAS)
        elif needed and option != "scope" and not draft.value(target):
            draft.tell(
                "sasl-login",
                f"'sasl.mechanism' is OAUTHBEARER, but neither {name!r} nor the option {option} of {JAAS!r} is given",
                f"write {name}",
            )
    pairs = [(k.removeprefix(_EXTENSION), v) for k, v in options.items() if k.startswith(_EXTENSION)]
    if pairs:
        if any("," in value and not has_reference(value) for _, value in pairs):
            draft.tell(
                "sasl-login", f"{JAAS!r} has an extension with a comma in its value", f"remove it, or {OVER_JVM}"
            )
        draft.put(f"{_OAUTH}extensions", ",".join(f"{k}={v}" for k, v in pairs), JAAS)
    for name in options:
        if name not in ("clientId", "clientSecret", "scope") and not name.startswith(_EXTENSION):
            draft.warn("sasl-login", f"{JAAS!r} has the option {name!r}, which librdkafka does not have", "remove it")
