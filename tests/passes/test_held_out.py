"""Training cells of other kinds than TrainOneStepCell, and networks whose forward part writes state.

There is no native accumulation of somebody's own training cell. But N equal micro-batches must leave what one step of
the cell itself leaves, run by MindSpore; and different ones what one step on all of them at once leaves, where the loss
is a mean over the batch and no layer mixes rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import native
from tests.boundary import slow, with_splits
from tests.compare import assert_close, assert_equal
from tests.networks import CASES, Batch, build, names, state_of
from tests.passes.accumulated import ONE_CYCLE, accumulated, accumulators, check

Exported = Callable[[str], Path]
State = dict[str, np.ndarray]

CELLS = names("training_cell")
CLEANUP = "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination"
NATIVE = ["hidden_state", "running_average", "branch_state", "loop_weights", "experts", "stopped_target", "regularized"]
NATIVE += ["loop_alone"]
"""Ordinary TrainOneStepCells, for which there is native accumulation."""

CLEANED = ["clip_global_norm", "gated_update", "weight_average", "hand_momentum", "in_place", "at_once", "meters"]
CLEANED += ["keep_memory", "hidden_state", "branch_state", "loop_weights", "stopped_target", "regularized"]
"""Those whose effects hang together in different ways."""


def run(program: bc.Program, batches: list[Batch]) -> State:
    """The user's state after the batches."""
    session = bc.Session(program, device="CPU")
    for batch in batches:
        session.step(*batch)
    own = accumulators(program)
    return {name: value for name, value in session.state().items() if name not in own}


@cache
def by_the_cell(name: str, steps: int) -> tuple[State, ...]:
    """The state before training and after each step of the cell itself."""
    cell = build(CASES[name]).train_step
    states = [state_of(cell)]
    for batch in CASES[name].batches(steps):
        cell(*native.tensors(batch))
        states.append(state_of(cell))
    return tuple(states)


def of(state: State, like: State) -> State:
    """What the file holds of a cell's state: the cell may have parameters that the step does not use."""
    return {name: value for name, value in state.items() if name in like}


@pytest.mark.parametrize("name", [*CELLS, *NATIVE, *names("refused")])
def test_a_session_trains_as_the_cell_does(exported: Exported, name: str) -> None:
    _, _, _, native_state = by_the_cell(name, 3)
    ours = run(bc.load(str(exported(name))), CASES[name].batches(3))
    assert_equal(ours, of(native_state, ours))


@pytest.mark.parametrize("name", [*CLEANED, *slow(*(n for n in [*CELLS, *NATIVE] if n not in CLEANED))])
def test_cleaning_up_changes_nothing(exported: Exported, name: str) -> None:
    _, _, _, native_state = by_the_cell(name, 3)
    ours = run(bc.compile(bc.load(str(exported(name))), CLEANUP), CASES[name].batches(3))
    assert_equal(ours, of(native_state, ours))


@pytest.mark.parametrize("name", [n for n in CELLS if n not in names("forward_state")])
@pytest.mark.parametrize("split", ["apply", *slow("fused")])
def test_equal_micro_batches_are_one_step_of_the_cell(exported: Exported, name: str, split: str) -> None:
    first, second, _ = CASES[name].batches(3)
    initial, _, native_state, _ = by_the_cell(name, 3)
    ours = run(accumulated(exported(name), 2, split=split), [first, first, second, second])
    assert_close(ours, of(native_state, ours), initial, ONE_CYCLE)


@pytest.mark.parametrize(
    ("name", "split"),
    with_splits(
        ["clip_global_norm", "accuracy", "hand_momentum", "in_place", "at_once"], fused=["in_place", "at_once"]
    ),
)
def test_different_micro_batches_are_one_step_on_all_rows(exported: Exported, name: str, split: str) -> None:
    one, two = CASES[name].batches(2)
    cell = build(CASES[name]).train_step
    initial = state_of(cell)
    cell(*native.tensors(tuple(np.concatenate(pair) for pair in zip(one, two, strict=True))))
    program = bc.compile(accumulated(exported(name), 2, split=split), CLEANUP)
    ours = run(program, [one, two])
    assert_close(ours, of(state_of(cell), ours), initial, 2 * ONE_CYCLE)


def test_gradients_that_pass_through_shared_functions_are_told_apart(exported: Exported) -> None:
    """After the first step a slot of Momentum holds the gradient, which the cell itself leaves as it is here."""
    batch = CASES["clip_each"].batches(1)[0]
    cell = build(CASES["clip_each"]).train_step
    cell.limit = 1e3
    cell(*native.tensors(batch))
    slots = {name: value for name, value in state_of(cell).items() if name.startswith("moments.")}
    assert sum((np.abs(value) > 1e-3).any() for value in slots.values()) == len(slots)
    program = bc.compile(bc.load(str(exported("clip_each"))), "clip-gradients{by=value,limit=0.001}")
    ours = run(program, [batch])
    assert_equal({name: ours[name] for name in slots}, {name: value.clip(-1e-3, 1e-3) for name, value in slots.items()})


@pytest.mark.parametrize(("name", "split"), with_splits(NATIVE, fused=["hidden_state", "branch_state", "regularized"]))
def test_native_accumulation(exported: Exported, name: str, split: str) -> None:
    check(name, exported(name), 2, cycles=2, split=split)


def test_metrics_stand_among_the_results_of_every_micro_batch(exported: Exported) -> None:
    session = bc.Session(accumulated(exported("accuracy"), 2))
    original = bc.Session(bc.load(str(exported("accuracy"))))
    one, two = CASES["accuracy"].batches(2)
    expected = original.step(*one).outputs
    got = session.step(*one).outputs
    assert got == {name: expected[name] for name in ("loss", "output1")}
    flags = {f"output{i}" for i in range(2, 6)}  # of the optimizer, one a weight
    assert set(session.step(*two).outputs) == {"loss", "output1"} | flags


def test_weights_without_a_gradient_are_named(exported: Exported) -> None:
    program = accumulated(exported("stopped_target"), 2)
    assert {program.state[n].role for n in ("target.weight", "target.bias")} == {"weight"}
    assert {m.site for m in program.reports[0].misses} == {"target.weight", "target.bias"}
    assert not any(n.startswith("accum.target") for n in program.state)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("in_turn", "steps=2", r"uses state '[\w.]+' .* after the same step has updated it"),
        ("perturbed", "steps=2", r"uses state '[\w.]+' .* after the same step has updated it"),
        ("lookup", "steps=2", "sparse gradient"),
        ("linear_penalty", "steps=2,reduction=sum", "weight 'apart' is a constant"),
    ],
)
def test_refused_with_the_reason(exported: Exported, name: str, options: str, reason: str) -> None:
    with pytest.raises(bc.Error, match=reason):
        bc.compile(bc.load(str(exported(name))), f"gradient-accumulation{{{options}}}")
