"""The site of the documentation: every page is reached, links and anchors lead somewhere, and nothing is fetched."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import kdsl
from docs.generate.api import api_pages
from docs.generate.navigation import read_pages

ROOT = Path(__file__).parents[1]
ASSETS = {("script", "src"), ("link", "href"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("use", "href")}


class Parsed(HTMLParser):
    """The links, assets and ids of an HTML page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)
            elif (tag, name) in ASSETS and value:
                self.assets.append(value)


def is_external(link: str) -> bool:
    return re.match(r"(?:[a-z]+:)?//|mailto:", link) is not None


def broken_links(pages: dict[Path, Parsed]) -> list[str]:
    """The links of pages that lead to no file, or to no id in it."""
    broken = []
    for path, parsed in pages.items():
        for link in (link for link in parsed.links + parsed.assets if not is_external(link) and link[:5] != "data:"):
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].ids):
                broken.append(f"{path.name}: {link}")
    return broken


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [page.path for page in read_pages()]
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"docs/README.md"}

    assert sorted({path for path in listed if path.startswith("docs/")}) == sorted(pages)
    assert len(listed) == len(set(listed))
    assert {page.group.partition("/")[0] for page in read_pages()} == {
        "Tutorial",
        "How-to guides",
        "Reference",
        "Explanation",
        "For contributors",
    }


def test_every_public_name_is_on_a_page_of_the_api() -> None:
    names = [name for page in api_pages() for name in page.names]

    assert {f"kdsl.{name}" for name in dir(kdsl)} <= set(names)
    assert len(names) == len(set(names))


def test_a_broken_link_and_a_missing_anchor_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text('<a href="b.html">x</a><a href="#c">x</a><a href="#d">x</a><p id="d"></p><img src="e.png">')

    assert broken_links({page: Parsed(page)}) == ["a.html: b.html", "a.html: #c", "a.html: e.png"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site, without a network that anything could be fetched from."""
    pytest.importorskip("zensical", reason="needs the dependency group site")
    pytest.importorskip("mkdocstrings_handlers", reason="needs the dependency group site")
    from docs.generate.site import build_site

    out = tmp_path_factory.mktemp("site")
    (out / "0.0").mkdir()
    (out / "0.0" / "index.html").touch()
    patch = pytest.MonkeyPatch()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        patch.setenv(name, "http://127.0.0.1:9")
    try:
        return build_site(out)
    finally:
        patch.undo()


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[Path, Parsed]:
    return {path: Parsed(path) for path in site.rglob("*.html")}


def test_all_links_and_anchors_lead_somewhere(parsed: dict[Path, Parsed]) -> None:
    without = {path: page for path, page in parsed.items() if path.name != "404.html"}

    assert len(without) > 100
    assert broken_links(without) == []


def test_a_page_that_a_docstring_names_is_a_link(parsed: dict[Path, Parsed], site: Path) -> None:
    assert "../offsets.html" in parsed[site / "problems" / "errors.html"].links
    assert "../dead-letters.html" in parsed[site / "api" / "tables.html"].links


def test_nothing_is_fetched_from_elsewhere(site: Path, parsed: dict[Path, Parsed]) -> None:
    assert [(p.name, asset) for p, page in parsed.items() for asset in page.assets if is_external(asset)] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]*", styles) == []


def test_no_page_is_without_a_link_to_it(parsed: dict[Path, Parsed]) -> None:
    reached = {
        (path.parent / unquote(link.partition("#")[0])).resolve()
        for path, page in parsed.items()
        for link in page.links
        if not is_external(link)
    }

    assert [path.name for path in parsed if path not in reached and path.name != "404.html"] == []


def test_each_page_has_its_markdown_and_llms_txt_lists_it(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    full = (site / "llms-full.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.MULTILINE)

    assert text.startswith("# kdsl\n\n> Kafka tables for PySpark")
    assert len(listed) > 70
    assert [name for name in listed if not (site / name).is_file() or f"<!-- {name} -->" not in full] == []
    assert [p for p in site.rglob("*.html") if p.name != "404.html" and not p.with_suffix(".md").is_file()] == []
    assert "KafkaTable" in (site / "api" / "tables.md").read_text(encoding="utf-8")


def test_links_in_the_markdown_lead_to_markdown(site: Path) -> None:
    from docs.generate.site import _FENCE, _LINK

    broken = [
        f"{path.name}: {match[1]}"
        for path in site.rglob("*.md")
        for part in _FENCE.split(path.read_text(encoding="utf-8"))
        if not part.lstrip().startswith("```")
        for match in _LINK.finditer(part)
        if match[1] and not is_external(match[1]) and not (path.parent / match[1]).exists()
    ]

    assert broken == []


def test_the_search_finds_text_of_the_pages(site: Path) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    titles = {item["title"] for item in index["items"]}

    assert {"Dead letters: records that cannot be read", "kdsl lag"} <= titles
    assert not any(item["location"].startswith("source/") for item in index["items"])


def test_earlier_versions_stay_and_the_newest_is_the_start(site: Path) -> None:
    versions = json.loads((site.parent / "versions.json").read_text(encoding="utf-8"))

    assert [(entry["version"], entry["aliases"]) for entry in versions] == [(site.name, ["latest"]), ("0.0", [])]
    assert f"url={site.name}/index.html" in (site.parent / "index.html").read_text(encoding="utf-8")


def test_both_colour_schemes_are_there(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")

    assert 'data-md-color-scheme="default"' in page
    assert 'data-md-color-scheme="slate"' in page
