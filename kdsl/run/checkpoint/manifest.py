"""The manifest beside a query's checkpoint: the plan of its write, and the routing of its rows to writers.

Spark's own checkpoint stores offsets and state, and nothing about the sink. The folder ``kdsl`` in the checkpoint holds
the manifest, which is written at the first start and read at each later one, so that a restart can be checked.
"""

from __future__ import annotations

import json
import uuid
from typing import Literal

import attrs
from cattrs import structure, unstructure

from kdsl.errors import CheckpointError
from kdsl.plan.changes import UNSAFE_CHANGES, AllowedChanges, difference_lines, unsafe_changes
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text, read_plan_text

VERSION = 1


@attrs.frozen
class RowRouting:
    """How the rows of an exactly-once query are routed to writers, which must be the same when a batch is repeated.

    Attributes:
        prefix: The prefix of the transactional ids.
        writers: The number of writers.
        by: What rows are routed by: the ``tasks`` of the source, ``columns``, or ``staged`` files; ``one`` where there
            is one writer.
        basis: The maximal number of tasks of the source and what else determines them, or the names of the columns.
        digest: How the columns are computed (`kdsl.run.exactly_once.column_digest.digest_columns`); empty if rows
            are not routed by columns.
    """

    prefix: str
    writers: int
    by: Literal["tasks", "columns", "staged", "one"]
    basis: tuple[str, ...] = ()
    digest: str = ""


@attrs.frozen
class Manifest:
    """What kdsl stores about a query.

    Attributes:
        id: The id of the query's checkpoint; commit tokens carry it.
        plan: The write plan, as `kdsl.plan.text.plan_text` returns it.
        routing: How an exactly-once query routes its rows; None for other queries.
    """

    id: str = attrs.field(factory=lambda: uuid.uuid4().hex)
    plan: str = ""
    routing: RowRouting | None = None

    def text(self) -> str:
        """The manifest as indented JSON; equal manifests give equal strings."""
        document = {
            "version": VERSION,
            "id": self.id,
            "plan": json.loads(self.plan),
            "routing": unstructure(self.routing),
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    def read_plan(self, location: str) -> WritePlan:
        """Read the stored plan.

        Args:
            location: The checkpoint, for messages.
        """
        try:
            return read_plan_text(self.plan, WritePlan)
        except Exception as e:
            raise _broken(location, f"its plan cannot be read ({e})") from e

    def list_prefixes(self, location: str) -> set[str]:
        """List the prefixes of transactional ids under which starts of the query have written or may be about to.

        Args:
            location: The checkpoint, for messages.
        """
        planned = self.read_plan(location).transactions
        prefixes = set() if planned is None else {planned.prefix}
        return prefixes if self.routing is None else prefixes | {self.routing.prefix}

    def check_change(self, plan: WritePlan, location: str, allow: AllowedChanges) -> list[str]:
        """Check that a query may continue with a plan.

        Args:
            plan: What is written from now on.
            location: The checkpoint, for messages.
            allow: The unsafe changes that are allowed, or True for all.

        Returns:
            The lines by which both plans differ; empty if they are equal.
        """
        if json.loads(self.plan) == json.loads(plan_text(plan)):
            unsafe_changes(plan, plan, allow)  # a misspelled change is an error all the same
            return []
        before = self.read_plan(location)
        lines = difference_lines(before, plan)
        unsafe = unsafe_changes(before, plan, allow)
        if unsafe:
            effects = "".join(f"\n  {change}: {UNSAFE_CHANGES[change]}" for change in unsafe)
            names = "{" + ", ".join(f'"{change}"' for change in unsafe) + "}"
            raise CheckpointError(
                f"{plan.table}: the checkpoint {location} was written by another plan, and not every change is safe:"
                f"{effects}\n" + "\n".join(f"    {line}" for line in lines) + "\nstart with a new checkpoint, undo the "
                f"change, or pass allow={names} if it is intended"
            )
        return lines


def read_manifest(text: str, location: str) -> Manifest:
    """Read a manifest from its JSON (`Manifest.text`); ``location`` is for messages."""
    try:
        document = json.loads(text)
        version = document.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise _broken(location, "it is not a document of kdsl") from None
    if version != VERSION:
        raise CheckpointError(
            f"{location} has version {version}, and this kdsl reads version {VERSION}; use the kdsl that wrote it, or "
            "a newer one"
        )
    try:
        plan = json.dumps(document["plan"], ensure_ascii=False, separators=(",", ":"))
        routing = document.get("routing")
        routing = None if routing is None else structure(routing, RowRouting)
        return Manifest(str(document["id"]), plan, routing)
    except Exception as e:
        raise _broken(location, f"{type(e).__name__} in its contents") from e


def _broken(location: str, reason: str) -> CheckpointError:
    """Create the error for a manifest that cannot be read."""
    return CheckpointError(
        f"{location} cannot be read: {reason}; restore it from a copy, or remove it: an at-least-once query then "
        "continues from its checkpoint, and an exactly-once query requires adopt=True"
    )
