"""The formats of change data in JSON: ``debezium-json``, ``canal-json``, ``maxwell-json`` and ``ogg-json``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

import attrs

from kdsl.errors import Problem
from kdsl.formats import (
    ALONE,
    MAX_COLUMNS,
    READ_ONLY,
    Decoder,
    Direction,
    Encoder,
    Observer,
    TableChangeEncoder,
    TableId,
    Use,
)
from kdsl.name_patterns import TOPIC_FIX, PatternError, compile_pattern
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._connect.by_schema import SchemaReadingDecoder
from kdsl_formats._connect.wires import Modes
from kdsl_formats._debezium import DebeziumFormat
from kdsl_formats.cdc_json.change_messages import (
    CanalMessages,
    DebeziumMessages,
    begin_with_schema,
    describe_source,
    describe_table,
)
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.dialects import CANAL, DEBEZIUM, MAXWELL, OGG, Dialect
from kdsl_formats.cdc_json.encoder import ChangeEncoder
from kdsl_formats.cdc_json.metadata import metadata_type
from kdsl_formats.cdc_json.observer import ChangeObserver
from kdsl_formats.cdc_json.reference_decoder import ChangeReadingRules, Include
from kdsl_formats.cdc_json.reference_observer import ChangeReader, DeclaredTypes, jdbc_code
from kdsl_formats.cdc_json.source_types import MySqlTypes, type_of_jdbc
from kdsl_formats.json.encoder import JsonEncoder
from kdsl_formats.json.format import ConnectJson, JsonFormat
from kdsl_formats.json.inference import InferenceOptions, InferenceRules, parse_fixed_types
from kdsl_formats.json.lossy import LossCountingDecoder
from kdsl_formats.json.reference_observer import ReferenceObserver


class ChangeJson(InferenceOptions, JsonFormat):
    """Changes of rows as JSON, with columns matched by name."""

    insert_only = False
    dialect: ClassVar[Dialect]

    @property
    def names_tables(self) -> bool:
        """True: each change names its table."""
        return True

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type; if columns were inferred, it also counts integers that lose digits."""
        decoder = ChangeDecoder(self.change_rules(row, use))
        if self.inferred_columns:
            return LossCountingDecoder(decoder, row, lambda of: ChangeDecoder(self.change_rules(of, use)))
        return decoder

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, whatever the use."""
        return ChangeEncoder(self.dialect, row, self.writing_rules())

    def change_rules(self, row: t.Row, use: Use = ALONE) -> ChangeReadingRules:
        """The options in the form that the decoder uses."""
        return ChangeReadingRules(
            self.dialect,
            row,
            ignore_parse_errors=self.ignore_parse_errors,
            standard=self.timestamp_format,
            metadata=use.metadata,
            keyed=use.keyed,
            inferred=self.inferred_columns,
        )

    def reading_observed(self) -> Self:
        """A copy of the format with `inferred_columns` set."""
        return attrs.evolve(self, inferred_columns=True)  # type: ignore[misc]

    def observer(self, use: Use = ALONE, *, max_columns: int = MAX_COLUMNS) -> Observer:
        """An observer of changes; messages with errors are bad for it even if the options ignore parse errors."""
        reader = self.message_reader(use)
        reference = ReferenceObserver(reader, self.inference_rules(max_columns=max_columns), reader.rules.value_rules)
        return ChangeObserver(reference, reader)

    def message_reader(self, use: Use = ALONE, *, declaring: bool = False) -> ChangeReader:
        """What reads the changes in single messages; those with errors are bad even if the options ignore parse errors.

        Args:
            use: The primary key decides which rows changes need.
            declaring: Whether a table is to be declared from the rows, whatever table the changes name. Then changes
                without the row before them and truncates are not bad, as reading the table back says what to do about
                them; schemas in messages may be null; rows with only the members that changed get the others of the row
                after the change; and strings of Canal are numbers where it says so.
        """
        rules = self.reading_observed().change_rules(t.Row(()), use)
        return ChangeReader(rules, self.type_declarations(), declaring=declaring)

    def type_declarations(self) -> DeclaredTypes | None:
        """How messages say the types of columns; None where these are inferred from values."""
        return None

    def inference_rules(self, *, max_columns: int) -> InferenceRules:
        """What the options mean for the observer."""
        return InferenceRules(
            as_strings=self.infer_primitive_as_string,
            fixed=parse_fixed_types(self.infer_fixed_types),
            max_columns=max_columns,
        )


class DebeziumJson(DebeziumFormat, ConnectJson, ChangeJson):
    """Changes as Debezium writes them: ``before`` and ``after``, and ``op`` (Flink's format ``debezium-json``)."""

    identifier = "debezium-json"
    dialect = DEBEZIUM
    metadata = DEBEZIUM.types
    ingests = ("value",)
    emits = ("value",)
    source_time = ("source.timestamp", "source.ts_ms")
    likely_times = ("adaptive", "isostring")  # the connectors' default first

    schema_include: bool = option(
        "schema-include",
        "Read: whether messages contain their schema, next to the change in the member payload, as Kafka Connect "
        "writes them with value.converter.schemas.enable.",
        default=False,
        decides="has_inline_schemas",
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report maps whose keys are not strings (rule F-4), and for writes a schema in messages (CL-7).

        Columns that lose digits in the connector's form of values are warnings for writes.
        """
        yield from super().check(row, direction)
        if direction == "write" and self.schema_include is True:
            yield Problem(
                READ_ONLY,
                "the format 'debezium-json' writes no schema into its messages, but schema-include is true",
                "remove schema-include if the table is written",
            )

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type.

        Inferred columns are read by the schemas in messages, if they have them; for other columns such schemas are
        checked against the connector's form of values, if one is set.
        """
        if not (self.schema_include and self.inferred_columns):
            return self.check_schemas_of(super().decoder(row, use), row, DEBEZIUM.members)

        def make(of: t.Row, modes: Modes) -> Decoder:
            return ChangeDecoder(attrs.evolve(self.change_rules(of, use), modes=modes))

        metadata = {key: metadata_type(DEBEZIUM.metadata[key]) for key in use.metadata}
        return SchemaReadingDecoder(row, make, DEBEZIUM.members, metadata, ignore=self.ignore_parse_errors)

    def change_encoder(
        self, row: t.Row, table: TableId, keys: Sequence[str], *, with_schema: bool = False, full_table_id: bool = False
    ) -> TableChangeEncoder:
        """An encoder of changes; with a schema, values are as Debezium's connectors write them by default."""
        head, chosen = "", self
        if with_schema:
            chosen = attrs.evolve(  # type: ignore[misc]
                self,
                time_precision_mode=self.time_precision_mode or "adaptive",
                decimal_handling_mode=self.decimal_handling_mode or "precise",
                binary_handling_mode=self.binary_handling_mode or "bytes",
            )
            head = begin_with_schema(row, chosen.modes)
        return DebeziumMessages(
            JsonEncoder(row, chosen.writing_rules()), head, describe_source(table, full=full_table_id)
        )

    def inference_rules(self, *, max_columns: int) -> InferenceRules:
        """What the options mean for the observer; with a connector's setting of times, strings are not times."""
        return attrs.evolve(super().inference_rules(max_columns=max_columns), times=self.modes.times is None)

    def change_rules(self, row: t.Row, use: Use = ALONE) -> ChangeReadingRules:
        """The options in the form that the decoder uses."""
        return attrs.evolve(
            super().change_rules(row, use),
            payload=self.schema_include,
            skip_truncate=self.truncate == "skip",
            apply_truncate=self.truncate == "apply" and bool(use.keyed),
            placeholder=self.unavailable_value_placeholder,
            modes=self.modes,
        )


class CanalJson(ChangeJson):
    """Changes as Canal writes them: lists ``data`` and ``old``, and ``type`` (Flink's format ``canal-json``)."""

    identifier = "canal-json"
    dialect = CANAL
    metadata = CANAL.types
    ingests = ("value",)
    emits = ("value",)
    source_time = ("event-timestamp", "es")

    database_include: str | None = option(
        "database.include",
        "Read: a regular expression; messages are read only if the whole name of their database matches it.",
        default=None,
    )
    table_include: str | None = option(
        "table.include",
        "Read: a regular expression; messages are read only if the whole name of their table matches it.",
        default=None,
    )
    infer_strategy: Literal["AUTO", "SQL_TYPE", "MYSQL_TYPE"] = option(
        "infer-schema.strategy",
        "Read: what columns are inferred from: the values, where strings are all STRING (AUTO), or the types that each "
        "message says in the member sqlType (SQL_TYPE) or mysqlType (MYSQL_TYPE).",
        default="AUTO",
        ignore_case=True,
        side="read",
    )
    mysql_timestamp_as_datetime: bool = option(
        "mysql.treat-mysql-timestamp-as-datetime-enabled",
        "Read: whether the strategy MYSQL_TYPE infers TIMESTAMP for MySQL's TIMESTAMP; otherwise TIMESTAMP_LTZ.",
        default=True,
        side="read",
    )
    mysql_tinyint1_as_boolean: bool = option(
        "mysql.treat-tinyint1-as-boolean.enabled",
        "Read: whether the strategy MYSQL_TYPE infers BOOLEAN for MySQL's TINYINT(1); otherwise TINYINT.",
        default=True,
        side="read",
    )

    def type_declarations(self) -> DeclaredTypes | None:
        """How messages say the types of columns; None with the strategy AUTO, which infers them from values."""
        strategy = self.infer_strategy.upper()
        if strategy == "SQL_TYPE":
            return DeclaredTypes("sqlType", _type_of_code)
        if strategy == "MYSQL_TYPE":
            types = MySqlTypes(zoned=not self.mysql_timestamp_as_datetime, tiny_boolean=self.mysql_tinyint1_as_boolean)
            return DeclaredTypes("mysqlType", lambda name: types.type_of(name) if type(name) is str else None)
        return None

    def change_encoder(
        self, row: t.Row, table: TableId, keys: Sequence[str], *, with_schema: bool = False, full_table_id: bool = False
    ) -> TableChangeEncoder:
        """An encoder of changes, which name database, table and primary key."""
        return CanalMessages(JsonEncoder(row, self.writing_rules()), describe_table(table, keys))

    def inference_rules(self, *, max_columns: int) -> InferenceRules:
        """What the options mean for the observer; strings are not times, because Canal writes all values as strings."""
        return attrs.evolve(super().inference_rules(max_columns=max_columns), times=False)

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report map keys other than strings (F-4); for reads also invalid patterns (F-13) and options without effect.

        The latter, which only the strategy MYSQL_TYPE uses, are warnings.
        """
        yield from super().check(row, direction)
        if direction == "write":
            return
        if str(self.infer_strategy).upper() != "MYSQL_TYPE":
            yield from self._options_without_effect()
        for key, pattern in (("database.include", self.database_include), ("table.include", self.table_include)):
            try:
                compile_pattern(pattern if isinstance(pattern, str) else "")
            except PatternError as e:
                fix = "correct the expression; 'mydb|other' matches two names" if e.fix == TOPIC_FIX else e.fix
                yield Problem("canal-json-include", f"the format 'canal-json' has {key} = {pattern!r}, which {e}", fix)

    def change_rules(self, row: t.Row, use: Use = ALONE) -> ChangeReadingRules:
        """The options in the form that the decoder uses."""
        patterns = (("database", self.database_include), ("table", self.table_include))
        include = tuple(Include(member, compile_pattern(p)) for member, p in patterns if p is not None)
        return attrs.evolve(super().change_rules(row, use), include=include, as_texts=self.inferred_columns)

    def _options_without_effect(self) -> Iterable[Problem]:
        """Warn of each option of the strategy MYSQL_TYPE that is false; the caller checks the strategy."""
        for name in ("mysql_timestamp_as_datetime", "mysql_tinyint1_as_boolean"):
            if getattr(self, name) is False:
                key = next(a.metadata["key"] for a in self.declarations() if a.name == name)
                message = f"the format 'canal-json' has {key}, which only infer-schema.strategy 'MYSQL_TYPE' uses"
                fix = "set the strategy, or leave the option out"
                yield Problem("canal-json-strategy", message, fix, severity="warning")


def _type_of_code(value: Any) -> t.DataType | None:
    """The column type of a JDBC type number, STRING if it is unknown; None for any JSON but an integer."""
    code = jdbc_code(value)
    return None if code is None else type_of_jdbc(code)


class MaxwellJson(ChangeJson):
    """Changes as Maxwell writes them: ``data`` and ``old``, and ``type`` (Flink's format ``maxwell-json``)."""

    identifier = "maxwell-json"
    dialect = MAXWELL
    metadata = MAXWELL.types


class OggJson(ChangeJson):
    """Changes as GoldenGate writes them: ``before``, ``after`` and ``op_type`` (Flink's format ``ogg-json``)."""

    identifier = "ogg-json"
    dialect = OGG
    metadata = OGG.types
