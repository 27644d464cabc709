"""The logins of clouds by their usual names: what asks for one, and the options that it has.

A cloud's login is OAUTHBEARER with tokens that a library of the cloud creates in this process. A declaration asks for
it by its name, as ``sasl.oauthbearer.token.provider``, or as Java's clients do, by a mechanism or a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import attrs

from kdsl.client_settings.token_errors import TokenError
from kdsl.secrets.hiding import hide_secrets
from kdsl.secrets.jaas import is_secret_option

AWS_MECHANISM = "AWS_MSK_IAM"
LOGIN_HANDLER, CLIENT_HANDLER = "sasl.login.callback.handler.class", "sasl.client.callback.handler.class"
SERVERS = "servers"
"""The name under which the functions of clouds get ``bootstrap.servers``, beside the options of the login module."""


@attrs.frozen
class CloudLogin:
    """The login of a cloud.

    Attributes:
        name: Its name as ``sasl.oauthbearer.token.provider``.
        title: Its name in messages.
        extra: The extra of kdsl that installs its library.
        function: ``module:function``, which creates its tokens.
        java: What its Java library calls its callback handlers.
        jar: The Maven coordinate of that library, without a version; empty if there is none.
        options: The options of the login module that it understands.
        unused: Options of Java's login module that have no effect here.
        credentials: Where its credentials come from, for messages.
        advice: What to check if the brokers do not accept its token.
    """

    name: str
    title: str
    extra: str
    function: str
    java: tuple[str, ...]
    jar: str
    options: tuple[str, ...]
    unused: tuple[str, ...]
    credentials: str
    advice: str


_AWS = CloudLogin(
    "aws_msk_iam",
    "Amazon MSK's IAM",
    "aws",
    "kdsl.client_settings.aws_tokens:provide_token",
    (
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
    ),
    "software.amazon.msk:aws-msk-iam-auth",
    (
        "awsProfileName",
        "awsRoleArn",
        "awsRoleSessionName",
        "awsRoleExternalId",
        "awsRoleAccessKeyId",
        "awsRoleSecretAccessKey",
        "awsRoleSessionToken",
        "awsStsRegion",
    ),
    ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"),
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role",
    "check that its policy allows kafka-cluster:Connect on this cluster, that the region and this machine's clock are "
    "right, and that bootstrap.servers has the port of IAM (9098, or 9198 from outside)",
)
_ENTRA = CloudLogin(
    "entra",
    "Microsoft Entra",
    "azure",
    "kdsl.client_settings.entra_tokens:provide_token",
    (),
    "",
    ("scope", "clientId"),
    (),
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or give this machine a managed identity",
    "check that the identity has a role for the namespace, such as Azure Event Hubs Data Owner, and that the scope is "
    "that of the namespace",
)
_GCP = CloudLogin(
    "gcp",
    "Google Cloud",
    "gcp",
    "kdsl.client_settings.gcp_tokens:provide_token",
    ("com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",),
    "com.google.cloud.hosted.kafka:managed-kafka-auth-login-handler",
    ("principal",),
    (),
    "set GOOGLE_APPLICATION_CREDENTIALS, or give this machine a service account",
    "check that the service account has the role roles/managedkafka.client in the cluster's project",
)
CLOUDS: Mapping[str, CloudLogin] = MappingProxyType({login.name: login for login in (_AWS, _ENTRA, _GCP)})
"""The logins by their names."""


def find_cloud_login(java: Mapping[str, str], provider_setting: str) -> CloudLogin | None:
    """Find the cloud whose login the settings of a client ask for; None if they ask for another login.

    Args:
        java: The settings by Java's names.
        provider_setting: The setting that names a provider of tokens.
    """
    if (provider := java.get(provider_setting)) is not None:
        return CLOUDS.get(provider.lower())
    if java.get("sasl.mechanism", "").upper() == AWS_MECHANISM:
        return _AWS
    handler = java.get(LOGIN_HANDLER) or java.get(CLIENT_HANDLER) or ""
    return next((login for login in CLOUDS.values() if is_handler(login, handler)), None)


def is_handler(login: CloudLogin, handler: str) -> bool:
    """Whether a class is a callback handler of a cloud's Java library; its package may be a shaded one."""
    return any(handler == name or handler.endswith(f".{name}") for name in login.java)


def import_library(login: str, *modules: str) -> list[Any]:
    """Import modules of a cloud's library.

    Args:
        login: The name of the login.
        modules: The names of the modules.
    """
    try:
        return [import_module(name) for name in modules]
    except ImportError as e:
        cloud = CLOUDS[login]
        raise TokenError(
            f"the login with {cloud.title} needs the package {e.name}; install 'kdsl-kafka[{cloud.extra}]', on the "
            "driver and on every executor"
        ) from None


def explain_failure(login: str, error: Exception, options: Mapping[str, str]) -> TokenError:
    """Return the error that a cloud's library created no token, with its first line and without the secrets of options.

    Of the line, 300 characters at most.

    Args:
        login: The name of the login.
        error: What the library raised.
        options: The options of the login module.
    """
    cloud = CLOUDS[login]
    lines: Iterable[str] = filter(None, map(str.strip, str(error).splitlines()))
    secrets = [value for name, value in options.items() if is_secret_option(name)]
    reason = hide_secrets(next(iter(lines), ""), secrets)[:300].rstrip(".")
    return TokenError(
        f"{cloud.title} returned no credentials ({type(error).__name__}{': ' if reason else ''}{reason}); "
        f"{cloud.credentials}"
    )
