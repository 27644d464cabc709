"""Messages that contain their schema, as Kafka Connect's JsonConverter writes them: ``{"schema":…,"payload":…}``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl_formats._columns.arrays import Mask

_BEFORE, _BETWEEN = b'{"schema":', b',"payload":'
T = TypeVar("T")


class Heads(Generic[T]):
    """What schemas in messages mean, by the bytes that messages begin with up to their payload.

    Nearly all messages of a topic have the same head, so a schema is parsed once.

    Args:
        learn: Returns what a schema means.
        size: How many heads are remembered; if there are more, the oldest is forgotten.
    """

    def __init__(self, learn: Callable[[Any], T], size: int) -> None:
        self._learn, self._size = learn, size
        self._known: dict[bytes, T] = {}

    def find(self, message: bytes) -> tuple[bytes, T] | None:
        """The head of a message and what its schema means.

        None unless the schema and the payload are the first members, without blanks, and the schema is JSON.
        """
        end = message.find(_BETWEEN)
        if end < 0 or not message.startswith(_BEFORE):
            return None
        head = message[: end + len(_BETWEEN)]
        if head not in self._known:
            try:
                schema = orjson.loads(message[len(_BEFORE) : end])
            except ValueError:
                return None
            if len(self._known) >= self._size:
                del self._known[next(iter(self._known))]
            self._known[head] = self._learn(schema)
        return head, self._known[head]

    def group(self, messages: pa.BinaryArray, rest: Mask, attempts: int) -> Iterator[tuple[bytes, T, Mask]]:
        """Yield each head of some messages, what it means, and a mask of the messages that begin with it.

        Messages without a head remain in ``rest``.

        Args:
            messages: The messages.
            rest: Which of them are grouped; those that were yielded are cleared.
            attempts: How often the head of a message that is not yet known is looked for.
        """
        unseen = rest.copy()
        for head, meaning in self._list_heads(messages, unseen, attempts):
            same = np.asarray(pc.fill_null(pc.starts_with(messages, pattern=head), False)) & unseen
            if same.any():
                unseen[same] = rest[same] = False
                yield head, meaning, same

    def _list_heads(self, messages: pa.BinaryArray, unseen: Mask, attempts: int) -> Iterator[tuple[bytes, T]]:
        """Yield known heads, then those of the messages that the caller leaves; what has none is cleared."""
        for known in tuple(self._known.items()):  # some may be forgotten in between
            if not unseen.any():
                return
            yield known
        for _ in range(attempts):
            if not unseen.any():
                return
            index = int(np.flatnonzero(unseen)[0])
            learned = self.find(messages[index].as_py())
            if learned is None:
                unseen[index] = False
            else:
                yield learned


def schema_in(message: bytes) -> Any:
    """Return the schema inside a message; None if it has none, or is not a JSON object."""
    try:
        document = orjson.loads(message)
    except ValueError:
        return None
    return document.get("schema") if isinstance(document, dict) else None
