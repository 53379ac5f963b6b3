"""The documentation as a site: it is built without a warning, holds every page, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .browser import browser, needs_browser
from .waiting import wait_until

pytest.importorskip("material", reason="mkdocs-material is not installed")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {path.name for path in DOCS.glob("*.md")}
AT_THE_ROOT = {
    "quickstart.md": "../README.md",
    "CONTRIBUTING.md": "../CONTRIBUTING.md",
    "SECURITY.md": "../SECURITY.md",
}


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def navigation() -> list[list[str]]:
    """The pages of each reader, in order, as mkdocs.yml has them."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return [re.findall(r": (\S+\.md)", part) for part in re.split(r"^  - .*:\n", text, flags=re.MULTILINE)[1:]]


def test_every_page_is_in_the_navigation_once() -> None:
    named = [page for part in navigation() for page in part] + ["index.md"]
    assert sorted(named) == sorted(PAGES | AT_THE_ROOT.keys())


def test_the_index_lists_each_readers_pages() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    parts = [re.findall(r"^- \[[^]]+\]\(([^)]+)\): .*\.$", part, re.MULTILINE) for part in text.split("\n## ")[1:]]
    assert parts == [[AT_THE_ROOT.get(page, page) for page in part] for part in navigation()]
    assert text.count("\n- ") == sum(map(len, parts)), "an entry is one link and one sentence"


def test_each_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    built = {path.stem for path in site.glob("*.html")} - {"404"}
    assert built == {name.removesuffix(".md") for name in PAGES | AT_THE_ROOT.keys()}
    for path in site.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\s\">]+)", text)
        loaded += re.findall(r"<link\b(?![^>]*rel=\"?canonical)[^>]*\bhref=\"?([^\s\">]+)", text)
        assert loaded
        # 404.html serves a web server alone, from any folder, so its paths begin at the root.
        assert path.name == "404.html" or [each for each in loaded if "//" in each or each.startswith("/")] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [found for text in styles for found in re.findall(r"url\([\"']?(?:https?:)?//[^)]*\)", text)] == []


@needs_browser
def test_the_search_works_from_a_disk_and_no_page_is_wider_than_its_window(site: Path) -> None:
    with browser() as window:
        window.open(site / "index.html", 1400, 900)
        window.type(".md-search__input", "adasum")
        found = "return [...document.querySelectorAll('.md-search-result__item a')].map(a => a.pathname).join(' ')"
        wait_until(lambda: "/distributed.html" in window.run(found), "the search finds the page", pause=0.1)
        for page in ("promises.html", "ten-nodes.html", "benchmarks.html"):
            window.open(site / page, 420, 900)
            assert window.run("return document.documentElement.scrollWidth") == 420, page
        assert window.errors() == []


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    """The settings are strict: a page, an anchor, a picture."""
    (tmp_path / "docs").mkdir()
    broken = ["nowhere.md", "index.md#nowhere", "nowhere.png"]
    (tmp_path / "docs/index.md").write_text("# Top\n\n" + "".join(f"[x]({target})\n" for target in broken))
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(re.sub(r"^hooks:\n(?:  .*\n)+", "", settings, flags=re.MULTILINE))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert [target for target in broken if f"'{target}'" not in done.stdout + done.stderr] == []
