"""Parameter groups in the graph: as MindSpore's own groups, given to the optimizer when it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mindspore import nn

import boost_compile as bc
from tests import native
from tests.compare import assert_close
from tests.networks import CASES, Case, export

ACCUMULATE = "gradient-accumulation{steps=2}"
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "momentum": lambda groups, decay: nn.Momentum(groups, 0.1, 0.9, weight_decay=decay),
    "adam": lambda groups, decay: nn.Adam(groups, 0.01, weight_decay=decay),
    "adam_weight_decay": lambda groups, decay: nn.AdamWeightDecay(groups, 0.01, weight_decay=decay),
    "rmsprop": lambda groups, decay: nn.RMSProp(groups, 0.01, weight_decay=decay),
    "adagrad": lambda groups, decay: nn.Adagrad(groups, learning_rate=0.01, weight_decay=decay),
}
RATES = {"momentum": 0.1, "adam": 0.01, "adam_weight_decay": 0.01, "rmsprop": 0.01, "adagrad": 0.01}


def biases_apart(parameters: list[Any], **own: Any) -> list[dict[str, Any]]:
    biases = [p for p in parameters if p.name.endswith("bias")]
    others = [p for p in parameters if not p.name.endswith("bias")]
    return [{"params": biases, **own}, {"params": others}]


def compare(ours: dict[str, Any], theirs: dict[str, Any], initial: dict[str, Any], program: bc.Program) -> None:
    names = [n for n, v in program.state.items() if v.role in ("weight", "slot") and n in theirs]
    assert len(names) >= 8
    pick = [{n: s[n] for n in names} for s in (ours, theirs, initial)]
    assert_close(*pick, tolerance=2e-6)


QUICK = ("momentum", "adam")
"""The optimizers that are tried with every own value and pipeline; the others with both values, accumulated."""


def marks(optimizer: str, own: str, pipeline: str) -> Any:
    quick = own == "both" or not pipeline if optimizer in QUICK else own == "both" and pipeline == ACCUMULATE
    return () if quick else pytest.mark.slow


CHOICES = [
    pytest.param(optimizer, own, pipeline, marks=marks(optimizer, own, pipeline))
    for optimizer in OPTIMIZERS
    for own in ("rate", "decay", "no-decay", "both")
    for pipeline in ("", ACCUMULATE, "overflow-check")
]


@pytest.mark.parametrize(("optimizer", "own", "pipeline"), CHOICES)
def test_groups_train_as_mindspores_do(optimizer: str, own: str, pipeline: str, tmp_path: Path) -> None:
    base = CASES["mlp"]
    make = OPTIMIZERS[optimizer]
    common = 0.0 if own == "decay" else 0.05
    given: dict[str, Any] = {}
    text = []
    if own in ("rate", "both"):
        given["lr"] = 3 * RATES[optimizer]
        text.append("lr_factor=3.0")
    if own != "rate":
        given["weight_decay"] = 0.0 if own == "no-decay" else 0.2
        text.append(f"weight_decay={given['weight_decay']}")
    plain = replace(base, name="plain", optimizer=lambda ps: make(ps, common))
    grouped: Case = replace(base, name="grouped", optimizer=lambda ps: make(biases_apart(ps, **given), common))
    source = bc.load(str(export(plain, tmp_path)))
    group = f"parameter-groups{{match=[*.bias],{','.join(text)}}}"
    program = bc.compile(source, f"{group},{pipeline}" if pipeline else group)
    session = bc.Session(program)
    steps = program.micro_batches()
    cycles = base.cycles(3, steps)
    for cycle in cycles:
        for batch in cycle:
            session.step(*batch)
    initial = native.initial_state(plain)
    if steps == 1:
        _, theirs = native.train_steps(grouped, [batch for (batch,) in cycles])
    else:
        theirs = native.train_accumulated(grouped, cycles).states[-1]
    compare(session.state(), theirs, initial, program)


def test_a_rate_of_zero_stops_an_optimizer_that_divides_by_its_rate(tmp_path: Path) -> None:
    """MindSpore's FTRL makes NaN of every weight whose group has a rate of zero."""
    ftrl: Case = replace(CASES["mlp"], name="ftrl", optimizer=lambda ps: nn.FTRL(ps, learning_rate=0.1))
    source = bc.load(str(export(ftrl, tmp_path)))
    session = bc.Session(bc.compile(source, "parameter-groups{match=[*.bias],lr_factor=0}"))
    before = session.state()
    (batch,) = ftrl.batches(1)
    session.step(*batch)
    _, native_state = native.train_steps(ftrl, [batch])
    after = session.state()
    for name in ("hidden.weight", "output.weight"):
        assert np.array_equal(after[name], native_state[name])
    for name in ("hidden.bias", "output.bias"):
        assert np.array_equal(after[name], before[name])
        assert not np.array_equal(native_state[name], before[name])


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_the_decay_of_the_file_is_replaced_where_its_optimizer_has_one_too(decay: float, exported: Any) -> None:
    """The primitive SGD can decay by itself; MindSpore exports the decay in front of it."""
    decaying, plain = (bc.load(str(exported(name))) for name in ("mlp_sgd_decay", "mlp_sgd_momentum"))
    option = f"parameter-groups{{weight_decay={decay}}}"
    sessions = [bc.Session(bc.compile(decaying, option)), bc.Session(bc.compile(plain, option) if decay else plain)]
    sessions[1].load_state(sessions[0].state())
    before = sessions[0].state()
    for batch in CASES["mlp_sgd_decay"].batches(3):
        for session in sessions:
            session.step(*batch)
    ours, reference = (session.state() for session in sessions)
    for name in ("hidden.weight", "output.weight"):
        assert np.abs(ours[name] - before[name]).max() > 1e-3
        np.testing.assert_allclose(ours[name], reference[name], rtol=0, atol=1e-6)


def test_the_decay_of_an_optimizer_of_many_functions_is_replaced(exported: Any, tmp_path: Path) -> None:
    """MindSpore exports ASGD as dozens of functions, several of which are called with each weight."""
    case = CASES["mlp_asgd_decay"]
    decayed = replace(case, name="decayed", optimizer=lambda weights: nn.ASGD(weights, 0.01, weight_decay=0.3))
    ours = bc.compile(bc.load(str(exported(case.name))), "parameter-groups{weight_decay=0.3}")
    sessions = [bc.Session(program) for program in (ours, bc.load(str(export(decayed, tmp_path))))]
    before = sessions[0].state()
    for batch in case.batches(3):
        for session in sessions:
            session.step(*batch)
    ours_state, native = (session.state() for session in sessions)
    for name in ("hidden.weight", "output.weight"):
        assert np.abs(native[name] - before[name]).max() > 1e-3
        np.testing.assert_allclose(ours_state[name], native[name], rtol=0, atol=1e-7)


def test_groups_come_on_top_of_each_other(exported: Any) -> None:
    source = bc.load(str(exported("mlp_sgd")))
    twice = bc.compile(source, "parameter-groups{lr_factor=4.0},parameter-groups{match=[hidden.*],lr_factor=0.5}")
    session, plain = bc.Session(twice), bc.Session(source)
    (batch,) = CASES["mlp_sgd"].batches(1)
    before = plain.state()
    session.step(*batch)
    plain.step(*batch)
    after, reference = session.state(), plain.state()
    for name, factor in (("hidden.weight", 2.0), ("output.weight", 4.0)):
        np.testing.assert_allclose(after[name] - before[name], factor * (reference[name] - before[name]), atol=1e-6)
