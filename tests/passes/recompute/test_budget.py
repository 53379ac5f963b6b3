"""The search for a plan that fits."""

from __future__ import annotations

import re
from itertools import pairwise

import networkx as nx
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.passes import compile_program
from boost_compile.passes.recompute.budget import COUNTS, MARGIN, PRICES, fitting, least
from boost_compile.passes.recompute.candidates import forward_of
from boost_compile.passes.recompute.plans import Priced

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
        halved = [plan for plan in tried if re.match(r"\d+ pieces, ", plan.text)]
        assert len(halved) <= len(COUNTS) * 10, "prices are halved, and so are pieces"
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
    with pytest.raises(PassError, match=r"nothing fits into 0\.5 MB(.*\n)+.*all of it, in 2 pieces") as caught:
        fitting(chain(8), 500_000)
    (works,) = re.findall(r"The smallest budget that works is (\d+) MB", str(caught.value))
    assert fitting(chain(8), int(works) * 10**6)


def test_the_first_pieces_may_cost_more_and_equal_ones_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of 32 equal layers in 8 pieces: where nothing is worth anything only the pieces that cost more run again,
    each but for what it hands on; the inner pieces are the same to a cut, and the ends differ from them."""
    cuts = []
    cut = nx.minimum_cut
    monkeypatch.setattr(nx, "minimum_cut", lambda *given: cuts.append(given) or cut(*given))
    forward = forward_of(chain(32).graphs["step"], "cpu")
    priced = Priced({"step": forward})
    found = [priced.plan(8, 0, PRICES[-1], first)(forward) for first in range(priced.number(8) + 1)]
    assert found[0] == []
    assert all(bigger[: len(smaller)] == smaller for smaller, bigger in pairwise(found))
    assert len({node for piece in found[-1] for node in piece}) > 32
    assert len(cuts) <= 6
