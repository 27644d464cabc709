"""Finds tables and clusters by name: in a Python file or module, YAML, or a SQL script; and ingestions in YAML."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from kdsl.documents import SQL_ENDINGS, read_text
from kdsl.errors import KdslError, Problem, ResolveError, Where, fail_on, listing, nearest
from kdsl.formats import Direction
from kdsl.kafka_table import KafkaTable
from kdsl.loading import loading
from kdsl.resolve import directions_of
from kdsl.table import Table, load_tables

if TYPE_CHECKING:
    from kdsl.cluster import Cluster
    from kdsl.ddl.script_reader import Script
    from kdsl.deployment.desired import Declaration
    from kdsl.ingest import Ingestion
    from kdsl.scripts.script_plan import ScriptPlan

YAML = (".yaml", ".yml")
T = TypeVar("T")


class TargetError(KdslError):
    """There is no such file, module or table as a target names."""


def tables(target: str) -> list[Table]:
    """Load the tables of a target; a Python file or module is imported, and its folder stays in ``sys.path``.

    For a module that is the current folder.

    Args:
        target: ``orders.py``, ``package.module``, ``tables.yaml``, ``tables.sql``, each optionally with ``:Name`` for
            one table: the table's name, or in Python the name of its class or variable.
    """
    source, name = _split(target)
    return _choose_tables(source, name)


def _choose_tables(source: str, name: str, module: ModuleType | None = None) -> list[Table]:
    """Load the tables of a file or module, or the one with a name; errors as for `tables`.

    Args:
        source: The file, or the module.
        name: The name of a table, or its class or variable; empty for all.
        module: The module, if it is imported already.
    """
    classes: dict[str, Table] = {}
    if source.lower().endswith(SQL_ENDINGS):
        from kdsl.ddl.load import table_definitions

        of_file = [Table(definition) for definition in table_definitions(script(source))]
    elif source.lower().endswith(YAML):
        of_file = _read(source, load_tables)
    else:
        classes = _list_module_tables(module or _import_module(source))
        values = list(classes.values())
        of_file = [table for i, table in enumerate(values) if table not in values[:i]]
    if not of_file:
        raise TargetError(
            f"{source!r} declares no table; write a class of kdsl.KafkaTable, a YAML document, or CREATE TABLE in SQL"
        )
    if not name:
        return of_file
    chosen = [t for t in of_file if t.name == name] or [t for known, t in classes.items() if known == name]
    if not chosen:
        names = [t.name for t in of_file]
        raise TargetError(f"{source!r} has no table {name!r}{nearest(name, names)}; it has {listing(names)}")
    return chosen


def declarations(
    target: str, directions: tuple[Direction, ...], variables: Mapping[str, str], cluster: Cluster | None = None
) -> list[Declaration]:
    """Load everything that a target declares: tables, and ingestions, in SQL also the copies of a script.

    A Python file or module is imported, as for `tables`. For a script whose tables leave out columns the cluster is
    asked for them.

    Args:
        target: As for `tables`; or an ingestion in YAML. Of a whole SQL file its statements say which tables are read
            and which are written, and which checkpoints they have.
        directions: The directions of tables about which the file does not say it.
        variables: The variables in an ingestion, by name.
        cluster: The cluster of tables that name none.
    """
    from kdsl.deployment.compare import title_of
    from kdsl.deployment.desired import Declaration
    from kdsl.ingest import Ingestion

    if is_ingestion(target):
        loaded, problems = ingestion(target, variables)
        fail_on(problems, target)
        assert loaded is not None  # otherwise there is a problem
        return [Declaration(loaded, title=title_of(loaded))]
    source, name = _split(target)
    if source.lower().endswith(SQL_ENDINGS) and not name:
        return _script_declarations(script(source), directions, cluster)
    module = None if source.lower().endswith((*YAML, *SQL_ENDINGS)) else _import_module(source)
    pipelines: list[Ingestion] = []
    if module is not None and not name:
        values = [value for value in vars(module).values() if isinstance(value, Ingestion)]
        pipelines = [value for i, value in enumerate(values) if value not in values[:i]]
    has_tables = module is None or not pipelines or bool(_list_module_tables(module))
    loaded_tables = _choose_tables(source, name, module) if has_tables else []
    return [
        *(Declaration(table, _narrow_directions(table, directions), title=table.name) for table in loaded_tables),
        *(Declaration(one, title=title_of(one)) for one in pipelines),
    ]


def _narrow_directions(table: Table, directions: tuple[Direction, ...]) -> tuple[Direction, ...]:
    """Return the directions in which a table is compared: the only one, or of both those that it is declared for."""
    return directions_of(table.definition) if len(directions) > 1 else directions


def _script_declarations(
    script_: Script, directions: tuple[Direction, ...], cluster: Cluster | None
) -> list[Declaration]:
    """The tables of a script, with what its statements do with them, and its copies.

    Columns that tables leave out are inferred from the cluster. Tables that are not topics are left out.
    """
    from kdsl.catalog.stored import Inference
    from kdsl.deployment.desired import Declaration
    from kdsl.scripts.checkpoint_folders import predict_folders
    from kdsl.scripts.planner import UNCHECKED, check_script, plan_script

    plan, problems = check_script(script_, cluster)
    if any(p.code == UNCHECKED for p in problems):
        plan = plan_script(script_, cluster, inference=Inference())
    else:
        fail_on(problems, script_.subject)
    folders = predict_folders(plan.jobs)
    written = {job.sink.name: job for job in plan.insert_jobs if job.sink is not None}
    used = script_directions(plan)
    result = []
    for table in plan.tables:
        if table.topic is None:
            continue
        job = written.get(table.name)
        folder = None if job is None else folders.get(job.name)
        folder = folder if folder is not None and Path(folder.removeprefix("file:")).is_dir() else None
        of_table = used.get(table.name) or _narrow_directions(table.topic, directions)
        result.append(Declaration(table.topic, of_table, folder, title=table.topic.name))
    for copies in plan.copy_jobs:
        folder = folders.get(copies.name)
        for copy in copies.copies:
            own = copy.name if len(copies.copies) > 1 else ""
            result.append(
                Declaration(
                    copy.ingestion,
                    checkpoint=folder,
                    name=own,
                    title=copy.name,
                    new_table=copy.new_table,
                    new_database=copy.new_database,
                )
            )
    return result


def script_directions(plan: ScriptPlan) -> Mapping[str, tuple[Direction, ...]]:
    """What statements of a script do with its tables, by the names in the plan; tables that none uses are missing."""
    read = {name for job in plan.insert_jobs for name in job.tables}
    written = {job.sink.name for job in plan.insert_jobs if job.sink is not None}
    by_direction: Mapping[Direction, set[str]] = {"read": read, "write": written}
    return {
        name: tuple(direction for direction, names in by_direction.items() if name in names) for name in read | written
    }


def script(path: str | Path) -> Script:
    """Read the script of a file; errors in its statements are among its problems."""
    from kdsl.ddl.load import parse_file

    return _read(str(path), parse_file)


def is_ingestion(target: str) -> bool:
    """Whether a target is the YAML document of an ingestion; False for a file that does not exist.

    The file is read; errors are those of `_document`.
    """
    if not target.lower().endswith(YAML) or not Path(target).is_file():
        return False
    from kdsl.ingest.document import is_ingestion_document

    return is_ingestion_document(_document(target))


def ingestion(target: str, variables: Mapping[str, str]) -> tuple[Ingestion | None, tuple[Problem, ...]]:
    """The ingestion in a YAML document, None if it cannot be read; and its problems, in the order of their lines.

    Args:
        target: The file.
        variables: The variables in the document, by name.
    """
    from kdsl.ingest import Ingestion

    return Ingestion.read(_document(target), variables, file=target)


def _document(target: str) -> str:
    """The text of a YAML file."""
    return _read(target, lambda path: read_text(path, "document", "yaml"))


def _read(source: str, read: Callable[[str], T]) -> T:
    """Read a file with a function, after checking that it exists; other errors of the function are passed on."""
    if not Path(source).is_file():
        raise TargetError(f"there is no file {source!r}")
    try:
        return read(source)
    except OSError as e:
        raise TargetError(f"the file {source!r} cannot be read: {e.strerror}") from e


def _split(target: str) -> tuple[str, str]:
    """The file or module, and the name of a table, or an empty string; a path may hold colons, as ``C:/orders.py``."""
    if target.lower().endswith((".py", *YAML, *SQL_ENDINGS)) or Path(target).is_file():
        return target, ""
    source, colon, name = target.rpartition(":")
    return (source, name) if colon else (target, "")


def names_table(target: str) -> bool:
    """Whether a target of a command is a table, or the name of a topic, which has no colon and no ending of a file."""
    return target.lower().endswith((".py", *YAML, *SQL_ENDINGS)) or ":" in target


def table(target: str) -> Table:
    """Load the one table of a target, as `tables` does."""
    of_target = tables(target)
    names = [t.name for t in of_target]
    if len(of_target) > 1 and len(set(names)) == 1:
        raise TargetError(f"{target!r} has {len(of_target)} tables {names[0]!r}; give each a name of its own")
    if len(of_target) > 1:
        raise TargetError(f"{target!r} has several tables; write {target}:{of_target[0].name}, or another of "
                          f"{listing(t.name for t in of_target)}")  # fmt: skip
    return of_target[0]


def cluster(target: str) -> Cluster:
    """Load a cluster: ``package.module:name`` of a variable in Python, or ``clusters.yaml:name`` of a YAML document.

    A Python file or module is imported, as for `tables`. The name may be left out for a document with one cluster.
    """
    from kdsl.cluster import Cluster

    source, name = _split(target)
    if source.lower().endswith(YAML):
        return _read(source, lambda path: Cluster.from_yaml(path, name or None))
    clusters = {key: value for key, value in vars(_import_module(source)).items() if isinstance(value, Cluster)}
    if name not in clusters:
        raise TargetError(f"{source!r} has no cluster {name!r}{nearest(name, clusters)}; it has {listing(clusters)}")
    return clusters[name]


def _import_module(source: str) -> ModuleType:
    """Import a module by its file or its name; its folder, or the current one, is put at the front of ``sys.path``.

    The module of a file stays in ``sys.modules``, under a name that no other module has (`_free_name`). A job that it
    starts is logged (`kdsl.loading`).
    """
    path = Path(source)
    if source.endswith(".py") and not path.is_file():
        raise TargetError(f"there is no file {source!r}")
    if not source.endswith(".py") and not all(part.isidentifier() for part in source.split(".")):
        what = f"{source!r} is a folder" if source and path.is_dir() else f"there is no module or file {source!r}"
        raise TargetError(
            f"{what}; name a file, as orders.py, tables.yaml or tables.sql, or a module, as package.orders"
        )
    sys.path.insert(0, str(path.parent.resolve()) if source.endswith(".py") else str(Path.cwd()))
    try:
        if not source.endswith(".py"):
            with loading(source):
                return importlib.import_module(source)
        spec = importlib.util.spec_from_file_location(_free_name(path.stem), path.resolve())
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        with loading(source):
            spec.loader.exec_module(module)
    except ModuleNotFoundError as e:
        if e.name and source.split(".")[0] == e.name.split(".")[0]:
            raise TargetError(f"there is no module or file {source!r}") from e
        raise _import_error(source, e) from e
    except ResolveError:
        raise
    except (Exception, SystemExit) as e:
        raise _import_error(source, e) from e
    return module


def _free_name(stem: str) -> str:
    """Return a module name for a file that replaces no other module, as ``json.py`` would: with ``_`` if needed."""
    return stem if stem not in sys.modules and stem not in sys.stdlib_module_names else _free_name(f"{stem}_")


_NOT_THE_USERS = (*sysconfig.get_paths().values(), str(Path(__file__).parent))


def _import_error(source: str, error: BaseException) -> ResolveError:
    """Create the error for a file whose import failed, with the line of the user's code."""
    every = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    frames = [f for f in every if not f.filename.startswith(("<", *_NOT_THE_USERS))] or every
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    file = error.filename if isinstance(error, SyntaxError) else frames[-1].filename if frames else source
    message = f"the file cannot be imported: {type(error).__name__}: {error}"
    problem = Problem(
        "import", message, "correct the file; its tables are read by importing it", Where(file=file, line=line)
    )
    return ResolveError(f"{source} has 1 problem", [problem])


def _list_module_tables(module: ModuleType) -> dict[str, Table]:
    """Collect the tables of a module by the names of their classes and variables; `_table_of` says what is a table."""
    tables = {name: _table_of(value, module.__name__) for name, value in vars(module).items()}
    return {name: table for name, table in tables.items() if table is not None}


def _table_of(value: Any, module: str) -> Table | None:
    """Return the table of a module's value: a `Table` itself, also an imported one, or that of a class of the module.

    None for a class of another module, for one without a topic that others are derived from, and for anything else.
    Problems of the declaration stay in the table; they are not raised here.
    """
    if isinstance(value, Table):
        return value
    if isinstance(value, type) and issubclass(value, KafkaTable) and value.__module__ == module:
        table_ = Table(value.definition())
        options = table_.definition.options
        declared = bool(options.topic) or options.topic_pattern is not None
        return table_ if declared or not _is_base(value) else None
    return None


def _is_base(value: type) -> bool:
    """Whether other tables are made from this class, which then need not be a table itself."""
    return bool(value.__subclasses__())
