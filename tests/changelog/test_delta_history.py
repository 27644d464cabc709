"""Which commits of a Delta table take back rows, and which of them a writer finds, whatever its log still has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from kdsl.changelog import Batch, ChangelogError
from kdsl.changelog.delta_history import (
    CHANGES_TYPES,
    Commit,
    find_lost_rows,
    read_base,
    read_contents,
    start_of_metadata,
    write_metadata,
)
from kdsl.changelog.delta_session import _DIGEST_BITS, write_transaction

TAKES_BACK = [
    ("RESTORE", {"version": "3"}),
    ("TRUNCATE", {}),
    ("CLONE", {"source": "delta.`/other`"}),
    ("DELETE", {}),
    ("DELETE", {"predicate": "[]"}),
    ("DELETE", {"predicate": '["true"]'}),
    ("WRITE", {"mode": "Overwrite", "partitionBy": "[]"}),
    ("WRITE", {"mode": "Overwrite", "predicate": '["true"]'}),
    ("STREAMING UPDATE", {"outputMode": "Complete", "queryId": "q"}),
    ("REPLACE TABLE", {}),
    ("REPLACE TABLE AS SELECT", {}),
    ("CREATE OR REPLACE TABLE", {}),
    ("CREATE OR REPLACE TABLE AS SELECT", {}),
]
LEAVES = [
    ("", {}),
    ("OPTIMIZE", {"predicate": "[]", "zOrderBy": "[]"}),
    ("VACUUM START", {}),
    ("VACUUM END", {}),
    ("REORG", {}),
    ("ADD COLUMNS", {}),
    ("CHANGE COLUMN", {}),
    ("SET TBLPROPERTIES", {}),
    ("CREATE TABLE", {}),
    ("WRITE", {"mode": "Append", "partitionBy": "[]"}),
    ("WRITE", {"mode": "Overwrite", "predicate": "[\"(day = '2025-01-31')\"]"}),
    ("WRITE", {"mode": "Overwrite", "predicate": "day = 1"}),
    ("WRITE", {"mode": "Overwrite", "isDynamicPartitionOverwrite": "true"}),
    ("STREAMING UPDATE", {"outputMode": "Append"}),
    ("MERGE", {"predicate": '["(id = 1)"]'}),
    ("UPDATE", {"predicate": '["(id = 1)"]'}),
    ("DELETE", {"predicate": '["(id = 1)"]'}),
]


@pytest.mark.parametrize(("operation", "parameters"), TAKES_BACK)
def test_commits_that_replace_all_rows_take_them_back(operation: str, parameters: dict[str, str]) -> None:
    assert Commit(7, 0, operation, parameters).takes_back_rows


@pytest.mark.parametrize(("operation", "parameters"), LEAVES)
def test_maintenance_appends_and_edits_of_some_rows_do_not(operation: str, parameters: dict[str, str]) -> None:
    assert not Commit(7, 0, operation, parameters).takes_back_rows


def test_rows_that_kdsl_rewrites_with_other_types_are_not_taken_back() -> None:
    assert not Commit(7, 0, "WRITE", {"mode": "Overwrite"}, metadata=f"mine {CHANGES_TYPES}").takes_back_rows


def test_a_commit_is_described_by_what_it_did_when_and_by_whom() -> None:
    assert str(Commit(7, 1_738_324_800, "RESTORE", {}, "ann")) == "version 7 (RESTORE, 2025-01-31 12:00:00 UTC, by ann)"
    assert str(Commit(7, 0, "DELETE")) == "version 7 (DELETE, 1970-01-01 00:00:00 UTC)"


EDITS = [(operation, parameters) for operation, parameters in LEAVES if operation in ("MERGE", "UPDATE", "DELETE")]
EDITS += [(operation, parameters) for operation, parameters in LEAVES if parameters.get("mode") == "Overwrite"]


@pytest.mark.parametrize(("operation", "parameters"), [*TAKES_BACK, *LEAVES])
@pytest.mark.parametrize("metadata", ["", "note", write_metadata('a "writer"', 3, "c", 2), CHANGES_TYPES])
def test_edits_are_those_of_other_programs(operation: str, parameters: dict[str, str], metadata: str) -> None:
    is_edit = (operation, parameters) in EDITS and metadata in ("", "note")
    assert Commit(7, 0, operation, parameters, metadata=f"x {metadata}").edits_rows == is_edit


KINDS = st.lists(st.sampled_from(["own", "other's", "harmless", "edit", "taken"]), min_size=1, max_size=40)


@given(KINDS, st.integers(0, 60), st.data())
def test_a_writer_finds_what_took_its_rows_back_since_its_last_batch(
    kinds: Sequence[str], removed: int, data: st.DataObject
) -> None:
    """Commits are removed from the beginning of the log; a batch was checked some versions before it was committed."""
    commits: list[Commit] = []
    base = -1
    for version, kind in enumerate(kinds):
        match kind:
            case "own":
                base = data.draw(st.integers(base if base >= 0 else 0, version))
                commits.append(Commit(version, 0, "MERGE", metadata=f"x {write_metadata('me', version, 'c', base)}"))
            case "other's":
                commits.append(Commit(version, 0, "MERGE", metadata=write_metadata("you", version, "c", version)))
            case "harmless":
                commits.append(Commit(version, 0, "OPTIMIZE"))
            case "edit":
                commits.append(Commit(version, 0, "UPDATE"))
            case _:
                commits.append(Commit(version, 0, "RESTORE"))
    log = commits[min(removed, len(commits) - 1) :]
    own = [commit for commit in log if "me" in commit.metadata]

    lost = find_lost_rows(lambda limit: log[::-1][:limit], "me")

    since = base if own else -1
    assert list(lost.commits) == [commit for commit in log if commit.version > since and commit.operation == "RESTORE"]
    assert list(lost.edits) == [commit for commit in log if commit.version > since and commit.operation == "UPDATE"]
    assert lost.unknown == (log[0].version - 1 if log[0].version > since + 1 else None)


@given(st.text(), st.integers(0), st.text(max_size=128), st.integers(0), st.text())
def test_what_a_commit_says_of_a_batch_is_read_as_it_was_written(
    writer: str, number: int, content: str, base: int, before: str
) -> None:
    text = f"{before} {write_metadata(writer, number, content, base)} after"
    if start_of_metadata(writer) in before:
        return
    assert read_base(text, start_of_metadata(writer)) == base
    assert list(read_contents(["other", text], writer)) == [(number, content)]


NUMBERS, CONTENTS = st.integers(0, 1 << 41), st.text(max_size=128)


@given(NUMBERS, CONTENTS, NUMBERS, CONTENTS)
def test_transactions_are_in_the_order_of_batch_numbers_and_know_the_content(
    number: int, content: str, other: int, other_content: str
) -> None:
    first, second = (write_transaction(Batch("w", *one)) for one in ((number, content), (other, other_content)))

    assert (first >> _DIGEST_BITS, second >> _DIGEST_BITS) == (number, other)
    assert 0 <= first < 1 << 63
    assert number == other or (first < second) == (number < other)
    assert bool(first % (1 << _DIGEST_BITS)) == bool(content)
    assert first == write_transaction(Batch("w", number, content))


def test_a_number_that_delta_cannot_store_is_refused() -> None:
    with pytest.raises(ChangelogError, match=r"the batch number 4398046511104 of the writer 'w' is too large"):
        write_transaction(Batch("w", 1 << 42))
