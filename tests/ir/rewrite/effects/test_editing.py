"""Editing the list of effects: dropped, added, loaded, committed."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.analysis.effects.effect_list import list_effects
from boost_compile.ir.analysis.effects.state_access import Effect
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Constant, Graph
from boost_compile.ir.core.op import CALL
from boost_compile.ir.core.types import UMONAD
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.ir.verify.verifier import verify

from tests.graphs import graph, node, results

X = np.float32([1, 2])
STATE = {"a": np.float32([3, 5]), "b": np.float32([7, 11])}
HEAD = "state %a: float32[2]\nstate %b: float32[2]\n"
BODY = (
    HEAD
    + """
  %l = Load(%a, umonad)
  %n = Neg(%l)
  %u1 = UpdateState(umonad, %n)
  %w1 = AssignAdd(%a, %x, %u1)
  %u2 = UpdateState(%u1, %w1)
  %w2 = AssignAdd(%b, %n, %u2)
  %u3 = UpdateState(%u2, %w2)
  %r = Depend(%n, %u3)
  return %r"""
)


def computes(g: Graph, result: object, **state: object) -> None:
    verify(g)
    for found, memory in results(g, [X], STATE):
        np.testing.assert_array_equal(found, result)
        for name, value in state.items():
            np.testing.assert_array_equal(memory[name], value, err_msg=name)


def by_name(fx: Effects, *names: str) -> list[Effect]:
    return [e for e in fx.list if e.node.name in names]


def test_the_list_in_order() -> None:
    fx = Effects(graph(BODY))
    assert [e.node.name for e in fx.list] == ["l", "w1", "w2"]
    assert [e.node.name for e in fx.writes()] == ["w1", "w2"]


def test_a_dropped_effect_does_not_happen() -> None:
    g = graph(BODY)
    fx = Effects(g)
    fx.drop(by_name(fx, "w1"))
    fx.commit()
    assert "w1" not in {n.name for n in g}
    computes(g, [-3, -5], a=[3, 5], b=[4, 6])


@pytest.mark.parametrize("making", ["MakeTuple", "make_list"])
def test_what_only_waited_for_a_dropped_effect_waits_no_longer(making: str) -> None:
    """In a Depend, in a tuple of what a token waits for, and where the graph's result is that Depend."""
    g = graph(
        HEAD
        + """
  %w1 = AssignAdd(%a, %x, umonad)
  %pair = MakeTuple(%w1, %x) : (float32[2]@a, float32[2])
  %u2 = UpdateState(umonad, %pair)
  %w2 = AssignAdd(%b, %x, %u2)
  %d = Depend(%x, %w1)
  %n = Neg(%d)
  %u3 = UpdateState(%u2, %w2)
  %m = Depend(%n, %u3)
  %r = Depend(%m, %w1)
  return %r""".replace("MakeTuple", making)
    )
    fx = Effects(g)
    fx.drop(by_name(fx, "w1"))
    fx.commit()
    computes(g, [-1, -2], a=[3, 5], b=[8, 13])


@pytest.mark.parametrize("taker", ["Neg(%w1)", "MakeTuple(%n, %w1)"])
def test_a_dropped_effect_whose_value_is_used_is_an_error(taker: str) -> None:
    used = BODY.replace("AssignAdd(%a, %x, %u1)", "AssignAdd(%a, %x, %u1) : float32[2]@a")
    g = graph(used.replace("%r = Depend(%n, ", f"%q = {taker}\n%r = Depend(%q, "))
    fx = Effects(g)
    fx.drop(by_name(fx, "w1"))
    with pytest.raises(VerifyError, match=r"was dropped, but its result is still used \(by .*%q\)"):
        fx.commit()


def test_an_appended_effect_comes_after_all_that_touch_its_state() -> None:
    g = graph(BODY)
    fx = Effects(g)
    added = fx.append("Assign", [g.states["a"], g.inputs[0]], scope="here")
    assert added.scope == "here"
    fx.commit()
    computes(g, [-3, -5], a=X, b=[4, 6])


def test_loads_of_before_and_after() -> None:
    g = graph(BODY)
    fx = Effects(g)
    before, after = fx.load(g.states["b"], scope="s"), fx.load(g.states["b"], initial=False)
    fx.commit(g.create("MakeTuple", [g.create("Neg", [before]), g.create("Neg", [after])]))
    verify(g)
    for found, memory in results(g, [X], STATE):
        assert isinstance(found, tuple)
        np.testing.assert_array_equal(found[0], [-7, -11])
        np.testing.assert_array_equal(found[1], [-4, -6])
        np.testing.assert_array_equal(memory["b"], [4, 6])


def test_an_initial_load_that_is_asked_for_after_an_append_reads_the_old_value() -> None:
    g = graph(BODY)
    fx = Effects(g)
    fx.append("Assign", [g.states["b"], g.inputs[0]])
    before = fx.load(g.states["b"])
    fx.commit(g.create("Neg", [before]))
    computes(g, [-7, -11], b=X)


def test_commit_says_how_many_nodes_went_away() -> None:
    g = graph(BODY.replace("%r =", "%idle = Exp(%x)\n%r ="))
    before = len(g)
    gone = Effects(g).commit()
    assert gone == before - len(g)
    assert "idle" not in {n.name for n in g}


def test_a_new_result_may_take_the_old_one_with_all_that_it_waited_for() -> None:
    g = graph(BODY)
    Effects(g).commit(g.create("Neg", [g.result]))
    computes(g, [3, 5], a=[4, 7], b=[4, 6])


def test_tokens_start_where_the_graph_is_given_one() -> None:
    g = graph(HEAD + "%c = call(@f, %a, %x, umonad) : float32[2]\nreturn %c\n"
              "func @f(%s: float32[2], %v: float32[2], %u: umonad) {\n"
              "%w = Assign(%s, %v, %u)\n%t = UpdateState(%u, %w)\n"
              "%r = Depend(%v, %t)\nreturn %r\n}")  # fmt: skip
    function = g.functions["f"]
    fx = Effects(function)
    assert fx.first_token() is function.inputs[2]
    io = fx.first_token(io=True)
    assert isinstance(io, Constant)
    assert str(io.type) == "iomonad"
    assert fx.first_token(io=True) is io
    main = Effects(g).first_token()
    assert isinstance(main, Constant)
    assert str(main.type) == "umonad"


def test_only_effects_are_adopted() -> None:
    g = graph(BODY)
    with pytest.raises(VerifyError, match="has no effect"):
        Effects(g).adopt(node(g, "n"))


def test_a_list_is_that_of_its_graph() -> None:
    g, other = graph(BODY), graph(BODY)
    with pytest.raises(VerifyError, match="the list of effects is that of"):
        Effects(g, listed=list_effects(other))


def test_a_call_of_a_new_function_is_looked_into() -> None:
    g = graph(BODY)
    fx = Effects(g)
    function = g.add_function("fresh")
    state = function.add_input("s", g.states["a"].type)
    token = function.add_input("u", UMONAD)
    write = function.create("Assign", [state, state, token])
    after = function.create("UpdateState", [token, write])
    function.result = function.create("Depend", [function.constant(True), after])
    call = g.create(CALL, [g.reference(function), g.states["a"], fx.first_token()], function.result.type)
    fx.adopt(call)
    adopted = fx.list[-1]
    assert adopted.node is call
    assert adopted.writes == {g.states["a"]}


def test_an_effect_goes_in_front_of_a_call_of_a_closure() -> None:
    """The call takes its token itself. With the old one it would keep what was dropped alive."""
    g = graph("""
state %a: float32[2]
  %w = Assign(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w)
  %made = call(@forth, %a) : fn<@back>
  %out = call(%made, %u1) : float32[2]
  %u2 = UpdateState(%u1, %out)
  %r = Depend(%out, %u2)
  return %r
  func @back(%p: float32[2], %u: umonad) {
    %v = Load(%p, %u)
    return %v
  }
  func @forth(%q: float32[2]) {
    %closure = Partial(@back, %q)
    return %closure
  }""")
    fx = Effects(g)
    fx.drop([effect for effect in fx.list if effect.node is node(g, "w")])
    fx.commit()
    assert "Assign" not in {n.op.name for n in g}


def test_a_token_among_values_stays_with_what_comes_before_it() -> None:
    g = graph(BODY.replace("%r = Depend(%n, %u3)", "%pair = MakeTuple(%u1, %n)\n  %r = Depend(%pair, %u3)"))
    Effects(g).commit()
    verify(g)
    assert node(g, "pair").operands == (node(g, "u1"), node(g, "n"))
    assert "u2" not in {n.name for n in g}


def test_an_effect_without_a_token_goes_where_nothing_takes_its_value() -> None:
    """So it is in MindSpore, where an effect lives through its token."""
    loose = (
        "%f = Sign(%l)\n  %loose = Print(%f) {side_effect_io = true} : bool[]\n  %u3 = UpdateState(%u2, %w2, %loose)"
    )
    g = graph(BODY.replace("%u3 = UpdateState(%u2, %w2)", loose))
    Effects(g).commit()
    assert not {"f", "loose"} & {n.name for n in g}
    assert {"w1", "w2"} <= {n.name for n in g}
