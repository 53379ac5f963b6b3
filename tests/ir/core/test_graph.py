"""Values, use-lists and the graph's operations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Constant, Graph, Input, Node, Origin, Value
from boost_compile.ir.core.op import Op
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.types import TensorType, tensor
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.text import parse_graph, print_graph, print_program
from boost_compile.ir.verify.verifier import verify
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.equality import structurally_equal

F = tensor("float32", 2)
MATERIAL = Path(__file__).parents[2] / "material"


def chain(length: int = 3) -> tuple[Graph, Input, list[Node]]:
    g = Graph("g")
    x = g.add_input("x", F)
    nodes: list[Node] = []
    for i in range(length):
        nodes.append(g.create("Exp", [nodes[-1] if nodes else x], name=f"n{i}"))
    g.result = nodes[-1] if nodes else x
    return g, x, nodes


def names(g: Graph) -> list[str]:
    return [n.name for n in g]


def sites(value: Value) -> list[tuple[str, int]]:
    return [(user.name, i) for user, i in value.use_sites()]


class CountingSet(set[int]):
    """A use set that fails when someone walks it: setting one operand must not."""

    def __iter__(self) -> Any:
        raise AssertionError("walked all uses")


# -- uses ------------------------------------------------------------------------------------------------------


def test_uses_follow_operands() -> None:
    g, x, (a, b, c) = chain()
    assert sites(x) == [("n0", 0)]
    assert sites(c) == [("return", 0)]
    assert g.is_return(next(iter(c.uses)))
    twice = g.create("Mul", [a, a], name="twice")
    assert a.users == [b, twice]
    assert sites(a) == [("n1", 0), ("twice", 0), ("twice", 1)]
    b.set_operand(0, x)
    assert sites(a) == [("twice", 0), ("twice", 1)]
    assert sites(x) == [("n0", 0), ("n1", 0)]


def test_repeated_operands_are_told_apart() -> None:
    g, x, (a, b, _) = chain()
    n = g.create("AddN", [a, b, a, a], F, name="n")
    assert a.uses[n] == {0, 2, 3}
    n.set_operand(2, b)
    assert a.uses[n] == {0, 3}
    assert b.uses[n] == {1, 2}
    n.set_operand(0, x)
    assert a.uses[n] == 3
    n.set_operand(3, x)
    assert n not in a.uses
    assert n.operands == (x, b, b, x)
    n.set_operand(0, x)
    assert x.uses[n] == {0, 3}


def test_setting_one_operand_does_not_walk_the_others() -> None:
    g, x, (a, *_) = chain()
    wide = g.create("MakeTuple", [a] * 64_000, name="wide")
    a.uses[wide] = CountingSet(range(64_000))
    wide.set_operand(12_345, x)
    assert wide.operand(12_345) is x
    assert x.uses[wide] == 12_345
    assert len(a.uses[wide]) == 63_999  # type: ignore[arg-type]


def test_set_operands_replaces_the_whole_list() -> None:
    _, x, (a, b, _) = chain()
    b.set_operands([x, a, x])
    assert b.num_operands == 3
    assert (x.uses[b], a.uses[b]) == ({0, 2}, 1)
    b.set_operands([])
    assert b not in x.uses
    assert b not in a.uses


def test_replace_uses() -> None:
    g, x, (a, b, c) = chain()
    n = g.create("AddN", [a, a, b], F, name="n")
    assert a.replace_uses(x) == 3
    assert not a.uses
    assert b.operand(0) is x
    assert n.operands == (x, x, b)
    assert c.replace_uses(b) == 1
    assert g.result is b


def test_replace_is_one_batch() -> None:
    g, x, (a, b, c) = chain()
    assert g.replace({a: x, b: a, c: c}) == 2
    assert b.operand(0) is x
    assert c.operand(0) is a
    y = g.add_input("y", F)
    assert g.replace({x: y, a: x}) == 3
    assert [n.operand(0) for n in g] == [y, y, x]
    assert g.replace({x: y, y: x}) == 3
    assert [n.operand(0) for n in g] == [x, x, y]
    verify(g)


@settings(max_examples=60)
@given(st.data())
def test_use_lists_stay_right_under_any_edits(data: st.DataObject) -> None:
    g, x, nodes = chain(3)
    for i in range(4):
        nodes.append(g.create("AddN", [x] * (i + 1), F, name=f"w{i}"))
    values: list[Value] = [x, *nodes, Constant("k", 1.0)]
    for _ in range(data.draw(st.integers(1, 20))):
        node = data.draw(st.sampled_from(nodes))
        edit = data.draw(st.sampled_from(["set", "list", "replace"]))
        value = data.draw(st.sampled_from(values))
        if edit == "set" and node.num_operands:
            node.set_operand(data.draw(st.integers(0, node.num_operands - 1)), value)
        elif edit == "list":
            node.set_operands(data.draw(st.lists(st.sampled_from(values), max_size=5)))
        elif edit == "replace":
            node.replace_uses(value)
    expected = {(v, u, i) for u in [*nodes, g._return] for i, v in enumerate(u.operands)}
    assert {(v, u, i) for v in values for u, i in v.use_sites()} == expected
    for value in values:
        for at in value.uses.values():
            assert isinstance(at, int) or len(at) > 1


# -- erasing ---------------------------------------------------------------------------------------------------


def test_erase_refuses_what_is_used() -> None:
    g, _, (a, b, c) = chain()
    with pytest.raises(VerifyError, match=r"cannot erase <%n1 = Exp\(%n0\): float32\[2\]>: used by %n2"):
        g.erase(b)
    with pytest.raises(VerifyError, match="used by %return"):
        g.erase(c)
    assert names(g) == ["n0", "n1", "n2"]
    assert b.operand(0) is a


def test_erase_frees_operands() -> None:
    g, x, (a, b, c) = chain()
    g.result = x
    for node in (c, b, a):
        g.erase(node)
    assert len(g) == 0
    assert names(g) == []
    assert sites(x) == [("return", 0)]
    assert a.graph is None
    with pytest.raises(VerifyError, match="is not a node of graph 'g'"):
        g.erase(a)
    with pytest.raises(VerifyError, match="is not a node of graph 'g'"):
        g.erase(g._return)


def test_erase_all_takes_a_closed_set_in_any_order() -> None:
    g, x, (a, b, c) = chain()
    a.set_operand(0, c)  # a cycle, which erase could never take apart
    g.result = x
    assert g.erase_all([b, a, c, b]) == 3
    assert len(g) == 0
    assert not c.uses


def test_erase_all_checks_before_it_changes_anything() -> None:
    g, _, (a, b, c) = chain()
    with pytest.raises(VerifyError, match=r"cannot erase <%n1 = .*: used by %n2, which stays"):
        g.erase_all([a, b])
    assert names(g) == ["n0", "n1", "n2"]
    assert c.operand(0) is b
    verify(g)


# -- order and insertion ---------------------------------------------------------------------------------------


def test_insertion_points() -> None:
    g, x, (a, b, _) = chain()
    with g.inserting_before(b):
        g.create("Neg", [a], name="p")
        with g.inserting_after(a):
            g.create("Neg", [a], name="q")
            g.create("Neg", [a], name="r")
        g.create("Neg", [a], name="s")
    g.create("Neg", [a], name="end")
    with g.inserting_after(x):
        g.create("Neg", [x], name="front")
    with g.inserting_before(None):
        g.create("Neg", [x], name="end2")
    with g.inserting_before(g._return):
        g.create("Neg", [x], name="end3")
    assert names(g) == ["front", "n0", "q", "r", "p", "s", "n1", "n2", "end", "end2", "end3"]
    assert names(g) == [n.name for n in reversed(list(reversed(g)))]
    verify(g)


def test_insertion_point_is_restored_after_an_error() -> None:
    g, x, (_, b, _) = chain()
    with pytest.raises(ZeroDivisionError), g.inserting_before(b):
        raise ZeroDivisionError
    g.create("Neg", [x], name="end")
    assert names(g)[-1] == "end"


def test_insertion_point_must_stand_in_the_graph() -> None:
    g, *_ = chain()
    _, _, (stranger, *_) = chain()
    message = r"insertion point .* is not a node of graph 'g'"
    with pytest.raises(VerifyError, match=message), g.inserting_before(stranger):
        pass


def test_a_node_stands_in_one_graph() -> None:
    _g, _, (a, *_) = chain()
    with pytest.raises(VerifyError, match="already stands in graph 'g'"):
        Graph("h").insert(a)


def test_iteration_under_mutation() -> None:
    g, x, _ = chain(4)
    seen = []
    for node in g:
        seen.append(node.name)
        if node.name == "n0":
            with g.inserting_after(node):
                g.create("Neg", [x], name="directly after: not visited")
            g.create("Neg", [x], name="at the end: visited")
        if node.name == "n1":
            node.replace_uses(node.operand(0))
            g.erase(node)
        if node.name == "n2":
            g.reorder([*(other for other in g if other is not node), node])
    assert seen == ["n0", "n1", "n2", "n3", "at the end: visited", "n2"]
    assert names(g) == ["n0", "directly after: not visited", "n3", "at the end: visited", "n2"]
    backwards = [n.name for n in reversed(g)]
    assert backwards == names(g)[::-1]
    for node in reversed(g):
        if not node.uses:
            g.erase(node)
    assert names(g) == ["n0", "n3", "n2"]


def test_reorder_wants_every_node() -> None:
    g, _, (a, b, c) = chain()
    _, _, strangers = chain()
    for wrong in ([a, b], [a, b, b], [a, b, c, c], strangers):
        with pytest.raises(VerifyError, match=f"{len(wrong)} nodes given, not each of its 3 once"):
            g.reorder(wrong)
    assert names(g) == ["n0", "n1", "n2"]
    g.reorder([c, b, a])
    assert names(g) == ["n2", "n1", "n0"]
    assert len(g) == 3
    assert (c.next, a.next) == (b, None)
    assert names(g)[::-1] == [n.name for n in reversed(g)]


def test_sort_restores_order_and_is_stable() -> None:
    g, x, (a, _b, _c) = chain()
    d = g.create("Neg", [x], name="d")
    e = g.create("Neg", [d], name="e")
    g.sort()
    assert names(g) == ["n0", "n1", "n2", "d", "e"]
    a.set_operand(0, e)
    g.sort()
    assert names(g) == ["d", "e", "n0", "n1", "n2"]
    verify(g)
    g.sort()
    assert names(g) == ["d", "e", "n0", "n1", "n2"]


def test_sort_names_a_node_on_a_cycle() -> None:
    g, _, (a, _, c) = chain()
    a.set_operand(0, c)
    before = names(g)
    with pytest.raises(VerifyError, match=r"graph 'g': <%n\d = Exp\(%n\d\): float32\[2\]> depends on itself"):
        g.sort()
    assert names(g) == before
    a.set_operand(0, a)
    with pytest.raises(VerifyError, match=r"<%n0 = Exp\(%n0\): float32\[2\]> depends on itself"):
        g.sort()


def test_sort_of_deep_and_wide_graphs() -> None:
    g, _, nodes = chain(20_000)
    wide = g.create("AddN", [g.create("MakeTuple", nodes)])
    g.result = wide
    g.reorder(reversed(list(g)))
    g.sort()
    verify(g)


@settings(max_examples=60)
@given(st.permutations(range(8)), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
def test_sort_agrees_with_networkx(order: list[int], edges: list[tuple[int, int]]) -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    nodes = [g.create("AddN", [x], F, name=str(i)) for i in range(8)]
    for source, target in edges:
        nodes[target].set_operands([*nodes[target].operands, nodes[source]])
    g.result = x
    g.reorder([nodes[i] for i in order])
    if nx.is_directed_acyclic_graph(g.to_networkx()):
        g.sort()
        verify(g)
    else:
        with pytest.raises(VerifyError, match="depends on itself"):
            g.sort()


# -- building --------------------------------------------------------------------------------------------------


def test_fresh_names_are_fresh() -> None:
    g, *_ = chain()
    made = [g.fresh_name("n") for _ in range(100)]
    assert len({*made, *names(g)}) == 103
    copy, _ = g.clone()
    assert copy.fresh_name("n") not in made


def test_create_takes_facts_from_the_op_table() -> None:
    g, x, _ = chain()
    state = g.state("w", F)
    assign = g.create("Assign", [state, x])
    assert assign.op == Op("Assign", {"side_effect_mem": True}, kind=2)
    assert assign.type == TensorType(F.dtype, F.shape, ref="w")
    assert g.create("MakeTuple", [x]).op.kind == 1
    with pytest.raises(VerifyError, match="no type rule for primitive 'Mystery': pass the node's type explicitly"):
        g.create("Mystery", [x])


def test_a_refused_create_changes_nothing() -> None:
    g, x, (a, *_) = chain()
    half = g.add_input("half", tensor("float16", 2))
    with pytest.raises(VerifyError, match="Add of float32 and float16: insert a Cast"):
        g.create("Add", [x, half])
    assert names(g) == ["n0", "n1", "n2"]
    assert x.users == [a]


def test_origin_follows_sources_to_the_file() -> None:
    g, x, (a, *_) = chain()
    assert a.origin is None
    g.editor = "first"
    b = g.create("Exp", [x], sources=[a, x, a])
    assert b.origin == Origin(("n0", "x"), ("first",))
    g.editor = "second"
    c = g.create("Exp", [x], sources=[b, a])
    assert c.origin == Origin(("n0", "x"), ("second",))
    assert g.create("Exp", [x]).origin == Origin((), ("second",))


def test_constants_are_shared_by_bits() -> None:
    g = Graph("g")
    assert g.constant(1.0) is g.constant(1.0)
    assert g.constant(float("nan")) is g.constant(float("nan"))
    assert g.constant((1, "a")) is g.constant((1, "a"))
    values: list[Any] = [0.0, -0.0, 0, False, None, "", b"", (), [], 1, True, 1.0, "1", (1,), [1], (True,)]
    assert len({id(g.constant(v)) for v in values}) == len(values)


def test_states_and_results() -> None:
    g = Graph("g")
    with pytest.raises(VerifyError, match="graph 'g' has no result yet"):
        _ = g.result
    with pytest.raises(VerifyError, match="graph 'g' does not use state 'w'"):
        g.state("w")
    w = g.state("w", F)
    assert g.state("w") is w
    g.result = w
    assert g.has_result
    g.result = x = g.add_input("x", F)
    assert g.result is x
    assert not w.uses


def test_function_names_are_unique() -> None:
    g = Graph("f")
    g.editor = "pass"
    functions = [g.add_function("f") for _ in range(3)]
    assert [f.name for f in functions] == list(g.functions)
    assert len({"f", *g.functions}) == 4
    assert all(f.owner is g and f.functions is g.functions and f.editor == "pass" for f in functions)
    inner = functions[0].add_function("h")
    assert inner.owner is g
    assert g.all_graphs() == [g, *functions, inner]
    assert functions[0].all_graphs() == [functions[0]]
    assert g.reference(inner) is g.reference(inner)


# -- clone -----------------------------------------------------------------------------------------------------

WITH_FUNCTIONS = """
graph @g(%x: float32[2], %c: bool[]) -> (out) {
  attributes {a = 1}
  info {i = 2}
  state %w: float32[2]
  const %u = umonad
  %p = Partial(@f, %w, %x, %u) scope("s") marks {m = 1} primal {p = 1} origin("o"; "q")
  %q = Partial(@h, %x)
  %s = Switch(%c, %p, %q)
  %r = call(%s) : float32[2]
  %t = UpdateState(%u, %r)
  %d = Depend(%r, %t)
  return %d
  func @f(%w: float32[2], %x: float32[2], %u: umonad) {
    %l = Load(%w, %u)
    %k = call(@h, %l) : float32[2]
    return %k
  }
  func @h(%x: float32[2]) {
    %y = Mul(%x, float32[]<2.0>)
    return %y
  }
}
"""


def test_clone_is_equal_and_independent() -> None:
    g = parse_graph(WITH_FUNCTIONS)
    text = print_graph(g)
    copy, mapping = g.clone()
    verify(copy)
    assert structurally_equal(g, copy) is None
    mine = {v for part in g.all_graphs() for v in (*part.inputs, *part.states.values(), *part)}
    theirs = {v for part in copy.all_graphs() for v in (*part.inputs, *part.states.values(), *part)}
    assert not mine & theirs
    assert {mapping[v] for v in mine} == theirs
    for part in copy.all_graphs():
        part.attributes["new"] = 1
        for node in part:
            node.scope = "changed"
            for i in range(node.num_operands):
                node.set_operand(i, part.inputs[0])
        part.result = part.inputs[0]
        part.erase_all(list(part))
    copy.functions.clear()
    assert print_graph(g) == text
    verify(g)


def test_clone_shares_no_interning_tables() -> None:
    g = parse_graph(WITH_FUNCTIONS)
    copy, mapping = g.clone("copy")
    assert copy.name == "copy"
    monad = g.constant(next(n for n in g if n.op.name == "UpdateState").operand(0).value)  # type: ignore[attr-defined]
    assert copy.constant(monad.value) is mapping[monad]
    assert copy.constant(monad.value) is not monad
    assert copy.reference(copy.functions["f"]) is mapping[g.reference(g.functions["f"])]


def test_clone_refuses_functions_and_strangers() -> None:
    g = parse_graph(WITH_FUNCTIONS)
    with pytest.raises(VerifyError, match="clone the owner of a function"):
        g.functions["f"].clone()
    h, _x, (a, *_) = chain()
    a.set_operand(0, Input("stranger", F))
    with pytest.raises(VerifyError, match="graph 'g' uses <Input %stranger: float32\\[2\\]>, which it does not define"):
        h.clone()


def test_to_networkx_has_an_edge_for_each_operand() -> None:
    g, x, (a, b, _) = chain()
    twice = g.create("Mul", [a, a])
    graph = g.to_networkx()
    assert sorted(data["index"] for _, _, data in graph.in_edges(twice, data=True)) == [0, 1]
    assert list(graph.predecessors(b)) == [a]
    assert set(graph.predecessors(a)) == {x}


def test_a_constant_is_zero_where_all_its_bytes_are() -> None:
    g = Graph("g")
    zero, negative, one = (g.constant(scalar_tensor("float32", x)) for x in (0.0, -0.0, 1.0))
    assert [v.is_zero for v in (zero, negative, one)] == [True, False, False]
    assert not g.constant(0).is_zero  # a number, no tensor
    assert not g.add_input("x", zero.type).is_zero


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copied_program_has_graphs_and_state_of_its_own(copied: Callable[[Program], Program]) -> None:
    program = load(MATERIAL / "branch.ir")
    before = print_program(program)
    twin = copied(program)
    assert print_program(twin) == before
    for name, variable in twin.state.items():
        assert variable is not program.state[name]
        assert variable.data is program.state[name].data
    twin.graphs["step"].outputs = ("other",)
    twin.state.clear()
    assert print_program(program) == before
