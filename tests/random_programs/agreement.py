"""Whether a program's training agrees with the native one: decisions exactly, numbers up to rounding.

What is beyond the tolerances of tests/boundary.py may still be rounding, since a random network may enlarge it as it
likes. So there, and only there, it is measured: native training runs again, from weights off by a rounding unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import mindspore as ms
import numpy as np
from mindspore import nn

import boost_compile as bc
from tests import boundary
from tests.boundary import Seen
from tests.compare import State
from tests.networks import Case
from tests.reference import Run

ALLOWED = 32.0
"""By how much more than weights that are off by a rounding unit a program may differ; tools/verification/tolerance.py
has it from the test networks."""
ULPS = 4.0
Train = Callable[[int], Run]
"""By a seed: 0 trains from the weights as they are, others from weights nearby."""


def agree(ours: Sequence[Seen], run: Run, users: bc.Program, train: Train) -> bool:
    """AssertionError where they do not; else whether all state agrees in every bit. `train` made `run`."""
    names = [name for name in users.state if name in run.initial]
    absent = [n for n, v in users.state.items() if n not in run.initial and v.role == "weight"]
    assert not absent, f"weights that native training does not know: {absent}"
    run = _of(run, names)
    ours = [replace(seen, state={n: seen.state[n] for n in names}) for seen in ours]
    assert [seen.updated for seen in ours] == [not cycle.skipped for cycle in run.cycles], "other cycles are skipped"
    for i, (seen, cycle) in enumerate(zip(ours, run.cycles, strict=True)):
        assert seen.scale is None or seen.scale == cycle.scale, f"cycle {i}: scale {seen.scale}, not {cycle.scale}"
        assert seen.overflow is None or seen.overflow == cycle.overflow, f"cycle {i}: overflow {seen.overflow}"
    try:
        boundary.check(ours, run, cast(bc.Program, SimpleNamespace(state={n: users.state[n] for n in names})))
    except AssertionError as beyond:
        others = [_of(train(seed), names) for seed in (1, 2)]
        _within(ours, run, others, str(beyond))
    return all(
        np.array_equal(seen.state[n], cycle.state[n], equal_nan=True)
        for seen, cycle in zip(ours, run.cycles, strict=True)
        for n in names
    )


def _of(run: Run, names: Sequence[str]) -> Run:
    """Only this state."""
    cycles = [replace(cycle, state={n: cycle.state[n] for n in names}) for cycle in run.cycles]
    return Run({n: run.initial[n] for n in names}, cycles, run.magnitudes)


def nearby(case: Case, unit: float, seed: int) -> Case:
    """The case with each weight off by a rounding unit; `seed` 0 leaves them."""

    def make() -> nn.Cell:
        cell = case.network()
        weights = {p.name: p for p in cell.trainable_params()}
        values = {name: p.asnumpy() for name, p in weights.items()}
        for name, value in moved(values, values, unit, seed).items():
            weights[name].set_data(ms.Tensor(value))
        return cell

    return replace(case, network=make) if seed else case


def moved(state: State, weights: Iterable[str], unit: float, seed: int) -> dict[str, np.ndarray]:
    """The state with each weight off by a rounding unit, up or down."""
    rng = np.random.default_rng(seed)
    found = dict(state)
    for name in weights:
        value = state[name]
        found[name] = (value * (1 + unit * rng.choice([-1.0, 1.0], value.shape))).astype(value.dtype)
    return found


def _within(ours: Sequence[Seen], run: Run, others: Sequence[Run], beyond: str) -> None:
    """Each state and loss differs by no more than it does natively from weights nearby; up to the first cycle in which
    those decide otherwise."""
    for i, (seen, cycle) in enumerate(zip(ours, run.cycles, strict=True)):
        there = [other.cycles[i] for other in others]
        if any(other.skipped != cycle.skipped for other in there):
            return
        found = {"the losses": (seen.losses, np.array(cycle.losses, np.float32), [np.array(o.losses) for o in there])}
        found.update({n: (seen.state[n], v, [o.state[n] for o in there]) for n, v in cycle.state.items()})
        for name, (a, b, near) in found.items():
            error, allowed = (
                _largest(a, b),
                ALLOWED * max(_largest(other, b) for other in near) + _unit(b, run.initial.get(name)),
            )
            assert error <= allowed, (
                f"{name} is off by {error:.3g} after cycle {i}, where {allowed:.3g} is allowed: 32 times what weights "
                f"that are off by a rounding unit make of it natively. Plainly: {beyond}"
            )


def _largest(a: Any, b: Any) -> float:
    """The largest difference of elements that are not alike."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    difference[np.isnan(difference)] = np.inf
    return float(difference.max(initial=0.0))


def _unit(value: np.ndarray, initial: np.ndarray | None) -> float:
    """A few units in the last place of the largest element; nothing for what is no float."""
    if value.dtype.kind != "f":
        return 0.0
    largest = max(float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in (value, initial) if v is not None)
    return ULPS * float(np.spacing(np.asarray(largest).astype(value.dtype)))
