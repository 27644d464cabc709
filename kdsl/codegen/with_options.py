"""A table's options under Flink's keys, for a ``WITH`` clause or a YAML document."""

from __future__ import annotations

from kdsl.codegen.secret import Placeholders
from kdsl.declare.definition import TableDef
from kdsl.declare.row_rules import rule_options
from kdsl.errors import fail_on, listing
from kdsl.schemas.model import CodegenError


def with_clause_options(table: TableDef, placeholders: Placeholders) -> dict[str, str]:
    """Return the options of a table, under Flink's keys, for a ``WITH`` clause or a YAML document.

    Plain-text secrets are replaced, and noted in ``placeholders``. Options with their defaults are left out.
    """
    groups = [g for g in (table.options, table.key_format, table.value_format) if g is not None]
    fail_on([*table.problems, *(p for g in groups for p in g.problems(table.option_name))], table.name)
    options = {"connector": table.options.connector}
    options.update(placeholders.to_strings(table.options))
    options.update(rule_options(table.rules))
    options.update({f"properties.{key}": value for key, value in placeholders.properties(table.properties).items()})
    if table.key_format is not None:
        options["key.format"] = table.key_format.identifier
        prefix = f"key.{table.key_format.identifier}."
        options.update({prefix + key: value for key, value in placeholders.to_strings(table.key_format).items()})
    if table.message_key and table.upserts is None:  # the key of an upsert table is its primary key
        wrong = [name for name in table.message_key if ";" in name or name != name.strip() or not name]
        if wrong:
            raise CodegenError(
                f"{table.name}: 'key.fields' cannot name {listing(wrong)}, because ';' and blanks separate names "
                "there; rename the column, or declare an upsert table, which names its key in PRIMARY KEY"
            )
        options["key.fields"] = ";".join(table.message_key)
    if table.value_format is not None:
        options["value.format"] = table.value_format.identifier
        prefix = f"value.{table.value_format.identifier}."
        options.update({prefix + key: value for key, value in placeholders.to_strings(table.value_format).items()})
    return options
