"""Gradient freeze: frozen weights keep every bit, the others train as without it, and the backward part shrinks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.analysis.training.gradient_path import gradient_paths
from boost_compile.ir.core.variants import Choice
from boost_compile.ir.text import parse_program, print_program

import boost_compile as bc
from tests.networks import CASES, names

FREEZE = "gradient-freeze{groups=4,type=continuous,probability=0.5,total_steps=20}"
ACCUMULATE = "gradient-accumulation{steps=2}"
FUSED = "gradient-accumulation{steps=2,split=fused}"


def differing(a: dict[str, Any], b: dict[str, Any]) -> set[str]:
    return {name for name in a if name in b and not np.array_equal(a[name], b[name], equal_nan=True)}


def weights_and_slots(program: bc.Program, frozen: set[str]) -> set[str]:
    return {n for n, v in program.state.items() if n in frozen or (v.role == "slot" and v.weight in frozen)}


def frozen_in(program: bc.Program, k: int) -> set[str]:
    """The weights that variant 0 updates from a gradient and no graph of variant k does."""
    return _updated(program, 0) - _updated(program, k)


def _updated(program: bc.Program, k: int) -> set[str]:
    updating = [g for n, g in program.graphs.items() if (n.endswith(f".{k}") if k else "." not in n)]
    return {path.weight for g in updating for path in _paths(g)}


def _paths(graph: Any) -> list[Any]:
    try:
        return [path for path in gradient_paths(graph) if path.points[0].takers]
    except bc.Error:
        return []  # a graph that only accumulates


MANY = f"{FUSED},overflow-check{{policy=skip-micro}},loss-scale"
WITH_MANY = ("lenet_bn", "mlp_adam", "gpt_tied", "branch")
NETWORKS = [*WITH_MANY, "mlp_adam_weight_decay_decomposed", "shared_weights", "lstm", "mlp_rprop", "weight_average"]
NETWORKS += ["hand_momentum", "mlp_asgd"]


def is_quick(pipeline: str, name: str) -> bool:
    return pipeline == (MANY if name in WITH_MANY else "")


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        pytest.param(name, pipeline, marks=() if is_quick(pipeline, name) else pytest.mark.slow)
        for pipeline in ("", ACCUMULATE, MANY)
        for name in NETWORKS
    ],
)
def test_each_cycle_trains_the_rest_as_without_freezing(name: str, pipeline: str, exported: Any) -> None:
    """Every optimizer of these treats each weight by itself, so a cycle that freezes some leaves the others what the
    same cycle without freezing makes of them, bit for bit."""
    source = bc.load(str(exported(name)))
    base = bc.compile(source, pipeline) if pipeline else source
    program = bc.compile(source, f"{pipeline},{FREEZE}" if pipeline else FREEZE)
    frozen_session, base_session = bc.Session(program, seed=1), bc.Session(base, seed=1)
    length = base.micro_batches()
    seen = set()
    for cycle in CASES[name].cycles(5, length):
        before = frozen_session.state()
        base_session.load_state({n: v for n, v in before.items() if n in base.state})
        k = frozen_session.variant
        seen.add(k)
        frozen = weights_and_slots(program, frozen_in(program, k))
        assert bool(frozen) == (k > 0)
        for batch in cycle:
            assert frozen_session.step(*batch).loss == base_session.step(*batch).loss
        after, reference = frozen_session.state(), base_session.state()
        assert not differing(before, after) & frozen
        assert differing(after, reference) <= frozen
        # The test would not notice a freeze of weights that do not train anyway.
        assert not frozen or differing(before, reference) & frozen
    assert len(seen) > 1


@pytest.mark.parametrize(("kind", "number"), [("continuous", 0), ("interval", 1)])
@pytest.mark.parametrize(
    ("groups", "probability", "total"), [(4, 0.7, 300), (10, 0.5, 1000), (3, 0.2, 50), (2, 0.9, 40)]
)
def test_the_sequence_is_upstreams(kind: str, number: int, groups: int, probability: float, total: int) -> None:
    from mindspore.boost import GradientFreeze

    np.random.seed(7)
    theirs = GradientFreeze(groups, number, probability, total).generate_freeze_index_sequence(
        groups, number, probability, total
    )
    cycles = int(total * 1.01)
    ours = Choice(groups, kind, probability, cycles, 7, "freeze.cycle")
    assert [ours.of_cycle(i) for i in range(cycles)] == theirs[:cycles]
    assert ours.of_cycle(cycles) == 0


@pytest.mark.parametrize(("kind", "number"), [("continuous", 0), ("interval", 1)])
def test_a_repeated_sequence_is_that_of_upstreams_cell(kind: str, number: int) -> None:
    """The cell begins again behind the last index of its strategy."""
    from mindspore.boost import GradientFreeze

    np.random.seed(7)
    theirs = GradientFreeze(4, number, 0.6, 30).generate_freeze_index_sequence(4, number, 0.6, 30)
    ours = Choice(4, kind, 0.6, 30, 7, "freeze.cycle", repeat=True)
    assert [ours.of_cycle(i) for i in range(100)] == (theirs * 4)[:100]


BY_HAND = [
    # groups, what the variants freeze, the variant of each cycle
    ('train=["*","fc*|bn2*"],type=round-robin', ["conv bn1"], [0, 1, 0, 1, 0]),
    ('train=["fc*","conv*","bn*"],strategy=[2,0,1]', ["conv bn", "bn fc", "conv fc"], [3, 1, 2, 0, 0]),
    ('train=["fc*","conv*"],strategy=[1,0,0],after=repeat', ["conv bn", "bn fc"], [2, 1, 1, 2, 1]),
    ("groups=3,strategy=[0,2,1],after=repeat", ["conv1 bn1", "conv bn"], [0, 2, 1, 0, 2]),
    ("groups=2,type=round-robin", ["conv bn"], [0, 1, 0, 1, 0]),
]


@pytest.mark.parametrize(("options", "frozen", "sequence"), BY_HAND)
def test_groups_and_strategy_by_hand(
    options: str, frozen: list[str], sequence: list[int], exported: Any, tmp_path: Path
) -> None:
    """Each cycle leaves the frozen weights and slots every bit and trains the others as the source does."""
    source = bc.load(str(exported("lenet_bn")))
    program = bc.compile(source, f"gradient-freeze{{{options}}}")
    weights = {n for n, v in program.state.items() if v.role == "weight" and v.trainable}
    expected = [{w for w in weights if w.startswith(tuple(prefixes.split()))} for prefixes in frozen]
    assert [frozen_in(program, k) for k in range(1, program.schedule.num_variants)] == expected
    program.save(str(tmp_path / "p.boost"))
    assert bc.load(str(tmp_path / "p.boost")).schedule == program.schedule
    assert parse_program(print_program(program)).schedule == program.schedule
    session, plain = bc.Session(bc.load(str(tmp_path / "p.boost"))), bc.Session(source)
    seen = []
    for batch in CASES["lenet_bn"].batches(len(sequence)):
        before = session.state()
        plain.load_state({n: v for n, v in before.items() if n in source.state})
        seen.append(session.variant)
        still = weights_and_slots(program, frozen_in(program, session.variant))
        assert session.step(*batch).loss == plain.step(*batch).loss
        after, reference = session.state(), plain.state()
        assert not differing(before, after) & still
        assert differing(after, reference) == differing(before, reference) & still
    assert seen == sequence


def test_a_short_cycle_is_flushed_by_its_variant(exported: Any) -> None:
    program = bc.compile(bc.load(str(exported("lenet_bn"))), f"{ACCUMULATE},{FREEZE}")
    session = bc.Session(program)
    for batch in CASES["lenet_bn"].batches(9):
        session.step(*batch)
    assert session.variant == 2
    frozen = weights_and_slots(program, frozen_in(program, session.variant))
    assert frozen
    before = session.state()
    result = session.flush()
    assert result is not None
    assert result.graph == "apply.2"
    assert not differing(before, session.state()) & frozen
    assert session.variant == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", names(runs_on_cpu=True, without=("vision",)))
def test_every_network_freezes_or_says_why_not(name: str, exported: Any) -> None:
    source = bc.load(str(exported(name)))
    try:
        program = bc.compile(source, FREEZE)
    except bc.Error as error:
        pytest.skip(f"refused: {error}")
    session = bc.Session(program, seed=1)
    for batch in CASES[name].batches(3):
        frozen = weights_and_slots(program, frozen_in(program, session.variant))
        before = session.state()
        session.step(*batch)
        assert not differing(before, session.state()) & frozen


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("1 interval 0.5 0 0 repeat %c", "1 to 10000000 cycles"),
        ("2 listed 0, 2 %c", "a choice of 2 variants lists variant 2"),
        ("2 sometimes 0.5 4 0 %c", "no such kind of choice: 'sometimes'"),
        ("2 listed repeat %c", "expected a whole number"),
    ],
)
def test_a_text_whose_choice_makes_no_sense(choice: str, message: str) -> None:
    text = f"program @p {{\n  schedule @step; choice {choice}\n}}\nstate %c: int32[]<0> role=counter\n"
    for name in ("step", "step.1"):
        text += f"graph @{name}(%x: float32[]) -> (loss) {{\n  %y = Neg(%x) : float32[]\n  return %y\n}}\n"
    with pytest.raises(bc.Error, match=re.escape(message)):
        parse_program(text)
