from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.errors import KdslError
from kdsl.run.state_files.location import Location


@pytest.mark.parametrize(
    ("text", "scheme", "authority", "path"),
    [
        ("s3a://bucket/a b#c?d%20e/", "s3a", "bucket", "/a b#c?d%20e"),
        ("S3://bucket", "s3", "bucket", ""),
        ("abfss://box@account.dfs.core.windows.net/x", "abfss", "box@account.dfs.core.windows.net", "/x"),
        ("hdfs:///x", "hdfs", "", "/x"),
        ("hdfs://host:8020//x//y", "hdfs", "host:8020", "/x/y"),
        ("file:/a b#c?d%20e", "", "", "/a b#c?d%20e"),
        ("file:///a", "", "", "/a"),
        ("/a:b//c", "", "", "/a:b/c"),
        ("dbfs:/Volumes/main/x", "", "", "/Volumes/main/x"),
        ("dbfs:/x", "dbfs", "", "/x"),
    ],
)
def test_locations_are_read_as_hadoop_writes_them(text: str, scheme: str, authority: str, path: str) -> None:
    assert Location.parse(text) == Location(scheme, authority, path)


def test_folders() -> None:
    assert Location.parse("file:/a/b").folder == Path("/a/b")
    assert Location.parse("s3a://bucket/a").folder is None
    assert str(Location.parse("s3a://bucket/a") / "b") == "s3a://bucket/a/b"
    assert str(Location.parse("file:/a") / "b") == "/a/b"


def test_a_digest_is_equal_for_all_ways_to_write_a_location() -> None:
    same = [("file:/a", "file:///a/", "/a"), ("s3://b/c", "s3a://b/c"), ("abfs://c@a.x/d", "abfss://c@a.x/d")]
    digests = [{Location.parse(text).digest() for text in texts} for texts in same]
    assert [len(of) for of in digests] == [1, 1, 1]
    assert len(set.union(*digests)) == 3


def test_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(KdslError, match="contains a user and a password") as error:
        Location.parse("s3a://AKID:verysecret@bucket/x")
    assert "verysecret" not in str(error.value)
    assert "AKID" not in str(error.value)
