"""Networks of the zoo in their own training cells, enabled, against a Session of the same program: the same bits."""

from __future__ import annotations

import re

import mindspore as ms
import numpy as np
import pytest

import boost_compile as bc
from tests.boundary import slow
from tests.native import tensors
from tests.networks import CASES, build, state_of

pytestmark = pytest.mark.mindspore
PIPELINE = "gradient-accumulation{steps=2},clip-gradients{limit=1.0}"
FAST = ("mlp_adam_rate_list", "mlp_half_weights", "accuracy", "lenet_bn_sgd")
"""A count that is read before it is written, whatever the order of nodes; state that kernels of the CPU copy; results
in nested tuples; a norm whose last bits depend on the order in which squares are added up."""
REFUSED = ("branch_in_loop",)
OTHERS = [name for name, case in CASES.items() if case.runs_on_cpu and name not in FAST + REFUSED]


@pytest.fixture(autouse=True)
def _as_before():
    yield
    bc.disable()


def words(error: bc.Error) -> str:
    """What an error says, up to the first name of a node."""
    return error.message.partition("(")[0].partition("%")[0]


def test_a_step_that_mindspore_cannot_compile_is_refused():
    """It does not compile this loop as it was loaded either, whatever was changed in it."""
    case = CASES["branch_in_loop"]
    bc.enable("dead-code-elimination", allow_no_match=True)
    with pytest.raises(bc.Error, match=r"MindSpore cannot compile the step that trains 4 weights.*bc\.capture"):
        build(case).train_step(*tensors(case.batches(1)[0]))


@pytest.mark.parametrize("name", [*FAST, *slow(*OTHERS)])
def test_a_network_trains_as_in_a_session(name):
    case = CASES[name]
    batches = case.batches(4)
    captured = bc.capture(build(case).train_step, *tensors(batches[0]))
    step = build(case).train_step
    try:
        program = bc.compile(captured, PIPELINE)
    except bc.Error as refused:
        bc.enable(PIPELINE, cell=step)
        with pytest.raises(type(refused), match=re.escape(words(refused))):
            step(*tensors(batches[0]))
        return
    with bc.enable(PIPELINE, cell=step) as enabled:
        for batch in batches:
            results = step(*tensors(batch))
    if name == "accuracy":
        assert [type(result) for result in results] == [ms.Tensor, ms.Tensor, tuple]
    seen = state_of(step) | {name: parameter.asnumpy() for name, parameter in enabled.state.items()}
    session = bc.Session(program)
    for batch in batches:
        session.step(*batch)
    for state, value in session.state().items():
        if program.state[state].role != "carried":  # means nothing between windows, and is called by a node
            np.testing.assert_array_equal(seen[state], value, state)
