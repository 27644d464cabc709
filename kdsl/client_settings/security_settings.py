"""The rows of the settings table that concern TLS and SASL, which `tls` and `sasl` of this package read together."""

from __future__ import annotations

from functools import partial

from kdsl.client_settings.model import OVER_JVM, Setting, rows, words

_TLS = "it steers Java's TLS; librdkafka has OpenSSL's"
_LOGIN = "it steers Java's logins; librdkafka has its own"
_BROKER = "it steers how a broker checks tokens"
_GSSAPI = "it belongs to GSSAPI (Kerberos)"
_CLASS = "it names a Java class"
_JVM = f"remove it, or {OVER_JVM}"
_SAME = "the same"

# All clients have these settings.
_derive = partial(rows, "derived", "cpa")
_drop = partial(rows, "dropped", "cpa")
_refuse = partial(rows, "refused", "cpa")

SECURITY: tuple[Setting, ...] = (
    words("security.protocol", "cpa", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    *_derive("ssl.truststore.location", "PEM: `ssl.ca.location`; a JKS or PKCS12 store is made PEM, `ssl.ca.pem`"),
    *_derive("ssl.truststore.certificates", "`ssl.ca.pem`"),
    *_derive("ssl.truststore.password", "the password of a JKS or PKCS12 store"),
    *_derive(
        "ssl.truststore.type ssl.keystore.type",
        "JKS where it is not given; a file that ends in .p12 or .pfx is PKCS12",
        values="JKS PKCS12 PEM",
    ),
    *_derive(
        "ssl.keystore.location",
        "PEM: `ssl.key.location` and `ssl.certificate.location`, both with this file; a JKS or PKCS12 store is "
        "converted to PEM, `ssl.key.pem` and `ssl.certificate.pem` or, for a chain, `ssl.certificate.location`",
    ),
    *_derive("ssl.keystore.key", "`ssl.key.pem`"),
    *_derive("ssl.keystore.certificate.chain", "`ssl.certificate.pem`"),
    *_derive("ssl.keystore.password", "the password of a JKS or PKCS12 store"),
    *_derive("ssl.key.password", "the same for a PEM key; also for a key in a JKS store"),
    *_derive("ssl.endpoint.identification.algorithm", "https, or empty, which becomes `none`"),
    *_derive("ssl.cipher.suites", "separated by colons; OpenSSL always enables the suites of TLS 1.3", "list"),
    *_derive(
        "ssl.enabled.protocols ssl.protocol",
        "TLSv1.2 and TLSv1.3 are on; TLSv1.3 alone is refused, because OpenSSL would still accept TLSv1.2",
        "list",
    ),
    *_drop("ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.provider ssl.secure.random.implementation", _TLS),
    *_refuse("ssl.engine.factory.class", _CLASS, "class", instead=_JVM),
    *_refuse("security.providers", _CLASS, instead=_JVM),
    *_derive(
        "sasl.mechanism",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER; AWS_MSK_IAM becomes OAUTHBEARER; a table with GSSAPI "
        "goes through Spark's own connector: the wheels of confluent-kafka have no Kerberos",
    ),
    *_derive(
        "sasl.jaas.config",
        "`sasl.username` and `sasl.password`, or `sasl.oauthbearer.*`; a shaded login module counts as Kafka's",
    ),
    *_derive(
        "sasl.login.callback.handler.class",
        "Kafka's OAuthBearerLoginCallbackHandler is `sasl.oauthbearer.method=oidc`; IAMOAuthBearerLoginCallbackHandler "
        "(Amazon MSK) and GcpLoginCallbackHandler (Google Cloud) are kdsl's logins of these clouds; others are refused",
        "class",
    ),
    *_refuse("sasl.login.class", _CLASS, "class", instead=_JVM),
    *_derive(
        "sasl.client.callback.handler.class",
        "that of a cloud's login, as in `sasl.login.callback.handler.class`; others are refused",
        "class",
    ),
    *_derive(
        "sasl.oauthbearer.jwt.retriever.class",
        "ClientCredentialsJwtRetriever and JwtBearerJwtRetriever are the two values of `sasl.oauthbearer.grant.type`; "
        "others are refused",
        "class",
    ),
    *_derive("sasl.oauthbearer.token.endpoint.url", "the same; the token in a file: is read again when it expires"),
    *_derive(
        "sasl.oauthbearer.token.provider",
        "kdsl's own: a cloud's login (`aws_msk_iam`, `entra`, `gcp`), or a Python function that gives tokens, as "
        "`package.module:function`; for librdkafka only",
    ),
    *_derive("sasl.oauthbearer.client.credentials.client.id", "`sasl.oauthbearer.client.id`"),
    *_derive("sasl.oauthbearer.client.credentials.client.secret", "`sasl.oauthbearer.client.secret`"),
    *_derive(
        "sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.assertion.claim.aud "
        "sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file "
        "sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase",
        _SAME,
    ),
    *_derive("sasl.oauthbearer.assertion.algorithm", _SAME, values="RS256 ES256"),
    *_derive(
        "sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.nbf.seconds",
        _SAME,
        "int",
        java=(0, 86_400),
    ),
    *_derive("sasl.oauthbearer.assertion.claim.jti.include", _SAME, "bool"),
    *_derive("sasl.oauthbearer.assertion.template.file", "`sasl.oauthbearer.assertion.jwt.template.file`"),
    *_drop("sasl.oauthbearer.header.urlencode", "librdkafka sends the client id and the secret unencoded"),
    *_drop(
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer "
        "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.scope.claim.name sasl.oauthbearer.jwt.validator.class",
        _BROKER,
    ),
    *_drop(
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter "
        "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms",
        _LOGIN,
    ),
    *_drop(
        "sasl.kerberos.service.name sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin "
        "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor",
        _GSSAPI,
    ),
)
