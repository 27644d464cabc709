"""Tables as configuration: plain classes for code, and YAML documents read into them through cattrs.

Options have Flink's keys, and types are written in Flink's SQL; the resulting `TableDef` equals that of a table class.
Errors locate mistakes in the document by path and line.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.declare.definition import ColumnDef, Expression, Role, TableDef, WatermarkDef
from kdsl.declare.with_clause import read_with_clause
from kdsl.errors import Problem, Where
from kdsl.options import Spelling
from kdsl.types.model import STRING, DataType
from kdsl.types.parse import TypeSyntaxError, parse_type

Scalar = str | int | float | bool


@attrs.frozen(kw_only=True)
class ColumnConfig:
    """A column of a document.

    Attributes:
        name: The column's name.
        type: Its type in Flink's SQL spelling, as ``DECIMAL(10, 2) NOT NULL``.
        metadata: The metadata key that it shows; ``true`` for the column's own name.
        virtual: For a metadata column: read only.
        computed: The SQL expression of a computed column.
        comment: What it means.
    """

    name: str
    type: str
    metadata: str | bool = False
    virtual: bool = False
    computed: str | None = None
    comment: str | None = None


@attrs.frozen(kw_only=True)
class WatermarkConfig:
    """The watermark of a document: the column of event time, and how late a row may be ('5 seconds')."""

    column: str
    delay: str = "0 s"


@attrs.frozen(kw_only=True)
class TableConfig:
    """A table of a document.

    Attributes:
        name: The table's name.
        columns: The columns in their order.
        options: The connector's, formats' and client's options under Flink's keys, as in a ``WITH`` clause.
        primary_key: The columns of the primary key.
        watermark: The watermark.
        comment: What the table means.
    """

    name: str
    columns: list[ColumnConfig]
    options: dict[str, Scalar]
    primary_key: list[str] = attrs.field(factory=list)
    watermark: WatermarkConfig | None = None
    comment: str | None = None

    def definition(self, where: Where | None = None, lines: Mapping[str, int] | None = None) -> TableDef:
        """The table that this configuration declares; mistakes in it are its ``problems``.

        Args:
            where: The location of the table; its path is the prefix of all others.
            lines: The line of each path of the document.
        """
        return _Builder(self, where or Where(table=self.name), lines or {}).build()


class _Builder:
    def __init__(self, config: TableConfig, where: Where, lines: Mapping[str, int]) -> None:
        self.config, self.where, self.lines = config, where, lines
        self.problems: list[Problem] = []

    def locate(self, path: str, column: str | None = None) -> Where:
        """Return the location of a path, relative to the table, in the table's document.

        The location names the path only if that of the table has one, and the line only if it is known.
        """
        full = f"{self.where.path or '$'}{path}"
        return Where(self.config.name, column, self.where.file, self.lines.get(full), full if self.where.path else None)

    def build(self) -> TableDef:
        """Build the definition of the table; mistakes are not raised, but listed in its ``problems``."""
        config = self.config
        texts = {key: str(v).lower() if isinstance(v, bool) else str(v) for key, v in config.options.items()}
        locations = {key: self.locate(f".options[{key!r}]") for key in texts}
        clause = read_with_clause(texts, locations)
        columns = tuple(self.column(i, c) for i, c in enumerate(config.columns))
        watermarks: tuple[WatermarkDef, ...] = ()
        if config.watermark is not None:
            where = self.locate(".watermark", config.watermark.column)
            watermarks = (WatermarkDef(config.watermark.column, config.watermark.delay, where),)
        return TableDef(
            name=config.name,
            columns=columns,
            options=clause.options,
            key_format=clause.key_format,
            value_format=clause.value_format,
            key_fields=clause.key_fields or (),
            primary_key=tuple(config.primary_key),
            watermarks=watermarks,
            rules=clause.rules,
            properties=clause.properties,
            comment=config.comment,
            spelling=Spelling.YAML,
            where=self.where,
            problems=(*self.problems, *clause.problems),
            unread=clause.unread,
            option_locations=locations,
        )

    def column(self, index: int, config: ColumnConfig) -> ColumnDef:
        """Build a column; mistakes are recorded as problems, and a type that cannot be read becomes STRING."""
        where = self.locate(f".columns[{index}]", config.name)
        role: Role = "computed" if config.computed is not None else "metadata" if config.metadata else "physical"
        if config.computed is not None and config.metadata:
            message = "a column is computed or metadata, not both"
            self.problems.append(Problem("column-role", message, "remove 'computed' or 'metadata'", where))
        if config.computed is not None and not config.computed.strip():
            self.problems.append(Problem("computed", "the expression is empty", "write SQL, such as amount * 2", where))
        if config.virtual and role != "metadata":
            message = f"only a metadata column can be virtual, but this one is {role}"
            self.problems.append(Problem("column-virtual", message, "remove 'virtual', or add 'metadata'", where))
        kind = self.type(config, self.locate(f".columns[{index}].type", config.name))
        return ColumnDef(
            name=config.name,
            type=kind or STRING,
            role=role,
            metadata_key=config.metadata if isinstance(config.metadata, str) else None,
            virtual=config.virtual,
            expression=None if config.computed is None else Expression(config.computed),
            comment=config.comment,
            type_known=kind is not None,
            where=where,
        )

    def type(self, config: ColumnConfig, where: Where) -> DataType | None:
        """Parse the type of a column; if it cannot be read, record a problem and return None."""
        try:
            return parse_type(config.type)
        except TypeSyntaxError as e:
            fix = "write a type in SQL, such as DECIMAL(10, 2) or ROW<a INT, b ARRAY<STRING>>"
            self.problems.append(Problem("type-syntax", str(e), fix, where))
            return None
