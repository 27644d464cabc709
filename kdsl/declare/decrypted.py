"""Options whose values are keys at a secrets provider: ``dew.csms.decrypt.fields`` of seeds 001 and 004.

The value of each client property that is named there becomes a reference to the provider ``dew``, so that from then on
it is like any other reference. Without that provider it is one to any provider, and the resolver says what to install.
"""

from __future__ import annotations

import re
from urllib.parse import urlencode

from kdsl.client.properties import Properties
from kdsl.declare.connector import KafkaOptions
from kdsl.secrets import Secret, has_reference, providers

PROVIDER = "dew"
PREFIX = "properties."


def fields(options: KafkaOptions) -> tuple[str, ...]:
    """The options that are named, separated by ``;`` or ``,``."""
    return tuple(part.strip() for part in re.split(r"[;,]", options.dew_fields or "") if part.strip())


def decrypted(properties: Properties, options: KafkaOptions) -> Properties:
    """Client properties with references in the place of keys.

    Args:
        properties: The client properties as declared.
        options: The table's options.
    """
    named = {name.removeprefix(PREFIX) for name in fields(options) if name.startswith(PREFIX)}
    if not named:
        return properties
    told = {"endpoint": options.dew_endpoint, "secret_name": options.dew_secret, "version": options.dew_version}
    query = urlencode({name: text for name, text in told.items() if text})
    installed = PROVIDER in providers()

    def reference(value: str | Secret) -> str | Secret:
        key = value.reveal() if isinstance(value, Secret) else value
        if not key or has_reference(key) or re.search(r"[{}?]", key):
            return value
        return f"${{{PROVIDER}:{key}?{query}}}" if installed else f"${{secret_values.{key}}}"

    return Properties({name: reference(value) if name in named else value for name, value in properties.items()})
