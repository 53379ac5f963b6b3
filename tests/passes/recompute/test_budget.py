"""The search for a plan that fits."""

from __future__ import annotations

import re
from dataclasses import astuple
from itertools import pairwise

import networkx as nx
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.passes import compile_program
from boost_compile.passes.recompute import budget
from boost_compile.passes.recompute.budget import COUNTS, MARGIN, PRICES, Tried, _Trials, fitting, least
from boost_compile.passes.recompute.candidates import forward_of
from boost_compile.passes.recompute.plans import Priced, root_blocks

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
    assert min(extra) > 0.05
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
    lowest = (price - 1) * 8 + first
    assert {(LAST, 0), divmod(lowest, 8), divmod(lowest - 1, 8)} <= asked
    assert {pieces for _, pieces in asked} <= set(range(8))
    assert len(asked) <= 1 + 7, "halved, of 12 prices in 8 pieces"


def test_what_takes_longer_than_a_plan_that_fits_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a price takes a hundredth. In 4 pieces a session fits where that makes 4, in 8 where it makes
    2.25."""
    asked: list[tuple[int, ...]] = []

    def judged(self: _Trials, count: int, *given: int) -> Tried:
        asked.append((count, *given))
        extra = self._extra(count, *given)
        self.tried.append(Tried("", None, 1 if extra >= (0.04 if count == 4 else 0.0225) else 3, extra, 1))
        return self.tried[-1]

    monkeypatch.setattr(_Trials, "_priced", judged)
    monkeypatch.setattr(_Trials, "_extra", lambda self, count, price, first: (price + first / count) / 100)
    monkeypatch.setattr(Priced, "number", lambda self, count: count)
    trials = _Trials(chain(2))
    for count in (4, 8, 4):
        trials.lowest_price(2, count)
    of_eight = [given for given in asked if given[0] == 8]
    before, after = asked[: asked.index(of_eight[0])], asked[asked.index(of_eight[-1]) + 1 :]
    assert before[0] == (4, LAST, 0)
    assert {(4, 4, 0), (4, 3, 3)} <= {*before}
    assert of_eight[0] == (8, 4, 0), "one of 5 takes a quarter longer than the 4 that fit"
    assert {(8, 2, 2), (8, 2, 1)} <= {*of_eight}
    assert after == [(4, 2, 0), (4, 2, 3)], "the next takes a quarter longer than 2.25, and these do not fit"


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
    monkeypatch.setattr(nx, "minimum_cut", lambda *given, **options: cuts.append(given) or cut(*given, **options))
    forward = forward_of(chain(32).graphs["step"], "cpu")
    priced = Priced({"step": forward})
    found = [priced.plan(8, 0, PRICES[-1], first)(forward) for first in range(priced.number(8) + 1)]
    assert found[0] == []
    assert all(bigger[: len(smaller)] == smaller for smaller, bigger in pairwise(found))
    assert len({node for piece in found[-1] for node in piece}) > 32
    assert len(cuts) <= 6


def test_plans_that_write_the_same_are_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in one piece, found by two plans, and a plan of nothing, which is not what was there: what is added in
    place has a result of its own."""
    estimated = []
    estimate = budget.footprint
    monkeypatch.setattr(budget, "footprint", lambda *given: estimated.append(given) or estimate(*given))
    trials = _Trials(chain(8))
    first = trials.judge("all", root_blocks)
    second = trials.judge("all once more", lambda forward: root_blocks(forward))
    assert (second.text, second.bytes, second.extra, second.copies) == ("all once more", *astuple(first)[2:])
    assert (first.copies > 0, len(estimated)) == (True, 1)
    assert trials.judge("none", lambda forward: []).copies == 0
    trials.judge("what is there", None)
    assert len(estimated) == 3


def test_between_two_prices_that_choose_the_same_no_cut_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is worth 100 picoseconds a byte, the whole chain is worth 200."""
    made = []
    cut = nx.minimum_cut
    monkeypatch.setattr(nx, "minimum_cut", lambda *given, **options: made.append(given) or cut(*given, **options))
    forward = forward_of(chain(4).graphs["step"], "cpu")
    priced = Priced({"step": forward})
    for price, cuts, nodes in ((0, 1, 0), (100, 2, 0), (50, 2, 0), (400, 3, 6), (200, 4, 6), (300, 4, 6), (150, 5, 0)):
        chosen = priced.plan(1, price, price, 0)(forward)
        assert (len(made), sum(map(len, chosen))) == (cuts, nodes), price
