"""The options of all formats that read Debezium's events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs
import pyarrow as pa

from kdsl.errors import Problem
from kdsl.formats import Decoded, Decoder, Direction, Format, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._debezium.unavailable import PlaceholderFinder

PLACEHOLDER = "__debezium_unavailable_value"


class PlaceholderFormat(Format):
    """Rows in which Debezium's placeholders may stand for values that it does not have."""

    unavailable: Literal["error", "null", "keep"] = option(
        "unavailable",
        "Read: how to read a value that an event does not contain, because the change did not touch a large value "
        "(Postgres' TOAST). `error` stops the read; `null` reads NULL and counts it; `keep` reads NULL and names the "
        "column in the DataFrame's last column `_unavailable`, and `delta` and `jdbc` keep its value. With a "
        "declared primary key, `keep` also reads updates without a before-image.",
        default="error",
        ignore_case=True,
        side="read",
        decides="on_unavailable",
    )
    unavailable_value_placeholder: str = option(
        "unavailable.value.placeholder",
        "Read: what Debezium writes instead of such a value, as set by the connector's option of the same name.",
        default=PLACEHOLDER,
        check=lambda text: None if text else "it is empty, which would also match ordinary empty values",
        side="read",
    )

    def may_lack_values(self, messages: pa.BinaryArray) -> bool:
        """Whether some of the messages may have a placeholder."""
        return PlaceholderFinder(t.Row(()), self.unavailable_value_placeholder).may_hold(messages)

    def replace_placeholders_of(self, decoder: Decoder, row: t.Row, use: Use) -> Decoder:
        """A decoder that gives NULL for placeholders in message values, and says where they are.

        Args:
            decoder: A decoder of messages without change events.
            row: The type of its rows.
            use: The use of the format. For message keys the decoder is returned unchanged: placeholders are not used
                there.
        """
        if use.side == "key":
            return decoder
        return _PlaceholderDecoder(decoder, PlaceholderFinder(row, self.unavailable_value_placeholder))


@attrs.frozen
class _PlaceholderDecoder:
    decoder: Decoder
    finder: PlaceholderFinder

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages with the inner decoder, whose errors pass; for placeholders see `replace_placeholders`."""
        return self.finder.replace_placeholders(self.decoder.decode(messages))


class DebeziumFormat(PlaceholderFormat):
    """Changes as Debezium's connectors write them."""

    keyed_by_primary_key = True

    truncate: Literal["error", "skip", "apply"] = option(
        "truncate",
        "Read: how to read a message that empties the whole table (`op` is `t`): `error` stops the read; `skip` "
        "continues, which leaves the rows in every table that the changes are applied to; `apply` deletes every "
        "existing row, and needs a table with `cdc-events-duplicate`, which keeps them.",
        default="error",
        ignore_case=True,
        side="read",
        decides="on_truncate",
    )

    def check_use(self, row: t.Row, use: Use, direction: Direction) -> Iterable[Problem]:
        """Report what the base class reports, and a table that is read with truncate='apply' but does not keep rows."""
        yield from super().check_use(row, use, direction)
        if self.truncate == "apply" and direction == "read" and not use.keyed:
            message = (
                f"the format {self.identifier!r} has truncate = 'apply', which deletes every existing row, but "
                "the table does not keep rows"
            )
            fix = "declare the primary key and cdc_events_duplicate=True (in SQL and YAML 'cdc-events-duplicate'), or "
            yield Problem("debezium-truncate", message, f"{fix}write truncate = 'skip', and empty the targets yourself")
