"""Properties by which kdsl asks any format what it does are decided by options, whatever the format calls them."""

from __future__ import annotations

import pytest

from kdsl import Csv, DebeziumJson, Json, ProtobufConfluent, Raw
from kdsl.formats import ALONE, Decoder, Encoder, Format, OnUnavailable, Use
from kdsl.options import option
from kdsl.types import model as t


class Lines(Format):
    """A format of a plug-in."""

    identifier = "lines"

    skip_bad: bool = option("skip-bad", "Whether bad lines are skipped.", default=False, decides="is_lenient")
    missing: OnUnavailable = option("missing", "Missing values.", default="error", decides="on_unavailable")

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        raise NotImplementedError

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        raise NotImplementedError


def test_an_option_of_any_name_decides_a_property() -> None:
    assert (Lines().is_lenient, Lines(skip_bad=True).is_lenient) == (False, True)
    assert (Lines().on_unavailable, Lines(missing="keep").on_unavailable) == ("error", "keep")
    assert Lines.deciding_option("is_lenient") == ("skip_bad", "lines.skip-bad")


def test_a_format_without_such_options_is_strict() -> None:
    plain = Raw()

    assert (plain.is_lenient, plain.on_unavailable, plain.on_truncate, plain.tombstone) == (False, None, "error", None)
    with pytest.raises(KeyError):
        plain.deciding_option("is_lenient")


@pytest.mark.parametrize("chosen", [Json, Csv, ProtobufConfluent, DebeziumJson])
def test_formats_inherit_the_options_that_decide(chosen: type[Format]) -> None:
    assert chosen.deciding_option("is_lenient") == ("ignore_parse_errors", f"{chosen.identifier}.ignore-parse-errors")


def test_the_json_value_null_is_a_tombstone_on_demand() -> None:
    assert (Json().tombstone, Json(null_is_tombstone=True).tombstone) == (None, b"null")
