"""Gradient accumulation against native MindSpore."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import boost_compile as bc
from tests import native
from tests.compare import Comparison, assert_close
from tests.networks import CASES

ONE_CYCLE, THREE_CYCLES = 1e-5, 1e-3


def accumulated(path: Path, steps: int, **options: object) -> bc.Program:
    """Whatever else updates take of the batch is the last micro-batch's, as natively."""
    text = ",".join(f"{k}={v}" for k, v in {"steps": steps, "carry": "last", **options}.items())
    return bc.compile(bc.load(str(path)), f"gradient-accumulation{{{text}}}")


def accumulators(program: bc.Program) -> set[str]:
    return {name for name, v in program.state.items() if v.role in ("accumulator", "counter", "carried")}


def train(program: bc.Program, cycles: list[list[tuple[np.ndarray, ...]]]) -> list[dict[str, np.ndarray]]:
    """The user's state after each cycle; the accumulators must be empty there."""
    own = accumulators(program)
    session = bc.Session(program, device="CPU")
    states = []
    for cycle in cycles:
        results = [session.step(*batch) for batch in cycle]
        assert [r.updated for r in results] == [False] * (len(cycle) - 1) + [True]
        assert all(np.isfinite(float(r.loss)) for r in results)
        state = session.state()
        for name in own:
            if not name.startswith(("carry.", "window.")):
                assert not state[name].any(), f"{name} is not cleared"
        states.append({name: value for name, value in state.items() if name not in own})
    return states


def check(name: str, path: Path, steps: int, cycles: int = 3, **options: object) -> Comparison:
    case = CASES[name]
    data = case.cycles(cycles, steps)
    reference = native.train_accumulated(case, data, str(options.get("reduction", "mean")))
    ours = train(accumulated(path, steps, **options), data)
    initial = native.initial_state(case)
    noise = reference.noise()
    first = assert_close(ours[0], reference.states[0], initial, ONE_CYCLE, noise)
    if cycles > 1:
        assert_close(ours[-1], reference.states[-1], initial, THREE_CYCLES, noise)
    return first
