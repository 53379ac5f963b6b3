"""Conditions: one of two functions runs."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.builders.branch import choose, plain, zeros
from boost_compile.ir.core.errors import VerifyError

from tests.execution import run_graph
from tests.graphs import graph


def test_the_chosen_function_runs_with_its_arguments_and_state() -> None:
    g = graph("""
state %s: float32[2]
graph @g(%x: float32[2], %go: bool[]) {
  return %x
  func @yes(%v: float32[2], %s: float32[2], %u: umonad) {
    %w = Assign(%s, %v, %u) : float32[2]@s
    %t = UpdateState(%u, %w)
    %r = Depend(%v, %t)
    return %r
  }
  func @no(%v: float32[2]) {
    %n = Neg(%v)
    return %n
  }
}""")
    yes, no = g.functions["yes"], g.functions["no"]
    g.result = choose(g, g.inputs[1], yes, no, [g.inputs[0]], scope="s")
    x = np.float32([1, 2])
    for go, result, state in ((True, x, x), (False, -x, np.zeros(2))):
        memory = {"s": np.zeros(2, np.float32)}
        np.testing.assert_array_equal(run_graph(g, [x, np.array(go)], memory), result)
        np.testing.assert_array_equal(memory["s"], state)


def test_zeros_of_a_type() -> None:
    g = graph("graph @g(%t: (float32[2], int32[3], bool, int64), %d: float32[?]) {\nreturn %t\n}")
    g.result = zeros(g, g.inputs[0].type, "")
    found = run_graph(g, [None, None], {})
    assert [np.asarray(v).tolist() for v in found] == [[0, 0], [0, 0, 0], False, 0]
    with pytest.raises(VerifyError, match="has no zeros"):
        zeros(g, g.inputs[1].type, "")


def test_what_memory_a_value_has_does_not_leave_a_function() -> None:
    g = graph("state %s: float32[2]\ngraph @g(%a: (float32[2]@s, float32[2]@s), %b: float32) {\nreturn %b\n}")
    assert str(plain(g.inputs[0].type)) == "(float32[2], float32[2])"
    assert plain(g.inputs[1].type) is g.inputs[1].type
