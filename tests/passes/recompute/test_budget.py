"""The search for a plan that fits."""

from __future__ import annotations

import re

import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.primitives import CPU
from boost_compile.passes import compile_program
from boost_compile.passes.recompute.budget import MARGIN, Tried, _Trials, fitting, least
from boost_compile.passes.recompute.candidates import forward_of

from tests import graphs
from tests.passes.recompute.chain import chain


def test_a_smaller_budget_never_costs_less_nor_needs_more() -> None:
    """Bytes and operations of the plans for budgets from what nothing run again needs down to the least."""
    program = chain(36)
    nothing = fitting(program, 1 << 40)[0].bytes
    smallest = least(program)[0].bytes
    found = []
    for k in range(4):
        budget = int((nothing + (smallest - nothing) * k / 3) * (1 + MARGIN)) + 1
        chosen, tried = fitting(program, budget)
        assert chosen.bytes * (1 + MARGIN) <= budget
        halved = [match for plan in tried if (match := re.fullmatch(r"(\d+) of 6 pieces", plan.text))]
        assert len(halved) <= 4, "pieces are halved"
        assert all(1 <= int(match[1]) <= 6 for match in halved)
        found.append((chosen.extra, -chosen.bytes))
    assert found == sorted(found)
    assert found[0][0] == 0 < found[-1][0]


def test_the_extra_operations_of_a_cycle() -> None:
    """All 32 products run again but for those that make the pieces; the forward part of a cycle runs once for each of
    its micro-batches, and the update, which runs nothing again, once for all."""
    two, eight = (
        compile_program(chain(32), f"gradient-accumulation{{steps={steps}}}", reproducer_directory=None)
        for steps in (2, 8)
    )
    extra = [least(program)[0].extra for program in (chain(32), two, eight)]
    assert min(extra) > 0.1
    assert max(extra) < 0.5
    assert extra[1] < extra[2]
    assert fitting(chain(4), 1 << 40)[0].line().endswith("  +0 %")


def test_below_the_least_is_an_error_with_the_table() -> None:
    with pytest.raises(PassError, match=r"nothing fits into .*(\n.*)+all of it, in 2 pieces"):
        fitting(chain(8), 1000)


def test_the_piece_that_saves_most_for_its_operations_runs_again_first() -> None:
    """Four products of matrices and four functions of single elements keep as much memory: the second are cheaper."""
    makers = [*("MatMul(%{}, %w, false, false) : float32[64,64]",) * 4, *("Exp(%{})", "Neg(%{})") * 2]
    names = ["x", *(f"m{k}" for k in range(4)), *(f"e{k}" for k in range(4))]
    forward = [f"%{name} = {maker.format(of)} @f" for of, name, maker in zip(names, names[1:], makers, strict=False)]
    backward = [f"%g{name} = Mul(%{name}, %x) @b" for name in names[1:]]
    text = "\n  ".join([*forward, *backward, f"%all = MakeTuple({', '.join(f'%g{name}' for name in names[1:])})"])
    of = graphs.program(f"graph @step(%x: float32[64,64], %w: float32[64,64]) {{\n  {text}\n  return %all\n}}")
    count, plan = _Trials(of).one_by_one(Tried("", None, 0, 0.0, 0))
    assert count == 2
    pieces = [plan(number)(forward_of(of.graphs["step"], CPU)) for number in (1, 2)]
    found = [[sorted(n.name for n in piece) for piece in some] for some in pieces]
    first, second = ["m0", "m1", "m2"], ["e0", "e1", "e2", "e3"]
    assert found == [[second], [first, second]]
