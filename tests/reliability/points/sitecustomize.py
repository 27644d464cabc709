"""Where a job dies: loaded by each Python of a job, because this folder is on its PYTHONPATH.

The environment names one point (`tests.reliability.harness.Kill`): a function of the product, and whether the process
tree dies before it, after it, or between the first and the second thing that it yields. The product knows nothing of
this; the function is wrapped when its module is imported.
"""

from __future__ import annotations

import functools
import importlib.machinery
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "KDSL_TEST_KILL"
SESSION = "KDSL_TEST_SESSION"


def fire(kill: dict[str, Any]) -> None:
    """Die here, if the job has come far enough, and if nobody died for this before."""
    if _count_commits(Path(kill["checkpoint"])) < kill["committed"]:
        return
    if kill["skip"] > 0:
        kill["skip"] -= 1
        return
    try:
        os.close(os.open(kill["note"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    match kill["action"]:
        case "kill":
            kill_session(int(os.environ[SESSION]))
        case "kill-worker":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill-executor":
            kill_java()
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(kill["seconds"])
        case "fail":
            raise RuntimeError("the test lets it fail here")
        case other:
            raise ValueError(f"{other!r} is no action")


def kill_session(session: int) -> None:
    """Kill all processes of a session at once, Java first, so that it writes nothing more."""
    import psutil

    results = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session:
                results.append((process.name() != "java", process.pid == os.getpid(), process.pid))
        except (psutil.Error, ProcessLookupError):
            continue
    for _, _, pid in sorted(results):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def kill_java() -> None:
    """Kill the JVM that this Python worker belongs to, and the worker with it."""
    import psutil

    for process in psutil.Process().parents():
        if process.name() == "java":
            process.kill()
            break
    os.kill(os.getpid(), signal.SIGKILL)


def _count_commits(checkpoint: Path) -> int:
    """How many batches Spark has noted as done."""
    try:
        names = [entry.name for entry in (checkpoint / "commits").iterdir()]
    except FileNotFoundError:
        return 0
    return 1 + max((int(name) for name in names if name.isdigit()), default=-1)


def wrap(function: Callable[..., Any], kill: dict[str, Any]) -> Callable[..., Any]:
    """A function with the point in it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kill["when"] == "before":
            fire(kill)
        result = function(*args, **kwargs)
        if kill["when"] == "after":
            fire(kill)
        return between(result) if kill["when"] == "between" else result

    def between(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            yield item
            fire(kill)

    return call


class Finder(MetaPathFinder):
    """Wraps the function when its module is imported."""

    def __init__(self, kill: dict[str, Any]) -> None:
        self._kill = kill
        self._module, _, self._path = kill["function"].partition(":")

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own loader, with the wrapping behind it."""
        if name != self._module:
            return None
        result = importlib.machinery.PathFinder.find_spec(name, path, target)
        if result is not None and result.loader is not None:
            loader: Any = result.loader
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._wrap(module)

            loader.exec_module = exec_module
        return result

    def _wrap(self, module: ModuleType) -> None:
        *owners, name = self._path.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part)
        setattr(owner, name, wrap(getattr(owner, name), self._kill))


# Spark puts its own pyspark.zip first, and what is imported from a zip file is compiled in each process again.
sys.path[:] = [entry for entry in sys.path if not ("pyspark" in entry and entry.endswith(".zip"))]
if VARIABLE in os.environ:
    os.environ.setdefault(SESSION, str(os.getsid(0)))
    sys.meta_path.insert(0, Finder(json.loads(os.environ[VARIABLE])))
