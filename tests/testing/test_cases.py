"""Cases of tables: what passes, what differs and how that is shown, and mistakes in files of cases; without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest
from typer.testing import CliRunner, Result

from kdsl.cli.app import app
from tests.pages import code_blocks

Run = Callable[..., Result]
PAGE = Path(__file__).parents[2] / "docs" / "cases.md"
JSON = """
table: |
  CREATE TABLE orders (
    id INT NOT NULL, amount DECIMAL(8, 2), rate DOUBLE, small FLOAT, paid TIMESTAMP_LTZ(3), at TIMESTAMP(3), day DATE,
    clock TIME(3), seal BYTES, names ARRAY<STRING>, sizes MAP<STRING, INT>, buyer ROW<name STRING, vip BOOLEAN>,
    source MAP<STRING, BYTES> METADATA FROM 'headers', place BIGINT METADATA FROM 'offset' VIRTUAL
  ) WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json', 'scan.startup.mode' = 'latest-offset',
          'json.timestamp-format.standard' = 'ISO-8601', 'properties.bootstrap.servers' = 'nowhere:9092',
          'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = 'PLAIN',
          'properties.sasl.jaas.config' = '${env:NOT_THERE}')
"""
SHORT = """
table: |
  CREATE TABLE orders (id INT, note STRING)
  WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json'{options})
cases:
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Write a file of cases, and run it."""
    monkeypatch.chdir(tmp_path)

    def run_text(text: str, *arguments: str, name: str = "orders.test.yaml") -> Result:
        Path(name).write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return CliRunner().invoke(app, ["test", name, *arguments], env={"COLUMNS": "200", "TERM": "dumb"})

    return run_text


def short(cases: str, options: str = "") -> str:
    """A file of cases of a short table."""
    return dedent(SHORT.format(options=options)).lstrip("\n") + indent(dedent(cases).strip("\n"), "  ") + "\n"


def test_values_of_every_type_are_compared_in_the_type_of_the_column(run: Run) -> None:
    done = run(
        JSON
        + """
cases:
  - name: all types
    messages:
      - value: {id: 1, amount: 1.1, rate: NaN, small: 0.1, paid: 2026-01-31T08:00:00Z, at: 2026-01-31T08:00:00.5,
                day: 2026-01-31, clock: '08:00:00', seal: AP8=, names: [a, null], sizes: {b: 2, a: 1},
                buyer: {name: 'null', vip: true}}
        headers: {from: shop, sign: {$hex: 00ff}}
        offset: 41
      - value: '{"id": 2}'
    expect:
      rows:
        - {id: 1, amount: 1.10, rate: .nan, small: 0.1, paid: 2026-01-31T09:00:00+01:00, at: 2026-01-31 08:00:00.500,
           day: 2026-01-31, clock: '08:00:00', seal: {$base64: AP8=}, names: [a, null], sizes: {a: 1, b: 2},
           buyer: {name: 'null', vip: true}, source: {from: shop, sign: {$hex: 00ff}}, place: 41}
        - {id: 2, amount: null, rate: null, small: null, paid: null, at: null, day: null, clock: null, seal: null,
           names: null, sizes: null, buyer: null, source: {}, place: 42}
"""
    )

    assert done.stdout.splitlines() == ["passed   orders.test.yaml: all types", "1 case: 1 passed"]
    assert done.exit_code == 0


def test_differences_are_shown_by_column_with_the_record(run: Run) -> None:
    cases = """
      - name: differs
        messages:
          - value: {id: 1, note: a}
          - value: {id: 2, note: b}
          - value: null
          - {partition: 1, value: {id: 3, note: 'null'}}
          - {partition: 1, value: {id: many}}
        expect:
          rows:
            - {id: 1}
            - {id: 3, note: null}
            - {id: 4, note: d}
          errors:
            - {offset: 0, reason: no such text}
            - {partition: 1, offset: 1, reason: not a number}
    """

    done = run(short(cases))

    reason = "field 'id': 'many' is not an INT (not an integer)"
    assert done.exit_code == 1
    assert done.stdout == dedent(f"""\
        failed   orders.test.yaml:5: differs
            rows differ (3 expected, got 3):
              row 1 (partition 0, offset 0):
                note: it is not in what is expected, got a
              row 2 (partition 0, offset 1):
                id: expected 3, got 2
                note: expected null, got b
              row 3 (partition 1, offset 0):
                id: expected 4, got 3
                note: expected d, got 'null'
            records that cannot be read differ:
              partition 0, offset 0: an error is expected, but there is none
              partition 1, offset 1 of orders: 'not a number' is expected, got "{reason}"
            1 record was left out: 1 without a message value
        1 case: 1 failed
    """)


def test_rows_in_any_order_and_selected_columns(run: Run) -> None:
    cases = """
      - name: any order
        ordered: false
        columns: [id]
        messages: [{value: {id: 1}}, {value: {id: 2}}, {value: {id: 2}}]
        expect: {rows: [{id: 2}, {id: 1}, {id: 3}]}
    """

    done = run(short(cases))

    assert done.stdout.splitlines()[1:4] == [
        "    rows differ (3 expected, got 3):",
        "      row 3 (partition 0, offset 2):",
        "        id: expected 3, got 2",
    ]


def test_values_that_are_none_of_the_column_are_named(run: Run) -> None:
    cases = """
      - name: no value
        messages: [{value: {id: 1}}]
        expect: {rows: [{id: one, note: {a: 1}, nte: x}]}
    """

    done = run(short(cases))

    assert done.stdout.splitlines()[1:4] == [
        "    expected rows cannot be read as values of their columns:",
        "      expected row 1, id: 'one' is not an integer",
        "      expected row 1, note: string is a single value",
    ]


def test_dead_letters_are_not_errors(run: Run) -> None:
    cases = """
      - name: letter
        messages: [{value: bad}, {value: {id: 1, note: a}}]
        expect:
          rows: [{id: 1, note: a}]
          dead_letters: [{offset: 0, reason: not JSON}]
      - name: error
        messages: [{value: bad}]
        expect:
          rows: []
          errors: [{offset: 0}]
      - name: none
        messages: [{value: bad}]
        expect: {rows: []}
    """
    options = ", 'scan.dead-letter.topic' = 'letters', 'properties.group.id' = 'g'"

    done = run(short(cases, options))

    lines = done.stdout.splitlines()
    assert lines[0] == "passed   orders.test.yaml: letter", done.stdout
    assert "partition 0, offset 0 of orders: an error is expected, but it is a dead letter: " in lines[3]
    assert "partition 0, offset 0 of orders: a dead letter is not expected: " in lines[6]


def test_a_record_that_a_rule_refuses_is_an_error(run: Run) -> None:
    cases = """
      - name: rule
        messages: [{value: {id: 0}}, {value: {id: 1}}]
        expect:
          rows: [{id: 1, note: null}]
          errors: [{offset: 0, reason: positive}]
    """
    rule = ", 'scan.expect.positive' = 'id > 0', 'scan.expect.positive.on-fail' = 'fail'"

    assert run(short(cases, rule)).exit_code == 0
    letters = rule + ", 'scan.dead-letter.topic' = 'letters', 'properties.group.id' = 'g'"
    assert "it fails:" in run(short(cases, letters)).stdout


def test_a_time_zone(run: Run) -> None:
    text = """
    table: |
      CREATE TABLE orders (id INT, day DATE METADATA FROM 'timestamp')
      WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json')
    cases:
      - name: in Tokyo
        time_zone: Asia/Tokyo
        messages: [{value: {}, timestamp: 2026-01-31T20:00:00Z}, {value: {}}]
        expect: {rows: [{id: null, day: 2026-02-01}, {id: null, day: null}]}
    """

    assert run(text).exit_code == 0


def test_changes_and_present_rows_of_an_upsert_table(run: Run) -> None:
    text = """
    table: |
      CREATE TABLE orders (id INT, note STRING, PRIMARY KEY (id) NOT ENFORCED)
      WITH ('connector' = 'upsert-kafka', 'topic' = 'orders', 'key.format' = 'json', 'value.format' = 'json')
    cases:
      - name: changes
        messages: &messages
          - {key: {id: 2}, value: {id: 2, note: b}}
          - {key: {id: 1}, value: {id: 1, note: a}}
          - {key: {id: 1}, value: {id: 1, note: A}}
          - {key: {id: 2}, value: null}
        expect:
          rows:
            - {_row_kind: +I, id: 2, note: b}
            - {_row_kind: +I, id: 1, note: a}
            - {_row_kind: -U, id: 1, note: a}
            - {_row_kind: +U, id: 1, note: A}
            - {_row_kind: -D, id: 2, note: b}
      - name: present rows
        snapshot: true
        messages: *messages
        expect:
          rows: [{id: 1, note: A}]
      - name: written
        rows:
          - {id: 1, note: a}
          - {_row_kind: -D, id: 2, note: null}
        expect:
          messages:
            - {key: {id: 1}, value: {note: a, id: 1.0}}
            - {key: {id: 2}}
    """

    assert run(text).stdout.splitlines()[-1] == "3 cases: 3 passed"


def test_change_data_has_row_kinds(run: Run) -> None:
    text = """
    table: |
      CREATE TABLE orders (id INT, note STRING)
      WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'debezium-json')
    cases:
      - name: an update
        messages: [{value: {op: u, before: {id: 1, note: a}, after: {id: 1, note: b}}}]
        expect:
          rows:
            - {_row_kind: -U, id: 1, note: a}
            - {_row_kind: +U, id: 1, note: b}
    """

    assert run(text).exit_code == 0


def test_messages_that_name_schemas(run: Run) -> None:
    fields = """[{name: id, type: int}, {name: note, type: string}]"""
    text = f"""
    table: |
      CREATE TABLE orders (id INT NOT NULL, note STRING NOT NULL)
      WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'avro-confluent', 'avro-confluent.url' = 'http://no:1',
            'avro-confluent.basic-auth.credentials-source' = 'USER_INFO', 'avro-confluent.basic-auth.user-info' = 'a:b')
    schemas:
      - id: 7
        subject: orders-value
        schema: {{type: record, name: Order, fields: {fields}}}
    cases:
      - name: read
        messages:
          - value: {{$hex: 00 00000007 02 02 61}}
          - value: {{$schema: 7, $hex: 04 02 62}}
          - value: {{$schema: 8, $hex: 04 02 62}}
        expect:
          rows: [{{id: 1, note: a}}, {{id: 2, note: b}}]
          errors: [{{offset: 2, reason: no schema with the id 8}}]
      - name: the schema of the table is registered
        rows: [{{id: 1, note: a}}]
        expect: {{messages: [{{value: {{$schema: 8, $hex: '020261'}}}}]}}
    """

    done = run(text)

    assert done.exit_code == 0, done.stdout


def test_written_messages_have_headers_times_and_topics(run: Run) -> None:
    text = """
    table: |
      CREATE TABLE orders (id INT, source MAP<STRING, BYTES> METADATA FROM 'headers',
        at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', place STRING METADATA FROM 'topic')
      WITH ('connector' = 'kafka', 'topic' = 'a;b', 'format' = 'json')
    cases:
      - name: written
        rows: [{id: 1, source: {from: shop}, at: 2026-01-31 08:00:00Z, place: a}]
        expect:
          messages:
            - {topic: a, value: '{"id":1}', headers: {from: shop}, timestamp: 2026-01-31T08:00:00Z}
      - name: differs
        rows: [{id: 1, source: {from: shop}, at: 2026-01-31 08:00:00Z, place: a}]
        expect:
          messages:
            - {topic: b, value: '{"id": 1}', headers: [{from: {$hex: ff}}, {from: x}], timestamp: 0}
      - name: refused
        rows: [{id: 1, at: yesterday, place: a, extra: 1}]
        expect: {messages: []}
    """

    done = run(text)

    assert done.stdout.splitlines()[:7] == [
        "passed   orders.test.yaml: written",
        "failed   orders.test.yaml:11: differs",
        "    messages differ (1 expected, got 1):",
        "      message 1:",
        """        value: expected '{"id": 1}', got '{"id":1}'""",
        "        headers: expected [{from: {$hex: ff}}, {from: x}], got [{from: shop}]",
        "        topic: expected b, got a",
    ]
    assert "row 1: the table does not write 'extra'" in done.stdout
    assert "row 1, at (TIMESTAMP_LTZ(3)): expected yyyy-MM-ddTHH:mm[:ss]" in done.stdout


def test_declarations_of_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    python = (
        "from kdsl import Col, Json, KafkaTable\n\nclass {}(KafkaTable, topic='t', value=Json()):\n    id: Col[int]\n"
    )
    (tmp_path / "tables" / "orders.py").write_text(python.format("Orders") + python.format("Items"))
    (tmp_path / "t.yaml").write_text(
        "tables: [{name: t, columns: [{name: id, type: BIGINT}], options: {connector: kafka, topic: t, format: json}}]"
    )
    (tmp_path / "t.sql").write_text(
        "CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json')"
    )
    yaml = "|\n  name: t\n  columns: [{name: id, type: BIGINT}]\n  options: {connector: kafka, topic: t, format: json}"
    case = "\ncases: [{name: a, messages: [{value: {id: 1}}], expect: {rows: [{id: 1}]}}]\n"
    for target in ("tables/orders.py:Items", "t.yaml:t", "t.yaml", "t.sql:t", yaml):
        assert run(f"table: {target}{case}").exit_code == 0
    for target, message in (
        ("tables/orders.py", "has several tables"),
        ("tables/orders.py:Order", "has no table 'Order' (did you mean 'Orders'?)"),
        ("none.py:Orders", "there is no file 'none.py'"),
        ("no.module:Orders", "there is no module or file 'no.module'"),
        ("|\n  CREATE TABL t (id INT)\n  ", "orders.test.yaml:2:8"),
        ("CREATE TABLE t (id INT)", "connector"),
    ):
        done = run(f"table: {target}{case}")
        assert done.exit_code == 1
        assert message in done.stdout


def test_an_expected_failure(run: Run) -> None:
    cases = """
      - name: by its code
        messages: []
        expect: {fails: startup-timestamp}
      - name: by its text
        messages: []
        expect: {fails: no such words}
    """

    done = run(short(cases, ", 'scan.startup.mode' = 'timestamp'"))

    assert done.stdout.splitlines()[0] == "passed   orders.test.yaml: by its code", done.stdout
    assert "it is expected to fail with 'no such words', but it fails otherwise:" in done.stdout
    ends = run(short("- {name: a, messages: [], expect: {fails: text}}")).stdout
    assert "it is expected to fail with 'text', but it succeeds" in ends


def test_an_error_of_python_fails_its_case_alone(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdsl.testing.cases.tables.make_records", lambda *_: 1 / 0)
    cases = """
      - {name: broken, messages: [{value: {id: 1}}], expect: {rows: []}}
      - {name: written, rows: [{id: 1, note: a}], expect: {messages: [{value: {id: 1, note: a}}]}}
    """

    done = run(short(cases))

    assert "ZeroDivisionError: division by zero" in done.stdout
    assert done.stdout.splitlines()[-1] == "2 cases: 1 passed, 1 failed"


def test_write_adds_what_came_and_keeps_the_rest(run: Run) -> None:
    cases = """
      # the first one
      - name: read   # of shop 1
        messages:
          - {value: {id: 1, note: "null"}}
          - {value: bad}

      # the second one
      - name: written
        rows: [{id: 1, note: "tab\\tand 'quotes'"}]
        # no more
      - name: expects something
        messages: [{value: {id: 1}}]
        expect: {rows: []}
    """
    text = short(cases)
    refused = run(text)
    assert refused.stdout.count("nothing is expected: write 'expect:', or let kdsl test --write add what came") == 2

    done = run(text, "--write")

    assert done.stdout.splitlines()[:2] == ["recorded orders.test.yaml: read", "recorded orders.test.yaml: written"]
    assert done.stdout.splitlines()[-1] == "3 cases: 2 recorded, 1 failed"
    written = Path("orders.test.yaml").read_text()
    added = [line for line in written.splitlines() if line not in text.splitlines()]
    assert added == [
        "    expect:",
        "      rows:",
        "        - {id: 1, note: 'null'}",
        "      errors:",
        """        - {partition: 0, offset: 1, reason: 'not JSON: expecting value at character 1'}""",
        "    expect:",
        "      messages:",
        """        - {value: '{"id":1,"note":"tab\\tand ''quotes''"}'}""",
    ]
    assert written.index("expect:") < written.index("# the second one")
    again = run(written, "--write")
    assert again.stdout.splitlines()[-1] == "3 cases: 2 passed, 1 failed"
    assert Path("orders.test.yaml").read_text() == written


def test_mistakes_in_a_file_are_all_reported_with_their_lines(run: Run) -> None:
    text = """
    table: orders.py:Orders
    case: []
    cases:
      - nme: one
        messages: {a: 1}
        expect: {row: [], rows: {}}
      - name: two
        messages:
          - {vlaue: 1, offset: -1, timestamp: noon, key: {$hexx: 1}, headers: x}
        rows: []
        ordered: perhaps
        expect: {}
      - name: two
        expect: {dead_letters: [{partition: 1}]}
    schemas: [{id: x, subject: s, type: XML}]
    """

    done = run(text)

    lines = [line for line in done.stdout.splitlines() if not line.startswith("    fix:")]
    assert done.exit_code == 1
    assert [line.replace("orders.test.yaml:", "").replace(" error:", "") for line in lines] == [
        "2 $.case: a file of cases has no key 'case' (did you mean 'cases'?)",
        "4 $.cases[0].nme: a case of a table has no key 'nme' (did you mean 'name'?)",
        "4 $.cases[0]: a case of a table needs 'name'",
        "5 $.cases[0].messages.a: '1' is not a list of messages",
        "6 $.cases[0].expect.row: what is expected of messages has no key 'row' (did you mean 'rows'?)",
        "6 $.cases[0].expect.rows: a mapping is not a list of rows",
        "7 $.cases[1]: both 'messages' and 'rows' are given",
        "9 $.cases[1].messages[0].vlaue: a message has no key 'vlaue' (did you mean 'value'?)",
        "9 $.cases[1].messages[0].headers: 'x' is not headers by name, or a list of such mappings",
        "9 $.cases[1].messages[0].offset: '-1' is not a number from 0 on",
        "9 $.cases[1].messages[0].key: this is not the content of a message: it is not text, {$hex: …} or {$base64: …}",
        "9 $.cases[1].messages[0].timestamp: 'noon' is neither a time with a zone nor milliseconds since 1970",
        "11 $.cases[1].ordered: 'perhaps' is not true or false",
        "12 $.cases[1].expect: nothing is expected",
        "13 $.cases[2]: a table needs input",
        "13 $.cases[2].name: there are two cases 'two'",
        "14 $.cases[2].expect.dead_letters[0]: a record that cannot be read needs 'offset'",
        "15 $.schemas[0]: a schema needs 'schema'",
        "15 $.schemas[0].type: there is no type 'XML' of schemas",
        "15 $.schemas[0].id: 'x' is not a number from 0 on",
        "0 cases: 1 file with errors",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing is declared"),
        ("table: a.py:A\nscript: b.sql\ncases: []\n", "'table' and 'script' are both declared"),
        ("table: a.py:A\n", "there are no cases"),
        ("table: [a]\ncases: []\n", "a list is not text"),
        ("table: a\ncases: [1]\n", "'1' is not a case of a table"),
        ("table: a\ncases: {a: 1}\n", "a mapping is not a list of cases"),
        ("table: 'a\n", "the document is not valid YAML"),
        ("script: a.sql\ncases: [{name: a, messages: {t: []}, steps: [{messages: {t: []}}]}]\n", "beside 'steps'"),
        ("script: a.sql\ncases: [{name: a, messages: []}]\n", "a list is not messages by topic"),
        (
            "script: a.sql\ncases: [{name: a, steps: [{messages: {}, expect: {fails: x}}, {messages: {}}]}]\n",
            "steps follow one that fails",
        ),
        ("table: a\ncases: [{name: a, messages: [], time_zone: Mars/X}]\n", "'Mars/X' is not a time zone"),
        ("table: a\ncases: [{name: a, messages: [{topic: b}]}]\n", "a message has no key 'topic'"),
        ("script: a\ncases: [{name: a, messages: {t: [{offset: 1}]}}]\n", "a message has no key 'offset'"),
        ("table: a\ncases: [{name: a, messages: [{partition: 2147483648}]}]\n", "2147483648 is too large"),
        ("table: a\ncases: [{name: a, messages: [{timestamp: 9999999999999999999}]}]\n", "is neither a time"),
        ("table: a\ncases: [{name: a, messages: [], expect: {rows: [], fails: x}}]\n", "beside other expectations"),
        ("table: a\ncases: [{name: a, messages: [{value: {$schema: 5}}]}]\n", "is not the content of a message"),
        ("ingestion: a\nvariables: {a: null}\ncases: []\n", "nothing is not text"),
    ],
)
def test_a_file_without_valid_cases(run: Run, text: str, message: str) -> None:
    done = run(text)

    assert message in done.stdout
    assert done.exit_code == 1


def test_names_that_nobody_would_choose(run: Run) -> None:
    text = r"""
    table: |
      CREATE TABLE `a b.c` (`$.x: [1]` STRING, `select` ROW<`null` INT>)
      WITH ('connector' = 'kafka', 'topic' = '-a.b_C-', 'format' = 'json')
    cases:
      - name: 'name: "x" [red] 日本 \ ''y'' '
        messages:
          - {value: {'$.x: [1]': ' null', select: {'null': 1}}}
          - {value: '{"$.x: [1]": "a\nb: c"}'}
        expect:
          rows:
            - {'$.x: [1]': ' null', select: {'null': 1}}
            - {'$.x: [1]': "a\nb: d", select: null}
    """

    done = run(text, name="ä 1.test.yml")

    assert done.stdout.splitlines()[0] == """failed   ä 1.test.yml:5: name: "x" [red] 日本 \\ 'y' """
    assert done.stdout.splitlines()[3] == r'''        $.x: [1]: expected "a\nb: d", got "a\nb: c"'''


def test_topics_partitions_and_offsets_of_messages(run: Run) -> None:
    text = """
    table: |
      CREATE TABLE orders (id INT, topic STRING METADATA, part INT METADATA FROM 'partition',
        place BIGINT METADATA FROM 'offset')
      WITH ('connector' = 'kafka', 'topic' = 'a;b', 'format' = 'json')
    cases:
      - name: by topic
        messages:
          b: [{value: {id: 1}}]
          a: [{value: {id: 2}, partition: 1}, {value: {id: 3}, offset: 5}, {value: {id: 4}}, {value: bad}]
        expect:
          rows:
            - {id: 3, topic: a, part: 0, place: 5}
            - {id: 4, topic: a, part: 0, place: 6}
            - {id: 2, topic: a, part: 1, place: 0}
            - {id: 1, topic: b, part: 0, place: 0}
          errors: [{topic: a, offset: 7}]
      - {name: which, messages: [{value: {id: 1}}], expect: {fails: "the table has the topics 'a' and 'b'"}}
      - {name: other, messages: {c: []}, expect: {fails: "does not read the topic 'c'"}}
      - {name: order, messages: {a: [{offset: 3}, {offset: 3}]}, expect: {fails: "the offset 3 of partition 0"}}
    """

    done = run(text)

    assert done.stdout.splitlines()[-1] == "4 cases: 4 passed", done.stdout


class TestCommand:
    def test_a_folder_a_filter_and_the_counts(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "inner").mkdir()
        (tmp_path / ".hidden").mkdir()
        good = short("- {name: good one, messages: [{value: {id: 1}}], expect: {rows: [{id: 1, note: null}]}}")
        bad = short("- {name: bad one, messages: [{value: {id: 1}}], expect: {rows: []}}")
        (tmp_path / "inner" / "good.test.yml").write_text(good)
        (tmp_path / ".hidden" / "bad.test.yaml").write_text(bad)
        (tmp_path / "other.yaml").write_text("a: 1")

        done = run(bad)
        assert done.exit_code == 1
        both = CliRunner().invoke(app, ["test"])
        assert both.stdout.splitlines()[-1] == "2 cases: 1 passed, 1 failed"
        assert both.exit_code == 1
        chosen = CliRunner().invoke(app, ["test", ".", "inner", "-k", "good"])
        assert chosen.stdout.splitlines() == ["passed   inner/good.test.yml: good one", "1 case: 1 passed"]
        assert chosen.exit_code == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["none.test.yaml"], "there is no file or folder 'none.test.yaml'"),
            (["other.yaml"], "'other.yaml' is not a file of cases; their names end with '.test.yaml' and '.test.yml'"),
            (["empty"], "there are no files *.test.yaml"),
            (["a.test.yaml", "-k", "nix"], "no case has 'nix' in its name"),
            (["none.test.yaml", "--wirte"], "No such option: --wirte"),
        ],
    )
    def test_wrong_use_exits_with_2(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "empty").mkdir()
        (tmp_path / "other.yaml").write_text("")
        (tmp_path / "a.test.yaml").write_text(short("- {name: a, messages: [], expect: {rows: []}}"))

        done = CliRunner().invoke(app, ["test", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})

        assert done.exit_code == 2
        assert message in " ".join(done.output.replace("│", " ").split())

    def test_a_file_with_errors_does_not_hide_the_others(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "a.test.yaml").write_text("table: x\n")
        run(short("- {name: a, messages: [], expect: {rows: []}}"), name="b.test.yaml")

        done = CliRunner().invoke(app, ["test"])

        assert done.stdout.splitlines()[-1] == "1 case: 1 passed, 1 file with errors"
        assert done.exit_code == 1


BLOCKS = code_blocks(PAGE, "yaml")


def test_the_first_file_of_the_page_fails_as_the_page_says(run: Run) -> None:
    shown = code_blocks(PAGE, "console")[0].partition("\n")[2]

    assert run(BLOCKS[0]).stdout == shown
    assert run(BLOCKS[0].replace("amount: 21", "amount: 12")).exit_code == 0


def test_the_upsert_table_of_the_page_passes(run: Run) -> None:
    assert run(BLOCKS[1]).stdout.splitlines()[-1] == "2 cases: 2 passed"


def test_a_table_needs_neither_spark_nor_the_client_of_a_registry(tmp_path: Path) -> None:
    """A script does, and says so; other packages are missing where only the extra cli is installed."""
    table = short("- {name: a, messages: [{value: {id: 1}}], expect: {rows: [{id: 1, note: null}]}}")
    (tmp_path / "a.test.yaml").write_text(table)
    (tmp_path / "b.test.yaml").write_text("script: a.sql\ncases: [{name: b, messages: {}, expect: {rows: {}}}]\n")
    program = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pandas", "httpx", "psutil", "cryptography"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from kdsl.cli import main
sys.argv = ["kdsl", "test"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stdout.splitlines() == [
        "passed   a.test.yaml: a",
        "failed   b.test.yaml:2: b",
        "    it fails:",
        "      a case of a script needs the package pyspark; install 'kdsl-kafka[spark]'",
        "2 cases: 1 passed, 1 failed",
    ], done.stderr
