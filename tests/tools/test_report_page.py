"""The report as its reader gets it: the file that boost-inspect wrote, opened in a browser."""

from __future__ import annotations

import hashlib
import re
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command
from boost_compile.tools.verification.hashes import hashes_of
from boost_compile.tools.verification.report import (
    EXACT,
    FAILED,
    NOT_APPLICABLE,
    PASSED,
    Deviation,
    Result,
    Verification,
)
from boost_compile.tools.verification.table import store

from tests.browser import Browser, browser, needs_browser
from tests.waiting import wait_until

from .support import assert_one_error, shell

MATERIAL = Path(__file__).parents[1] / "material"
Exported = Callable[[str], Path]
PASSES = "gradient-accumulation{steps=4},loss-scale{mode=dynamic},overflow-check"
NETWORKS = ["lenet_bn", "gpt_tied_sgd", pytest.param("resnet50", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], exported: Exported
) -> Callable[[str], Path]:
    """Compiles a network and writes the report on it, as a user does."""
    monkeypatch.chdir(tmp_path)

    def write(name: str) -> Path:
        program, page = tmp_path / f"{name}.boost", tmp_path / f"{name}.html"
        done = shell(capsys, compile_command, exported(name), "--passes", PASSES, "-q", "-o", program)
        assert done.code == 0, done
        done = shell(capsys, command, program, "--original", exported(name), "-o", page)
        assert (done.code, done.out, done.err) == (0, f"Wrote {page}.\n", "")
        return page

    return write


def test_the_written_page_runs_the_scripts_that_its_policy_knows(report: Callable[[str], Path]) -> None:
    text = report("lenet_bn").read_text(encoding="utf-8")
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    scripts = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    hashes = [b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(hashes) == 4
    assert re.findall("sha256-([^&']*)", policy[1]) == hashes


def test_the_options_of_a_pass_stand_as_in_a_pipeline(report: Callable[[str], Path]) -> None:
    text = report("lenet_bn").read_text(encoding="utf-8")
    assert "<code>least=0.0</code> <code>split=apply</code>" in text
    assert "=None<" not in text
    assert "=[]</code>" in text


def test_the_statistics_of_a_pass_are_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    passes = ("--passes", "mixed-precision{level=O2,loss_scale=false}", "-o", "half.boost")
    assert shell(capsys, compile_command, MATERIAL / "residual.ir", *passes).code == 0
    assert shell(capsys, command, "half.boost", "-o", "half.html").code == 0
    row = re.search('<td>primitives</td><td class="mono">([^<]*)</td>', Path("half.html").read_text(encoding="utf-8"))
    assert row is not None
    assert re.fullmatch(r"(\w+ \d+, )+.*", row[1])
    assert "Conv2D 5" in row[1]


PANES = """
return [...document.querySelectorAll(".pane")].map((pane) => {
  const canvas = pane.querySelector(".canvas"), drawn = canvas.firstElementChild.getBoundingClientRect();
  const seen = canvas.getBoundingClientRect(), boxes = [...canvas.querySelectorAll(".box")];
  const inside = (b) => b.left >= seen.left && b.right <= seen.right && b.top >= seen.top && b.bottom <= seen.bottom;
  return {
    boxes: boxes.length, cut: boxes.filter((box) => !inside(box.getBoundingClientRect())).length,
    height: canvas.clientHeight, scale: drawn.width / canvas.firstElementChild.viewBox.baseVal.width,
  };
});
"""


@needs_browser
@pytest.mark.parametrize("name", NETWORKS)
def test_the_written_page_opens_with_readable_drawings_that_are_not_cut_off(
    name: str, window: Browser, report: Callable[[str], Path]
) -> None:
    page = report(name)
    for width in (1200, 420):
        window.open(page, width)
        assert window.errors() == []
        panes = window.run(PANES)
        assert len(panes) == 2
        for pane in panes:
            assert pane["boxes"] > 5
            assert pane["cut"] == 0
            assert pane["height"] > 300
            assert pane["scale"] > 0.5 or width < 600
        assert window.run("return document.querySelectorAll('#memory-plot canvas').length") == 1


@needs_browser
def test_a_panel_takes_the_whole_screen_and_gives_it_back(window: Browser, report: Callable[[str], Path]) -> None:
    window.open(report("lenet_bn"))
    before = window.run(PANES)[0]
    window.click("[data-do=full]")
    wait(window, "return document.fullscreenElement !== null && document.querySelector('.canvas').clientHeight > 700")
    wait_until(lambda: window.run(PANES)[0]["scale"] > before["scale"], "a larger picture", pause=0.1)
    window.click("[data-do=full]")
    wait(window, "return document.fullscreenElement === null")
    wait_until(lambda: window.run(PANES)[0] == before, "the picture as it was", pause=0.1)


def wait(window: Browser, condition: str) -> None:
    wait_until(lambda: window.run(condition), condition, pause=0.1)


@needs_browser
def test_in_a_narrow_window_a_weight_holds_together(window: Browser, report: Callable[[str], Path]) -> None:
    window.open(report("lenet_bn"), 420)
    assert window.run("return document.documentElement.scrollWidth") <= 420
    cells = window.run(
        "return [...document.querySelectorAll('#weights tr:nth-child(2) td')].map((cell) => {"
        " const at = cell.getBoundingClientRect(), style = getComputedStyle(cell, '::before');"
        " return [cell.textContent.trim(), style.content, at.left >= 0 && at.right <= 420, cell.offsetHeight]; })"
    )
    shown = [cell for cell in cells if cell[3]]
    assert all(inside for _, _, inside, _ in shown)
    text, label, *_ = shown[0]
    assert (text.split()[0], label) == ("fc2.bias", "none")
    assert [label for _, label, _, _ in shown[1:]] == ['"gradient"', '"update"', '"slots"']
    assert max(height for *_, height in shown) < 50  # two lines at most: nothing is broken into pieces


# -- what boost-verify found ---------------------------------------------------------------------------------------


@pytest.fixture
def verified(tmp_path: Path, report: Callable[[str], Path]) -> Path:
    """A program with a stored verification, as boost-verify leaves it."""
    report("lenet_bn")
    program = tmp_path / "lenet_bn.boost"
    off = Deviation("conv1.weight", 0.5, 0.25, 3.0, 1e-5, 4.0, float("inf"))
    results = (
        Result("losses", PASSED, "4 micro-batches", EXACT, "the losses are the original's"),
        Result("short window", FAILED, "a cycle of 3", off, "a short cycle updates once"),
        Result("clipping", NOT_APPLICABLE, "no pass clips"),
    )
    hashes = hashes_of("program", program)
    store(Verification(results, PASSES, 7, 2, "random", notes=("a note",), hashes=hashes, seconds=1.0), program)
    return program


def page_of(program: Path, capsys: pytest.CaptureFixture[str]) -> str:
    page = program.with_suffix(".html")
    done = shell(capsys, command, program, "-o", page)
    assert (done.code, done.err) == (0, "")
    return page.read_text(encoding="utf-8")


def test_the_report_holds_the_verification(verified: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = page_of(verified, capsys)
    section = text[text.index('<section id="verification">') : text.index('<section id="memory">')]
    for words in (
        "NOT verified: 1 passed, 1 failed, 1 not applicable", "short window", "2.5e-01", "1.0e-05", "conv1.weight",
        "no pass clips", "a note", "1 property that does not apply",
    ):  # fmt: skip
        assert words in section, words
    assert "has changed since" not in section


def test_of_another_program_the_report_says_so(verified: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = shell(capsys, compile_command, verified, "--passes", "dead-code-elimination", "-q", "-o", "other.boost")
    assert other.code == 0
    stale = verified.with_name("other.boost")
    shutil.copy(verified / "verification.json", stale)
    assert "The program has changed since" in page_of(stale, capsys)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "not a JSON document"),
        ("[]", "$: expected an object"),
        ('{"guilty": null, "results": [{"name": 3}]}', "$.results[0]"),
        ("\xff", "not UTF-8"),
    ],
)
def test_a_damaged_verification_is_one_error(
    text: str, place: str, verified: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (verified / "verification.json").write_bytes(text.encode("latin-1"))
    page = verified.with_name("damaged.html")
    assert_one_error(
        shell(capsys, command, verified, "-o", page), "boost-inspect", "verification.json", place, "run boost-verify"
    )
    assert not page.exists()


def test_not_verified_yet(report: Callable[[str], Path]) -> None:
    text = report("lenet_bn").read_text(encoding="utf-8")
    assert "Not verified yet." in text
    assert "boost-verify " in text


def test_the_original_of_another_network_is_refused(
    tmp_path: Path, report: Callable[[str], Path], exported: Exported, capsys: pytest.CaptureFixture[str]
) -> None:
    report("lenet_bn")
    page = tmp_path / "wrong.html"
    done = shell(capsys, command, tmp_path / "lenet_bn.boost", "--original", exported("mlp"), "-o", page)
    assert_one_error(done, "boost-inspect", "was not compiled from this file", "lenet_bn.mindir", "--diff")
    assert not page.exists()
