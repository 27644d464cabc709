"""A table's options under Flink's keys, as a ``WITH`` clause and a document hold them."""

from __future__ import annotations

from kdsl.codegen.model import CodegenError
from kdsl.codegen.secret import Placeholders
from kdsl.declare.definition import TableDef
from kdsl.errors import fail_on, listing


def with_options(table: TableDef, placeholders: Placeholders) -> dict[str, str]:
    """The options of a table.

    Args:
        table: The table.
        placeholders: Takes the place of secrets that are written out.

    Raises:
        ResolveError: The table was not read without problems.
        CodegenError: A name of a key column cannot stand in a list.
    """
    groups = [g for g in (table.options, table.key_format, table.value_format) if g is not None]
    fail_on([*table.problems, *(p for g in groups for p in g.problems(table.option_name))], table.name)
    found = {"connector": table.options.connector}
    found.update(table.options.to_strings())
    found.update({f"properties.{key}": text for key, text in placeholders.properties(table.properties).items()})
    if table.key_format is not None:
        found["key.format"] = table.key_format.identifier
        prefix = f"key.{table.key_format.identifier}."
        found.update({prefix + key: text for key, text in placeholders.texts(table.key_format).items()})
    if table.message_key and table.upserts is None:  # the primary key is that of upserts
        wrong = [name for name in table.message_key if ";" in name or name != name.strip() or not name]
        if wrong:
            raise CodegenError(
                f"{table.name}: 'key.fields' cannot name {listing(wrong)}; names stand there between ';'"
            )
        found["key.fields"] = ";".join(table.message_key)
    if table.value_format is not None:
        found["value.format"] = table.value_format.identifier
        prefix = f"value.{table.value_format.identifier}."
        found.update({prefix + key: text for key, text in placeholders.texts(table.value_format).items()})
    return found
