"""Whatever fails on the way, the script gets an error where it runs the step, and no step runs as it was."""

from __future__ import annotations

import os
import re

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.errors import Error, RuntimeFailure
from boost_compile.runtime.in_compiler import build, door
from mindspore import nn

import boost_compile as bc
from tests.runtime.in_compiler import steps
from tests.runtime.in_compiler.faults import FAULTS

pytestmark = pytest.mark.mindspore
ACCUMULATION = "gradient-accumulation{steps=4}"


@pytest.fixture(autouse=True)
def _as_before():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    bc.disable()


def new_step():
    net = steps.network()
    return steps.cell_step(net, steps.momentum(net.trainable_params()))


@pytest.mark.parametrize("at", range(len(FAULTS)), ids=lambda at: f"{FAULTS[at].part}-{at}")
def test_a_fault_is_an_error_and_no_step_runs_as_it_was(at, monkeypatch, tmp_path):
    """Nor does the update of a window, where that is what fails: the weights stay as they are."""
    fault = FAULTS[at]
    if fault.part == "registering":
        monkeypatch.setattr(door, "_REGISTERED", [])
    if fault.part in ("version", "compiler"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    step = new_step()
    before = steps.values(step)
    with monkeypatch.context() as patch, pytest.raises(Exception) as caught:  # noqa: PT011, PT012 (any part may fail)
        fault.inject(patch)
        bc.enable("gradient-accumulation{steps=2}")
        for batch in steps.micro_batches()[:2]:
            step(*batch)
    assert fault.says in str(caught.value)
    assert steps.worst(steps.values(step), before) == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "part", sorted({fault.part for fault in FAULTS} - {"version", "compiler", "building", "registering", "updating"})
)
def test_a_second_call_is_no_way_out(part, monkeypatch):
    """And without the fault the step is rewritten, in a cell that MindSpore has given up."""
    fault = next(fault for fault in FAULTS if fault.part == part)
    step = new_step()
    before = steps.values(step)
    handle = bc.enable(ACCUMULATION)
    with monkeypatch.context() as patch:
        fault.inject(patch)
        for _ in range(2):
            with pytest.raises(Exception, match=re.escape(fault.says) or "."):
                step(*steps.micro_batches()[0])
    step(*steps.micro_batches()[0])
    assert handle.steps_taken == 1
    assert steps.worst(steps.values(step), before) == 0, "the first of four micro-batches changes no weight"


# -- steps that would run as they were ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [steps.cell_step, steps.function_step])
def test_a_step_that_was_compiled_before_is_an_error(make):
    ms.set_context(mode=ms.GRAPH_MODE if make is steps.cell_step else ms.PYNATIVE_MODE)
    net, other = steps.network(), steps.network()
    step = make(net, steps.momentum(net.trainable_params()))
    batch = steps.micro_batches()[0]
    step(*batch)
    before = steps.values(net)
    with bc.enable(ACCUMULATION, cell=other):
        make(other, steps.momentum(other.trainable_params()))(*batch)
        step(*batch)  # nobody asked for this one
    before = steps.values(net)
    bc.enable(ACCUMULATION)
    for _ in range(2):
        with pytest.raises(RuntimeFailure, match=r"had compiled the step that trains '.*' before bc\.enable"):
            step(*batch)
    assert steps.worst(steps.values(net), before) == 0
    bc.disable()
    step(*batch)


@pytest.mark.parametrize("make", [steps.momentum, steps.adamw])
def test_an_update_outside_of_a_compiled_step_is_an_error(make):
    """PyNative mode without @ms.jit: there is no step to rewrite."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = steps.network()
    optimizer = make(net.trainable_params())
    gradients_of = ms.value_and_grad(nn.WithLossCell(net, steps.loss_function()), None, net.trainable_params())
    bc.enable(ACCUMULATION)
    _, gradients = gradients_of(*steps.micro_batches()[0])
    with pytest.raises(RuntimeFailure, match=r"outside of a compiled step.*@mindspore\.jit"):
        optimizer(gradients)


def test_two_pipelines_for_one_step_are_an_error():
    step = new_step()
    bc.enable(ACCUMULATION)
    bc.enable("overflow-check", match="0.*")
    with pytest.raises(Error, match=r"2 calls of bc\.enable ask for the step that trains"):
        step(*steps.micro_batches()[0])


def test_a_block_without_a_step_is_an_error():
    with pytest.raises(RuntimeFailure, match="compiled no training step in it"), bc.enable(ACCUMULATION):
        steps.network()(steps.micro_batches()[0][0])


def test_the_compile_cache_of_mindspore_is_off(monkeypatch):
    """It would run the graph of another pipeline."""
    monkeypatch.setenv("MS_COMPILER_CACHE_ENABLE", "1")
    bc.enable(ACCUMULATION)
    assert os.environ["MS_COMPILER_CACHE_ENABLE"] == "0"


@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        ("gradient-accumulatoin{steps=4}", "did you mean"),
        ({"gradient-accumulation": {"steps": 4}}, "no list of passes.*give pipeline text, or a list of Pass objects"),
        (["gradient-accumulation"], "no list of passes"),
        ("less-bn", "matched nothing"),
        ("batch-size{size=2}", "a step of other inputs"),
        ("dim-reduce{basis=rows.npy,n_components=2}", "cannot be rewritten inside of MindSpore's compiler.*bc.capture"),
    ],
)
def test_what_cannot_be_done_inside_is_said(pipeline, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.eye(2, sum(p.size for p in steps.network().trainable_params()), dtype=np.float32))
    step = new_step()

    def run() -> None:
        bc.enable(pipeline)
        step(*steps.micro_batches()[0])

    with pytest.raises(Error, match=says):
        run()


# -- the bridge --------------------------------------------------------------------------------------------------------


def test_the_bridge_is_small():
    """The only C++ of the project."""
    assert len(build.SOURCE.read_text().splitlines()) <= 250
