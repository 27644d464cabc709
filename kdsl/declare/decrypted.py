"""Client properties whose values are keys of a secrets service: the option ``dew.csms.decrypt.fields``.

The value of each client property that the option names becomes a reference to the provider ``dew``, and is resolved
like any other reference. If that provider is not installed, it becomes a ``secret_values`` reference, and the resolver
reports what to install.
"""

from __future__ import annotations

import re
from urllib.parse import urlencode

from kdsl.client_settings.properties import Properties
from kdsl.declare.connector import KafkaOptions
from kdsl.secrets import PROVIDERS, Secret, has_reference

PROVIDER = "dew"
PREFIX = "properties."


def secret_property_names(options: KafkaOptions) -> tuple[str, ...]:
    """The properties in the option ``dew.csms.decrypt.fields``, whose values are names of entries in a secrets service.

    The option separates them by ``;`` or ``,``. Nothing is looked up or checked; empty without the option.
    """
    return tuple(part.strip() for part in re.split(r"[;,]", options.dew_fields or "") if part.strip())


def with_secret_references(properties: Properties, options: KafkaOptions) -> Properties:
    """Client properties in which the values that name entries of a secrets service are references to these entries.

    They are those of the properties that the options name, and refer to the provider ``dew``, or to ``secret_values``
    if it is not installed. A value that is empty, contains a reference or cannot be written as one stays. Names that do
    not begin with ``properties.`` are ignored.

    Args:
        properties: The client properties as declared; not changed.
        options: The table's options.
    """
    named = {name.removeprefix(PREFIX) for name in secret_property_names(options) if name.startswith(PREFIX)}
    if not named:
        return properties
    arguments = {"endpoint": options.dew_endpoint, "secret_name": options.dew_secret, "version": options.dew_version}
    query = urlencode({name: value for name, value in arguments.items() if value})
    installed = PROVIDER in PROVIDERS.find_all()

    def reference(value: str | Secret) -> str | Secret:
        key = value.reveal() if isinstance(value, Secret) else value
        if not key or has_reference(key) or re.search(r"[{}?]", key):
            return value
        return f"${{{PROVIDER}:{key}?{query}}}" if installed else f"${{secret_values.{key}}}"

    return Properties({name: reference(value) if name in named else value for name, value in properties.items()})
