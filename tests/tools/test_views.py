"""The formats of boost-inspect: each holds what it should, whatever names a file brings, however large the graph is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program, print_program
from boost_compile.tools.inspect import command
from boost_compile.tools.views import dot, text
from boost_compile.tools.views.drawing import FAN_OUT, Drawing, Group, draw, edges_between, unfolded
from boost_compile.tools.views.model_explorer import document_of
from boost_compile.tools.views.report import html_of
from boost_compile.tools.views.shown import shown

import boost_compile as bc
from tests.synthetic import layers, wide
from tests.tools.pages import HOSTILE, Page, assert_loads_nothing
from tests.waiting import PATIENCE

from .support import Shell, shell

Exported = Callable[[str], Path]
Inspect = Callable[..., Shell]
PASSES = "gradient-accumulation{steps=4},loss-scale{mode=dynamic},overflow-check"

SVG = "{http://www.w3.org/2000/svg}"
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture
def inspect_(capsys: pytest.CaptureFixture[str]) -> Inspect:
    return lambda *arguments: shell(capsys, command, *arguments)


@pytest.fixture(scope="module")
def lenet(exported: Exported) -> Program:
    return bc.load(str(exported("lenet_bn")))


@pytest.fixture(scope="module")
def compiled(lenet: Program) -> Program:
    return bc.compile(lenet, PASSES)


@pytest.fixture(scope="module")
def large() -> Program:
    return layers(4_000)


# -- hostile names -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile() -> Program:
    return parse_program(HOSTILE)


def test_page_of_hostile_names_holds_them_as_text(hostile: Program) -> None:
    evil = hostile.name
    assert evil.startswith('</script><img src=x onerror="')
    page = Page(html_of(shown(hostile, evil), hostile, evil))
    assert_loads_nothing(page)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert evil in page.words
    drawings = page.data("drawings")
    names = {leaf["name"] for drawing in drawings["drawings"] for leaf in drawing["leaves"]}
    assert {evil + "m", evil + "c"} <= names
    assert evil in drawings["passes"]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page_of_hostile_names_draws_in_a_browser(hostile: Program, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(html_of(shown(hostile, "hostile"), hostile, "hostile"), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    page = (tmp_path / "page.html").as_uri()
    done = subprocess.run([str(CHROMIUM), *flags, page], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "<svg" in done.stdout
    assert "HACKED" not in re.findall("<title>(.*?)</title>", done.stdout)
    assert 'class="uplot' in done.stdout


def test_other_formats_of_hostile_names(hostile: Program, tmp_path: Path, inspect_: Inspect) -> None:
    view = shown(hostile, "hostile")
    evil = hostile.name
    assert {n["label"] for n in document_of(view)["graphs"][0]["nodes"]} >= {"Mul", evil + "w"}
    path = tmp_path / "hostile.ir"
    path.write_text(print_program(hostile), encoding="utf-8")
    if shutil.which("dot"):
        drawn = ET.fromstring(dot.svg_of(view))
        assert not list(drawn.iter("{http://www.w3.org/2000/svg}image"))
        assert any("Mul" in (t.text or "") for t in drawn.iter("{http://www.w3.org/2000/svg}text"))


# -- html --------------------------------------------------------------------------------------------------------


def test_page_of_a_program_beside_its_original(compiled: Program, lenet: Program) -> None:
    source = html_of(shown(compiled, "lenet.boost"), lenet, "lenet.mindir")
    page = Page(source)
    assert_loads_nothing(page)
    for words in ("15,772", "overflow-check", "micro-batch 4", "conv1.weight", "Difference from lenet.mindir"):
        assert words in page.words, words
    drawings = page.data("drawings")
    labels = [scene["label"] for scene in drawings["scenes"]]
    assert labels[:2] == ["the whole step", "accumulate: what passes made, and what is around it"]
    both, first = drawings["scenes"][:2]
    boxes = {g["label"] for g in drawings["drawings"][both["after"]]["groups"]}
    assert {"graph accumulate", "graph apply"} <= boxes
    for part in ("forward", "backward", "optimizer"):
        assert any(g["label"].startswith(part) for g in drawings["drawings"][both["before"]]["groups"]), part
    drawn = [leaf for drawing in drawings["drawings"] for leaf in drawing["leaves"]]
    assert {leaf.get("mark") for leaf in drawn if leaf["label"] == "ApplyMomentum"} == {"moved"}
    made = {leaf["by"] for leaf in drawings["drawings"][first["after"]]["leaves"]}
    assert {"gradient-accumulation", "loss-scale"} <= made
    assert len(source) < 5_000_000
    memory = page.data("memory-data")
    assert [mark["label"] for mark in memory["marks"]] == ["accumulate", "apply"]
    assert len({len(series["values"]) for series in memory["series"]} | {len(memory["at"]), len(memory["names"])}) == 1
    bands = {series["label"]: series["values"] for series in memory["series"]}
    state = sum(v.nbytes for v in compiled.state.values())
    fixed = [bands[b] for b in ("weights and other state", "slots", "accumulators")]
    assert {sum(at) for at in zip(*fixed, strict=True)} == {state}


def test_page_of_a_file(lenet: Program) -> None:
    page = Page(html_of(shown(lenet, "lenet.mindir")))
    assert_loads_nothing(page)
    assert "Difference" not in page.words
    assert [scene["before"] for scene in page.data("drawings")["scenes"]] == [None]


def test_page_of_a_large_graph_aggregates(large: Program) -> None:
    source = html_of(shown(bc.compile(large, "gradient-accumulation{steps=2}"), "large"))
    assert len(source) < 5_000_000
    for drawing in Page(source).data("drawings")["drawings"]:
        assert len(drawing["leaves"]) + len(drawing["groups"]) < 6_000
        count = len(drawing["groups"])
        assert all(-count <= end < len(drawing["leaves"]) for a, b, _ in drawing["edges"] for end in (a, b))


def test_what_the_page_is_made_of_is_installed_with_the_package() -> None:
    root = Path(__file__).parents[2]
    patterns = re.search(r'^"boost_compile.tools.views" = (\[.*\])$', (root / "pyproject.toml").read_text(), re.M)
    assert patterns is not None
    views = root / "tools" / "views"
    installed = {path for pattern in json.loads(patterns[1]) for path in views.glob(pattern) if path.is_file()}
    assert installed == {path for path in (views / "page").rglob("*") if path.is_file()}


# -- drawings ----------------------------------------------------------------------------------------------------


def all_groups(drawing: Drawing) -> list[Group]:
    found = [drawing.root]
    for group in found:
        found.extend(group.groups.values())
    return found


def test_a_drawing_shows_operations_and_hides_what_repackages(lenet: Program) -> None:
    drawing = draw(shown(lenet, "lenet"), "step")
    labels = {leaf.label for leaf in drawing.leaves}
    assert {"Conv2D", "ApplyMomentum", "loss", "inputs0"} <= labels
    assert not {"Load", "UpdateState", "Depend", "TupleGetItem", "MakeTuple"} & labels
    at = {leaf.name: leaf for leaf in drawing.leaves}
    convolution = next(leaf for leaf in drawing.leaves if leaf.label == "Conv2D")
    assert convolution.states == ("conv1.weight",)
    assert (at["inputs0"].id, convolution.id) in drawing.edges
    updates = [leaf for leaf in drawing.leaves if leaf.label == "ApplyMomentum"]
    assert all(sum(end == leaf.id for _, end in drawing.edges) == 1 for leaf in updates)
    assert {leaf.part for leaf in updates} == {"optimizer"}


def test_a_call_leads_into_the_box_of_its_function(compiled: Program) -> None:
    drawing = draw(shown(compiled, "lenet"), "apply")
    (call,) = (leaf for leaf in drawing.leaves if leaf.label.startswith("call"))
    updates = {leaf.id for leaf in drawing.leaves if leaf.label == "ApplyMomentum"}
    assert updates <= {end for start, end in drawing.edges if start == call.id}


@pytest.mark.parametrize("make", [lambda: layers(8_000), lambda: wide(5_000)])
def test_groups_are_bounded_and_nothing_is_lost(make: Callable[[], Program]) -> None:
    drawing = draw(shown(make(), "large"), "step")
    groups = all_groups(drawing)
    assert max(group.width for group in groups) <= 2 * FAN_OUT
    held = [leaf for group in groups for leaf in group.leaves]
    assert len(held) == len(set(held)) == len(drawing.leaves) == drawing.root.count
    assert all(child.parent is group for group in groups for child in group.groups.values())
    assert all(leaf.group is group for group in groups for leaf in group.leaves)
    for limit in (10, 100):
        opened = unfolded(drawing.root, limit)
        boxes = {box for edge in edges_between(drawing, opened) for box in edge}
        assert len(boxes) <= max(limit, drawing.root.width)


def test_dot_is_coloured_by_part_and_pass(compiled: Program) -> None:
    drawn = dot.dot_of(shown(compiled, "lenet.boost"))
    line, *_ = [line for line in drawn.splitlines() if 'label="TensorMove' in line]
    assert 'fillcolor="#cdebd0"' in line
    assert "penwidth=2" in line
    assert "by loss-scale" in drawn


@needs_dot
def test_svg_is_readable_by_others(inspect_: Inspect, exported: Exported, tmp_path: Path) -> None:
    assert inspect_(exported("lenet_bn"), "-o", tmp_path / "lenet.svg").code == 0
    drawn = ET.parse(tmp_path / "lenet.svg").getroot()
    words = [t.text for t in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Conv2D", "conv1.weight", "forward"} <= set(words)


def curves(drawn: ET.Element) -> list[list[tuple[float, float]]]:
    """Points along each edge."""
    found = []
    for group in drawn.iter(f"{SVG}g"):
        for path in group.findall(f"{SVG}path") if group.get("class") == "edge" else ():
            numbers = [float(n) for n in re.findall(r"-?[0-9.]+", path.get("d", ""))]
            at = list(zip(numbers[::2], numbers[1::2], strict=True))
            points = []
            for i in range(0, len(at) - 3, 3):
                for t in (k / 40 for k in range(41)):
                    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                    x, y = (sum(w * p[axis] for w, p in zip(weights, at[i : i + 4], strict=True)) for axis in (0, 1))
                    points.append((x, y))
            found.append(points)
    return found


def crossed(drawn: ET.Element) -> list[str]:
    """The words that an edge runs through."""
    points = [point for curve in curves(drawn) for point in curve]
    assert len(points) > 100
    found = []
    for label in drawn.iter(f"{SVG}text"):
        size, words = float(label.get("font-size", "14")), label.text or ""
        half = 0.45 * size * len(words) / 2  # a little less than it is wide
        x, y = float(label.get("x", "0")), float(label.get("y", "0"))
        left = x - half if label.get("text-anchor") == "middle" else x
        if any(left < px < left + 2 * half and y - 0.6 * size < py < y for px, py in points):
            found.append(words)
    return found


@needs_dot
@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("lenet_bn", ()),
        ("gpt_tied_sgd", ("--graph", "accumulate")),
        ("lenet_bn", ("--graph", "accumulate", "--around", "accum.conv2.weight")),
    ],
)
def test_no_edge_of_an_svg_runs_through_words_and_no_type_is_cut_in_two(
    name: str, piece: tuple[str, ...], inspect_: Inspect, exported: Exported, tmp_path: Path
) -> None:
    bc.compile(bc.load(exported(name)), PASSES).save(str(tmp_path / "net.boost"))
    assert inspect_(tmp_path / "net.boost", *piece, "-o", tmp_path / "net.svg").code == 0
    drawn = ET.parse(tmp_path / "net.svg").getroot()
    assert crossed(drawn) == []
    words = [text.text or "" for text in drawn.iter(f"{SVG}text")]
    types = [w for w in words if re.search(r"\b(float|int|bool)\d*\[", w)]
    assert types
    for word in types:
        assert re.fullmatch(r"\(?\w+\[[\d,]*\](, \w+\[[\d,]*\])*(, … \d+ more)?\)?", word), word


@needs_dot
def test_svg_of_a_large_graph_aggregates(large: Program) -> None:
    drawn = ET.fromstring(dot.svg_of(shown(large, "large")))
    boxes = [g for g in drawn.iter("{http://www.w3.org/2000/svg}g") if g.get("class") == "node"]
    titles = [g for g in boxes if (g.findtext(f"{SVG}title") or "").endswith("_title")]
    assert 5 < len(boxes) - len(titles) <= dot.BOXES + 1


def test_without_graphviz_the_message_says_what_to_do(
    inspect_: Inspect, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    done = inspect_(exported("mlp"), "--format", "svg")
    assert (done.code, done.out) == (2, "")
    for words in ("'dot'", "install", "--format dot", "--format html"):
        assert words in done.err


# -- model explorer ----------------------------------------------------------------------------------------------


def test_model_explorer_document(compiled: Program) -> None:
    document = json.loads(json.dumps(document_of(shown(compiled, "lenet.boost"))))
    assert document["label"] == compiled.name
    titles = [graph["id"] for graph in document["graphs"]]
    functions = [f"apply/{name}" for name in compiled.graphs["apply"].functions]
    assert titles == ["accumulate", "apply", *functions]
    for graph in document["graphs"]:
        nodes = {node["id"]: node for node in graph["nodes"]}
        assert len(nodes) == len(graph["nodes"])
        for node in nodes.values():
            assert all(edge["sourceNodeId"] in nodes for edge in node["incomingEdges"])
            assert all(type(item[key]) is str for item in node["attrs"] for key in ("key", "value"))
    first = document["graphs"][0]["nodes"]
    convolution = next(node for node in first if node["label"] == "Conv2D")
    assert convolution["namespace"].endswith("/conv1-Conv2d")
    assert convolution["style"]["backgroundColor"] == "#cfe3f7"
    assert len(convolution["incomingEdges"]) == 2
    scaled = next(node for node in first if {"key": "made by", "value": "loss-scale"} in node["attrs"])
    assert scaled["style"]["borderColor"] not in (convolution["style"]["borderColor"], "#2e7d46")


def test_open_starts_the_viewer_on_the_document(
    inspect_: Inspect, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    viewer = ModuleType("model_explorer")
    viewer.visualize = lambda model_paths: opened.append(json.loads(Path(model_paths).read_text()))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "model_explorer", viewer)
    assert inspect_(exported("mlp"), "--format", "model-explorer", "--open").code == 0
    assert [document["label"] for document in opened] == ["mlp"]
    monkeypatch.setitem(sys.modules, "model_explorer", None)
    missing = inspect_(exported("mlp"), "--format", "model-explorer", "--open")
    assert missing.code == 2
    assert "boost-compile[model-explorer]" in missing.err


# -- text --------------------------------------------------------------------------------------------------------


def test_text_written_to_a_file_reads_back(inspect_: Inspect, exported: Exported, tmp_path: Path) -> None:
    assert inspect_(exported("lenet_bn"), "-o", tmp_path / "lenet.ir").code == 0
    written = (tmp_path / "lenet.ir").read_text(encoding="utf-8")
    assert print_program(parse_program(written)) == written


def test_colour_is_for_terminals(inspect_: Inspect, exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    from boost_compile.tools import cli

    plain = inspect_(exported("mlp"), "--format", "text").out
    assert "\x1b" not in plain
    coloured = text.highlighted(plain)
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == plain
    assert "\x1b[1;34mMatMul\x1b[0m(" in coloured

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert cli.wants_colour(Terminal())  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not cli.wants_colour(Terminal())  # type: ignore[arg-type]


# -- pieces ------------------------------------------------------------------------------------------------------

CHAIN = """
state %w: float32[4]
graph @step(%x: float32[4]) {
  %a = Neg(%x) : float32[4] scope("Default/net/one-Cell/Neg-op0")
  %l = Load(%w, umonad) : float32[4] scope("Default/net/two-Cell/Load-op0")
  %b = Mul(%a, %l) : float32[4] scope("Default/net/two-Cell/Mul-op0")
  %c = Exp(%b) : float32[4] scope("Default/net/two-Cell/Exp-op0")
  %d = Neg(%c) : float32[4] scope("Default/net/three-Cell/Neg-op1")
  return %d
}
"""


@pytest.mark.parametrize(
    ("options", "inputs", "nodes"),
    [
        (("--scope", "two-Cell"), ["a"], ["l", "b", "c"]),
        (("--scope", "t*-Cell"), ["a"], ["l", "b", "c", "d"]),
        (("--scope", "Default/net/one-Cell"), ["x"], ["a"]),
        (("--around", "b", "--radius", "0"), ["a"], ["l", "b"]),
        (("--around", "%b", "--radius", "1"), ["x"], ["a", "l", "b", "c"]),
        (("--around", "w", "--radius", "0"), [], ["l"]),
        (("--around", "x", "--radius", "1"), ["x"], ["a", "l", "b"]),
        (("--around", "b", "--scope", "two-Cell", "--radius", "1"), ["a"], ["l", "b", "c"]),
    ],
)
def test_pieces(
    options: tuple[str, ...], inputs: list[str], nodes: list[str], inspect_: Inspect, tmp_path: Path
) -> None:
    (tmp_path / "chain.ir").write_text(CHAIN)
    done = inspect_(tmp_path / "chain.ir", *options, "--format", "text")
    piece = parse_program(done.out).graphs["step"]
    assert [v.name for v in piece.inputs] == inputs
    assert [n.name for n in piece if n.name != "cut"] == nodes
    assert isinstance(piece.result, Node)
    assert inspect_(tmp_path / "chain.ir", *options, "--format", "json").document["schedule"] is None


def test_around_does_not_follow_what_only_orders(inspect_: Inspect, tmp_path: Path) -> None:
    """A tuple that a token waits for leads from each effect of a cycle to all others."""
    (tmp_path / "two.ir").write_text("""
state %w: float32[4]
state %v: float32[4]
graph @step(%x: float32[4]) {
  %lw = Load(%w, umonad) : float32[4]
  %lv = Load(%v, umonad) : float32[4]
  %all = MakeTuple(%lw, %lv) : (float32[4], float32[4])!
  %t = UpdateState(umonad, %all) : umonad
  %a = Assign(%w, %x, %t) : float32[4]@w
  %s = Add(%lw, %x) : float32[4]
  %d = Depend(%s, %a) : float32[4]
  return %d
}
""")
    done = inspect_(tmp_path / "two.ir", "--around", "lw", "--radius", "9", "--format", "text")
    names = {n.name for n in parse_program(done.out).graphs["step"]}
    assert {"lw", "s", "d"} <= names
    assert not names & {"lv", "all", "t", "a"}


def test_a_piece_keeps_its_parts_and_functions(compiled: Program, inspect_: Inspect, tmp_path: Path) -> None:
    compiled.save(str(tmp_path / "lenet.boost"))
    whole = inspect_(tmp_path / "lenet.boost", "--graph", "accumulate", "--format", "json").document
    pieces = [
        inspect_(tmp_path / "lenet.boost", "--graph", "accumulate", "--scope", scope, "--format", "json").document
        for scope in ("/Default/network*", "Gradients")
    ]
    assert set(pieces[0]["graphs"]["accumulate"]["parts"]) - {"other"} == {"forward"}
    assert pieces[1]["graphs"]["accumulate"]["parts"]["backward"] > 20
    assert pieces[1]["graphs"]["accumulate"]["parts"]["backward"] <= whole["graphs"]["accumulate"]["parts"]["backward"]
    called = inspect_(tmp_path / "lenet.boost", "--graph", "apply", "--around", "update", "--format", "json")
    assert set(called.document["graphs"]["apply"]["functions"]) == set(compiled.graphs["apply"].functions)
    inside = inspect_(tmp_path / "lenet.boost", "--graph", "apply", "--scope", "optimizer-Momentum", "--format", "json")
    assert any(name.startswith("apply.") for name in inside.document["graphs"])


# -- costs -------------------------------------------------------------------------------------------------------


def test_costs_of_a_cycle(compiled: Program, inspect_: Inspect, tmp_path: Path) -> None:
    compiled.save(str(tmp_path / "lenet.boost"))
    document = inspect_(tmp_path / "lenet.boost", "--format", "json").document
    flops = {name: graph["flops"] for name, graph in document["graphs"].items()}
    assert document["flops"] == 4 * flops["accumulate"] + flops["apply"]
    assert document["parameters"] == {"variables": 11, "elements": 15772, "trained": 15772}
    assert sum(document["memory"]["state"].values()) == sum(v.nbytes for v in compiled.state.values())
    assert document["graphs"]["apply"]["inserted"].keys() == {"gradient-accumulation", "loss-scale", "overflow-check"}


def test_flops_of_a_product(inspect_: Inspect, tmp_path: Path) -> None:
    (tmp_path / "product.ir").write_text(
        "graph @step(%x: float32[4,8], %y: float32[8,16]) {\n"
        "  %p = MatMul(%x, %y, false, false) : float32[4,16]\n  %n = Neg(%p)\n  return %n\n}\n"
    )
    document = inspect_(tmp_path / "product.ir", "--format", "json").document
    assert document["flops"] == 2 * 4 * 16 * 8 + 4 * 16
    memory = document["graphs"]["step"]["memory"]
    assert memory == {"inputs": 4 * (32 + 128), "constants": 0, "peak": 2 * 4 * 64, "peak_at": "n"}
