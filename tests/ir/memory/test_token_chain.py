"""The chain that is rebuilt orders all that must be ordered: graphs compute the same in every order it allows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Graph, Node, State
from boost_compile.ir.core.op import CALL
from boost_compile.ir.core.types import DType, TensorType, holds_function
from boost_compile.ir.memory.discharge import Undischarged, discharge
from boost_compile.ir.memory.emit import emit
from boost_compile.ir.memory.token_chain import _by_name
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.ir.verify.verifier import verify

from tests import effect_graphs
from tests.execution import Arrays, _in_text_order, run_graph
from tests.graphs import graph, node, results

X = np.array([1, 2], np.float32)
STATE = {"a": np.array([3, 5], np.float32), "b": np.array([7, 11], np.float32), "n": np.float32([13])}
HEAD = "state %a: float32[2]\nstate %b: float32[2]\n"

BODIES = {
    "a write after a read": """
  %old = Load(%a, umonad)
  %used = Neg(%old)
  %u = UpdateState(umonad, %used)
  %w = Assign(%a, %x, %u)
  %v = UpdateState(%u, %w)
  %r = Depend(%used, %v)
  return %r""",
    "a write after a read through views": """
  %old = Load(%a, umonad)
  %wide = ExpandDims(%old, 0) : float32[1,2]
  %still = StopGradient(%wide) : float32[1,2]
  %used = Neg(%still)
  %u = UpdateState(umonad, %used)
  %w = Assign(%a, %x, %u)
  %v = UpdateState(%u, %w)
  %r = Depend(%used, %v)
  return %r""",
    "a write after a read through a tuple": """
  %old = Load(%a, umonad)
  %pair = MakeTuple(%old, %x)
  %item = TupleGetItem(%pair, 0)
  %used = Neg(%item)
  %u = UpdateState(umonad, %used)
  %w = Assign(%a, %x, %u)
  %v = UpdateState(%u, %w)
  %r = Depend(%used, %v)
  return %r""",
    "a write after a reader without a Load": """
  %used = Neg(%a) : float32[2]
  %u = UpdateState(umonad, %used)
  %w = Assign(%a, %x, %u)
  %v = UpdateState(%u, %w)
  %r = Depend(%used, %v)
  return %r""",
    "a write after a reader of a view without a Load": """
  %wide = Reshape(%a, (1, 2)) : float32[1,2]
  %used = Neg(%wide) : float32[1,2]
  %u = UpdateState(umonad, %used)
  %w = Assign(%a, %x, %u)
  %v = UpdateState(%u, %w)
  %r = Depend(%used, %v)
  return %r""",
    "a read after a write": """
  %w = AssignAdd(%a, %x, umonad)
  %u = UpdateState(umonad, %w)
  %new = Load(%a, %u)
  %used = Neg(%new)
  return %used""",
    "reads between writes": """
  %first = Load(%a, umonad)
  %p = Neg(%first)
  %u1 = UpdateState(umonad, %p)
  %w1 = Assign(%a, %x, %u1)
  %u2 = UpdateState(%u1, %w1)
  %second = Load(%a, %u2)
  %q = Mul(%second, %p)
  %u3 = UpdateState(%u2, %q)
  %w2 = AssignAdd(%a, %q, %u3)
  %u4 = UpdateState(%u3, %w2)
  %third = Load(%a, %u4)
  %r = Sub(%third, %q)
  return %r""",
    "a reader of an old Load between two writes": """
  %old = Load(%a, umonad)
  %wide = StopGradient(%old) : float32[2]
  %w1 = Assign(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %used = Neg(%old)
  %seen = Neg(%wide)
  %u2 = UpdateState(%u1, %used, %seen)
  %w2 = AssignAdd(%a, %x, %u2)
  %u3 = UpdateState(%u2, %w2)
  %s = Mul(%used, %seen)
  %r = Depend(%s, %u3)
  return %r""",
    "a reader of an old Load that waits for something else": """
  %old = Load(%a, umonad)
  %w = Assign(%a, %x, umonad)
  %u = UpdateState(umonad, %w)
  %p = Neg(%x)
  %waiting = Depend(%old, %p)
  %used = Neg(%waiting)
  %r = Depend(%used, %u)
  return %r""",
    "two states, each read by the write of the other": """
  %la = Load(%a, umonad)
  %lb = Load(%b, umonad)
  %na = Neg(%la)
  %nb = Neg(%lb)
  %u1 = UpdateState(umonad, %na, %nb)
  %wa = Assign(%a, %nb, %u1)
  %u2 = UpdateState(%u1, %wa)
  %wb = Assign(%b, %na, %u2)
  %u3 = UpdateState(%u2, %wb)
  %r = Depend(%x, %u3)
  return %r""",
    "the result of a write is the state": """
  %w1 = Assign(%a, %x, umonad) : float32[2]@a
  %used = Neg(%w1)
  %u1 = UpdateState(umonad, %used)
  %w2 = Assign(%a, %used, %u1) : float32[2]@a
  %u2 = UpdateState(%u1, %w2)
  %s = Mul(%used, %used)
  %r = Depend(%s, %u2)
  return %r""",
    "a call that writes": """
  %old = Load(%a, umonad)
  %used = Neg(%old)
  %u1 = UpdateState(umonad, %used)
  %c = call(@write, %a, %x, %u1) : float32[2]
  %u2 = UpdateState(%u1, %c)
  %new = Load(%a, %u2)
  %r = Mul(%new, %used)
  return %r
  func @write(%s: float32[2]@a, %v: float32[2], %u: umonad) {
    %w = AssignAdd(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %l = Load(%s, %t)
    %r2 = Neg(%l)
    %r = Depend(%r2, %t)
    return %r
  }""",
    "a call that only reads stands before a write": """
  %c = call(@read, %a, umonad) : float32[2]
  %u1 = UpdateState(umonad, %c)
  %w = Assign(%a, %x, %u1)
  %u2 = UpdateState(%u1, %w)
  %r = Depend(%c, %u2)
  return %r
  func @read(%s: float32[2]@a, %u: umonad) {
    %l = Load(%s, %u)
    %n = Neg(%l)
    return %n
  }""",
    "a call of a closure that is given state": """
  %f = Partial(@read, %a, umonad)
  %c = call(%f) : float32[2]
  %u1 = UpdateState(umonad, %c)
  %w = Assign(%a, %x, %u1)
  %u2 = UpdateState(%u1, %w)
  %r = Depend(%c, %u2)
  return %r
  func @read(%s: float32[2]@a, %u: umonad) {
    %l = Load(%s, %u)
    %n = Neg(%l)
    return %n
  }""",
}  # fmt: skip


def agree(source: Graph, rebuilt: Graph, inputs: Sequence[Any] = (X,), start: Arrays = STATE) -> None:
    """`source` in the order of its text is what `rebuilt` computes in every order."""
    memory = {name: value.copy() for name, value in start.items()}
    wanted = run_graph(source, inputs, memory, _in_text_order)
    for found, state in results(rebuilt, inputs, start):
        np.testing.assert_array_equal(found, wanted)
        for name in start:
            np.testing.assert_array_equal(state[name], memory[name], err_msg=name)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_rebuilt_chain_keeps_what_the_graph_computes(body: str) -> None:
    source, rebuilt = graph(HEAD + body), graph(HEAD + body)
    Effects(rebuilt).commit()
    verify(rebuilt)
    agree(source, rebuilt)
    emitted = emit(discharge(source))
    verify(emitted)
    agree(source, emitted)
    again = rebuilt.clone()[0]
    assert Effects(again).commit() == 0  # nothing to gain a second time
    agree(source, again)
    assert_recommitted_alike(HEAD + body)


def assert_recommitted_alike(text: str) -> None:
    """Who says that nothing was changed gets the same graph, in order, and the count of its links."""
    committed, recommitted = graph(text), graph(text)
    removed = Effects(committed).commit()
    rebuilt = Effects(recommitted).recommit()
    assert printed(recommitted) == printed(committed)
    verify(recommitted)
    assert rebuilt == (links(graph(text)), links(committed), removed)


def printed(main: Graph) -> list[str]:
    return [f"{node.name} = {node.op.name}({', '.join(v.name for v in node.operands)})" for node in main]


def links(main: Graph) -> int:
    return sum(node.op.name == "UpdateState" for node in main)


@pytest.mark.parametrize("name", [n for n in BODIES if "write" in n and "result" not in n])
def test_the_orders_notice_a_lost_token(name: str) -> None:
    """A graph whose effects all start from the first token computes something else in some order."""
    source, broken = graph(HEAD + BODIES[name]), graph(HEAD + BODIES[name])
    first = next(v for n in broken for v in n.operands if str(v.type) == "umonad" and not isinstance(v, Node))
    for n in list(broken):
        for i, value in enumerate(n.operands):
            chained = isinstance(value, Node) and value.op.name == "UpdateState"
            if chained and n.op.name not in ("UpdateState", "Depend"):
                n.set_operand(i, first)
    with pytest.raises(AssertionError):
        agree(source, broken)


def waits_for(later: Node, earlier: Node) -> bool:
    """Whether a node stands behind another by operands and tokens."""
    stack: list[object] = list(later.operands)
    seen = set()
    while stack:
        value = stack.pop()
        if value is earlier:
            return True
        if isinstance(value, Node) and value not in seen:
            seen.add(value)
            stack.extend(value.operands)
    return False


@pytest.mark.parametrize("first", range(0, 150, 15))
def test_random_graphs_keep_what_they_compute(first: int) -> None:
    """And their writes stay in a sequence, in which calls and Depends on a token keep their place among reads too."""
    for seed in range(first, first + 15):
        text = effect_graphs.text(seed)
        source, rebuilt = graph(text), graph(text)
        fx = Effects(rebuilt)
        fx.commit()
        verify(rebuilt)
        agree(source, rebuilt, [X, np.array(seed % 2 == 0)], effect_graphs.STATE)
        assert_emitted_alike(source, [X, np.array(seed % 2 == 0)])
        listed = [e for e in fx.list if e.node.graph is rebuilt]
        for i, later in enumerate(listed):
            for earlier in listed[:i]:
                barrier = CALL in (earlier.node.op, later.node.op) or earlier.everything or later.everything
                if barrier or not (earlier.passive or later.passive):
                    assert waits_for(later.node, earlier.node), text
        assert Effects(rebuilt).commit() == 0, text
        assert_recommitted_alike(text)


def assert_emitted_alike(source: Graph, inputs: Sequence[Any]) -> None:
    """Memory discharged and made again, unless nothing says when a tensor is read that is written in place."""
    with suppress(Undischarged):
        emitted = emit(discharge(source))
        verify(emitted)
        agree(source, emitted, inputs, effect_graphs.STATE)


def test_calls_keep_their_place() -> None:
    """A call and a write that touch nothing of each other: MindSpore's runtime stalls where they run side by side."""
    calls = """
  %w1 = Assign(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %c = call(@write, %b, %x, %u1) : float32[2]
  %u2 = UpdateState(%u1, %c)
  %w2 = AssignAdd(%a, %x, %u2)
  %u3 = UpdateState(%u2, %w2)
  %r = Depend(%x, %u3)
  return %r
  func @write(%s: float32[2]@b, %v: float32[2], %u: umonad) {
    %w = AssignAdd(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %r = Depend(%v, %t)
    return %r
  }"""
    g = graph(HEAD + calls)
    Effects(g).commit()
    w1, c, w2 = (node(g, name) for name in ("w1", "c", "w2"))
    assert waits_for(c, w1)
    assert waits_for(w2, c)


def test_a_reader_beside_a_call_keeps_its_place() -> None:
    """Reads of other state before a call end before it, and reads after it wait for it."""
    g = graph(
        HEAD
        + """
  %before = Load(%a, umonad)
  %p = Neg(%before)
  %u1 = UpdateState(umonad, %p)
  %c = call(@write, %b, %x, %u1) : float32[2]
  %u2 = UpdateState(%u1, %c)
  %after = Load(%a, %u2)
  %q = Mul(%after, %p)
  %u3 = UpdateState(%u2, %q)
  %r = Depend(%q, %u3)
  return %r
  func @write(%s: float32[2]@b, %v: float32[2], %u: umonad) {
    %w = AssignAdd(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %r = Depend(%v, %t)
    return %r
  }"""
    )
    Effects(g).commit()
    before, p, c, after = (node(g, name) for name in ("before", "p", "c", "after"))
    assert waits_for(c, before)
    assert waits_for(c, p)
    assert waits_for(after, c)


def test_who_uses_what_a_call_returned_need_not_wait_for_later_writes() -> None:
    """The result of a call that reads a state is no memory of it. A gradient taken from it, which stands behind another
    weight's update in the source, must be free to come before all updates: they may be skipped for its sake."""
    g = graph(
        HEAD
        + """
  %c = call(@read, %a, umonad) : (float32[2], float32[2])
  %first = TupleGetItem(%c, 0)
  %u1 = UpdateState(umonad, %c)
  %w = Assign(%a, %x, %u1)
  %u2 = UpdateState(%u1, %w)
  %used = Neg(%first)
  %r = Depend(%used, %u2)
  return %r
  func @read(%s: float32[2]@a, %u: umonad) {
    %old = Load(%s, %u)
    %twice = Add(%old, %old)
    %both = MakeTuple(%old, %twice)
    return %both
  }"""
    )
    Effects(g).commit()
    assert waits_for(node(g, "w"), node(g, "c"))
    assert not waits_for(node(g, "used"), node(g, "w"))


def test_writes_to_other_state_follow_each_other_and_reads_wait_for_their_own() -> None:
    g = graph(
        HEAD
        + """
  %w1 = Assign(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %w2 = Assign(%b, %x, %u1)
  %u2 = UpdateState(%u1, %w2)
  %l = Load(%a, %u2)
  %r = Neg(%l)
  return %r"""
    )
    Effects(g).commit()
    w1, w2, load = (node(g, name) for name in ("w1", "w2", "l"))
    assert waits_for(w2, w1)
    assert waits_for(load, w1)
    assert not waits_for(load, w2)


def test_a_write_that_takes_what_a_later_one_makes_comes_after_it() -> None:
    """The list may name them the other way round: what a value needs is stronger than the order of the list."""
    g = graph(
        HEAD
        + """
  %w1 = Assign(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %w2 = AssignAdd(%b, %x, %u1) : float32[2]@b
  %u2 = UpdateState(%u1, %w2)
  %r = Depend(%x, %u2)
  return %r"""
    )
    fx = Effects(g)
    first, second = node(g, "w1"), node(g, "w2")
    first.set_operand(1, second)
    fx.commit()
    assert waits_for(first, second)
    assert not waits_for(second, first)


def test_output_keeps_its_order_where_a_write_leaves_the_list() -> None:
    """The first print takes what the write makes, which the list names last."""
    g = graph(
        HEAD
        + """
  %p1 = Print(%x, iomonad) : bool[]
  %i1 = UpdateState(iomonad, %p1)
  %p2 = Print(%x, %i1) : bool[]
  %i2 = UpdateState(%i1, %p2)
  %w = AssignAdd(%a, %x, umonad) : float32[2]@a
  %u = UpdateState(umonad, %w)
  %r1 = Depend(%x, %u)
  %r = Depend(%r1, %i2)
  return %r"""
    )
    fx = Effects(g)
    fx.list.sort(key=lambda e: e.node.name)
    p1, p2, w = (node(g, name) for name in ("p1", "p2", "w"))
    p1.set_operand(0, w)
    fx.commit()
    assert waits_for(p1, w)
    assert waits_for(p2, p1)


def test_who_only_waits_for_a_write_does_not_read_it() -> None:
    g = graph(
        HEAD
        + """
  %w1 = Assign(%a, %x, umonad) : float32[2]@a
  %waits = Depend(%x, %w1)
  %n = Neg(%waits)
  %u1 = UpdateState(umonad, %w1)
  %w2 = Assign(%a, %x, %u1)
  %u2 = UpdateState(%u1, %w2)
  %r = Depend(%n, %u2)
  return %r"""
    )
    Effects(g).commit()
    assert waits_for(node(g, "w2"), node(g, "w1"))
    assert not waits_for(node(g, "w2"), node(g, "waits"))


def test_states_are_met_in_an_order_that_every_run_has() -> None:
    states = [State(name, TensorType(DType.FLOAT32, ())) for name in "cab"]
    assert [state.name for state in _by_name(states)] == ["a", "b", "c"]


def test_effects_that_each_must_come_before_the_other_are_an_error() -> None:
    g = graph(
        HEAD
        + """
  %w1 = Assign(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %w2 = AssignAdd(%a, %x, %u1) : float32[2]@a
  %u2 = UpdateState(%u1, %w2)
  %r = Depend(%x, %u2)
  return %r"""
    )
    fx = Effects(g)
    node(g, "w1").set_operand(1, node(g, "w2"))
    with pytest.raises(VerifyError, match="each must happen before the other"):
        fx.commit()


def test_io_has_a_chain_of_its_own_in_the_order_of_the_source() -> None:
    g = graph(
        HEAD
        + """
  %p1 = Print(%x, iomonad) : bool[]
  %i1 = UpdateState(iomonad, %p1)
  %y = Neg(%x)
  %p2 = Print(%y, %i1) : bool[]
  %i2 = UpdateState(%i1, %p2)
  %w = Assign(%a, %x, umonad)
  %u = UpdateState(umonad, %w)
  %r1 = Depend(%x, %u)
  %r = Depend(%r1, %i2)
  return %r"""
    )
    Effects(g).commit()
    p1, p2, w = (node(g, name) for name in ("p1", "p2", "w"))
    assert waits_for(p2, p1)
    assert not waits_for(p1, p2)
    assert {str(p.operand(p.num_operands - 1).type) for p in (p1, p2)} == {"iomonad"}
    assert str(w.operand(2).type) == "umonad"
    verify(g)


def test_reads_alone_keep_no_token_alive() -> None:
    g = graph(
        HEAD + "%l = Load(%a, umonad)\n%r = Neg(%l)\n%u = UpdateState(umonad, %r)\n%s = Depend(%r, %u)\nreturn %s"
    )
    Effects(g).commit()
    assert [n.op.name for n in g] == ["Load", "Neg"]


def test_no_token_is_left_that_nothing_takes() -> None:
    """A write by an IO token waits for a read: the read's token after it would be nobody's."""
    text = (
        HEAD
        + """
  %l = Load(%a, umonad)
  %n = Neg(%l)
  %i = UpdateState(iomonad, %n)
  %w = Assign(%a, %x, %i)
  %j = UpdateState(%i, %w)
  %r = Depend(%n, %j)
  return %r"""
    )
    rebuilt = graph(text)
    Effects(rebuilt).commit()
    assert all(n.uses for n in rebuilt)
    assert_recommitted_alike(text)


@pytest.mark.parametrize("taken", [True, False])
def test_no_closure_stands_among_what_a_token_waits_for(taken: bool) -> None:
    """An element of its results stands for a call that returns one; a call of data alone stands for itself."""
    g = graph(
        HEAD
        + f"""
  %c = call(@open, %a, %x, umonad) : (fn<@back>, float32[2])
  %u1 = UpdateState(umonad, %c)
  %d = call(@pair, %a, %x, %u1) : (float32[2], float32[2])
  %u2 = UpdateState(%u1, %d)
  %e = call(@closure, %a, %x, %u2) : fn<@back>
  %u3 = UpdateState(%u2, %e)
  %w = Assign(%b, %x, %u3)
  %u4 = UpdateState(%u3, %w)
  %i = TupleGetItem(%c, {int(taken)}) : float32[2]
  %z = call(%e, %x) : float32[2]
  %r = Depend(%z, %u4)
  return %r
  func @back(%v: float32[2]) {{
    return %v
  }}
  func @open(%s: float32[2], %v: float32[2], %u: umonad) {{
    %w = AssignAdd(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %f = Partial(@back, %v)
    %p = MakeTuple(%f, %v)
    %r = Depend(%p, %t)
    return %r
  }}
  func @pair(%s: float32[2], %v: float32[2], %u: umonad) {{
    %w = AssignAdd(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %p = MakeTuple(%v, %v)
    %r = Depend(%p, %t)
    return %r
  }}
  func @closure(%s: float32[2], %v: float32[2], %u: umonad) {{
    %w = AssignAdd(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %f = Partial(@back, %v)
    %r = Depend(%f, %t)
    return %r
  }}""".replace("%i = TupleGetItem(%c, 0) : float32[2]", "")
    )
    Effects(g).commit()
    waited = [v for n in g if n.op.name == "UpdateState" for v in n.operands[1:]]
    waited += [v for t in waited if isinstance(t, Node) and t.op.name == "MakeTuple" for v in t.operands]
    assert not any(holds_function(v.type) for v in waited)
    items = [n for n in g if n.op.name == "TupleGetItem"]
    assert [(i.operand(0).name, getattr(i.operand(1), "value", None)) for i in items] == [("c", 1)]
    assert items[0] in waited
    assert node(g, "d") in waited
