"""Small gradients that are tested and scaled as one tensor: the same answers and bits as each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.text import parse_program
from boost_compile.runtime.lowering import packing
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc
from tests.networks import CASES

SAFE = "overflow-check,loss-scale{init=1024},clip-gradients{limit=0.01}"


def packed(program: bc.Program, graph: str = "step", ranks: int = 1) -> Graph:
    return lower(program.graphs[graph], Context(program, "cpu", ranks=ranks), [packing]).graph


def count(graph: Graph, name: str) -> int:
    return sum(node.op.name == name for node in graph)


@pytest.mark.parametrize("name", ["mlp_adam"])
def test_one_test_and_two_products(exported: Any, name: str) -> None:
    program = bc.compile(bc.load(str(exported(name))), SAFE)
    before, after = program.graphs["step"], packed(program)
    assert count(before, "IsFinite") == count(before, "LogicalAnd") + 1 == 4
    assert [count(after, op) for op in ("IsFinite", "ReduceAll", "LogicalAnd")] == [1, 1, 0]
    assert count(before, "Mul") - count(after, "Mul") == 3


def test_one_norm(exported: Any) -> None:
    program = bc.compile(bc.load(str(exported("mlp_adam"))), "clip-gradients")
    before, after = program.graphs["step"], packed(program)
    assert [count(before, op) for op in ("Square", "ReduceSum", "AddN")] == [4, 4, 1]
    assert [count(after, op) for op in ("Square", "ReduceSum", "AddN")] == [1, 1, 0]
    assert count(before, "Mul") == count(after, "Mul")
    assert count(after, "Slice") == 0


def test_in_a_job_each_norm_is_a_sum_by_itself(exported: Any) -> None:
    """Another rank has other gradients, and must add them up in the same order."""
    program = bc.compile(bc.load(str(exported("mlp_adam"))), SAFE)
    before, after = program.graphs["step"], packed(program, ranks=2)
    squares = [count(before, "Square"), count(before, "ReduceSum")]
    assert [count(after, "Square"), count(after, "ReduceSum")] == squares
    assert count(after, "IsFinite") == 1


def test_a_sum_of_squares_that_is_cut_into_rows() -> None:
    """Zeros fill the last row, so the sum of many elements is as exact as that of each."""
    sizes = (4000, 3000, 77)
    inputs = ", ".join(f"%x{i}: float32[{n}]" for i, n in enumerate(sizes))
    squares = "".join(f"%s{i} = Square(%x{i})\n%t{i} = ReduceSum(%s{i}, (), false, false)\n" for i in range(3))
    program = parse_program(
        f"state %seen: float32[] role=counter\ngraph @step({inputs}) -> (total) {{\n{squares}"
        "%all = MakeTuple(%t0, %t1, %t2)\n%total = AddN(%all) marks {squares = true}\n"
        "%count = AssignAdd(%seen, float32[]<1.0>, umonad)\n"
        "%u = UpdateState(umonad, %count)\n%r = Depend(%total, %u)\nreturn %r\n}\n"
    )
    assert [count(packed(program), op) for op in ("Square", "ReduceSum")] == [1, 2]
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(n).astype(np.float32) for n in sizes]
    total = bc.Session(program).step(*values).raw["total"].asnumpy()
    np.testing.assert_allclose(total, sum((v.astype(np.float64) ** 2).sum() for v in values), rtol=2**-22)


def test_a_gradient_that_two_weights_have_counts_twice() -> None:
    program = parse_program(
        "graph @step(%a: float32[4], %b: float32[4], %c: float32[4], %d: float32[4]) -> (total) {\n"
        + "".join(f"%s{x} = Square(%{x})\n%t{x} = ReduceSum(%s{x}, (), false, false)\n" for x in "abcd")
        + "%all = MakeTuple(%ta, %tb, %tc, %td, %td)\n%total = AddN(%all) marks {squares = true}\nreturn %total\n}\n"
    )
    after = packed(program)
    assert [count(after, op) for op in ("Square", "ReduceSum", "AddN")] == [2, 2, 1]
    (total,) = (node for node in after if node.op.name == "AddN")
    terms = total.operand(0)
    assert isinstance(terms, Node)
    assert [v.name for v in terms.operands][:2] == ["td", "td"]
    assert terms.num_operands == 3


@pytest.mark.parametrize("name", ["mlp_adam"])
def test_tests_and_scales_keep_every_bit(exported: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = bc.compile(bc.load(str(exported(name))), "overflow-check,loss-scale{init=1024}")
    ours = bc.Session(program)
    monkeypatch.setattr(packing, "applies", lambda graph, context: False)
    each = bc.Session(program)
    for batch in CASES[name].batches(3):
        assert ours.step(*batch).loss == each.step(*batch).loss
    for key, value in each.state().items():
        assert value.tobytes() == ours.state()[key].tobytes(), key


def test_every_place_and_kind() -> None:
    """Each element of each of the joined tensors is looked at."""
    sizes = (1, 7, 64)
    inputs = ", ".join(f"%x{i}: float32[{n}]" for i, n in enumerate(sizes))
    tests = "".join(f"%f{i} = IsFinite(%x{i})\n%a{i} = ReduceAll(%f{i}, (), false)\n" for i in range(3))
    program = parse_program(
        f"state %seen: float32[] role=counter\ngraph @step({inputs}) -> (finite) {{\n{tests}"
        "%b = LogicalAnd(%a0, %a1)\n%all = LogicalAnd(%b, %a2)\n%count = AssignAdd(%seen, float32[]<1.0>, umonad)\n"
        "%u = UpdateState(umonad, %count)\n%r = Depend(%all, %u)\nreturn %r\n}\n"
    )
    assert count(packed(program), "IsFinite") == 1
    session = bc.Session(program)
    plain = [np.full(n, 3e38, np.float32) for n in sizes]
    assert bool(session.step(*plain).raw["finite"].asnumpy())
    for i, n in enumerate(sizes):
        for place, value in ((0, np.nan), (n - 1, np.inf), (n // 2, -np.inf)):
            bad = [x.copy() for x in plain]
            bad[i][place] = value
            assert not bool(session.step(*bad).raw["finite"].asnumpy()), (i, place, value)


CHAINED = """
state %w: float32[3] role=weight
graph @step(%x: float32[3], %n: float32[]) -> (finite) {
  %a = IsFinite(%x)
  %fa = ReduceAll(%a, (), false)
  %y = Select(%fa, %x, %w)
  %b = IsFinite(%y)
  %fb = ReduceAll(%b, (), false)
  %z = Select(%fb, %y, %w)
  %c = IsFinite(%z)
  %fc = ReduceAll(%c, (), false)
  %ab = LogicalAnd(%fa, %fb)
  %all = LogicalAnd(%ab, %fc)
  %s = AssignSub(%w, %z, umonad)
  %u = UpdateState(umonad, %s)
  %r = Depend(%all, %u)
  return %r
}
"""


def test_what_needs_the_answer_of_another_is_left() -> None:
    program = parse_program(CHAINED)
    assert packed(program) is program.graphs["step"]


def test_answers_that_are_asked_for_by_themselves_stay(exported: Any) -> None:
    """Groups of layers ask which of them overflowed."""
    source = bc.load(str(exported("mlp")))
    program = bc.compile(source, "group-loss-scale{groups=2},overflow-check")
    each = count(program.graphs["step"], "ReduceAll")
    assert count(packed(program), "ReduceAll") == each > 2
