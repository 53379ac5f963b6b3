"""Networks of the zoo in their own training cells, enabled, against a Session of the same program: the same bits."""

from __future__ import annotations

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
OTHERS = [name for name, case in CASES.items() if case.runs_on_cpu and name not in FAST]


@pytest.mark.parametrize("name", [*FAST, *slow(*OTHERS)])
def test_a_network_trains_as_in_a_session(name):
    case = CASES[name]
    batches = case.batches(4)
    step = build(case).train_step
    with bc.enable(PIPELINE, cell=step) as enabled:
        for batch in batches:
            results = step(*tensors(batch))
    if name == "accuracy":
        assert [type(result) for result in results] == [ms.Tensor, ms.Tensor, tuple]
    seen = state_of(step) | {name: parameter.asnumpy() for name, parameter in enabled.state.items()}
    session = bc.Session(bc.compile(bc.capture(build(case).train_step, *tensors(batches[0])), PIPELINE))
    for batch in batches:
        session.step(*batch)
    for state, value in session.state().items():
        np.testing.assert_array_equal(seen[state], value, state)
