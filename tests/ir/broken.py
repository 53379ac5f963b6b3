"""Small graphs to break, and what the verifier says of them."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.types import tensor
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify

F = tensor("float32", 2)


def problems(subject: Program | Graph, limit: int = 20) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(subject, limit)
    return str(caught.value)


def only(subject: Program | Graph) -> str:
    """The report, which must tell of one problem alone: a rule that drags others along hides what is wrong."""
    report = problems(subject)
    assert ": 1 problem\n" in report, report
    return report


def nodes(graph: Graph) -> dict[str, Node]:
    return {n.name: n for n in graph}


def chain() -> tuple[Graph, Node, Node, Node]:
    g = Graph("g")
    x = g.add_input("x", F)
    a = g.create("Exp", [x], name="a", scope="Default/a-op")
    b = g.create("Neg", [a], name="b", scope="Default/b-op")
    c = g.create("Sqrt", [b], name="c", scope="Default/c-op")
    g.result = c
    return g, a, b, c


UPDATE = """
state %w: float32[2] role=weight
state %m: float32[2] role=slot
graph @step(%x: float32[2]) -> (loss) {
  %l = Load(%w, umonad)
  %y = Mul(%x, %l)
  %a = AssignAdd(%w, %x, umonad)
  %u = UpdateState(umonad, %a, %l)
  %r = Depend(%y, %u)
  return %r
}
"""

SWITCH = """
state %w: float32[2] role=weight
graph @step(%x: float32[2], %go: bool[]) -> (loss) {
  %yes = Partial(@yes, %w, %x, umonad)
  %no = Partial(@no)
  %s = Switch(%go, %yes, %no)
  %r = call(%s) : float32[2]
  %u = UpdateState(umonad, %r)
  %d = Depend(%r, %u)
  return %d
  func @yes(%w: float32[2], %x: float32[2], %u: umonad) {
    %a = AssignAdd(%w, %x, %u)
    %v = UpdateState(%u, %a)
    %d = Depend(%x, %v)
    return %d
  }
  func @no() {
    return float32[2]<zeros>
  }
}
"""


def edited(text: str, old: str, new: str) -> Program:
    assert text.count(old) >= 1
    return parse_program(text.replace(old, new))
