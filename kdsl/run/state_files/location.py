"""Locations of folders as Hadoop and Spark write them: ``scheme://authority/path``, in which nothing is escaped."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import attrs

from kdsl.errors import KdslError

_LOCATION = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_SAME = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss", "wasb": "wasbs"}
"""Schemes that mean the same files as others."""
_VOLUMES = "/Volumes/"


@attrs.frozen
class Location:
    """A folder on a file system.

    Attributes:
        scheme: The scheme in lower case; empty for a local folder.
        authority: The bucket, container, host or name node; empty if there is none.
        path: The path, which is empty or begins with ``/``.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Location:
        """Return the location of a string, in which characters such as spaces, ``#``, ``?`` and ``%`` are themselves.

        Volumes of Databricks (``dbfs:/Volumes/…``) are local folders. A user and a password are refused with
        a KdslError.
        """
        parts = _LOCATION.fullmatch(text)
        assert parts is not None
        scheme, authority = (parts["scheme"] or "").lower(), parts["authority"] or ""
        path = "/".join(part for part in parts["path"].split("/") if part)
        path = f"/{path}" if path and (authority or parts["path"].startswith("/")) else path
        if ":" in authority.rpartition("@")[0]:
            raise KdslError(
                f"the location of a state on {scheme}:// contains a user and a password; remove them, and set the "
                "credentials of the file system in the session, such as spark.hadoop.fs.s3a.access.key"
            )
        if scheme == "file" or (scheme == "dbfs" and f"{path}/".startswith(_VOLUMES)):
            scheme = ""
        return cls(scheme, authority, path)

    @property
    def folder(self) -> Path | None:
        """The local folder; None if it is on another file system."""
        return None if self.scheme else Path(self.path)

    def __truediv__(self, name: str) -> Location:
        return attrs.evolve(self, path=f"{self.path}/{name}")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}" if self.scheme else self.path

    def digest(self) -> str:
        """Return a hash of the location, which is equal for all ways to write it, as 16 hexadecimal digits."""
        same = attrs.evolve(self, scheme=_SAME.get(self.scheme, self.scheme))
        return hashlib.sha256(str(same).encode()).hexdigest()[:16]
