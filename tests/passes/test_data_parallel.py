"""Data parallelism by structure: the order of passes, buckets, what is reported. Ranks train in
tests/test_data_parallel.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.core.types import DType
from boost_compile.ir.rewrite.ranks.buckets import Item, plan_buckets
from boost_compile.ir.rewrite.ranks.collectives import cycle_traffic

import boost_compile as bc
from tests.compare import assert_equal
from tests.equality import structurally_equal
from tests.networks import CASES

Exported = Callable[[str], Path]
F32, F16 = DType.FLOAT32, DType.FLOAT16

COMPANY = [
    "gradient-accumulation{steps=3}",
    "gradient-accumulation{steps=3,split=fused}",
    "clip-gradients{limit=0.5}",
    "loss-scale{mode=static}",
    "overflow-check",
    "less-bn",
    "gradient-freeze{groups=2}",
    "gradient-accumulation{steps=2},overflow-check{policy=skip-micro},loss-scale",
]


def difference(a: bc.Program, b: bc.Program) -> str | None:
    """The first difference in what two programs compute, whichever passes made it."""
    assert list(a.graphs) == list(b.graphs)
    for program in (a, b):
        for graph in program.graphs.values():
            for body in graph.all_graphs():
                for node in body:
                    node.origin = None
    for name, graph in a.graphs.items():
        found = structurally_equal(graph, b.graphs[name])
        if found:
            return f"{name}: {found}"
    return None


@pytest.mark.parametrize("other", COMPANY)
def test_the_order_of_passes_and_of_compilations_does_not_matter(exported: Exported, other: str) -> None:
    source = bc.load(str(exported("residual_after" if other == "less-bn" else "mlp_momentum_decay")))
    together = bc.compile(source, f"{other},data-parallel")
    assert difference(together, bc.compile(source, f"data-parallel,{other}")) is None
    assert cycle_traffic(together).count
    assert difference(together, bc.compile(bc.compile(source, other), "data-parallel")) is None
    first = bc.compile(bc.compile(source, "data-parallel"), other)
    assert cycle_traffic(first) == cycle_traffic(together)
    # Taking it out and putting it in again lists independent nodes in another order.
    for name, graph in first.graphs.items():
        assert Counter(n.op.name for n in graph) == Counter(n.op.name for n in together.graphs[name])


def test_again_with_other_options(exported: Exported) -> None:
    source = bc.load(str(exported("mlp")))
    once = bc.compile(source, "gradient-accumulation{steps=2},data-parallel")
    alone = bc.compile(once, "data-parallel{fusion=0}")
    assert cycle_traffic(alone).count == 5
    assert cycle_traffic(bc.compile(alone, "data-parallel")) == cycle_traffic(once)
    kept = bc.compile(alone, "clip-gradients")
    assert cycle_traffic(kept).count == 5, "the options of the earlier compilation stay"


def test_what_is_not_reduced_is_reported(exported: Exported) -> None:
    program = bc.compile(bc.load(str(exported("frozen_prefix"))), "data-parallel")
    (report,) = (r for r in program.reports if r.name == "data-parallel")
    frozen = {n for n, v in program.state.items() if v.role == "weight" and not v.trainable}
    assert frozen
    assert {m.site for m in report.misses} == frozen
    assert all(m.reason == "nothing trains it" for m in report.misses)


def test_buckets_by_size() -> None:
    """In order, each as full as the limit allows, one element type each; what is as large as a bucket stands alone."""
    sizes = [(F32, 10), (F32, 60), (F16, 30), (F32, 40), (F32, 100), (F16, 30), (F32, 90), (F32, 10)]
    items = [Item(i, dtype, size) for i, (dtype, size) in enumerate(sizes)]
    assert plan_buckets(items, 100) == [[0, 1], [2, 5], [3], [4], [6, 7]]
    assert plan_buckets(items, 0) == [[i] for i in range(len(items))]


def test_buckets_by_number() -> None:
    items = [Item(0, F32, 10, 1), Item(1, F32, 10), Item(2, F16, 10, 1), Item(3, F32, 500, 1), Item(4, F32, 10, 2)]
    assert plan_buckets([*items, Item(5, F32, 10)], 100) == [[0, 3], [1, 5], [2], [4]]


def test_split_points_make_buckets(exported: Exported) -> None:
    source = bc.load(str(exported("mlp")))
    program = bc.compile(source, "parameter-groups{split_points=[1,3]},data-parallel{fusion=0}")
    # hidden.weight; hidden.bias and output.weight; output.bias; the ranks.
    assert cycle_traffic(program).count == 4
    joined = [n for n in program.graphs["step"] if n.op.name == "Concat"]
    assert [n.type.size for n in joined] == [16 + 64]


@pytest.mark.parametrize(
    ("name", "passes", "message"),
    [
        ("lookup", "data-parallel", "a sparse gradient has rows of its own on every rank"),
        ("in_turn", "data-parallel", "use fusion=0"),
        ("linear_penalty", "data-parallel{mean=false}", "a constant of graph 'step'"),
    ],
)
def test_what_cannot_be_reduced_is_refused(exported: Exported, name: str, passes: str, message: str) -> None:
    with pytest.raises(bc.Error, match=message):
        bc.compile(bc.load(str(exported(name))), passes)


def test_gradients_between_updates_go_one_by_one(exported: Exported) -> None:
    source = bc.load(str(exported("in_turn")))
    program = bc.compile(source, "data-parallel{fusion=0}")
    session, plain = bc.Session(program), bc.Session(source)
    for batch in CASES["in_turn"].batches(3):
        session.step(*batch)
        plain.step(*batch)
    assert_equal(session.state(), plain.state())
