"""Every step costs a constant number of operations a node, on deep graphs and on wide nodes.

Counted, not timed: calls of functions and built-ins, comparisons of values (what searching a list of them costs) and
operands copied. Of three sizes, each twice the one before, the growth must double too; a quadratic cost would grow four
times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.analysis.compare.diff import diff
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.attributes import MonadValue
from boost_compile.ir.core.graph import Graph, Node, Value
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import UMONAD, tensor
from boost_compile.ir.formats.mindir.reader import read_mindir
from boost_compile.ir.formats.storage.save import save
from boost_compile.ir.memory.discharge import discharge
from boost_compile.ir.memory.emit import emit
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program, print_graph, print_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes.framework.pipeline import parse_pipeline

from tests.linear_cost import Prepare, assert_linear
from tests.synthetic import SHAPES, write

SIZES = {"layers": (250, 500, 1_000), "wide": (100, 200, 400), "clipped": (30, 60, 120)}
PASSES = (
    "dead-code-elimination",
    "common-subexpression-elimination",
    "effect-chain-minimization",
    "gradient-accumulation",
    "gradient-accumulation{split=fused}",
    "data-parallel",
    "loss-scale{mode=static,init=2}",
)
VECTOR = tensor("float32", 2)


@pytest.fixture(scope="module", params=list(SIZES))
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Program]]:
    """The same graph in three sizes: its file, and as it was read from there."""
    folder = tmp_path_factory.mktemp(request.param)
    found = []
    for size in SIZES[request.param]:
        path = folder / f"{size}.mindir"
        write(SHAPES[request.param](size), path)
        found.append((path, read_mindir(path)))
    return found


def test_loading(programs: list[tuple[Path, Program]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_linear(monkeypatch, lambda path: lambda: read_mindir(path), [path for path, _ in programs])


@pytest.mark.parametrize(
    "look",
    [verify, Program.copy, lambda p: anatomy(p.graphs["step"]), print_program,
     lambda p: emit(discharge(p.graphs["step"]))],
    ids=["verify", "copy", "anatomy", "print", "discharge and emit"],
)  # fmt: skip
def test_looking(
    look: Callable[[Any], object], programs: list[tuple[Path, Program]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_linear(monkeypatch, lambda p: lambda: look(p), [p for _, p in programs])


def test_parsing(programs: list[tuple[Path, Program]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_linear(monkeypatch, lambda text: lambda: parse_program(text), [print_program(p) for _, p in programs])


@pytest.mark.parametrize("text", PASSES)
def test_passes(text: str, programs: list[tuple[Path, Program]], monkeypatch: pytest.MonkeyPatch) -> None:
    (pass_,) = parse_pipeline(text)

    def prepare(program: Program) -> Callable[[], object]:
        copy = program.copy()
        return lambda: pass_.run(copy)

    assert_linear(monkeypatch, prepare, [p for _, p in programs])


def test_dim_reduce(programs: list[tuple[Path, Program]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(program: Program) -> Callable[[], object]:
        copy = assign_roles(program.copy())
        size = sum(v.type.size for v in copy.state.values() if v.role == "weight" and v.trainable)
        np.save(tmp_path / f"{size}.npy", np.eye(1, size, dtype=np.float32))
        (pass_,) = parse_pipeline(f"dim-reduce{{basis={tmp_path}/{size}.npy,n_components=1}}")
        return lambda: pass_.run(copy)

    assert_linear(monkeypatch, prepare, [p for _, p in programs])


def test_difference(programs: list[tuple[Path, Program]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program and both halves of it, in which every node has another name."""
    (accumulation,) = parse_pipeline("gradient-accumulation")

    def prepare(program: Program) -> Callable[[], object]:
        halves = program.copy()
        accumulation.run(halves)
        for graph in halves.graphs.values():
            for i, node in enumerate(graph):
                node.name = f"node{i}"
        return lambda: diff(program, halves)

    assert_linear(monkeypatch, prepare, [p for _, p in programs])


@pytest.mark.parametrize("name", ["out.mindir", "out.boost"])
def test_saving(
    name: str, programs: list[tuple[Path, Program]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_linear(monkeypatch, lambda p: lambda: save(p, tmp_path / name), [p for _, p in programs])


def test_saving_a_cycle_as_one_graph(
    programs: list[tuple[Path, Program]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (accumulation,) = parse_pipeline("gradient-accumulation")
    copies = [p.copy() for _, p in programs]
    for p in copies:
        accumulation.run(p)
    assert_linear(monkeypatch, lambda p: lambda: save(p, tmp_path / "out.mindir"), copies)


# -- one wide node or value --------------------------------------------------------------------------------------------


def fan(width: int) -> tuple[Graph, Node, Value]:
    """A tuple of ``width`` nodes that all use one input."""
    graph = Graph("fan")
    x = graph.add_input("x", VECTOR)
    parts = [graph.create("Exp", [x]) for _ in range(width)]
    graph.result = graph.create("MakeTuple", parts)
    return graph, graph.result, x  # type: ignore[return-value]


def rewire_each_operand(width: int) -> Callable[[], object]:
    _, tuple_, x = fan(width)
    return lambda: [tuple_.set_operand(i, x) for i in range(width)]


def replace_each_operand(width: int) -> Callable[[], object]:
    graph, tuple_, x = fan(width)
    return lambda: graph.replace({node: x for node in graph if node is not tuple_})


def replace_a_value_with_many_uses(width: int) -> Callable[[], object]:
    graph, _, x = fan(width)
    return lambda: x.replace_uses(graph.add_input("y", x.type))


def read_each_state_at_the_start(width: int) -> Callable[[], object]:
    graph, _, _ = fan(width)
    fx = Effects(graph)
    return lambda: [fx.load(graph.state(f"w{i}", tensor("float32"))) for i in range(width)]


WIDE = (rewire_each_operand, replace_each_operand, replace_a_value_with_many_uses, read_each_state_at_the_start)


@pytest.mark.parametrize("prepare", WIDE)
def test_editing_around_a_wide_node(prepare: Prepare[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_linear(monkeypatch, prepare, (1_000, 2_000, 4_000))


# -- functions ---------------------------------------------------------------------------------------------------------


def writer_of_its_argument(owner: Graph, name: str) -> Graph:
    """A function without a result so far, of a state, a value and a token."""
    function = owner.add_function(name)
    function.add_input("state", VECTOR)
    function.add_input("value", VECTOR)
    function.add_input("token", UMONAD)
    return function


def finish(function: Graph, effect: Node) -> None:
    token = function.create("UpdateState", [function.inputs[2], effect])
    function.result = function.create("Depend", [effect, token])


def one_function_called_often(calls: int) -> Graph:
    graph = Graph("step")
    function = writer_of_its_argument(graph, "add")
    finish(function, function.create("AssignAdd", function.inputs))
    value: Value = graph.add_input("x", VECTOR)
    token: Value = graph.constant(MonadValue("umonad"))
    for i in range(calls):
        value = graph.create("call", [graph.reference(function), graph.state(f"w{i}", VECTOR), value, token], VECTOR)
        token = graph.create("UpdateState", [token, value])
    graph.result = graph.create("Depend", [value, token])
    return graph


def functions_that_call_the_next(depth: int) -> Graph:
    graph = Graph("step")
    functions = [writer_of_its_argument(graph, f"f{i}") for i in range(depth)]
    for here, following in pairwise(functions):
        finish(here, here.create("call", [graph.reference(following), *here.inputs], VECTOR))
    finish(functions[-1], functions[-1].create("AssignAdd", functions[-1].inputs))
    start: list[Value] = [graph.state("w", VECTOR), graph.add_input("x", VECTOR), graph.constant(MonadValue("umonad"))]
    call = graph.create("call", [graph.reference(functions[0]), *start], VECTOR)
    graph.result = graph.create("Depend", [call, graph.create("UpdateState", [start[2], call])])
    return graph


def minimize(graph: Graph) -> object:
    program = Program({"step": graph}, {}, Schedule((Entry("step"),)))
    (pass_,) = parse_pipeline("effect-chain-minimization")
    return pass_.run(program)


@pytest.mark.parametrize("work", [verify, minimize, Graph.clone, print_graph])
@pytest.mark.parametrize("make", [one_function_called_often, functions_that_call_the_next])
def test_functions(
    work: Callable[[Any], object], make: Callable[[int], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(size: int) -> Callable[[], object]:
        graph = make(size)
        return lambda: work(graph)

    assert_linear(monkeypatch, prepare, (40, 80, 160))


# -- the test itself ---------------------------------------------------------------------------------------------------


def copy_operands_at_each(width: int) -> Callable[[], object]:
    _, tuple_, _ = fan(width)
    return lambda: [tuple_.operands[i] for i in range(width)]


def search_a_list_for_each(width: int) -> Callable[[], object]:
    graph, _, _ = fan(width)
    nodes: list[Node] = []
    return lambda: [nodes.append(n) for n in graph if n not in nodes]


@pytest.mark.parametrize("prepare", [copy_operands_at_each, search_a_list_for_each])
def test_a_quadratic_cost_is_found(prepare: Prepare[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="operations at sizes"):
        assert_linear(monkeypatch, prepare, (100, 200, 400))
