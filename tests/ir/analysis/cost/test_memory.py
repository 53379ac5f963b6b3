"""The memory estimate, on graphs whose answer can be worked out by hand. Tensors have 1024 bytes but where said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.analysis.cost.memory import (
    ACTIVATION,
    BACKWARD_VALUE,
    GRADIENT,
    UPDATE_VALUE,
    graph_memory,
    value_kinds,
)
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.network import BACKWARD, FORWARD
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program

from tests.material import material
from tests.synthetic import layers, wide

K = 1024


def kinds(graph: Graph) -> dict[Node, str]:
    found = anatomy(graph)
    return value_kinds(graph, found.parts, found)


def step(body: str, *, inputs: str = "%x: float32[256]") -> Graph:
    return parse_program(f"graph @step({inputs}) {{\n{body}\n}}\n").graphs["step"]


def alive(graph: Graph) -> list[int]:
    """Bytes alive at each node."""
    timeline = graph_memory(graph).timeline
    return [sum(at) for at in zip(*timeline.values(), strict=True)]


def test_a_chain_holds_two_values_at_a_time() -> None:
    graph = step("%a = Exp(%x)\n%b = Neg(%a)\n%c = Exp(%b)\n%d = Neg(%c)\nreturn %d")
    assert alive(graph) == [K, 2 * K, 2 * K, 2 * K]
    memory = graph_memory(graph)
    assert (memory.inputs, memory.constants, memory.peak, memory.total) == (K, 0, 2 * K, 3 * K)
    assert memory.at is not None
    assert memory.at.name == "b"


def test_a_value_lives_until_its_last_use() -> None:
    graph = step("%a = Exp(%x)\n%b = Neg(%a)\n%c = Exp(%b)\n%d = Mul(%c, %a)\nreturn %d")
    assert alive(graph) == [K, 2 * K, 3 * K, 3 * K]


def test_what_nothing_uses_is_gone_at_once_and_the_result_stays() -> None:
    graph = step("%a = Exp(%x)\n%dead = Neg(%x)\n%b = Exp(%x)\nreturn %a")
    assert alive(graph) == [K, 2 * K, 2 * K]


@pytest.mark.parametrize(
    "view",
    [
        "%v = Reshape(%a, (16, 16)) : float32[16,16]",
        "%v = ExpandDims(%a, 0) : float32[1,256]",
        "%t = MakeTuple(%a, %x)\n%v = TupleGetItem(%t, 0) : float32[256]",
        "%w = UpdateState(umonad, %x)\n%v = Depend(%a, %w) : float32[256]",
    ],
)
def test_a_view_takes_nothing_and_keeps_its_source(view: str) -> None:
    graph = step(f"%a = Exp(%x)\n{view}\n%b = Neg(%x)\n%c = Exp(%v)\nreturn %c")
    lines = view.count("\n") + 1
    assert alive(graph) == [K] + [K] * lines + [2 * K, 2 * K]
    copied = step("%a = Exp(%x)\n%v = Neg(%a)\n%b = Neg(%x)\n%c = Exp(%v)\nreturn %c")
    assert alive(copied) == [K, 2 * K, 2 * K, 2 * K]


def test_elements_of_a_result_live_each_for_themselves() -> None:
    """Two elements of 1024 and 4096 bytes: the large one is used at once, the small one at the end."""
    body = (
        "%s = Split(%x) : (float32[256], float32[1024])\n"
        "%large = TupleGetItem(%s, 1) : float32[1024]\n%m = ReduceSum(%large, (), false) : float32[]\n"
        "%small = TupleGetItem(%s, 0) : float32[256]\n%n = Neg(%small)\n%o = Mul(%n, %m) : float32[256]\nreturn %o"
    )
    assert alive(step(body)) == [5 * K, 5 * K, 5 * K + 4, K + 4, 2 * K + 4, 2 * K + 4]


def test_a_tuple_that_others_only_wait_for_keeps_nothing() -> None:
    body = (
        "%a = Exp(%x)\n%t = MakeTuple(%a)\n%u = UpdateState(umonad, %t)\n%b = Neg(%x)\n%c = Depend(%b, %u)\nreturn %c"
    )
    assert alive(step(body))[3] == K


STATE = """
state %w: float32[256] role=weight
state %m: float32[256] role=slot weight=%w
graph @step(%x: float32[256]) {
  %w.0 = Load(%w, umonad) : float32[256]
  %g = Mul(%x, %w.0)
  %a = Assign(%m, %g, umonad) : float32[256]@m
  %u = UpdateState(umonad, %a)
  %m.1 = Load(%m, %u) : float32[256]
  %n = Neg(%m.1)
  %b = AssignAdd(%w, %n, %u) : float32[256]@w
  %v = UpdateState(%u, %b)
  %r = Depend(float32[]<0.0>, %v)
  return %r
}
"""


def test_what_is_written_in_place_is_not_counted_again() -> None:
    step = graph_memory(parse_program(STATE).graphs["step"])
    assert [sum(at) for at in zip(*step.timeline.values(), strict=True)] == [0, K, K, 0, 0, K, K, 0, 0]
    assert (step.inputs, step.constants, step.peak) == (K, 4, K)


def test_an_activation_written_in_place_lives_on_in_the_result() -> None:
    body = "%a = Exp(%x)\n%b = AssignAdd(%a, %x, umonad) : float32[256]\n%c = Neg(%x)\n%d = Mul(%b, %c)\nreturn %d"
    assert alive(step(body)) == [K, K, 2 * K, 3 * K]


FUNCTIONS = """
graph @step(%x: float32[256], %go: bool[]) {{
  %p = Partial(@big, %x)
  %q = Partial(@small, %x)
  %f = Switch(%go, %p, %q) : union<@big, @small>
  %a = Exp(%x)
  %r = call({call}) : float32[256]
  %s = Mul(%r, %a)
  return %s

  func @big(%v: float32[256]) {{
    %b = Exp(%v)
    %c = Neg(%v)
    %d = Mul(%b, %c)
    return %d
  }}

  func @small(%v: float32[256]) {{
    %e = Exp(%v)
    return %e
  }}
}}
"""


def test_a_call_needs_what_the_largest_function_needs() -> None:
    """@big holds three values at its last node, one of which is the result; @small its result alone."""
    either = parse_program(FUNCTIONS.format(call="%f")).graphs["step"]
    assert alive(either) == [0, 0, 0, K, (1 + 3) * K, 3 * K]
    small = parse_program(FUNCTIONS.format(call="@small, %x")).graphs["step"]
    assert alive(small) == [0, 0, 0, K, (1 + 1) * K, 3 * K]


def test_a_closure_holds_what_it_was_bound_to() -> None:
    graph = step(
        "%f = call(@forward, %x) : fn<@backward>\n%y = Neg(%x)\n%d = call(%f, %y) : float32[256]\nreturn %d\n"
        "func @forward(%v: float32[256]) {\n%a = Exp(%v)\n%b = Partial(@backward, %a)\nreturn %b\n}\n"
        "func @backward(%a: float32[256], %d: float32[256]) {\n%m = Mul(%a, %d)\nreturn %m\n}"
    )
    assert alive(graph) == [K, 2 * K, 3 * K]


def test_kinds_of_values_add_up_to_the_whole(exported: Callable[[str], Path]) -> None:
    program = load(str(exported("lenet_bn")))
    graph = program.graphs["step"]
    plain, split = graph_memory(graph), graph_memory(graph, kinds(graph))
    assert split.peak == plain.peak
    whole = [sum(at) for at in zip(*split.timeline.values(), strict=True)]
    assert whole == [sum(at) for at in zip(*plain.timeline.values(), strict=True)]
    # A gradient is alive at its update, as large as its weight; at the last update no activation is needed any more.
    updates = [(i, node) for i, node in enumerate(graph) if node.op.name == "ApplyMomentum"]
    assert len(updates) == sum(v.role == "weight" for v in program.state.values())
    for i, node in updates:
        assert split.timeline[GRADIENT][i] >= program.state[node.operand(0).name].nbytes
    assert split.timeline[ACTIVATION][updates[-1][0]] < max(split.timeline[ACTIVATION]) / 100


def test_cost_does_not_grow_with_the_width_of_tuples() -> None:
    """A quadratic walk over 20,000 operands would take minutes."""
    graph = wide(20_000).graphs["step"]
    # At the last backward node: 20,000 parts of the gradient, the derivative before and after, the loss.
    assert graph_memory(graph, kinds(graph)).peak == (20_000 + 2) * 32 + 4
    assert graph_memory(layers(2_000).graphs["step"]).peak > 0


@pytest.mark.parametrize(("first", "second"), [("0", "1"), ("-2", "-1"), ("0", "-1")])
def test_elements_may_be_counted_from_the_end(first: str, second: str) -> None:
    """The small element (1 KiB) is used last, the large one (4 KiB) at once, however they are named."""
    graph = step(
        f"%s = Split(%x) : (float32[256], float32[1024])\n%large = TupleGetItem(%s, {second}) : float32[1024]\n"
        f"%m = ReduceSum(%large, (), false) : float32[]\n%small = TupleGetItem(%s, {first}) : float32[256]\n"
        "%n = Neg(%small)\n%o = Mul(%n, %m) : float32[256]\nreturn %o"
    )
    assert alive(graph) == [5 * K, 5 * K, 5 * K + 4, K + 4, 2 * K + 4, 2 * K + 4]


def test_a_tuple_that_is_used_as_a_whole_keeps_all_of_it() -> None:
    """One element is taken early, the whole at the end."""
    graph = step(
        "%s = Split(%x) : (float32[256], float32[1024])\n%part = TupleGetItem(%s, 0) : float32[256]\n%a = Neg(%part)\n"
        "%b = Merge(%s, %a) : float32[256]\n%c = Neg(%b)\nreturn %c"
    )
    assert alive(graph) == [5 * K, 5 * K, 6 * K, 7 * K, 2 * K]


def test_a_packed_value_lives_as_long_as_its_element_or_the_tuple() -> None:
    """Of a tuple of %a and %b one element is used late: the other is gone as soon as it is made."""
    body = "%a = Exp(%x)\n%b = Neg(%x)\n%t = MakeTuple(%a, %b)\n%c = Exp(%x)\n"
    body += "%i = TupleGetItem(%t, INDEX)\n%d = Mul(%i, %c)\nreturn %d"
    for index in ("1", "-1"):
        assert alive(step(body.replace("INDEX", index))) == [K, K, K, 2 * K, 2 * K, 3 * K]
    for index in ("0", "-2"):
        assert alive(step(body.replace("INDEX", index))) == [K, 2 * K, K, 2 * K, 2 * K, 3 * K]


def test_a_view_that_nothing_uses_keeps_nothing() -> None:
    graph = step("%a = Exp(%x)\n%v = Reshape(%a, (16, 16)) : float32[16,16]\n%b = Neg(%x)\nreturn %b")
    assert alive(graph) == [K, 0, K]


def test_what_is_used_as_soon_as_it_is_made_lives_for_one_node() -> None:
    """The value of the first node counts at the first node, and no more where nothing takes it."""
    graph = step("%a = Exp(%x)\n%b = Neg(%x)\nreturn %x")
    assert alive(graph) == [K, K]


def test_a_result_of_an_optimizer_is_the_state() -> None:
    program = parse_program("""
state %w: float32[256]
state %m: float32[256]
state %rate: float32[]
graph @step(%x: float32[256]) {
  %up = ApplyMomentum(%w, %m, %rate, %x, %rate, umonad) : float32[256]
  %u = UpdateState(umonad, %up)
  %r = Depend(float32[]<0.0>, %u)
  return %r
}""")
    assert graph_memory(program.graphs["step"]).peak == 0


def test_an_element_far_back_in_a_tuple_lives_until_its_own_use() -> None:
    """It is the fourth of its tuple and used by the third node."""
    types = ", ".join(["float32[256]"] * 4)
    graph = step(
        f"%t = Split(%x) : ({types})\n%i = TupleGetItem(%t, 3)\n%a = Neg(%i)\n%b = Neg(%a)\n%c = Neg(%b)\nreturn %c"
    )
    assert alive(graph) == [4 * K, K, 2 * K, 2 * K, 2 * K]


def test_an_effect_that_writes_nothing_has_a_result_of_its_own() -> None:
    graph = step("%a = Exp(%x)\n%s = Show(%a, umonad) : float32[256]\n%b = Neg(%s)\nreturn %b")
    assert alive(graph) == [K, 2 * K, 2 * K]


def test_a_size_that_no_machine_has_is_capped() -> None:
    graph = step("%a = Show(%x) : float32[4611686018427387904]\nreturn %a")
    assert graph_memory(graph).peak == 16 << 40


def test_kinds_of_values_by_the_part_they_stand_in() -> None:
    graph = material("mlp").graphs["step"]
    found = kinds(graph)
    by_op = {name: {kind for node, kind in found.items() if node.op.name == name} for name in ("ReLU", "ReluGrad")}
    assert by_op == {"ReLU": {ACTIVATION}, "ReluGrad": {BACKWARD_VALUE}}
    updates = [node for node in graph if node.op.name == "ApplyMomentum"]
    assert {found[node] for node in updates} == {UPDATE_VALUE}
    assert {node for node, kind in found.items() if kind == GRADIENT} == {node.operand(3) for node in updates}
    split = compile_program(material("mlp"), "gradient-accumulation{steps=2}").graphs["accumulate"]
    parts = {n: found[twin] for n in split for twin in graph if twin.name == n.name and twin.op is n.op}
    known = {n: (FORWARD if kind == ACTIVATION else BACKWARD) for n, kind in parts.items() if kind != UPDATE_VALUE}
    alone = value_kinds(split, known, None)
    assert {n.operand(1) for n in split if n.op.name == "AssignAdd" and n.operand(1) in known} == {
        n for n, kind in alone.items() if kind == GRADIENT
    }
