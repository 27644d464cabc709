"""What is declared in files and folders, with all problems, without asking any cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import attrs

from kdsl import load
from kdsl.declare.definition import TableDef
from kdsl.declare.dsl.table_def import read_columns
from kdsl.deployment.compare import title_of
from kdsl.deployment.desired import Declaration
from kdsl.documents import SQL_ENDINGS
from kdsl.errors import Problem, ResolveError, fail_on
from kdsl.kafka_table import KafkaTable
from kdsl.table import Table
from kdsl.types.python import unwrap

# Files of a folder that declare something: others, such as tests and jobs, are not imported.
_DECLARES = {
    ".py": re.compile(r"^class .*\b(KafkaTable|UpsertTable)\b|\b(Ingestion|Table)\(", re.MULTILINE),
    ".sql": re.compile(r"\bCREATE\s+(TEMPORARY\s+)?TABLE\b", re.IGNORECASE),
    ".yaml": re.compile(r"^(tables|source|sink)\s*:", re.MULTILINE),
}
_DECLARES[".yml"] = _DECLARES[".yaml"]
_SKIPPED = re.compile(r"\..*|__pycache__|tests?|site-packages|node_modules|test_.*|conftest\.py")
"""Names of folders and files that declare nothing for a local Kafka."""


@attrs.frozen
class Declared:
    """A table or an ingestion.

    Attributes:
        declaration: The declaration, for `kdsl.deployment`.
        is_written: Whether statements of a script, or the table's own option, say that a job writes it.
        target: How commands name it.
    """

    declaration: Declaration
    is_written: bool = False
    target: str = ""


def expand_folders(targets: Iterable[str]) -> Iterator[str]:
    """Yield targets with, instead of each folder, the files in it and below that declare tables or ingestions."""
    for target in targets:
        folder = Path(target)
        if not folder.is_dir():
            yield target
            continue
        files = sorted(_declaring_files(folder))
        if not files:
            raise load.TargetError(f"no file in the folder {target!r} declares a table or an ingestion")
        yield from map(_target_of, files)


def _declaring_files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if _SKIPPED.fullmatch(path.name) or (path / "pyvenv.cfg").exists():
            continue
        if path.is_dir():
            yield from _declaring_files(path)
        elif (pattern := _DECLARES.get(path.suffix.lower())) and pattern.search(path.read_text("utf-8", "replace")):
            yield path


def _target_of(path: Path) -> str:
    """Return how a file is loaded: as a module if it is in a package, from which it may import."""
    package = path.parent
    while (package / "__init__.py").exists():
        package = package.parent
    module = path.suffix == ".py" and package != path.parent and package.resolve() == Path.cwd()
    return ".".join(path.resolve().relative_to(Path.cwd()).with_suffix("").parts) if module else str(path)


def load_targets(targets: Iterable[str], variables: Mapping[str, str]) -> tuple[list[Declared], list[Problem]]:
    """Load what targets declare, and return it with all problems but those of tables. Python is imported."""
    declared: list[Declared] = []
    all_problems: list[Problem] = []
    for target in targets:
        try:
            of_target = list(_load_script(target, all_problems) if _is_script(target) else _load(target, variables))
        except ResolveError as e:
            all_problems += e.problems
            continue
        except load.TargetError as e:
            all_problems.append(Problem("target", str(e), "name an existing file, module or table"))
            continue
        declared += of_target
    return declared, list(dict.fromkeys(all_problems))


def _is_script(target: str) -> bool:
    """Whether a target is a whole SQL file."""
    return target.lower().endswith(SQL_ENDINGS)


def _load(target: str, variables: Mapping[str, str]) -> Iterator[Declared]:
    for declaration in load.declarations(target, ("read", "write"), variables):
        of_table = isinstance(declaration.item, Table)
        source = target if not of_table or target.endswith(f":{declaration.title}") else f"{target}:{declaration.title}"
        yield Declared(declaration, declaration.directions == ("write",), source)


def _load_script(target: str, all_problems: list[Problem]) -> Iterator[Declared]:
    """Yield the tables and copies of a script, and add its problems; tables whose columns are inferred are left out."""
    from kdsl.scripts.planner import check_script

    plan, in_script = check_script(load.script(target))
    all_problems += [p for p in in_script if p.code != "cluster-missing"]
    used = load.script_directions(plan)
    for table in plan.tables:
        if table.topic is not None:
            directions = used.get(table.name, ("read", "write"))
            declaration = Declaration(table.topic, directions, title=table.topic.name)
            yield Declared(declaration, "write" in used.get(table.name, ()), f"{target}:{table.topic.name}")
    for copies in plan.copy_jobs:
        for copy in copies.copies:
            fail_on(copy.ingestion.problems(), target)
            yield Declared(Declaration(copy.ingestion, title=title_of(copy.ingestion)), target=target)


def choices_of(table: TableDef) -> Mapping[str, tuple[Any, ...]]:
    """The only values of columns whose annotations are enums or literals, by name; none for tables without a class."""
    for cls in _subclasses(KafkaTable):
        if cls.__name__ == table.where.table and cls.definition().where == table.where:
            annotations = {c.column.name: c.annotation for c in read_columns(cls)[0].values()}
            return {name: values for name, one in annotations.items() if (values := _choices(one))}
    return {}


def _subclasses(cls: type[KafkaTable]) -> Iterator[type[KafkaTable]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _choices(annotation: Any) -> tuple[Any, ...]:
    """Return the values of an enum or a literal, also of one that may be None; empty for another annotation."""
    annotation, _ = unwrap(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(one.value for one in annotation)
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((values for one in get_args(annotation) if (values := _choices(one))), ())
