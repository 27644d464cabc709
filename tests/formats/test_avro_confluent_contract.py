"""What every format promises, of the Avro formats with a registry, against a real one."""

from __future__ import annotations

import itertools
import re
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Registry
from kdsl.formats import ALONE, Decoder, Encoder, Use
from kdsl.registry import registry_client
from kdsl.registry.model import RegisteredSchema
from kdsl.testing import LocalRegistry
from kdsl.testing.contracts.formats import option_keys
from kdsl.types import model as t
from kdsl_formats._avro.schema import avro_schema
from kdsl_formats._registry.avro import schema_text
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent
from kdsl_formats.debezium_avro_confluent.envelope import envelope
from tests.formats import test_avro_contract as avro
from tests.formats.contract import SUPPRESSED, FormatContract, check_round_trip

BODIES = avro.TestAvro()
_topics = (f"topic-{number}" for number in itertools.count())


def options(url: str = "http://registry") -> dict[str, Any]:
    """Every option that the formats share, with another value than its default."""
    return {
        "url": url,
        "subject": "s",
        "subject_name_strategy": "record",
        "auto_register": False,
        "use_latest_version": True,
        "normalize": True,
        "schema": '{"type":"record","name":"R","fields":[]}',
        "defaults": '{"a": 1}',
        "record": ("R", "shop.R"),
        "legacy_timestamps": False,
        "ssl_keystore_location": "/k.jks",
        "ssl_keystore_password": "${env:K}",
        "ssl_truststore_location": "/t.jks",
        "ssl_truststore_password": "${env:T}",
        "basic_auth_credentials_source": "USER_INFO",
        "basic_auth_user_info": "${env:U}",
        "bearer_auth_credentials_source": "STATIC_TOKEN",
        "bearer_auth_token": "${env:B}",
        "properties": {"max.retries": 1},
    }


class WithRegistry(FormatContract):
    """The tests of the bodies, in frames."""

    __test__ = False
    row = BODIES.row
    url = ""
    head: ClassVar[bytes]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def registry(cls, kdsl_registry: LocalRegistry) -> None:
        cls.url = kdsl_registry.url

    def use(self, use: Use = ALONE) -> Use:
        return Use(use.side, use.metadata, (next(_topics),), Registry(self.url))

    def decoder(self, row: t.Row | None = None, use: Use = ALONE) -> Decoder:
        return self.format.decoder(row or self.row, self.use(use))

    def encoder(self, row: t.Row | None = None) -> Encoder:
        return self.format.encoder(row or self.row, self.use())

    def schema(self) -> Any:
        return avro_schema(t.Row(self.row.fields, nullable=False))

    def frame(self) -> bytes:
        kind = type(self)
        if "head" not in vars(kind):
            client = registry_client(Registry(self.url))
            number = client.register(f"{kind.__name__}-value", RegisteredSchema(schema_text(self.schema())))
            kind.head = b"\0" + number.to_bytes(4, "big")
        return kind.head

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        body, values = BODIES.message(number)
        return self.frame() + body, values

    def bad_messages(self) -> list[bytes]:
        frame, good = self.frame(), BODIES.message(7)[0]
        broken = [frame + body for body in self.broken_bodies(good) if body]
        return [b"\0", b"\1" + frame[1:] + good, b"\0\x7f\xff\xff\xff" + good, b"{}", good, *broken]

    def broken_bodies(self, good: bytes) -> list[bytes]:
        return [good[:-1], good[:20], b"\x80" * 11, good[:1] + b"\x01" + good[2:]]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        return BODIES.row_types()

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return BODIES.values(row)

    @given(st.data())
    @settings(deadline=None, max_examples=25, suppress_health_check=SUPPRESSED)  # each registers a schema
    def test_rows_of_any_type_read_back(self, data: st.DataObject) -> None:
        check_round_trip(self, data)

    def test_the_variants_have_no_problems_and_set_every_option(self) -> None:
        (variant,) = self.variants

        assert list(variant.problems()) == []
        assert {key.replace("properties.max.retries", "properties.*") for key in variant.to_strings()} == option_keys(
            type(variant)
        )


class TestAvroConfluent(WithRegistry):
    __test__ = True
    format = AvroConfluent()
    variants = (
        AvroConfluent(**options(), schema_id_location="header", unavailable="keep", unavailable_value_placeholder="?"),
    )

    def test_an_empty_message_is_an_error(self) -> None:
        decoded = self.decoder().decode(pa.array([b""], pa.binary()))

        assert [bad.index for bad in decoded.bad] == [0]


class TestDebeziumAvroConfluent(WithRegistry):
    __test__ = True
    format = DebeziumAvroConfluent()
    variants = (
        DebeziumAvroConfluent(
            **options(),
            schema_id_location="header",
            unavailable="keep",
            unavailable_value_placeholder="?",
            truncate="skip",
        ),
    )

    def schema(self) -> Any:
        return avro_schema(t.Row(envelope(self.row).fields))

    def body(self, number: int) -> bytes:
        return BODIES.message(number)[0]

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        values = BODIES.message(number)[1]
        return self.frame() + b"\x02\0\x02" + self.body(number) + b"\x02" + avro.encode_string("c"), values

    def change(self, number: int) -> tuple[bytes, list[tuple[str, dict[str, Any]]]]:
        body, values = BODIES.message(number)
        one = b"\x02" + body
        match number % 4:
            case 0:
                return self.frame() + b"\x02\0" + one + b"\x02" + avro.encode_string("r"), [("+I", values)]
            case 1:
                return self.frame() + b"\x02" + one + one + b"\x02" + avro.encode_string("u"), [
                    ("-U", values),
                    ("+U", values),
                ]
            case 2:
                return self.frame() + b"\x02" + one + b"\0\x02" + avro.encode_string("d"), [("-D", values)]
            case _:
                return self.frame() + b"\0", []  # the null of the union at the top

    def bad_messages(self) -> list[bytes]:
        frame, one = self.frame(), b"\x02" + self.body(7)
        envelopes = {
            "no op": b"\0" + one + b"\0",
            "another op": b"\0" + one + b"\x02" + avro.encode_string("t"),
            "upper case": b"\0" + one + b"\x02" + avro.encode_string("C"),
            "an update without before": b"\0" + one + b"\x02" + avro.encode_string("u"),
            "an update without after": one + b"\0\x02" + avro.encode_string("u"),
            "a delete without before": b"\0" + one + b"\x02" + avro.encode_string("d"),
            "a create without after": one + b"\0\x02" + avro.encode_string("c"),
            "cut off": b"\0" + one[:-3],
        }
        return [b"\0", b"\1" + frame[1:], b"\0\x7f\xff\xff\xff\0", *(frame + b"\x02" + e for e in envelopes.values())]

    def test_an_empty_message_is_a_tombstone(self) -> None:
        decoded = self.decoder().decode(pa.array([b"", None, b""], pa.binary()))

        assert (len(decoded.rows), decoded.bad) == (0, ())

    def test_envelopes_that_are_not_unions_are_read(self) -> None:
        client = registry_client(Registry(self.url))
        bare = avro_schema(envelope(self.row))
        number = client.register("bare-value", RegisteredSchema(schema_text(bare)))
        message = b"\0" + number.to_bytes(4, "big") + self.message(3)[0][6:]
        decoded = self.decoder().decode(pa.array([message], pa.binary()))

        self.assert_rows(decoded, [3])

    def test_mistakes_in_an_envelope_are_reported(self) -> None:
        messages = [self.decoder().decode(pa.array([m], pa.binary())).bad[0].reason for m in self.bad_messages()[3:10]]

        assert [re.split("[,;]", reason)[0] for reason in messages] == [
            "the envelope has no 'op'",
            "the message empties the table ('op' is 't') without naming the deleted rows",
            "the envelope has the 'op' 'C'",
            "'before' is null in an update ('u')",
            "'after' is null in an envelope with the 'op' 'u'",
            "'before' is null in a delete ('d')",
            "'after' is null in an envelope with the 'op' 'c'",
        ]
