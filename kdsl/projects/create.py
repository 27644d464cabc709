"""Creates the files of a project from a template, without overwriting any.

A template is a folder of files in ``templates``, which are valid as they are: their names and their content have sample
names, for which those of the project are written. Files of ``shared`` belong to every template. A name that begins
with ``dot_`` stands for a hidden file.
"""

from __future__ import annotations

import keyword
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import attrs

import kdsl
from kdsl.errors import KdslError, listing
from kdsl.monitoring.alerts import write_rules
from kdsl.monitoring.grafana import write_dashboard
from kdsl.resolve.topics import LEGAL_NAME, LONGEST_NAME

_PROJECT = re.compile(r"[A-Za-z][A-Za-z0-9]*([._-]+[A-Za-z0-9]+)*")
_CLASS = re.compile(r"[A-Z][A-Za-z0-9]*")
_TAKEN_PACKAGES = {*sys.stdlib_module_names, "kdsl", "kdsl_formats", "pyspark", "pytest", "tests", "monitoring"}
_TAKEN_CLASSES = {
    *("Cluster", "Col", "DataFrame", "DeadLetters", "Json", "KafkaTable", "Key", "Path", "Source", "SparkSession"),
    *("StreamingQuery", "Target"),
}
_LONGEST_SUFFIX = len("-large")


class Template(StrEnum):
    """What a project is to begin with."""

    JOB = "job"
    PIPELINE = "pipeline"
    INGESTION = "ingestion"


_CHECKS = {
    Template.JOB: "kdsl check sample_package/tables.py",
    Template.INGESTION: "kdsl check ingestion.yaml --vars local.properties",
}
"""What CI runs before the tests; the test of a pipeline makes a dry run, which checks its declarations."""


class ProjectError(KdslError):
    """A project cannot be created: names are invalid, or files are in the way; nothing was written."""


@attrs.frozen
class Names:
    """The names in a project.

    Attributes:
        project: The name of the distribution, such as ``shop-orders``.
        topic: The topic to read.
        table: The class of its table.
    """

    project: str
    topic: str
    table: str

    @property
    def package(self) -> str:
        """The Python package, such as ``shop_orders``."""
        return re.sub(r"[._-]+", "_", self.project).lower()

    def find_problems(self) -> Iterator[str]:
        """Yield what is wrong with each name, and what to write instead."""
        if not _PROJECT.fullmatch(self.project):
            yield (
                f"the project {self.project!r} cannot be a Python package: begin with a letter, then letters, digits "
                "and single . _ - between them; write --name shop-orders"
            )
        elif keyword.iskeyword(self.package) or self.package in _TAKEN_PACKAGES:
            yield f"the project {self.project!r} would hide the Python module {self.package!r}; choose another --name"
        longest = LONGEST_NAME - _LONGEST_SUFFIX
        if not LEGAL_NAME.fullmatch(self.topic) or len(self.topic) > longest or self.topic in (".", ".."):
            yield (
                f"the topic {self.topic!r} cannot be used: write --topic with 1 to {longest} of the characters "
                "a-z A-Z 0-9 . _ - (the other topics of the project get longer names)"
            )
        if not _CLASS.fullmatch(self.table) or keyword.iskeyword(self.table):
            yield (
                f"the table {self.table!r} cannot be a class: begin with a capital letter, then letters and digits; "
                "write --table Orders"
            )
        elif self.table in _TAKEN_CLASSES:
            yield f"the project imports another {self.table}; choose another --table"


@attrs.frozen
class Creation:
    """The files of a project, relative to its folder.

    Attributes:
        written: Those that were written now.
        unchanged: Those that were there already, with the same content.
    """

    written: tuple[str, ...]
    unchanged: tuple[str, ...]


def suggest_table(topic: str) -> str:
    """The name of a class for a topic: ``ShopOrders`` for ``shop.orders``; ``Table1`` if it begins with a digit."""
    name = "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", topic))
    return name if name[:1].isalpha() else f"Table{name}"


def create_project(folder: Path, template: Template, names: Names) -> Creation:
    """Write the files of a project; those that exist with the same content are left.

    Args:
        folder: The folder of the project; it is created if it does not exist.
        template: What the project begins with.
        names: The names in it.
    """
    problems = list(names.find_problems())
    if problems:
        raise ProjectError("\n".join(problems))
    texts = render(template, names)
    try:
        different = [name for name, text in texts.items() if not _can_write(folder / name, text)]
        if different:
            raise ProjectError(
                f"{folder} has already {listing(different)}, with another content; nothing was written: choose another "
                "folder, or move these files away"
            )
        new = [name for name in texts if not (folder / name).exists()]
        _write(folder, {name: texts[name] for name in new})
    except OSError as e:
        raise ProjectError(f"{folder} cannot be written: {e.strerror or e}") from e
    return Creation(tuple(new), tuple(name for name in texts if name not in new))


def render(template: Template, names: Names) -> Mapping[str, str]:
    """The text of each file of a project, by its path in the project's folder.

    Args:
        template: What the project begins with.
        names: The names in it.
    """
    samples = {
        ">=0.0.0,<0.0.1": _compatible_versions(kdsl.__version__),
        "sample-project": names.project,
        "sample_package": names.package,
        "sample-topic": names.topic,
        "SampleTable": names.table,
    }
    texts: dict[str, str] = {}
    if template is not Template.PIPELINE:  # which has no metrics: a pipeline allows no listeners
        texts["monitoring/dashboard.json"] = write_dashboard()
        texts["monitoring/alerts.yml"] = write_rules()
    check = _CHECKS.get(template)
    templates = files("kdsl.projects") / "templates"
    for path, text in (*_walk(templates / "shared"), *_walk(templates / template)):
        text = text.replace("      - run: SAMPLE_CHECK\n", f"      - run: {check}\n" if check else "")
        texts[_replace(re.sub(r"(^|/)dot_", r"\1.", path), samples)] = _replace(text, samples)
    return dict(sorted(texts.items()))


def _walk(folder: Traversable, path: str = "") -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_file() and not entry.name.endswith(".pyc"):
            yield path + entry.name, entry.read_text(encoding="utf-8")
        elif entry.is_dir() and not entry.name.startswith((".", "__pycache__")):  # left by tools
            yield from _walk(entry, f"{path}{entry.name}/")


def _replace(text: str, samples: Mapping[str, str]) -> str:
    """Replace the sample names in one pass, because a name may contain another sample."""
    return re.sub("|".join(map(re.escape, samples)), lambda match: samples[match[0]], text)


def _compatible_versions(version: str) -> str:
    """The range of versions from the installed one up to the next that may change what programs use."""
    major, minor, *_ = (*re.findall(r"\d+", version), "0")
    following = f"{int(major) + 1}" if int(major) else f"0.{int(minor) + 1}"
    return f">={version.partition('+')[0]},<{following}"


def _can_write(path: Path, text: str) -> bool:
    """Whether a file can be created, or has this content already; not if one of its folders is a file."""
    if path.is_symlink() or path.exists():
        return path.is_file() and path.read_bytes() == text.encode()
    nearest = next(parent for parent in path.parents if parent.exists() or parent.is_symlink())
    return nearest.is_dir()


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files so that each is there as a whole or not at all; if one fails, those before it are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with tempfile.TemporaryDirectory(dir=folder, prefix=".kdsl-init-") as staging:
        try:
            for i, (name, text) in enumerate(texts.items()):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                staged = Path(staging) / str(i)
                staged.write_text(text, encoding="utf-8", newline="\n")
                staged.rename(path)
                written.append(path)
        except BaseException:
            for path in written:
                path.unlink(missing_ok=True)
            raise
