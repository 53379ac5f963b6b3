"""Results are taken out of the functions that pass them on, and stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.walk import result_value
from boost_compile.ir.rewrite.settle_results import element, settle_results
from boost_compile.ir.verify.verifier import verify

from tests.execution import run_graph
from tests.graphs import graph, node, results

STATE = {"w": np.float32([3, 5]), "scale": np.float32(4), "rate": np.float32(0.5)}
X = np.float32([1, 2])
STEP = """
state %w: float32[2]
state %scale: float32[]
state %rate: float32[]
graph @step(%x: float32[2], %no: bool[]) -> (loss, scaled, moved) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %y, %g)
  %p = Partial(@update, %w, %rate, %g, %loss, %scale, %u)
  %q = Partial(@skip, %loss, %scale)
  %s = Switch(%no, %q, %p) : union<@update, @skip>
  %c = call(%s) : (float32[], float32[], float32[])
  %v = UpdateState(%u, %c)
  %r = Depend(%c, %v)
  return %r
  func @update(%weight: float32[2], %lr: float32[], %gr: float32[2], %l: float32[], %sc: float32[], %t: umonad) {
    %up = ApplyGradientDescent(%weight, %lr, %gr, %t) : float32[2]
    %t2 = UpdateState(%t, %up)
    %k = Load(%sc, %t)
    %a = RealDiv(%l, %k)
    %b = Neg(%l)
    %pack = MakeTuple(%l, %a, %b)
    %z = Depend(%pack, %t2)
    return %z
  }
  func @skip(%l: float32[], %sc: float32[]) {
    %k = Load(%sc, umonad)
    %a = RealDiv(%l, %k)
    %b = Exp(%k)
    %pack = MakeTuple(%l, %a, %b)
    return %pack
  }
}"""


@pytest.mark.parametrize("skip", [False, True])
def test_what_the_graph_returns_and_writes_stays(skip: bool) -> None:
    source, settled = graph(STEP), graph(STEP)
    assert settle_results(settled, network_parts(settled))
    verify(settled)
    memory = {name: value.copy() for name, value in STATE.items()}
    wanted = run_graph(source, [X, np.array(skip)], memory)
    for found, state in results(settled, [X, np.array(skip)], STATE):
        assert isinstance(found, tuple)
        assert [float(v) for v in found] == [float(v) for v in wanted]
        np.testing.assert_array_equal(state["w"], memory["w"])


def test_only_what_branches_compute_apart_still_comes_out_of_them() -> None:
    g = graph(STEP)
    settle_results(g, network_parts(g))
    packed = next(n for n in g if n.op.name == "MakeTuple" and n.num_operands == 3)
    first, second, third = packed.operands
    assert first is node(g, "loss")
    assert isinstance(second, Node)
    assert (second.op.name, second.operand(0)) == ("RealDiv", node(g, "loss"))
    assert isinstance(third, Node)
    assert third.op.name == "TupleGetItem"
    assert g.outputs == ("loss", "scaled", "moved")


def test_settled_results_stay() -> None:
    g = graph(STEP)
    settle_results(g, network_parts(g))
    assert not settle_results(g, network_parts(g))


def test_nested_tuples_stand_side_by_side() -> None:
    g = graph(
        "graph @step(%x: float32[2]) -> (a, b) {\n"
        "%y = Neg(%x) @f\n%i = MakeTuple(%x, %y)\n%t = MakeTuple(%i, %y)\nreturn %t\n}"
    )
    assert settle_results(g, network_parts(g))
    assert isinstance(g.result, Node)
    assert [v.name for v in g.result.operands] == ["x", "y", "y"]
    assert g.outputs == ()  # two names for three values


def test_an_element_is_what_was_packed_or_is_taken_out() -> None:
    g = graph(
        "graph @step(%x: float32[2], %p: (float32[2], (float32[2], float32[2]))) {\n"
        "%i = MakeTuple(%x, %p)\nreturn %i\n}"
    )
    packed = node(g, "i")
    assert element(g, packed, ()) is packed
    assert element(g, packed, (0,)) is g.inputs[0]
    taken = element(g, packed, (1, 1, 0))
    assert isinstance(taken, Node)
    assert taken.op.name == "TupleGetItem"
    assert taken.operand(0).operand(0) is g.inputs[1]  # type: ignore[attr-defined]


def test_a_result_that_no_function_returns_stays_what_it_is() -> None:
    """It waits for the gradient, as one who reads the device's status waits for all that may overflow."""
    text = STEP.replace("(loss, scaled, moved)", "(loss, status)").replace(
        "  %r = Depend(%c, %v)",
        """  %begun = Depend(%y, %loss) @f
  %waited = Depend(%begun, %g)
  %status = ReduceSum(%waited, (), false)
  %l = TupleGetItem(%c, 0) : float32[]
  %both = MakeTuple(%l, %status)
  %r = Depend(%both, %v)""",
    )
    settled = graph(text)
    assert settle_results(settled, network_parts(settled))
    loss, status = result_value(settled).operands  # type: ignore[union-attr]
    assert loss is node(settled, "loss")
    assert status is node(settled, "status")
    assert isinstance(status, Node)
    assert status.operand(0) is node(settled, "waited")
