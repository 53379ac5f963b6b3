"""A compiled program trained cycle by cycle, and compared with the composed reference (tests/reference.py).

Judged as in tests/passes/test_gradient_accumulation.py, by how far training moved each parameter; what the passes
decide (scales, skipped cycles) must agree exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from boost_compile.ir.text import print_program
from boost_compile.runtime.lowering import measures

import boost_compile as bc
from tests.compare import Comparison, State, assert_close, assert_equal
from tests.networks import Batch
from tests.reference import Run
from tests.remember import LARGEST, remembered

FIRST, LAST = 1e-5, 1e-3
"""The tolerances after the first update and after the last cycle."""

Cycles = Sequence[Sequence[Batch]]


@dataclass(frozen=True)
class Seen:
    """A cycle as the session reports it; `losses` has a row a micro-batch; what the program does not report is None.

    `state` is the user's, by the names of the file; `own` is what the passes added.
    """

    losses: np.ndarray
    scale: float | None
    overflow: bool | None
    updated: bool
    norm: float | None
    state: State
    own: State


def slow(*values: Any) -> list[Any]:
    """Parameters that only the long sweeps take."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def with_splits(names: Sequence[str], fused: Collection[str]) -> list[Any]:
    """(name, split) for both splits of accumulation; all but these few fused ones only in the long sweeps."""
    apart = [(name, "apply") for name in names] + [(name, "fused") for name in names if name in fused]
    return [*apart, *(pytest.param(name, "fused", marks=pytest.mark.slow) for name in names if name not in fused)]


def every_other(*choices: Sequence[Any]) -> list[Any]:
    """All combinations, half of them only in the long sweeps: every value remains by default, and where there are three
    choices, one of them between two values, every pair of values."""
    places = itertools.product(*(range(len(values)) for values in choices))
    return [
        pytest.param(
            *(values[i] for values, i in zip(choices, place, strict=True)), marks=[pytest.mark.slow] * (sum(place) % 2)
        )
        for place in places
    ]


def _of_program(program: bc.Program, users: bc.Program, cycles: Cycles) -> Any:
    if sum(variable.initial.nbytes for variable in program.state.values()) > LARGEST:
        return None
    return print_program(program), sorted(users.state), cycles


@remembered(_of_program)
def train(program: bc.Program, users: bc.Program, cycles: Cycles) -> list[Seen]:
    """Runs the cycles; a cycle shorter than the program's is flushed, as the end of the data would do.

    `users` is the program before any pass: its names are the user's state.
    """
    return train_in(bc.Session(program, device="CPU"), users, cycles)


def train_unpacked(program: bc.Program, users: bc.Program, cycles: Cycles) -> list[Seen]:
    """`train`, with the squares of each gradient added up by themselves, as the file says; on CPU a session joins
    those of small ones."""
    with mock.patch.object(measures, "applies", return_value=False):
        return train_in(bc.Session(program, device="CPU"), users, cycles)


def train_in(session: bc.Session, users: bc.Program, cycles: Cycles) -> list[Seen]:
    seen = []
    for cycle in cycles:
        results = [session.step(*batch) for batch in cycle]
        losses = np.array([result.loss for result in results])
        assert not any(result.updated or result.ended_cycle for result in results[:-1])
        last = results[-1]
        if not last.ended_cycle:
            flushed = session.flush()
            assert flushed is not None
            last = flushed
        assert last.ended_cycle
        state = session.state()
        own = {name: value for name, value in state.items() if name not in users.state}
        for name, value in own.items():
            if session.program.state[name].role == "accumulator":
                assert not value.any(), f"{name} is not cleared"
        norm = last.outputs.get("gradient_norm")
        user = {name: state[name] for name in users.state}
        seen.append(Seen(losses, last.loss_scale, last.overflow, last.updated, norm, user, own))
    return seen


def moved_only_statistics(before: Seen, after: Seen, users: bc.Program) -> None:
    """A skipped cycle: every weight, slot, step count and rate has the bits that it had before."""
    kept = [name for name, variable in users.state.items() if variable.role != "statistic"]
    assert_equal({n: after.state[n] for n in kept}, {n: before.state[n] for n in kept})


def check(ours: Sequence[Seen], run: Run, users: bc.Program, first: float = FIRST, last: float = LAST) -> Comparison:
    """Compares decisions, losses, norms and states of all cycles; returns the comparison after the first update."""
    assert [seen.updated for seen in ours] == [not cycle.skipped for cycle in run.cycles]
    initial = Seen(np.array([]), None, None, False, None, run.initial, {})
    np.testing.assert_allclose(ours[0].losses, run.cycles[0].losses, rtol=first)
    for before, seen, cycle in zip([initial, *ours[:-1]], ours, run.cycles, strict=True):
        np.testing.assert_allclose(seen.losses, cycle.losses, rtol=last)
        if seen.scale is not None:
            assert seen.scale == cycle.scale
        if seen.overflow is not None:
            assert seen.overflow == cycle.overflow
        if seen.norm is not None and cycle.norm is not None:
            np.testing.assert_allclose(seen.norm, cycle.norm, rtol=last)
        if not seen.updated:
            moved_only_statistics(before, seen, users)
    update = next(i for i, cycle in enumerate(run.cycles) if not cycle.skipped)
    noise = run.noise()
    result = assert_close(ours[update].state, run.cycles[update].state, run.initial, first, noise)
    assert_close(ours[-1].state, run.cycles[-1].state, run.initial, last, noise)
    return result


def train_file(path: Path, users: bc.Program, cycles: Cycles) -> list[Seen]:
    """The self-contained file in plain MindSpore, without this project: what `Seen` cannot know there is None."""
    import mindspore as ms
    from mindspore import nn

    cell = nn.GraphCell(ms.load(str(path)))
    cell.set_train()
    seen = []
    for cycle in cycles:
        losses = []
        for batch in cycle:
            result = cell(*map(ms.Tensor, batch))
            loss = result[0] if isinstance(result, (tuple, list)) else result
            losses.append(float(loss.asnumpy()))
        state = {p.name: p.asnumpy().copy() for p in cell.get_parameters()}
        user = {name: state[name] for name in users.state}
        own = {name: value for name, value in state.items() if name not in users.state}
        seen.append(Seen(np.array(losses), None, None, False, None, user, own))
    return seen


def assert_same_training(ours: Sequence[Seen], others: Sequence[Seen]) -> None:
    """Every loss, and after every cycle every state (the passes' own too), equal in every bit."""
    for i, (a, b) in enumerate(zip(ours, others, strict=True)):
        np.testing.assert_array_equal(a.losses, b.losses, err_msg=f"losses of cycle {i}")
        assert_equal({**a.state, **a.own}, {**b.state, **b.own})
