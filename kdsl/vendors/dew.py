"""Options of Huawei's Data Encryption Workshop: client properties whose values are keys of a secrets service.

The value of each client property that the option ``dew.csms.decrypt.fields`` names becomes a reference to the provider
``dew``, and is resolved like any other reference. If that provider is not installed, it becomes a ``secret_values``
reference, and the resolver reports what to install.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlencode

from kdsl.client_settings.properties import Properties
from kdsl.declare.added_options import AddedOptions, OptionNames
from kdsl.errors import Problem, nearest
from kdsl.options import option
from kdsl.secrets import PROVIDERS, Secret, has_reference

PROVIDER = "dew"
_PREFIX = "properties."
_CODE = "decrypt-fields"


def _check_string(value: str | None) -> str | None:
    """Return what to do about an empty string; None if it is right."""
    return "write a string, or remove the option" if value == "" else None


class DewOptions(AddedOptions):
    """The options of the secrets service."""

    dew_endpoint: str | None = option(
        "dew.endpoint",
        "The address of the service that the secrets provider 'dew' asks.",
        default=None,
        check=_check_string,
    )
    dew_secret: str | None = option(
        "dew.csms.secretName", "The secret of the service that holds the keys.", default=None, check=_check_string
    )
    dew_fields: str | None = option(
        "dew.csms.decrypt.fields",
        "The client properties, such as 'properties.sasl.jaas.config', whose values are keys at the secrets provider "
        "'dew'; separated by ';' or ','.",
        default=None,
        check=_check_string,
    )
    dew_version: str | None = option(
        "dew.csms.version", "The version of the secret; the newest by default.", default=None, check=_check_string
    )

    def list_properties(self) -> tuple[str, ...]:
        """The properties whose values are names of entries in the secrets service; nothing is looked up or checked."""
        return tuple(part.strip() for part in re.split(r"[;,]", self.dew_fields or "") if part.strip())

    def change_properties(self, properties: Properties) -> Properties:
        """Replace the values that name entries of the secrets service by references to these entries.

        They refer to the provider ``dew``, or to ``secret_values`` if it is not installed. A value that is empty,
        contains a reference or cannot be written as one stays. Names that do not begin with ``properties.`` are
        ignored.
        """
        named = {name.removeprefix(_PREFIX) for name in self.list_properties() if name.startswith(_PREFIX)}
        if not named:
            return properties
        arguments = {"endpoint": self.dew_endpoint, "secret_name": self.dew_secret, "version": self.dew_version}
        query = urlencode({name: value for name, value in arguments.items() if value})
        installed = PROVIDER in PROVIDERS.find_all()

        def reference(value: str | Secret) -> str | Secret:
            key = value.reveal() if isinstance(value, Secret) else value
            if not key or has_reference(key) or re.search(r"[{}?]", key):
                return value
            return f"${{{PROVIDER}:{key}?{query}}}" if installed else f"${{secret_values.{key}}}"

        return Properties({name: reference(value) if name in named else value for name, value in properties.items()})

    def check_table(self, table: OptionNames) -> Iterable[Problem]:
        """Report options without effect, that name missing client properties, or lack a provider or a service."""
        named = self.list_properties()
        service_options = [a for a in ("dew_endpoint", "dew_secret", "dew_version") if getattr(self, a)]
        if not named:
            if service_options:
                yield Problem(
                    _CODE,
                    f"{table.option_name(service_options[0])} has no effect, because no client property is named whose "
                    "value is a key of that service",
                    f"write {table.setting('dew_fields', 'properties.sasl.jaas.config')}, or remove it",
                    option=service_options[0],
                )
            return
        known = [f"{_PREFIX}{name}" for name in table.properties]
        fields = table.option_name("dew_fields")
        for name in named:
            if name not in known:
                yield Problem(
                    _CODE,
                    f"{fields} names {name!r}, which is not a client property of the table{nearest(name, known)}",
                    "name client properties, such as properties.sasl.jaas.config; elsewhere write ${secret_values.KEY}",
                    option="dew_fields",
                )
        if PROVIDER not in PROVIDERS.find_all():
            yield Problem(
                _CODE,
                f"{fields} needs the secrets provider {PROVIDER!r}, which is not installed",
                f"install a package that registers {PROVIDER!r} in the entry-point group {PROVIDERS.name!r}, a "
                "function (key, endpoint, secret_name, version) -> secret; or write the secret as ${env:NAME} or "
                "${file:PATH}",
                option="dew_fields",
            )
            return
        for attribute in ("dew_endpoint", "dew_secret"):
            if not getattr(self, attribute):
                name = table.option_name(attribute)
                yield Problem(_CODE, f"{fields} is set without {name}", f"set {name}", option="dew_fields")
