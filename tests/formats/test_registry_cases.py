"""The reference's answers of the formats with a registry, which is played here: it holds the schemas of the records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from kdsl.formats import ROW_KINDS, format_class
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from tests.formats import conformance
from tests.formats.conformance import DATA, Case
from tests.registry.front import Front, serve_schemas

LINES = [json.loads(line) for line in (DATA / "registry-cases.jsonl").read_text(encoding="utf-8").splitlines() if line]
DEBEZIUM_SCHEMA = (DATA / "debezium-test-schema.json").read_text(encoding="utf-8")
# The reference refuses a sink without a subject when it is made; kdsl knows the topic only within a table.
WITHOUT_A_TOPIC = {"reg-15"}

# The reference refuses an enum in a STRING column; kdsl reads its symbols.
OTHER_ANSWERS: dict[str, Any] = {"reg-32": [[1, "BLUE"]]}


def load_registered_schemas() -> dict[str, str]:
    """The schemas that the reference registered, by subject."""
    results = {}
    for line in LINES:
        verb, _, rest = str(line.get("request", "")).partition(" ")
        path, _, body = rest.partition(" ")
        if verb == "POST":
            results[path.split("/")[2]] = json.loads(body)["schema"]
    return results


CASES = [conformance.read_case(line) for line in LINES if line["kind"] in ("decode", "encode")]
SCHEMAS = {line["schema_id"]: line["schema"] for line in LINES if line["kind"] == "registry-schema"}
SCHEMAS |= {81: DEBEZIUM_SCHEMA, 100: load_registered_schemas()["testDebeziumAvro"]}


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with Front(serve_schemas(SCHEMAS)) as actual:
        yield actual


def at(case: Case, front: Front) -> Case:
    return attrs.evolve(case, options={**case.options, "url": front.url})


@pytest.mark.parametrize("case", [c for c in CASES if c.id not in WITHOUT_A_TOPIC], ids=lambda c: c.id)
def test_the_answer_is_the_reference_s(case: Case, front: Front) -> None:
    assert conformance.answer(at(case, front)) == OTHER_ANSWERS.get(case.id, case.answer)


@pytest.mark.parametrize("subject", sorted(load_registered_schemas()))
def test_what_is_registered_is_what_the_reference_registered(subject: str) -> None:
    case = next(c for c in CASES if c.options.get("subject") == subject and c.kind == "encode")
    with Front(serve_schemas(SCHEMAS)) as front:
        conformance.answer(at(case, front))

        (request,) = [one for one in front.requests if one.method == "POST"]

    assert request.path == f"/subjects/{subject}/versions?normalize=false"
    assert json.loads(request.document["schema"]) == json.loads(load_registered_schemas()[subject])


PRODUCT = t.row(
    id=parse_type("BIGINT"), name=parse_type("STRING"), description=parse_type("STRING"), weight=parse_type("DOUBLE")
)
CHANGES: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "insert": [("+I", (1, "lisi", "test debezium avro data", 21.799999237060547))],
    "update": [
        ("-U", (1, "lisi", "test debezium avro data", 21.799999237060547)),
        ("+U", (1, "zhangsan", "test debezium avro data", 21.799999237060547)),
    ],
    "delete": [("-D", (1, "zhangsan", "test debezium avro data", 21.799999237060547))],
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_messages_that_debezium_wrote_are_read(change: str, front: Front) -> None:
    message = Path(DATA, f"debezium-avro-{change}.avro").read_bytes()
    decoder = format_class("debezium-avro-confluent").from_strings({"url": front.url}).decoder(PRODUCT)
    decoded = decoder.decode(pa.array([message], pa.binary()))

    assert decoded.bad == ()
    assert decoded.kinds is not None
    rows = [
        (ROW_KINDS[k], tuple(r.values()))
        for k, r in zip(decoded.kinds.to_pylist(), decoded.rows.to_pylist(), strict=True)
    ]
    assert rows == CHANGES[change]


def test_an_id_is_asked_for_once(front: Front) -> None:
    case = next(c for c in CASES if c.id == "reg-18")
    with Front(serve_schemas(SCHEMAS)) as own:
        for _ in range(3):
            conformance.answer(at(case, own))

        assert own.count("/schemas/ids/101") == 1
