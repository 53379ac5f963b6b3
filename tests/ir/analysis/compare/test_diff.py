"""The structural difference: nothing where only names and order differ, and exactly what a change touched."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from boost_compile.ir.analysis.compare.diff import diff
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Constant, Graph, GraphRef, Node, Value
from boost_compile.ir.core.op import Op
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import FunctionType, TupleType, Type, tensor
from boost_compile.ir.formats.mindir.reader import read_mindir
from boost_compile.ir.formats.mindir.writer import write_mindir
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.formats.storage.save import save
from boost_compile.ir.text import parse_program, print_program
from boost_compile.passes.framework.manager import compile_program
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.strategies import programs

few = settings(max_examples=24)


def renamed(program: Program, seed: int) -> Program:
    """A copy in which nodes, constants, functions and graphs have each other's names, or new ones; so have inputs."""
    draw = random.Random(seed)
    copy = program.copy()
    new_graphs = shuffled_names(draw, list(copy.graphs))
    for graph in copy.graphs.values():
        functions = shuffled_names(draw, list(graph.functions))
        for body in graph.all_graphs():
            values: dict[Value, None] = dict.fromkeys(body)
            for node in body:
                values.update((v, None) for v in node.operands if isinstance(v, Constant))
            names = shuffled_names(draw, [v.name for v in values])
            for value in values:
                value.name = names[value.name]
            for i, value in enumerate(body.inputs):  # no two swap names: that would be another order of inputs
                value.name = value.name if draw.random() < 0.5 else f"other{i}"
            for value in [*body, *body.inputs, *(v for n in body for v in n.operands if not isinstance(v, Node))]:
                value.type = retyped(value.type, functions)
        rename_functions(graph, functions)
    copy.graphs = {new_graphs[name]: graph for name, graph in copy.graphs.items()}
    cycle = tuple(replace(e, graph=new_graphs.get(e.graph, e.graph)) for e in copy.schedule.cycle)
    flush = None if copy.schedule.flush is None else new_graphs.get(copy.schedule.flush, copy.schedule.flush)
    copy.schedule = replace(copy.schedule, cycle=cycle, flush=flush)
    return copy


def shuffled_names(draw: random.Random, names: list[str]) -> dict[str, str]:
    names = list(dict.fromkeys(names))
    others = [n if draw.random() < 0.5 else f"other{i}" for i, n in enumerate(names)]
    draw.shuffle(others)
    return dict(zip(names, others, strict=True))


def retyped(type_: Type, functions: dict[str, str]) -> Type:
    if isinstance(type_, FunctionType):
        return replace(type_, functions=tuple(functions.get(n, n) for n in type_.functions))
    if isinstance(type_, TupleType):
        return replace(type_, elements=tuple(retyped(t, functions) for t in type_.elements))
    return type_


def rename_functions(graph: Graph, names: dict[str, str]) -> None:
    functions = list(graph.functions.values())
    graph.functions.clear()
    for function in functions:
        function.name = names[function.name]
        graph.functions[function.name] = function
    for body in graph.all_graphs():
        for ref in {v for n in body for v in n.operands if isinstance(v, GraphRef)}:
            ref.name = ref.graph.name


def permuted(program: Program, seed: int) -> Program:
    """A copy whose nodes stand in another order that is as good, as do states and functions."""
    draw = random.Random(seed)
    copy = program.copy()
    for graph in copy.graphs.values():
        for body in graph.all_graphs():
            rank = {n: draw.random() for n in body}
            waiting = {n: {v for v in n.operands if isinstance(v, Node)} for n in body}
            order: list[Node] = []
            while waiting:
                node = min((n for n, on in waiting.items() if not on), key=lambda n: rank[n])
                del waiting[node]
                order.append(node)
                for user in node.users:
                    if user in waiting:
                        waiting[user].discard(node)
            body.reorder(order)
        functions = list(graph.functions.items())
        draw.shuffle(functions)
        graph.functions.clear()
        graph.functions.update(functions)
    state = list(copy.state.items())
    draw.shuffle(state)
    copy.state = dict(state)
    return copy


def assert_empty(a: Program, b: Program) -> None:
    found = diff(a, b)
    assert not found, found.to_json()
    assert not diff(b, a)


@few
@given(programs())
def test_a_copy_and_a_round_trip_through_text_do_not_differ(program: Program) -> None:
    assert_empty(program, program.copy())
    assert_empty(program, parse_program(print_program(program)))


@few
@given(programs(), st.integers(0, 2**32))
def test_names_do_not_count(program: Program, seed: int) -> None:
    assert_empty(program, renamed(program, seed))


@few
@given(programs(), st.integers(0, 2**32))
def test_order_of_independent_nodes_does_not_count(program: Program, seed: int) -> None:
    assert_empty(program, permuted(program, seed))
    assert_empty(program, renamed(permuted(program, seed), seed))


def change_op(node: Node) -> None:
    node.op = Op(node.op.name + "Other", node.op.attributes, node.op.instance, node.op.kind)


def change_attribute(node: Node) -> None:
    node.set_attribute("a new attribute", 5)


def change_type(node: Node) -> None:
    node.type = tensor("float32", 77)


def change_scope(node: Node) -> None:
    node.scope += "/elsewhere"


def change_mark(node: Node) -> None:
    node.marks = {**node.marks, "a new mark": True}


def add_operand(node: Node) -> None:
    assert node.graph is not None
    node.set_operands([*node.operands, node.graph.constant(scalar_tensor("float32", 12.5))])


CHANGES: list[Callable[[Node], None]] = [
    change_op, change_attribute, change_type, change_scope, change_mark, add_operand,
]  # fmt: skip


@few
@given(programs(), st.data(), st.sampled_from(CHANGES))
def test_a_change_is_found_where_it_is(program: Program, data: st.DataObject, change: Callable[[Node], None]) -> None:
    copy = program.copy()
    pairs = [
        (x, y)
        for name, graph in program.graphs.items()
        for body, other in zip(graph.all_graphs(), copy.graphs[name].all_graphs(), strict=True)
        for x, y in zip(body, other, strict=True)
    ]
    x, y = data.draw(st.sampled_from(pairs), label="node")
    change(y)
    found = diff(program, copy)
    assert found
    assert {n.before for n in found.nodes()} <= {x, None}, found.to_json()
    assert {n.after for n in found.nodes()} <= {y, None}, found.to_json()


# -- networks ----------------------------------------------------------------------------------------------------------

NETWORKS = ["mlp", "lenet_bn_adam", "branch", "lstm", "mlp_loss_scale_dynamic", "gpt_tied"]
Exported = Callable[[str], Path]


@pytest.mark.parametrize("name", NETWORKS)
def test_files_and_names(name: str, exported: Exported, tmp_path: Path) -> None:
    program = read_mindir(exported(name))
    write_mindir(tmp_path / "copy.mindir", program.graphs["step"], program.state, program.metadata)
    assert_empty(program, read_mindir(tmp_path / "copy.mindir"))
    assert_empty(program, renamed(permuted(program, 1), 1))
    compiled = compile_program(program, "gradient-accumulation{steps=2},clip-gradients{limit=1.0}")
    save(compiled, tmp_path / "copy.boost")
    assert_empty(compiled, load(tmp_path / "copy.boost"))
    assert_empty(compiled, parse_program(print_program(compiled)))
    assert_empty(compiled, renamed(permuted(compiled, 2), 2))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_operand_in_a_network_that_is_renamed(name: str, exported: Exported) -> None:
    """The place is found by structure alone: every name is another."""
    program = read_mindir(exported(name))
    graph = program.graphs["step"]
    target = next(n for n in graph if n.op.name in ("MatMul", "Conv2D", "BiasAdd", "BatchMatMul"))
    copy = program.copy()
    twin = next(n for n in copy.graphs["step"] if n.name == target.name)
    with copy.graphs["step"].inserting_before(twin):
        added = copy.graphs["step"].create("Abs", [twin.operand(0)])
    twin.set_operand(0, added)
    for i, node in enumerate(copy.graphs["step"]):
        node.name = f"node{i}"
    found = diff(program, copy)
    assert [(n.kind, n.before, n.after) for n in found.nodes()] == [("changed", target, twin), ("added", None, added)]
    assert [d.what for d in found.nodes()[0].details] == ["operand 0"]


def test_a_split_graph_is_compared_with_both_halves(exported: Exported) -> None:
    program = read_mindir(exported("mlp"))
    compiled = compile_program(program, "gradient-accumulation{steps=3}")
    found = diff(program, compiled)
    assert [(g.before, g.after) for g in found.graphs] == [("step", "accumulate"), ("step", "apply")]
    assert [str(d) for d in found.split] == ["graph: 'step' → 'accumulate', 'apply'"]
    weights = [w.name for w in anatomy(program.graphs["step"]).weights]
    added = [n for n in found.nodes() if n.kind == "added" and not n.order]
    sums = [n for n in added if n.node.op.name == "AssignAdd" and n.node.type.shape]  # type: ignore[attr-defined]
    assert len(sums) == len(weights)
    assert all(n.by == "gradient-accumulation" for n in found.nodes())
    # What one half has is not gone because the other half has it not: the whole network is still there.
    assert [n.node.op.name for n in found.nodes() if n.kind == "removed" and not n.order] in ([], ["Depend"])
    # The updates are there, with other gradients, and waiting for other effects.
    updates = [n for n in found.graphs[1].nodes if n.kind == "changed" and n.node.op.name == "ApplyMomentum"]
    assert len(updates) == len(weights)
    assert all(n.details[0].what == "operand 3" for n in updates)
    assert {s.name: s.kind for s in found.state} == {
        **{f"accum.{w}": "added" for w in weights}, "accumulation.count": "added",
    }  # fmt: skip
    assert {d.what for d in found.schedule} == {"cycle", "flush", "count"}


def test_differences_are_grouped_by_pass_and_scope(exported: Exported) -> None:
    program = read_mindir(exported("mlp"))
    compiled = compile_program(program, "clip-gradients{limit=1.0},overflow-check")
    found = diff(program, compiled)
    assert {"clip-gradients", "overflow-check"} <= set(found.by_pass())
    assert sum(map(len, found.by_pass().values())) == len(found.nodes())
    assert any(node.scope.startswith("Default/optimizer-Momentum") for node in found.nodes())


@pytest.mark.parametrize(
    "passes", ["", "gradient-accumulation{steps=4},", "gradient-accumulation{steps=4,split=fused},"]
)
def test_updates_that_a_function_holds_have_moved_there(passes: str, exported: Exported, tmp_path: Path) -> None:
    """Also in a file: it keeps what each node was made of."""
    program = read_mindir(exported("mlp"))
    file = tmp_path / "moved.boost"
    save(compile_program(program, f"{passes}overflow-check"), file)
    found = diff(program, load(file))
    moved = [n for n in found.nodes() if n.kind == "moved" and not n.order]
    updates = {n.name for n in program.graphs["step"] if n.op.name == "ApplyMomentum"}
    assert {n.before.name for n in moved if n.node.op.name == "ApplyMomentum"} == updates
    assert {(n.by, *map(str, n.details)) for n in moved} == {("overflow-check", "place: @step → @update")}
    assert not [n for n in found.nodes() if n.kind == "removed" and n.node.op.name == "ApplyMomentum"]


def test_other_networks_differ_and_every_node_is_accounted_for(exported: Exported) -> None:
    programs = [read_mindir(exported(name)) for name in ("mlp", "lenet_bn_adam", "mlp_adam", "gpt_tied")]
    for a, b in combinations(programs, 2):
        found = diff(a, b)
        assert found
        (graph,) = found.graphs
        assert graph.kept + sum(n.kind == "removed" for n in graph.nodes) == a.graphs["step"].total_nodes()
        assert graph.kept + sum(n.kind == "added" for n in graph.nodes) == b.graphs["step"].total_nodes()
    mlp, _, adam, _ = programs
    kept = diff(mlp, adam).graphs[0].kept
    assert kept > len(mlp.graphs["step"]) / 2, "the same network: only its optimizer is another"


# -- single facts ------------------------------------------------------------------------------------------------------

TEXT = """
program @net {
  target cpu
  schedule @step
}

state %w: float32[2]<1.0, 2.0> role=weight

graph @step(%x: float32[2], %y: float32[2]) -> (loss) {
  %a = Mul(%x, %w) : float32[2] scope("Default/one/Mul-op0")
  %b = Sub(%a, %y) : float32[2] scope("Default/two/Sub-op0")
  %f = Partial(@square, %b)
  %r = call(%f) : float32[2]
  return %r

  func @square(%v: float32[2]) {
    %s = Square(%v) : float32[2]
    return %s
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("target cpu", "target gpu", "program target: cpu → gpu"),
        ("<1.0, 2.0>", "<1.0, 3.0>", "state w initial values: 8 bytes → other bytes"),
        ("role=weight", "role=slot", "state w role: weight → slot"),
        ("Sub(%a, %y)", "Sub(%y, %a)", "changed b operand 0: %a → %y; changed b operand 1: %y → %a"),
        ("Sub(%a, %y)", "Sub(%a, 1.5)", "changed b operand 1: %y → 1.5"),
        ("= Sub(", "= Add(", "changed b op: Sub → Add"),
        ("Default/two", "Default/three", "changed b scope: Default/two/Sub-op0 → Default/three/Sub-op0"),
        ("Square(%v)", "Abs(%v)", "changed s op: Square → Abs"),
        ("return %r\n", "return %b\n", "result: %r → %b"),
        ("(%x: float32[2], %y: float32[2])", "(%y: float32[2], %x: float32[2])",
         "inputs: %x: float32[2], %y: float32[2] → %y: float32[2], %x: float32[2]"),
        ("-> (loss)", "-> (accuracy)", "outputs: loss → accuracy"),
        ("@square", "@other", ""),
        ("%a", "%other", ""),
        ("@step", "@train", ""),
    ],
)  # fmt: skip
def test_single_facts(old: str, new: str, expected: str) -> None:
    changed = TEXT.replace(old, new)
    assert changed != TEXT
    found = diff(parse_program(TEXT), parse_program(changed))
    facts = [f"program {d}" for d in found.program] + [f"schedule {d}" for d in found.schedule]
    facts += [f"state {s.name} {d}" for s in found.state for d in s.details]
    facts += [str(d) for g in found.graphs for d in g.interface]
    for node in found.nodes():
        facts += [f"{node.kind} {node.node.name} {d}" for d in node.details] or [f"{node.kind} {node.node.name}"]
    assert "; ".join(facts) == expected
    assert bool(found) == bool(expected)


def test_graphs_that_have_nothing_in_common_come_and_go_as_a_whole() -> None:
    a, b = parse_program(TEXT), parse_program(TEXT)
    other = Graph("other")
    other.result = other.create("Rank", [other.add_input("z", tensor("float32", 3))], tensor("int64"))
    b.graphs["other"] = other
    b.schedule = Schedule((Entry("step"), Entry("other")))
    found = diff(a, b)
    assert [(g.before, g.after, len(g.nodes)) for g in found.graphs] == [("step", "step", 0), (None, "other", 1)]
    assert not diff(b, b.copy())


def test_a_copy_of_a_graph_is_a_difference() -> None:
    a, b = parse_program(TEXT), parse_program(TEXT)
    b.graphs["again"] = b.graphs["step"].clone("again")[0]
    found = diff(a, b)
    assert not found.nodes()
    assert [str(d) for d in found.split] == ["graph: 'step' → 'step', 'again'"]


def test_computation_is_what_counts_if_asked_for() -> None:
    """Scopes, marks and the order of effects are no difference then; attributes, operands and types are."""
    text = """
state %w: float32[2]

graph @step(%x: float32[2]) {
  %a = AddN(%x, %w) {n = 2} : float32[2] scope("one")
  %first = Assign(%w, %a, umonad)
  %token = UpdateState(umonad, %first)
  %second = Assign(%w, %x, %token)
  %after = UpdateState(%token, %second)
  %result = Depend(%a, %after)
  return %result
}
"""
    program = parse_program(text)
    for old, new in (
        ('scope("one")', 'scope("two")'),
        ('scope("one")', 'instance("add") scope("one")'),
        ('scope("one")', 'scope("one") marks {checkpoint = true}'),
    ):
        other = parse_program(text.replace(old, new))
        assert diff(program, other)
        assert not diff(program, other, computation=True)
    for old, new in (("n = 2", "n = 3"), ("Assign(%w, %x, %token)", "Assign(%w, %a, %token)"), ("AddN", "Add")):
        assert diff(program, parse_program(text.replace(old, new)), computation=True)
