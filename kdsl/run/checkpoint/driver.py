"""The driver that uses a checkpoint: of several, the one that started last.

A supervisor that takes a slow driver for dead starts another one, and both then run the same query. As with the epochs
of Kafka's transactional ids, the new one takes over, and the earlier one ends as soon as it notices. Nothing has to
expire after a driver was killed.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from datetime import UTC, datetime

from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.checkpoint import FOLDER
from kdsl.run.checkpoint.folder import Folder

FILE = f"{FOLDER}/driver.json"
"""The file of a checkpoint that names the driver that uses it."""


class CurrentDriver:
    """The use of a checkpoint by this driver, for one run of a query.

    Args:
        folder: The folder of the checkpoint.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._id: str | None = None

    def take_over(self) -> None:
        """Note in the checkpoint that this driver uses it, so an earlier one ends; only the first call does so."""
        if self._id is not None:
            return
        own, now = str(uuid.uuid4()), datetime.now(UTC).isoformat(timespec="seconds")
        document = {"id": own, "host": socket.gethostname(), "process": os.getpid(), "started": now}
        self._folder.write(FILE, json.dumps(document) + "\n")
        self._id = own

    def require(self, failure: Exception | None = None) -> None:
        """Check that no other driver has taken over since; a checkpoint without a note of its driver passes.

        Before `take_over` any note counts as another driver's.

        Args:
            failure: An error that another driver may have caused; it becomes the cause of the error raised here.
        """
        text = self._folder.read(FILE)
        if text is None:
            return
        try:
            other = json.loads(text)
            if other["id"] == self._id:
                return
            whose = f"{other['host']}, process {other['process']}, and took over at {other['started']}"
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(
                f"{self._folder.path(FILE)}, which names the driver that uses the checkpoint, cannot be read; make "
                "sure that no other driver runs with this checkpoint, remove the file, and start again"
            ) from failure
        raise CheckpointError(
            f"{explain_other_driver(self._folder.location)}; the other one runs on {whose}"
        ) from failure


def explain_other_driver(location: str) -> str:
    """Write what is wrong, and what to do, if two drivers use a checkpoint.

    Args:
        location: The folder of the checkpoint.
    """
    return (
        f"another driver runs with the checkpoint {location} and continues it, and this one ends, so that nothing is "
        "written twice: a checkpoint serves one driver at a time; run only one, or give each a checkpoint of its own"
    )
