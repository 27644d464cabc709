"""``LIKE``: a table that is based on another one, by Flink's rules of inclusion and precedence."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kdsl.ddl.statements import (
    Column,
    ComputedColumn,
    CreateTable,
    Feature,
    Like,
    MetadataColumn,
    Option,
    PhysicalColumn,
    Strategy,
    Watermark,
)
from kdsl.errors import Problem, Where, listing

DEFAULTS: dict[Feature, Strategy] = {
    "CONSTRAINTS": "INCLUDING",
    "DISTRIBUTION": "INCLUDING",
    "GENERATED": "INCLUDING",
    "METADATA": "INCLUDING",
    "OPTIONS": "OVERWRITING",
    "PARTITIONS": "INCLUDING",
    "WATERMARKS": "INCLUDING",
}
OVERWRITABLE: tuple[Feature, ...] = ("GENERATED", "METADATA", "OPTIONS", "WATERMARKS")


def merge_like(statement: CreateTable, base: CreateTable) -> tuple[CreateTable, tuple[Problem, ...]]:
    """Return a statement with its ``LIKE`` clause written out, and what is wrong with the clause.

    Args:
        statement: The statement, which has such a clause.
        base: The table that it is like, itself without a ``LIKE`` clause.
    """
    assert statement.like is not None
    merge = _Merge(statement, base, statement.like)
    return merge.merge(), tuple(merge.problems)


class _Merge:
    def __init__(self, statement: CreateTable, base: CreateTable, like: Like) -> None:
        self.statement, self.base, self.like = statement, base, like
        self.problems: list[Problem] = []
        self.strategies = self._choose_strategies()

    def merge(self) -> CreateTable:
        """Return the statement with the LIKE clause written out; contradictions are recorded as problems."""
        own, base = self.statement, self.base
        options = {o.key: o for o in self._merge_options()}
        keep_key = self.strategies["CONSTRAINTS"] == "INCLUDING"
        if keep_key and own.primary_key is not None and base.primary_key is not None:
            self._add_conflict("a primary key", "CONSTRAINTS", own.primary_key.where)
        keep_partitions = self.strategies["PARTITIONS"] == "INCLUDING"
        if keep_partitions and own.partitioned_by and base.partitioned_by:
            self._add_conflict("partitions", "PARTITIONS", own.partitioned_where)
        keep_distribution = self.strategies["DISTRIBUTION"] == "INCLUDING"
        return attrs.evolve(
            own,
            columns=tuple(self._merge_columns()),
            watermarks=tuple(self._merge_watermarks()),
            primary_key=own.primary_key or (base.primary_key if keep_key else None),
            partitioned_by=own.partitioned_by or (base.partitioned_by if keep_partitions else ()),
            partitioned_where=own.partitioned_where if own.partitioned_by else base.partitioned_where,
            distribution=own.distribution or (base.distribution if keep_distribution else None),
            options=tuple(options.values()),
            like=None,
        )

    def _choose_strategies(self) -> dict[Feature, Strategy]:
        """Choose how each feature is merged: as declared, else as declared for ALL, else by default.

        A feature that is declared twice, or cannot be overwritten, is recorded as a problem, and that part ignored.
        """
        explicit: dict[Feature, Strategy] = {}
        for feature, strategy in self.like.features:
            if feature in explicit:
                message = f"LIKE declares {feature} twice: {explicit[feature]} and {strategy}"
                self._add_problem("like-twice", message, "keep one of them", self.like.where)
            elif strategy == "OVERWRITING" and feature not in OVERWRITABLE:
                message = f"LIKE cannot overwrite {feature}"
                fix = f"write INCLUDING or EXCLUDING {feature}; only {listing(OVERWRITABLE)} can be overwritten"
                self._add_problem("like-overwriting", message, fix.replace("'", ""), self.like.where)
            else:
                explicit[feature] = strategy
        every = explicit.pop("ALL", None)
        return {**(dict.fromkeys(DEFAULTS, every) if every else DEFAULTS), **explicit}

    def _merge_columns(self) -> Iterator[Column]:
        """Yield the columns of the other table that are included, and then the statement's own.

        An own column takes the place of the other table's column of the same name. That is recorded as a problem,
        unless both are computed or both metadata columns, and declared with OVERWRITING.
        """
        columns = {c.name: c for c in self.base.columns if self._is_included(c)}
        for column in self.statement.columns:
            before = columns.get(column.name)
            feature = _feature(column)
            if before is not None and (feature is None or feature != _feature(before)):
                message = f"the column {column.name!r} is in the table {self.base.name.last!r} already, "
                message += f"as {_describe_column(before)}"
                self._add_problem("like-column", message, "remove it, or give it another name", column.where)
            elif before is not None and feature is not None and self.strategies[feature] != "OVERWRITING":
                self._add_conflict(f"the column {column.name!r}", feature, column.where, overwriting=True)
            columns[column.name] = column
        yield from columns.values()

    def _is_included(self, column: Column) -> bool:
        """Return whether a column of the other table is taken over."""
        feature = _feature(column)
        return feature is None or self.strategies[feature] != "EXCLUDING"

    def _merge_watermarks(self) -> Iterator[Watermark]:
        """Yield the watermarks of the other table, unless excluded or replaced by an own one, and then the own ones.

        With INCLUDING, a watermark for a column that has one in both is recorded as a problem.
        """
        own = {w.column: w for w in self.statement.watermarks}
        for watermark in self.base.watermarks if self.strategies["WATERMARKS"] != "EXCLUDING" else ():
            if watermark.column not in own:
                yield watermark
            elif self.strategies["WATERMARKS"] == "INCLUDING":
                where = own[watermark.column].where
                self._add_conflict(f"a watermark for {watermark.column!r}", "WATERMARKS", where, overwriting=True)
        yield from own.values()

    def _merge_options(self) -> Iterator[Option]:
        """Yield the options of the other table, unless excluded, and then the own ones; a key in both comes twice.

        With INCLUDING, such a key is recorded as a problem.
        """
        own = {o.key: o for o in self.statement.options}
        if self.strategies["OPTIONS"] != "EXCLUDING":
            yield from self.base.options
            for option in self.base.options if self.strategies["OPTIONS"] == "INCLUDING" else ():
                if option.key in own:
                    self._add_conflict(f"the option {option.key!r}", "OPTIONS", own[option.key].where, overwriting=True)
        yield from self.statement.options

    def _add_conflict(self, what: str, feature: Feature, where: Where, *, overwriting: bool = False) -> None:
        """Record a problem: ``what`` is in both tables; ``overwriting`` says whether the fix offers OVERWRITING."""
        message = f"{what} is declared here and in the table {self.base.name.last!r}, which LIKE includes"
        fix = f"write EXCLUDING {feature}" + (f" or OVERWRITING {feature}" if overwriting else "") + " after LIKE"
        self._add_problem("like-both", message, fix, where)

    def _add_problem(self, code: str, message: str, fix: str, where: Where) -> None:
        """Add a problem."""
        self.problems.append(Problem(code, message, fix, where))


def _feature(column: Column) -> Feature | None:
    """The feature of LIKE that a column belongs to; None for physical columns, which are always included."""
    match column:
        case ComputedColumn():
            return "GENERATED"
        case MetadataColumn():
            return "METADATA"
        case PhysicalColumn():
            return None


def _describe_column(column: Column) -> str:
    """Name the kind of a column, such as ``a metadata column``, for a message."""
    feature = _feature(column)
    return {"GENERATED": "a computed column", "METADATA": "a metadata column"}.get(feature or "", "a physical column")
