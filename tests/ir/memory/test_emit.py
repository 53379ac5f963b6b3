"""Pure functions as graphs for MindSpore: what is written where, and what is copied. test_token_chain.py runs them."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.memory.discharge import Undischarged, discharge
from boost_compile.ir.memory.emit import emit
from boost_compile.ir.verify.verifier import verify

from tests.graphs import graph

HEAD = "state %a: float32[2]\nstate %b: float32[2]\n"
UPDATE = """
  %old = Load(%a, umonad)
  %n = Neg(%old)
  %u = UpdateState(umonad, %n)
  %new = AssignAdd(%a, %x, %u) : float32[2]@a
  %t = UpdateState(%u, %new)
  %now = Load(%a, %t)
  %s = Add(%n, %now)
  %r = Depend(%s, %t)
  return %r"""


def primitives(of: Graph) -> list[str]:
    return [node.op.name for node in of if node.op.name not in ("UpdateState", "Depend", "MakeTuple")]


def test_a_state_is_written_in_its_place() -> None:
    emitted = emit(discharge(graph(HEAD + UPDATE)))
    verify(emitted)
    assert primitives(emitted) == ["Load", "Neg", "AssignAdd", "Add"]


def test_a_version_that_is_read_behind_the_next_write_is_copied() -> None:
    pure = discharge(graph(HEAD + UPDATE))
    total = next(node for node in pure.graph if node.op.name == "Add")
    total.set_operand(0, pure.graph.states["a"])  # as a pass may: the old value beside the new one
    emitted = emit(pure)
    verify(emitted)
    assert primitives(emitted) == ["Load", "TensorMove", "AssignAdd", "Add"]


def test_what_a_state_should_hold_is_written_by_an_effect() -> None:
    pure = discharge(graph(HEAD + UPDATE))
    packed = pure.graph.result
    packed.set_operand(1, pure.graph.inputs[0])  # type: ignore[attr-defined]
    with pytest.raises(Undischarged, match="leaves in %a what no effect has written there"):
        emit(pure)


@pytest.mark.parametrize(("reader", "write"), [("Mul(%y, %x)", "AddExt"), ("Mul(%x, %x)", "InplaceAddExt")])
def test_a_tensor_is_written_in_place_where_no_one_else_reads_it(reader: str, write: str) -> None:
    """What the backward part takes of the forward part, and nothing makes it wait for the write, is the old value."""
    emitted = emit(
        discharge(
            graph(
                f"""
  %y = Exp(%x) : float32[2] @f1
  %b = InplaceAddExt(%y, %x, 1, umonad) : float32[2] @f2
  %u = UpdateState(umonad, %b)
  %g = {reader} @b1
  %s = Add(%b, %g)
  %r = Depend(%s, %u)
  return %r"""
            )
        )
    )
    verify(emitted)
    assert primitives(emitted) == ["Exp", write, "Mul", "Add"]
