"""Tokens of Microsoft Entra, for Azure Event Hubs: those of azure-identity's default credential.

The default credential tries the environment, a workload identity, a managed identity and developers' tools, in that
order: https://learn.microsoft.com/python/api/azure-identity/azure.identity.defaultazurecredential
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from kdsl.client_settings.bootstrap import AddressError, parse_address
from kdsl.client_settings.cloud_logins import SERVERS, explain_failure, import_library
from kdsl.client_settings.token_errors import TokenError

NAME = "entra"


def provide_token(**options: str) -> str:
    """Return a token, from azure-identity's cache unless it expires soon.

    Args:
        options: ``scope``, by default that of the first broker's namespace; ``clientId`` of a managed or workload
            identity; and ``servers``.
    """
    scope = options.get("scope") or _namespace_scope(options.get(SERVERS, ""))
    try:
        return str(_credential(os.getpid(), options.get("clientId")).get_token(scope).token)
    except TokenError:
        raise
    except Exception as e:  # noqa: BLE001  # those of azure-core, msal and requests have no common base
        raise explain_failure(NAME, e, options) from None


def _namespace_scope(servers: str) -> str:
    """Return the scope of the namespace that the first of ``bootstrap.servers`` names."""
    try:
        return f"https://{parse_address(servers.split(',')[0]).host}/.default"
    except AddressError as e:
        raise TokenError(f"the scope of Microsoft Entra is not known: {e}; write the option scope") from None


@lru_cache(maxsize=8)
def _credential(_: int, client: str | None) -> Any:
    """Create the default credential, once in each process for each identity."""
    (azure,) = import_library(NAME, "azure.identity")
    own = {} if client is None else {"managed_identity_client_id": client, "workload_identity_client_id": client}
    return azure.DefaultAzureCredential(**own)
