"""A program without some of its layers against the network that was written without them."""

from __future__ import annotations

import numpy as np

import boost_compile as bc
from tests import native
from tests.compare import assert_close, assert_equal
from tests.networks import Case, build, state_of

State = dict[str, np.ndarray]


ONE_STEP, THREE_STEPS = 1e-5, 1e-3


def run(program: bc.Program, case: Case, steps: int) -> list[State]:
    """The state after each step; loss, graph and state must be whole."""
    session = bc.Session(program, device="CPU")
    states = []
    for batch in case.batches(steps):
        assert np.isfinite(session.step(*batch).loss).all()
        states.append(session.state())
    return states


def trained(case: Case, steps: int) -> list[State]:
    """Native training: the state before the first step and after each."""
    step = build(case).train_step
    states = [state_of(step)]
    for batch in case.batches(steps):
        step(*native.tensors(batch))
        states.append(state_of(step))
    return states


def check(source: bc.Program, case: Case, pipeline: str = "less-bn", steps: int = 3) -> bc.Program:
    """Compiles, and compares every step's state with that of ``case``, the network built without."""
    program = bc.compile(source, pipeline)
    ours, (initial, *reference) = run(program, case, steps), trained(case, steps)
    assert_equal({name: source.state[name].initial for name in initial}, initial)
    assert_close(ours[0], reference[0], initial, ONE_STEP)
    assert_close(ours[-1], reference[-1], initial, THREE_STEPS)
    return program
