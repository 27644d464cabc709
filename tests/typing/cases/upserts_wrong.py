"""Upsert tables: lines that a type checker refuses."""

from __future__ import annotations

from kdsl import Col, Json, KafkaTable, PrimaryKey, UpsertTable, with_row_kind
from tests.typing.cases.upserts_right import Users, user


class Started(UpsertTable, topic="t", key=Json(), value=Json(), startup="earliest"):  # type: ignore[call-arg]  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
    id: PrimaryKey[int]


class Keyed(UpsertTable, topic="t", key=Json(), value=Json(), key_fields=["id"]):  # type: ignore[call-arg]  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
    id: PrimaryKey[int]


class Spread(UpsertTable, topic="t", key=Json(), value=Json(), partitioner="fixed"):  # type: ignore[call-arg]  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
    id: PrimaryKey[int]


class Misspelled(UpsertTable, topic="t", key=Json(), value=Json(), bufer_rows=5):  # type: ignore[call-arg]  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
    id: PrimaryKey[int]


class WrongMode(UpsertTable, topic="t", key=Json(), value=Json(), changelog="last"):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    id: PrimaryKey[int]


class WrongState(UpsertTable, topic="t", key=Json(), value=Json(), changelog_state="buckets"):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    id: PrimaryKey[int]


class WrongRows(UpsertTable, topic="t", key=Json(), value=Json(), buffer_rows=None):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    id: PrimaryKey[int]


class WrongInterval(UpsertTable, topic="t", key=Json(), value=Json(), buffer_interval=5):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    id: PrimaryKey[int]


class Appending(KafkaTable, topic="t", key=Json(), value=Json(), cdc_events_duplicate="yes"):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    id: Col[int]


Users(name="Ann")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Users(user_id="1", name=None, changed_at=user.changed_at)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
user.user_id = 2  # type: ignore[arg-type]  # pyright: ignore[reportAttributeAccessIssue]
with_row_kind(user, "+D")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
