"""The search for a plan that fits."""

from __future__ import annotations

import re
from itertools import pairwise

import networkx as nx
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.passes import compile_program
from boost_compile.passes.recompute.budget import COUNTS, MARGIN, PRICES, Tried, _Trials, fitting, least
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


LAST = len(PRICES) - 1


@pytest.mark.parametrize("price", [1, 2, 7, LAST])
@pytest.mark.parametrize("first", [1, 2, 5, 7, 8])
def test_the_lowest_price_that_fits_and_the_fewest_pieces_that_need_it(
    price: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of 8 pieces fits with that price, or where so many pieces have it and the others the one below."""
    asked: set[tuple[int, ...]] = set()

    def judged(self: _Trials, count: int, *given: int) -> Tried:
        asked.add(given)
        fits = given[0] >= price or (given[0] == price - 1 and given[1] >= first)
        return Tried("", None, 1 if fits else 3, 0.0, 1)

    monkeypatch.setattr(_Trials, "_priced", judged)
    monkeypatch.setattr(Priced, "number", lambda self, count: count)
    _Trials(chain(2)).lowest_price(2, 8)
    assert {(LAST, 0), (price, 0)} <= asked
    assert (price - 1, 0) in asked or price == 1
    assert {at for at, pieces in asked if pieces} == {price - 1}
    assert first == 8 or (price - 1, first) in asked
    assert first == 1 or (price - 1, first - 1) in asked
    assert {pieces for _, pieces in asked} <= set(range(8))
    assert len(asked) <= 1 + 4 + 3


def test_no_other_price_is_tried_where_the_highest_does_not_fit() -> None:
    trials = _Trials(chain(2))
    trials.lowest_price(0, 8)
    assert [tried.text for tried in trials.tried] == ["8 pieces, any time a byte"]


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
