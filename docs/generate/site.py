"""Builds the site of the documentation: ``python -m docs.generate.site [OUT]``, as ``make site`` does.

The sources are assembled in a temporary folder: the pages that docs/README.md lists, the Python API, and the files of
the project that pages link to. Zensical renders them into ``OUT/VERSION`` (``build/site`` unless named), where other
versions stay; beside each page lies its Markdown, and at the top llms.txt and llms-full.txt. Nothing is fetched.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import yaml

from docs.generate.api import ApiPage, api_pages, markdown_text, site_text
from docs.generate.navigation import INDEX, ROOT, Page, read_pages

_LINK = re.compile(r"(?<!\!)\]\(([^)\s#]+)?(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".sql": "sql", ".yaml": "yaml", ".yml": "yaml", ".avsc": "json", ".json": "json"}
_API = "Reference/Python API"
_NAMED_PAGE = re.compile(r"(?<![\w/\"])docs/([\w/-]+)\.md(?![\w\"])")


def site_path(path: str) -> str:
    """Where a file of the project is on the site: a page below docs/ at the top, a program as a page of its code."""
    if path.endswith("README.md"):
        return f"{path.removeprefix('docs/').removesuffix('README.md')}index.md" if path != "README.md" else "index.md"
    return path.removeprefix("docs/") if path.endswith(".md") else f"source/{path.rstrip('/')}.md"


def move_links(text: str, path: str, use: Callable[[str], None]) -> str:
    """Rewrite the relative links of a page for its place on the site; code is left as it is.

    Args:
        text: The page.
        path: Where the page is, from the root of the project.
        use: Is called with each file of the project that a link leads to.
    """

    def move(match: re.Match[str]) -> str:
        link, anchor = match[1] or "", match[2] or ""
        if not link or re.match(r"\w+:", link):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
        use(target)
        return f"]({posixpath.relpath(site_path(target), posixpath.dirname(site_path(path)) or '.')}{anchor})"

    return "".join(part if part.lstrip().startswith("```") else _LINK.sub(move, part) for part in _FENCE.split(text))


def code_page(path: Path) -> str:
    """A page with the code of a file, or of all files of a folder, which the search leaves out."""
    name = path.relative_to(ROOT).as_posix()
    files = sorted(p for p in path.rglob("*") if p.suffix in _LANGUAGES) if path.is_dir() else [path]
    parts = [f"---\nsearch:\n  exclude: true\n---\n\n# {name}"]
    for file in files:
        heading = [f"## {file.relative_to(path).as_posix()}"] if path.is_dir() else []
        code = file.read_text(encoding="utf-8").rstrip()
        parts += [*heading, f"````{_LANGUAGES.get(file.suffix, 'text')}\n{code}\n````"]
    return "\n\n".join(parts) + "\n"


def assemble(source: Path) -> list[Page]:
    """Write the sources of the site into a folder, and return the pages of the navigation."""
    pages = read_pages()
    used: list[str] = []
    written = {INDEX.relative_to(ROOT).as_posix(), *(page.path for page in pages)}
    for path in sorted(written):
        _write(source / site_path(path), move_links((ROOT / path).read_text(encoding="utf-8"), path, used.append))
    for path in sorted({path for path in used if path not in written and site_path(path) != "index.md"}):
        if path.endswith(".md"):
            raise ValueError(f"a page links to {path}, which docs/README.md does not list")
        _write(source / site_path(path), code_page(ROOT / path))
    shutil.copy(ROOT / "docs" / "site.css", source)
    api = api_pages()
    for page in api:
        _write(source / "api" / f"{page.name}.md", site_text(page))
    after = max(i for i, page in enumerate(pages) if page.group.startswith("Reference")) + 1
    pages[after:after] = [Page(p.title, f"docs/api/{p.name}.md", p.about, _API) for p in api]
    return pages


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def navigation(pages: Iterable[Page]) -> list[object]:
    """The navigation in the form of mkdocs.yml: parts, groups, pages."""
    parts: dict[str, list[object]] = {}
    groups: dict[str, list[object]] = {}
    for page in pages:
        part, _, group = page.group.partition("/")
        entries = parts.setdefault(part, [])
        if group and page.group not in groups:
            entries.append({group: groups.setdefault(page.group, [])})
        (groups[page.group] if group else entries).append({page.title: site_path(page.path)})
    return [{"Home": "index.md"}, *({part: entries} for part, entries in parts.items())]


def write_markdown(source: Path, out: Path, pages: list[Page], api: list[ApiPage]) -> None:
    """Write the Markdown of each page beside it, and llms.txt and llms-full.txt, which list and contain all of them."""
    texts = {f"api/{page.name}.md": markdown_text(page) for page in api}
    for path in sorted(source.rglob("*.md")):
        name = path.relative_to(source).as_posix()
        texts.setdefault(name, path.read_text(encoding="utf-8"))
    for name, text in texts.items():
        _write(out / name, text)
    about = re.findall(r"^> (.*)$", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    lines = ["# kdsl", "", f"> {' '.join(about)}"]
    part = ""
    for page in pages:
        if (heading := page.group.partition("/")[0]) != part:
            part = heading
            lines += ["", f"## {part}", ""]
        lines.append(f"- [{page.title}]({site_path(page.path)}): {page.about}")
    _write(out / "llms.txt", "\n".join(lines) + "\n")
    full = "\n\n".join(f"<!-- {site_path(page.path)} -->\n\n{texts[site_path(page.path)].strip()}" for page in pages)
    _write(out / "llms-full.txt", f"{full}\n")


def _link_pages(html: str) -> str:
    """A page of a folder of the site with links where docstrings name a page, as ``docs/offsets.md``."""
    return _NAMED_PAGE.sub(lambda match: f'<a href="../{match[1]}.html">{match[0]}</a>', html)


def write_versions(out: Path, version: str) -> None:
    """List the versions of a site, newest first, for the selector; the start page leads to the newest."""
    versions = sorted((p.parent.name for p in out.glob("*/index.html")), key=_version_key, reverse=True)
    entries = [
        {"version": name, "title": name, "aliases": ["latest"] if name == versions[0] else []} for name in versions
    ]
    (out / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    start = (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={versions[0]}/index.html">'
    )
    (out / "index.html").write_text(f'{start}<a href="{versions[0]}/index.html">kdsl {version}</a>\n', encoding="utf-8")


def _version_key(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())


def build_site(out: Path) -> Path:
    """Build the site of this version and return its folder; CalledProcessError if Zensical reports a problem."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = ".".join(project["version"].split(".")[:2])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pages = assemble(root / "docs")
        settings = (ROOT / "docs" / "site.yml").read_text(encoding="utf-8")
        text = settings + yaml.safe_dump({"nav": navigation(pages)}, sort_keys=False)
        (root / "mkdocs.yml").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
        subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": path}, check=True)
        for page in (*(root / "site" / "api").glob("*.html"), root / "site" / "problems" / "errors.html"):
            page.write_text(_link_pages(page.read_text(encoding="utf-8")), encoding="utf-8")
        write_markdown(root / "docs", root / "site", pages, api_pages())
        target = out / version
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(root / "site", target)
    write_versions(out, version)
    return target


if __name__ == "__main__":
    folder = build_site(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "site")
    sys.stdout.write(f"{folder}/index.html\n")
