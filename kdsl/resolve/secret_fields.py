"""The options of a secrets service: ``dew.endpoint``, ``dew.csms.*`` (seeds 001 and 004)."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.declare.decrypted import PREFIX, PROVIDER, fields
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, nearest
from kdsl.formats import Direction
from kdsl.resolve.rule import problem
from kdsl.secrets import GROUP, providers


def decrypt_fields(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """The named options are client properties of the table, and a provider can be asked for them."""
    del direction
    options, named = table.options, fields(table.options)
    given = [a for a in ("dew_endpoint", "dew_secret", "dew_version") if getattr(options, a)]
    if not named:
        if given:
            yield problem(
                table,
                "decrypt-fields",
                f"{table.option_name(given[0])} is given, but no option is named whose value is a key there",
                f"write {table.setting('dew_fields', 'properties.sasl.jaas.config')}, or remove it",
                option=given[0],
            )
        return
    known = [f"{PREFIX}{name}" for name in table.properties]
    for name in named:
        if name not in known:
            yield problem(
                table,
                "decrypt-fields",
                f"{table.option_name('dew_fields')} names {name!r}, which is no client property of the table"
                f"{nearest(name, known)}",
                "name client properties, as properties.sasl.jaas.config; elsewhere write ${secret_values.KEY}",
                option="dew_fields",
            )
    if PROVIDER not in providers():
        yield problem(
            table,
            "decrypt-fields",
            f"{table.option_name('dew_fields')} asks the secrets provider {PROVIDER!r}, which is not installed",
            f"install a package that registers {PROVIDER!r} in the entry-point group {GROUP!r}, a function "
            "(key, endpoint, secret_name, version) -> secret; or write the secret as ${env:NAME} or ${file:PATH}",
            option="dew_fields",
        )
        return
    for attribute in ("dew_endpoint", "dew_secret"):
        if not getattr(options, attribute):
            yield problem(
                table,
                "decrypt-fields",
                f"{table.option_name('dew_fields')} is given without {table.option_name(attribute)}",
                f"write {table.option_name(attribute)}",
                option="dew_fields",
            )
