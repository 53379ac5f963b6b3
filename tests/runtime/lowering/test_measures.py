"""Gradients that are measured together: the same answers as each by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.text import parse_program
from boost_compile.runtime.lowering import measures
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc
from tests.networks import CASES

SAFE = "overflow-check,loss-scale{init=1024},clip-gradients{limit=0.01}"


def measured(program: bc.Program, graph: str = "step", ranks: int = 1) -> Graph:
    return lower(program.graphs[graph], Context(program, "cpu", ranks=ranks), [measures]).graph


def counts(graph: Graph, *names: str) -> list[int]:
    return [sum(node.op.name == name for node in graph) for name in names]


def test_one_test_and_one_norm(exported: Any) -> None:
    """In a job each norm is a sum by itself: another rank has other gradients, and must add them up in one order."""
    program = bc.compile(bc.load(str(exported("mlp_adam"))), SAFE)
    kernels = ("IsFinite", "ReduceAll", "LogicalAnd", "Square", "ReduceSum", "AddN")
    assert counts(program.graphs["step"], *kernels) == [4, 4, 3, 4, 4, 1]
    assert counts(measured(program), *kernels) == [1, 0, 0, 1, 1, 0]
    assert counts(measured(program, ranks=2), *kernels) == [1, 0, 0, 4, 4, 1]


def test_a_sum_of_many_squares_is_as_exact_as_that_of_each() -> None:
    sizes = (4000, 3000, 77)
    inputs = ", ".join(f"%x{i}: float32[{n}]" for i, n in enumerate(sizes))
    squares = "".join(f"%s{i} = Square(%x{i})\n%t{i} = ReduceSum(%s{i}, (), false, false)\n" for i in range(3))
    program = parse_program(
        f"state %seen: float32[] role=counter\ngraph @step({inputs}) -> (total) {{\n{squares}"
        "%all = MakeTuple(%t0, %t1, %t2)\n%total = AddN(%all) marks {squares = true}\n"
        "%count = AssignAdd(%seen, float32[]<1.0>, umonad)\n"
        "%u = UpdateState(umonad, %count)\n%r = Depend(%total, %u)\nreturn %r\n}\n"
    )
    assert counts(measured(program), "Square", "ReduceSum") == [1, 2]
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
    after = measured(program)
    assert counts(after, "Square", "ReduceSum", "AddN") == [2, 2, 1]
    (total,) = (node for node in after if node.op.name == "AddN")
    terms = total.operand(0)
    assert isinstance(terms, Node)
    assert [v.name for v in terms.operands][:2] == ["td", "td"]
    assert terms.num_operands == 3


SHAPES = [(1,), (), (7,), (8, 8), (8192,), (64, 64), (16, 8, 8, 8), (5000, 2), (2, 5000), (1, 4096), (4099,)]


@pytest.mark.parametrize("shapes", [SHAPES[:3], SHAPES[3:], SHAPES[1:2] + SHAPES[5:6], SHAPES[4:5]], ids=str)
def test_each_element_of_each_tensor_is_looked_at(shapes: list[tuple[int, ...]]) -> None:
    inputs = ", ".join(f"%x{i}: float32[{', '.join(map(str, shape))}]" for i, shape in enumerate(shapes))
    tests = "".join(f"%f{i} = IsFinite(%x{i})\n%a{i} = ReduceAll(%f{i}, (), false)\n" for i in range(len(shapes)))
    whole = "".join(f"%b{i} = LogicalAnd(%{'b' if i > 1 else 'a'}{i - 1}, %a{i})\n" for i in range(1, len(shapes)))
    last = f"%b{len(shapes) - 1}" if len(shapes) > 1 else "%a0"
    program = parse_program(
        f"state %seen: float32[] role=counter\ngraph @step({inputs}) -> (finite) {{\n{tests}{whole}"
        "%count = AssignAdd(%seen, float32[]<1.0>, umonad)\n"
        f"%u = UpdateState(umonad, %count)\n%r = Depend({last}, %u)\nreturn %r\n}}\n"
    )
    assert counts(measured(program), "IsFinite", "ReduceAll") == [1, 0]
    session = bc.Session(program)

    def finite(values: list[np.ndarray]) -> bool:
        given = [value.reshape(shape) for value, shape in zip(values, shapes, strict=True)]
        return bool(session.step(*given).raw["finite"].asnumpy())

    sizes = [math.prod(shape) for shape in shapes]
    for plain in (np.float32(3.4e38), np.float32(-3.4e38), np.float32(1e-45)):
        assert finite([np.full(n, plain, np.float32) for n in sizes])
    for i, n in enumerate(sizes):
        for place, value in ((0, np.nan), (n - 1, np.inf), (n // 2, -np.inf)):
            bad = [np.full(n, 3e38, np.float32) for n in sizes]
            bad[i][place] = value
            assert not finite(bad), (i, place, value)


CHAINED = """
state %w: float32[3] role=weight
graph @step(%x: float32[3], %n: float32[]) -> (finite) {
  %a = IsFinite(%x)
  %fa = ReduceAll(%a, (), false)
  %y = Select(%fa, %x, %w)
  %b = IsFinite(%y)
  %fb = ReduceAll(%b, (), false)
  %all = LogicalAnd(%fa, %fb)
  %s = AssignSub(%w, %y, umonad)
  %u = UpdateState(umonad, %s)
  %r = Depend(%all, %u)
  return %r
}
"""


def test_what_needs_the_answer_of_another_is_left() -> None:
    program = parse_program(CHAINED)
    assert measured(program) is program.graphs["step"]


def test_answers_that_are_asked_for_by_themselves_stay(exported: Any) -> None:
    """Groups of layers ask which of them overflowed."""
    program = bc.compile(bc.load(str(exported("mlp"))), "group-loss-scale{groups=2},overflow-check")
    assert counts(measured(program), "ReduceAll") == counts(program.graphs["step"], "ReduceAll") != [0]


def test_an_accumulator_is_measured_before_it_is_cleared(exported: Any) -> None:
    """Nothing divides or scales what it holds, so the row is joined of the state itself."""
    program = bc.compile(
        bc.load(str(exported("mlp_adam"))), "gradient-accumulation{steps=2,reduction=sum},overflow-check,clip-gradients"
    )
    assert counts(measured(program, "apply"), "IsFinite", "Square") == [1, 1]
    session = bc.Session(program)
    for i, (x, y) in enumerate(CASES["mlp_adam"].batches(4)):
        if i == 2:
            x[0, 0] = np.inf
        result = session.step(x, y)
        assert result.overflow == (None, False, None, True)[i]


def test_tests_and_scales_keep_every_bit(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = bc.compile(bc.load(str(exported("mlp_adam"))), "overflow-check,loss-scale{init=1024}")
    ours = bc.Session(program)
    monkeypatch.setattr(measures, "applies", lambda graph, context: False)
    each = bc.Session(program)
    for batch in CASES["mlp_adam"].batches(3):
        assert ours.step(*batch).loss == each.step(*batch).loss
    for key, value in each.state().items():
        assert value.tobytes() == ours.state()[key].tobytes(), key


def test_squares_of_a_big_gradient_are_one_product_beside_convolutions(
    exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one big gradient of LeNet, and ten small ones in a row."""
    program = bc.compile(bc.load(str(exported("lenet_bn"))), "clip-gradients{limit=0.01}")
    graph = program.graphs["step"]
    before, after = (counts(each, "Square", "ReduceSum", "MatMul") for each in (graph, measured(program)))
    assert (before[:2], after[:2], after[2] - before[2]) == ([11, 12], [1, 1], 1)
    ours = bc.Session(program)
    monkeypatch.setattr(measures, "applies", lambda graph, context: False)
    each = bc.Session(program)
    for batch in CASES["lenet_bn"].batches(3):
        np.testing.assert_allclose(ours.step(*batch).loss, each.step(*batch).loss, rtol=1e-5)
    for key, value in each.state().items():
        np.testing.assert_allclose(ours.state()[key], value, rtol=1e-4, atol=1e-6, err_msg=key)
