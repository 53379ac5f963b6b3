"""Every path, command, option, pass and name of Python in every page exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from boost_compile.runtime.lowering.context import name_of
from boost_compile.runtime.lowering.lower import LOWERINGS

from .pages.reading import items
from .pages.references import PRODUCT, problem, spans

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
PAGES += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_every_name_exists(page: str) -> None:
    wrong = [(line, text, problem(text)) for line, text in spans(ROOT / page)]
    assert [f"{page}:{line}: `{text}`: {why}" for line, text, why in wrong if why] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_in_a_block_exists(page: str) -> None:
    """With its options; those that test_pages.py does not run, too."""
    typed = [item for item in items(ROOT / page) if item.kind == "sh"]
    wrong = [(item.line, item.text, problem(item.text.partition(" #")[0].strip())) for item in typed]
    assert [f"{page}:{line}: {text}: {why}" for line, text, why in wrong if why] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page: str) -> None:
    """Anchors: the site is built strictly (test_site.py)."""
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()] == []


def test_the_page_of_the_architecture_lists_every_folder() -> None:
    """As an entry of its tree, or by name in the line of the folder above; and each entry exists."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    tree = page.partition("## Folders\n\n")[2].partition("\n\n")[0]
    above: list[str] = []
    folders: dict[str, str] = {}
    for indent, name, text in re.findall(r"^ {4}( *)(\w+)/(.*)$", tree, re.MULTILINE):
        above = [*above[: len(indent) // 2], name]
        folders["/".join(above)] = text
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []
    for folder, text in folders.items():
        if folder.split("/")[0] in PRODUCT:
            packages = {path.parent.name for path in (ROOT / folder).glob("*/*.py")}
            entries = {name.rpartition("/")[2] for name in folders if name.rpartition("/")[0] == folder}
            assert packages - entries - set(re.findall(r"(\w+)/", text)) == set(), folder
    assert set(PRODUCT) < set(folders)


def test_the_page_of_the_architecture_lists_every_lowering_in_order() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page.partition("\n## Lowering\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == [name_of(lowering) for lowering in LOWERINGS]


RIGHT = [
    "bc.compile",
    "boost_compile.runtime.training.saving",
    "Session.fit",
    "session.fit(…, end_of_epoch=…)",
    "passes.framework.pattern.Rewrite",
    "passes/framework/pattern.py",
    "pattern.py",
    "tests/test_pages.py::test_every_command_is_read",
    "make test",
    "boost-run --ranks N",
    "--clip-norm 1.0",
    "python -m boost_compile compile …",
    "python docs/make_api.py",
    "gradient-accumulation{steps=4,split=fused}",
    "less-bn?",
    "split=fused",
    "OMP_NUM_THREADS",
    "momentum{lr=0.01}",
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_exists_is_taken(text: str) -> None:
    assert problem(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bc.compiled_with", "bc has no compiled_with"),
        ("boost_compile.runtime.savings", "runtime has no savings"),
        ("Session.fitted", "Session has no fitted"),
        ("session.fit(…, ends=…)", "session.fit takes no ends"),
        ("passes.framework.pattern.Rewritten", "passes/framework/pattern has no Rewritten"),
        ("passes/patterns.py", "no such path"),
        ("patterns.py", "no file of this name"),
        ("tests/test_pages.py::test_nothing", "no test test_nothing"),
        ("make tea", "no target of the Makefile"),
        ("boost-run --rank N", "no option --rank"),
        ("boost-trun", "no command boost-trun"),
        ("--clip-norms 1.0", "no option --clip-norms"),
        ("python -m boost_compiler", "no module boost_compiler"),
        ("python docs/make_all.py", "no file docs/make_all.py"),
        ("gradient-accumulation{step=4}", "gradient-accumulation has no option step"),
        ("gradient-accumulating{steps=4}", "no pass, loss or optimizer gradient-accumulating"),
        ("less-bns?", "no pass, loss or optimizer less-bns"),
        ("split=fusion", "no pass takes split=fusion"),
        ("REGISTRIES", "REGISTRIES: nowhere in the code"),
    ],
)
def test_what_does_not_exist_is_found(text: str, why: str) -> None:
    assert problem(text) == why
