"""Races are exactly the effects on one state that operands and tokens leave unordered."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest
from boost_compile.ir.analysis.effects.races import races
from boost_compile.ir.core.graph import Graph, Node, State
from boost_compile.ir.core.predicates import is_effect, written_operands
from boost_compile.ir.core.walk import live_nodes, walk

import boost_compile as bc
from tests.graphs import graph
from tests.ir.proof.mutations import KINDS

MLP = Path(__file__).parents[3] / "material" / "mlp.ir"


def unordered(graph: Graph) -> set[str]:
    """The states of which two accesses, one of them a write, have no path between them: pair by pair."""
    live = live_nodes([graph.result])
    touching: dict[str, dict[Node, bool]] = {}
    for node in (n for n in graph if n in live):
        for i, v in enumerate(node.operands):
            if isinstance(v, State) and is_effect(node):
                of = touching.setdefault(v.name, {})
                of[node] = of.get(node, False) or i in written_operands(node)
            elif isinstance(v, State) and node.op.name == "Load":
                takers = [u for u in node.users if u.op.name not in ("UpdateState", "MakeTuple") and u in live]
                of = touching.setdefault(v.name, {})
                of.update({**dict.fromkeys([node, *takers], False), **of})
    position = {n: i for i, n in enumerate(graph)}
    above = {n: set(walk([n], lambda v: v.operands if isinstance(v, Node) else ())) for n in live}
    return {
        state
        for state, of in touching.items()
        for a, b in combinations(sorted(of, key=position.__getitem__), 2)
        if (of[a] or of[b]) and a not in above[b]
    }


def test_against_all_pairs() -> None:
    """Effects that wait for others than they did: some race, and some do not."""
    program = bc.compile(MLP, "gradient-accumulation{steps=2}")
    racing = []
    for seed in range(120):
        rng = random.Random(seed)
        main = rng.choice(list(program.copy().graphs.values()))
        KINDS["effect reordered"](main, rng.choice([n for n in main if is_effect(n)]), rng)
        try:
            main.sort()
        except bc.Error:
            continue  # a circle
        found = {r.state for r in races(main)}
        assert found == unordered(main)
        racing.append(bool(found))
    assert racing.count(True) > 5
    assert racing.count(False) > 5


@pytest.mark.parametrize(
    ("tokens", "racing"), [(("%u1", "%u2"), False), (("%u1", "umonad"), True), (("umonad", "%u1"), True)]
)
def test_three_effects(tokens: tuple[str, str], racing: bool) -> None:
    """A read and two writes; the second write may wait for too little."""
    found = races(
        graph(
            "state %s: float32[]\ngraph @g(%x: float32[]) {\n%l = Load(%s, umonad)\n%u1 = UpdateState(umonad, %l)\n"
            f"%a = Assign(%s, %x, {tokens[0]}) : float32[]@s\n%u2 = UpdateState({tokens[0]}, %a)\n"
            f"%b = Assign(%s, %x, {tokens[1]}) : float32[]@s\n%u3 = UpdateState({tokens[1]}, %b)\n"
            "%t = MakeTuple(%u2, %u3)\n%r = Depend(%x, %t)\nreturn %r\n}"
        )
    )
    assert bool(found) is racing
    assert not found or "nothing says which comes first" in str(found[0])
