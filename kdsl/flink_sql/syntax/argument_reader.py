"""Reads the arguments of functions that have words between them, such as ``EXTRACT(DAY FROM ts)``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.sql_reader import SqlReader

UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_FIELDS = (
    *(*UNITS, "MILLISECOND", "MICROSECOND", "NANOSECOND", "EPOCH", "DECADE", "CENTURY", "MILLENNIUM"),
    *("DOY", "DOW", "ISODOW", "ISOYEAR"),
)
_Arguments = tuple[tuple[n.Node, ...], dict[str, Any]]


class ArgumentReader(SqlReader):
    """Reads arguments; a subclass reads the expressions in them."""

    @abstractmethod
    def read_expression(self) -> n.Node:
        """Read an expression; raise UntranslatableError if none comes next, or it has a mistake."""

    @abstractmethod
    def read_sum(self) -> n.Node:
        """Read a value without comparisons and conditions; raise UntranslatableError as `read_expression`."""

    def read_arguments(self, function: str) -> _Arguments | None:
        """Read the arguments of a function, up to its bracket; also return the words between them, by kind.

        Returns:
            None if the function, which is named in capitals, has only commas between its arguments.
        """
        read = self._readers.get(function)
        return None if read is None else read(self)

    def _skip_arguments(self) -> _Arguments:
        """Skip the arguments of a function that has words between them and no translation, up to its bracket."""
        depth = 0
        while self.token.kind != "end" and (depth or not self.at(")")):
            depth += {"(": 1, ")": -1}.get(self.take().text, 0)
        return (), {}

    def _read_extract(self) -> _Arguments:
        """Read the argument of EXTRACT, and return it with ``{"UNIT": unit}``; UntranslatableError for a mistake."""
        unit = self.read_unit(_FIELDS)
        self.expect("FROM")
        return (self.read_expression(),), {"UNIT": unit}

    def _read_trim(self) -> _Arguments:
        """Read the arguments of TRIM, the string first, and ``SIDE``; raise UntranslatableError for a mistake."""
        side = self.take().upper if self.token.upper in ("BOTH", "LEADING", "TRAILING") else "BOTH"
        if self.accept("FROM"):
            return (self.read_expression(),), {"SIDE": side}
        first = self.read_expression()
        if self.accept("FROM"):
            return (self.read_expression(), first), {"SIDE": side}
        return (first,), {"SIDE": side}

    def _read_position(self) -> _Arguments:
        """Read the arguments of POSITION; no clauses. Raise UntranslatableError for a mistake."""
        needle = self.read_sum()
        self.expect("IN")
        return (needle, self.read_expression()), {}

    def _read_overlay(self) -> _Arguments:
        """Read the arguments of OVERLAY, three or four; no clauses. Raise UntranslatableError for a mistake."""
        arguments = [self.read_expression()]
        for word in ("PLACING", "FROM"):
            self.expect(word)
            arguments.append(self.read_expression())
        if self.accept("FOR"):
            arguments.append(self.read_expression())
        return tuple(arguments), {}

    def _read_substring(self) -> _Arguments:
        """Read the arguments of SUBSTRING, with words or any number with commas; or raise UntranslatableError."""
        arguments = [self.read_expression()]
        if self.accept("FROM"):
            arguments.append(self.read_expression())
            if self.accept("FOR"):
                arguments.append(self.read_expression())
        else:
            while self.accept(","):
                arguments.append(self.read_expression())
        return tuple(arguments), {}

    def _read_rounding(self) -> _Arguments:
        """Read the argument of FLOOR or CEIL, and ``UNIT`` if TO follows; raise UntranslatableError for a mistake."""
        operand = self.read_expression()
        return (operand,), ({"UNIT": self.read_unit(_FIELDS)} if self.accept("TO") else {})

    def _read_timestamp_arithmetic(self) -> _Arguments:
        """Read the arguments of TIMESTAMPADD or TIMESTAMPDIFF, and ``UNIT``; or raise UntranslatableError."""
        unit = self.token.upper.removeprefix("SQL_TSI_")
        if self.token.upper.startswith("SQL_TSI_") and unit in UNITS:
            self.take()
        else:
            unit = self.read_unit(UNITS)
        self.expect(",")
        return self.read_list(self.read_expression), {"UNIT": unit}

    def _read_json(self) -> _Arguments:
        """Read the arguments of a JSON function; also return its clauses, by name.

        They are ``RETURNING`` (a type), ``WRAPPER`` (words), ``EMPTY`` and ``ERROR`` (words, or the node of a default).
        """
        arguments = self.read_list(self.read_expression)
        words: dict[str, Any] = {}
        if self.accept("RETURNING"):
            words["RETURNING"] = self.read_type(nullability=False)  # NULL ON EMPTY may follow
        if self.token.upper in ("WITH", "WITHOUT"):
            start = stop = self.token.start
            while self.token.upper in ("WITH", "WITHOUT", "CONDITIONAL", "UNCONDITIONAL", "ARRAY", "WRAPPER"):
                stop = self.take().end
            words["WRAPPER"] = " ".join(self.text[start:stop].upper().split())
        while not self.at(")"):
            action: Any
            if self.accept("DEFAULT"):
                action = self.read_sum()
            elif self.accept("EMPTY"):
                action = f"EMPTY {self.take().upper}"
            else:
                action = self.take().upper
            if not isinstance(action, n.Node) and action not in (
                *("NULL", "ERROR", "TRUE", "FALSE", "UNKNOWN", "EMPTY ARRAY", "EMPTY OBJECT"),
            ):
                self.fail_unexpected("NULL, ERROR or DEFAULT … ON EMPTY or ON ERROR", self.previous)
            self.expect("ON")
            event = self.take()
            if event.upper not in ("EMPTY", "ERROR"):
                self.fail_unexpected("ON EMPTY or ON ERROR", event)
            words[event.upper] = action
        return arguments, words

    _readers: ClassVar[Mapping[str, Callable[[Any], _Arguments]]] = {
        "EXTRACT": _read_extract,
        "TRIM": _read_trim,
        "POSITION": _read_position,
        "OVERLAY": _read_overlay,
        "SUBSTRING": _read_substring,
        "SUBSTR": _read_substring,
        "FLOOR": _read_rounding,
        "CEIL": _read_rounding,
        "CEILING": _read_rounding,
        "TIMESTAMPDIFF": _read_timestamp_arithmetic,
        "TIMESTAMPADD": _read_timestamp_arithmetic,
        **dict.fromkeys(("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS"), _read_json),
        **dict.fromkeys(("JSON_OBJECT", "JSON_ARRAY", "JSON_OBJECTAGG", "JSON_ARRAYAGG"), _skip_arguments),
    }
