"""boost-inspect: what it says of files, programs and text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.core.wording import print_bytes
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command

import boost_compile as bc
from tests.material import material

from .support import Shell, assert_one_error, shell

Inspect = Callable[..., Shell]


@pytest.fixture
def inspect_(capsys: pytest.CaptureFixture[str]) -> Inspect:
    return lambda *arguments: shell(capsys, command, *arguments)


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str], exported: Callable[[str], Path]) -> Path:
    """A LeNet that accumulates over four micro-batches."""
    path = tmp_path / "lenet.boost"
    assert shell(capsys, compile_command, exported("lenet_bn"), "--accumulate", "4", "-q", "-o", path).code == 0
    return path


def test_summary_of_a_file(inspect_: Inspect, exported: Callable[[str], Path]) -> None:
    done = inspect_(exported("lenet_bn"))
    assert (done.code, done.err) == (0, "")
    for words in (
        "Graph 'step':",
        "parts backward",
        "Conv2D 2",
        "weight",
        "statistic",
        "every micro-batch runs 'step'",
    ):
        assert words in done.out, done.out


def test_json_of_a_file(inspect_: Inspect, exported: Callable[[str], Path]) -> None:
    document = inspect_(exported("lenet_bn"), "--format", "json").document
    assert set(document) == {
        "file", "name", "target", "source", "metadata", "pipeline", "schedule", "parameters", "flops", "memory",
        "graphs", "state", "reports",
    }  # fmt: skip
    step = document["graphs"]["step"]
    assert set(step) == {
        "inputs", "outputs", "result", "nodes", "functions", "state", "ops", "parts", "part_ops", "inserted", "flops",
        "part_flops", "type_flops", "memory", "anatomy", "anatomy_error",
    }  # fmt: skip
    assert step["nodes"] == sum(step["ops"].values()) == sum(step["parts"].values())
    weights = {v["name"] for v in document["state"] if v["role"] == "weight"}
    assert {w["name"] for w in step["anatomy"]["weights"]} == weights
    assert all(len(w["gradient"]) == 1 and w["updates"] and w["slots"] for w in step["anatomy"]["weights"])
    sizes = {v["name"]: (v["shape"], v["bytes"]) for v in document["state"]}
    assert sizes["conv1.weight"] == ([6, 1, 5, 5], 600)


def test_anatomy(inspect_: Inspect, exported: Callable[[str], Path]) -> None:
    done = inspect_(exported("lenet_bn"), "--format", "anatomy")
    said = statements(done.out)["weight %conv1.weight"]
    assert [line.split()[0] for line in said] == ["gradient", "update", "slot"]
    assert said[1].endswith("(ApplyMomentum)")
    assert said[2] == "slot %moments.conv1.weight"
    assert "  state %moments.conv1.weight: slot" in done.out.splitlines()


def statements(out: str) -> dict[str, list[str]]:
    """What is said of each weight, or each other thing, of the only graph: the lines that are indented below it."""
    found: dict[str, list[str]] = {}
    head = ""
    for line in out.splitlines()[1:]:
        if line.startswith("    "):
            found[head].append(line.strip())
        else:
            head = line.strip()
            found[head] = []
    return found


ANALYSES = ("anatomy", "paths", "effects", "batch", "seeds")


@pytest.mark.parametrize("format_", ANALYSES)
def test_analyses_of_one_graph_in_every_form(
    format_: str, inspect_: Inspect, exported: Callable[[str], Path], tmp_path: Path
) -> None:
    """MindIR, program directory and text of one graph say the same, on the terminal and in a file."""
    given = exported("lenet_bn")
    program = bc.load(given)
    program.save(tmp_path / "lenet.boost")
    assert inspect_(given, "--format", "text", "-o", tmp_path / "lenet.ir").code == 0
    said = inspect_(given, "--format", format_)
    assert (said.code, said.err) == (0, "")
    assert len(said.out.splitlines()) > 2
    for other in (tmp_path / "lenet.boost", tmp_path / "lenet.ir"):
        assert inspect_(other, "--format", format_).out == said.out
    assert inspect_(given, "--format", format_, "-o", tmp_path / "said.txt").code == 0
    assert (tmp_path / "said.txt").read_text() == said.out


@pytest.mark.parametrize("format_", ANALYSES)
def test_analyses_of_a_piece(format_: str, inspect_: Inspect, exported: Callable[[str], Path]) -> None:
    """The whole graph is analysed: each line about a piece is one that stands in the whole."""
    arguments = (exported("lenet_bn"), "--format", format_, *["--annotations"] * (format_ == "seeds"))
    whole = inspect_(*arguments).out.splitlines()
    piece = inspect_(*arguments, "--around", "conv1.weight", "--radius", "1")
    assert (piece.code, piece.err) == (0, "")
    lines = piece.out.splitlines()
    assert 1 < len(lines) < len(whole)
    assert set(lines) <= set(whole)


def test_analyses_say_something_of_every_node(inspect_: Inspect, exported: Callable[[str], Path]) -> None:
    given = exported("mlp")
    nodes = {f"%{node.name} ({node.op.name})" for body in bc.load(given).graphs["step"].all_graphs() for node in body}
    said = inspect_(given, "--format", "anatomy", "--annotations").out.splitlines()
    parts = [line.split(maxsplit=1) for line in said]
    assert {what for part, what in parts if part in ("forward", "backward", "optimizer", "other")} == nodes
    assert "carries the derivative" in inspect_(given, "--format", "seeds", "--annotations").out
    refused = inspect_(given, "--format", "effects", "--annotations")
    assert_one_error(refused, "boost-inspect", "--annotations goes with --format text, anatomy or seeds")


def test_an_analysis_with_nothing_to_say_of_a_piece(inspect_: Inspect, exported: Callable[[str], Path]) -> None:
    given = exported("mlp")
    (loss,) = [line.split("%")[1] for line in inspect_(given, "--format", "anatomy").out.splitlines() if "loss" in line]
    done = inspect_(given, "--format", "paths", "--around", loss.split(",")[0], "--radius", "0")
    assert_one_error(done, "boost-inspect", "--format paths has nothing to say of the nodes")


def test_a_compiled_program_has_no_anatomy(inspect_: Inspect, exported: Callable[[str], Path], tmp_path: Path) -> None:
    bc.compile(exported("mlp"), "gradient-accumulation{steps=2}").save(tmp_path / "mlp.boost")
    done = inspect_(tmp_path / "mlp.boost", "--format", "anatomy")
    assert_one_error(done, "boost-inspect", "compiled already by gradient-accumulation{", ": mlp.mindir")
    assert "Export the training cell" not in done.err


def test_each_graph_of_a_cycle_says_what_it_lacks(inspect_: Inspect, program: Path) -> None:
    """Nobody who looks at a compiled program is told to export another cell."""
    accumulate = "graph 'accumulate' accumulates gradients and updates no weight"
    shown = inspect_(program, "--format", "paths").out
    assert shown.startswith(f"graph @accumulate\n  none: {accumulate} (see 'apply')\n\ngraph @apply\n  weight %")
    for format_ in ("paths", "anatomy"):
        assert_one_error(inspect_(program, "--graph", "accumulate", "--format", format_), "boost-inspect", accumulate)
    of_apply = inspect_(program, "--graph", "apply", "--format", "anatomy")
    assert_one_error(of_apply, "boost-inspect", "graph 'apply' updates weights from accumulators")
    bc.load(program).save(one_file := program.with_suffix(".mindir"))
    of_all = inspect_(one_file, "--format", "paths")
    assert_one_error(of_all, "boost-inspect", "graph 'step' holds a whole window", "compiled from: lenet_bn.mindir")
    graphs = inspect_(program, "--format", "json").document["graphs"]
    assert not any("Export" in graph["anatomy_error"] for graph in graphs.values())


@pytest.mark.parametrize("format_", ["anatomy", "paths"])
def test_gradients_that_ranks_exchange_together_are_shown_as_before(
    inspect_: Inspect, tmp_path: Path, format_: str
) -> None:
    """A bucket is one value, in which no gradient has a way of its own."""
    original = material("mlp")
    original.save(tmp_path / "mlp.boost")
    bc.compile(original, "data-parallel").save(tmp_path / "ranks.boost")
    first, lines = inspect_(tmp_path / "ranks.boost", "--format", format_).out.split("\n\n", 1)
    assert first == "before data-parallel"
    assert lines == inspect_(tmp_path / "mlp.boost", "--format", format_).out


def test_stages_and_tags(
    inspect_: Inspect, capsys: pytest.CaptureFixture[str], tmp_path: Path, exported: Callable[[str], Path]
) -> None:
    """What the file itself does to gradients on their way, and what a pass noted about weights."""
    path = tmp_path / "tagged.boost"
    passes = "tag-gradient-centralization"
    assert shell(capsys, compile_command, exported("lenet_bn_decay"), "--passes", passes, "-q", "-o", path).code == 0
    assert "conv1.weight centralize=[1, 2, 3]" in inspect_(path).out
    weights = statements(inspect_(path, "--format", "anatomy").out)
    assert any(line.startswith("weight-decay %") for line in weights["weight %conv1.weight"])
    assert "tag centralize = [1, 2, 3]" in weights["weight %conv1.weight"]
    assert any(line.startswith("weight-decay %") for line in weights["weight %fc1.bias"])
    assert not any("centralize" in line for line in weights["weight %fc1.bias"])
    document = inspect_(path, "--format", "json").document
    tags = {v["name"]: v["tags"] for v in document["state"] if v["tags"]}
    assert tags["fc1.weight"] == {"centralize": [1]}
    assert set(tags) == {"conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"}
    assert inspect_(exported("clip_global_norm"), "--format", "anatomy").out.count("clip %") == 8


def test_text(inspect_: Inspect, exported: Callable[[str], Path]) -> None:
    done = inspect_(exported("lenet_bn"), "--format", "text")
    assert done.out.startswith("program @")
    assert "Conv2D(" in done.out
    assert "scope(" not in done.out
    assert "scope(" in inspect_(exported("lenet_bn"), "--format", "text", "--annotations").out


def test_program_directory(inspect_: Inspect, program: Path) -> None:
    done = inspect_(program)
    for words in (
        "Graph 'accumulate':",
        "Graph 'apply':",
        "accumulator",
        "a window of 4 micro-batches",
        "Passes that made",
    ):
        assert words in done.out
    document = inspect_(program, "--format", "json").document
    assert document["schedule"]["cycle"] == [{"graph": "accumulate", "repeat": 4}, {"graph": "apply", "repeat": 1}]
    assert document["reports"][0]["name"] == "gradient-accumulation"
    roles = {v["role"] for v in document["state"]}
    assert {"weight", "slot", "statistic", "accumulator", "counter"} <= roles
    assert "unknown" not in roles


def test_one_graph_of_a_program(inspect_: Inspect, program: Path) -> None:
    document = inspect_(program, "--graph", "apply", "--format", "json").document
    assert list(document["graphs"]) == ["apply"]
    assert {v["name"] for v in document["state"]} == set(document["graphs"]["apply"]["state"])
    text = inspect_(program, "--graph", "accumulate", "--format", "text").out
    assert "graph @accumulate" in text
    assert "graph @apply" not in text


FUNCTIONS = """
graph @step(%x: float32[2]) {
  %y = call(@f, %x) : float32[2]
  return %y

  func @f(%p: float32[2]) {
    %a = Neg(%p)
    %b = Neg(%a)
    return %b
  }
}
"""


def test_functions_are_counted(inspect_: Inspect, tmp_path: Path) -> None:
    path = tmp_path / "functions.ir"
    path.write_text(FUNCTIONS)
    assert "Graph 'step': 3 nodes, 2 of them in 1 function" in inspect_(path).out


# -- options that do not fit --------------------------------------------------------------------------------------


def test_sizes_for_what_leaves_none_open_are_refused(
    inspect_: Inspect, program: Path, exported: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "functions.ir").write_text(FUNCTIONS)
    for file in (exported("mlp"), program, tmp_path / "functions.ir"):
        assert_one_error(inspect_(file, "--dim", "batch=8"), "boost-inspect", str(file), "--dim is for those alone")
    assert_one_error(
        inspect_(program, "--diff", program, "--dim", "batch=8"), "boost-inspect", "--dim is for those alone"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--memory", "--graph", "apply"), "--memory is that of whole programs"),
        (("--memory", "--around", "x"), "--memory is that of whole programs"),
        (("--check", "--diff", "other.boost"), "--check goes without --diff"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    options: tuple[str, ...], words: str, inspect_: Inspect, program: Path
) -> None:
    assert_one_error(inspect_(program, *options), "boost-inspect", words)


def test_around_what_is_not_there_names_the_nearest(inspect_: Inspect, program: Path) -> None:
    done = inspect_(program, "--around", "accum.conv3.weight")
    assert_one_error(done, "boost-inspect", "did you mean 'accum.conv2.weight' or 'accum.conv1.weight'")
    done = inspect_(program, "--around", "nosuch")
    assert_one_error(done, "boost-inspect", "has no node '%nosuch' (the nearest of its ")
    assert len(done.err) < 300


def test_summary_json_and_memory_tell_one_story(inspect_: Inspect, program: Path) -> None:
    """What a session will have in memory is one number, wherever it is shown; so is what each graph needs."""
    memory = inspect_(program, "--memory", "--format", "json").document
    summary = inspect_(program, "--format", "json").document
    assert memory["total"] == sum(memory["session"].values()) == summary["memory"]["peak"]
    assert memory["state"] == summary["memory"]["state"]
    for name, graph in memory["graphs"].items():
        found = summary["graphs"][name]["memory"]
        assert (graph["peak"], graph["at"]) == (found["inputs"] + found["peak"], found["peak_at"])
    total = print_bytes(memory["total"])
    assert f"Memory {total} for a session" in inspect_(program).out
    assert total in inspect_(program, "--memory").out
    page = program.with_suffix(".html")
    assert inspect_(program, "-o", page).code == 0
    assert f"<b>{total}</b><span>memory of a session" in page.read_text()
