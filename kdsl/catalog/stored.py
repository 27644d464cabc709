"""What was inferred, kept with a checkpoint: a restart reads the same columns although the topic has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import attrs

from kdsl.catalog.topic_schema import TopicSchema
from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.checkpoint import FOLDER
from kdsl.run.checkpoint.folder import Folder, open_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = f"{FOLDER}/inferred.json"
VERSION = 1


@attrs.frozen
class StoredSchema:
    """What was inferred of a table, and for which declaration.

    Attributes:
        declared: What the declaration said about the inference, by the keys of the options.
        schema: What was inferred.
    """

    declared: Mapping[str, str]
    schema: TopicSchema

    def document(self) -> dict[str, Any]:
        """Return it as a document that can be written as JSON."""
        return {"declared": dict(self.declared), **self.schema.document()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Create it from what `document` returned; other documents raise errors of any type, such as KeyError."""
        return cls(dict(document["declared"]), TopicSchema.from_document(document))


class Inference:
    """What is inferred for a program or a script: each table once, or as it is stored with a checkpoint.

    Args:
        stored: What a checkpoint has, by the names of the tables.
        location: The checkpoint, for messages.
        adopt: Infer all tables anew, whatever is stored.
    """

    def __init__(
        self, stored: Mapping[str, StoredSchema] | None = None, *, location: str = "", adopt: bool = False
    ) -> None:
        self._stored = {} if adopt else dict(stored or {})
        self._location = location
        self.inferred: dict[str, StoredSchema] = {}

    def schema(self, name: str, declared: Mapping[str, str], infer: Callable[[], TopicSchema]) -> TopicSchema:
        """What was inferred of a table for this declaration, what is stored, or else what is inferred now.

        The result is added to `inferred`.

        Args:
            name: The table's name.
            declared: What its declaration says about the inference.
            infer: Looks at the topic; its errors are raised here.
        """
        known = self.inferred.get(name)
        if known is not None and known.declared == declared:
            return known.schema
        stored = self._stored.get(name)
        if stored is not None and stored.declared != declared:
            lines = "".join(f"\n    {line}" for line in _differences(stored.declared, declared))
            raise CheckpointError(
                f"{name}: the checkpoint {self._location} has the columns that were inferred for another declaration:"
                f"{lines}\nundo the change, start with a new checkpoint, or infer the columns anew (adopt=True, in "
                "scripts `kdsl run --infer-anew`)"
            )
        result = StoredSchema(dict(declared), infer()) if stored is None else stored
        self.inferred[name] = result
        return result.schema

    def forget(self, name: str) -> None:
        """Forget what was inferred of a table or read from a checkpoint, so that `schema` infers it again.

        Only this object changes, not the file of the checkpoint; unknown names are ignored.
        """
        self.inferred.pop(name, None)
        self._stored.pop(name, None)


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each old (``-``) and new (``+``) value of the settings that differ."""
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield from (f"- {key} = {before[key]}" for _ in [0] if key in before)
            yield from (f"+ {key} = {after[key]}" for _ in [0] if key in after)


def read_stored(folder: Folder) -> dict[str, StoredSchema]:
    """What a checkpoint has; empty where nothing was inferred for it."""
    location = folder.path(FILE)
    text = folder.read(FILE)
    if text is None:
        return {}
    try:
        document = json.loads(text)
        version = document["version"]
        if version == VERSION:
            return {name: StoredSchema.from_document(one) for name, one in document["tables"].items()}
    except Exception as e:
        raise CheckpointError(
            f"{location} cannot be read: {type(e).__name__} in its contents; restore it from a copy, or remove it: the "
            "columns are then inferred anew"
        ) from e
    raise CheckpointError(
        f"{location} has version {version}, and this kdsl reads version {VERSION}; use the kdsl that wrote it, or a "
        "newer one"
    )


def store(folder: Folder, inferred: Mapping[str, StoredSchema]) -> None:
    """Keep what was inferred with a checkpoint; tables that are stored already and not among them stay.

    If nothing differs from what is stored, nothing is written.
    """
    before = read_stored(folder)
    tables = {**before, **inferred}
    if tables == before:
        return
    document = {"version": VERSION, "tables": {name: one.document() for name, one in tables.items()}}
    folder.write(FILE, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def keep_with(checkpoint: str | None, spark: SparkSession | None, *, adopt: bool) -> Iterator[Inference]:
    """Infer tables as they are stored with a checkpoint, and store what the body infers, unless it raises an error.

    Args:
        checkpoint: The folder of the checkpoint; None stores nothing.
        spark: The session that reads and writes the folder.
        adopt: Infer all tables anew, whatever is stored.
    """
    if checkpoint is None:
        yield Inference()
        return
    if spark is None:
        raise TypeError("checkpoint= needs spark=, the session that reads and writes that folder")
    folder = open_folder(spark, checkpoint)
    inference = Inference(read_stored(folder), location=checkpoint, adopt=adopt)
    yield inference
    store(folder, inference.inferred)
