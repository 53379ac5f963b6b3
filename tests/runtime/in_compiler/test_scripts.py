"""Scripts as users write them, with one line more, against the same scripts on the batch of a whole window."""

from __future__ import annotations

import mindspore as ms
import pytest
from boost_compile.ir.core.errors import Error
from mindspore import train

import boost_compile as bc
from tests.runtime.in_compiler import scripts, steps

pytestmark = pytest.mark.mindspore
ACCUMULATION = f"gradient-accumulation{{steps={scripts.WINDOW}}}"


@pytest.fixture(autouse=True)
def _as_before():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    bc.disable()
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_a_script_trains_as_on_whole_windows(name):
    script, trained = scripts.SCRIPTS[name]
    plain = script(True)
    ms.set_context(mode=ms.GRAPH_MODE)
    with bc.enable(ACCUMULATION) as handle:
        mine = script(False)
    assert handle.steps_taken == trained
    assert steps.worst(mine, plain) < 1e-6


def test_a_model_in_pynative_mode_is_told_of_graph_mode():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = steps.network()
    model = train.Model(net, steps.loss_function(), steps.momentum(net.trainable_params()))
    bc.enable(ACCUMULATION)
    with pytest.raises(Error, match=r"Momentum was called outside of a compiled step.*mode=mindspore\.GRAPH_MODE"):
        model.train(1, scripts.dataset(False), dataset_sink_mode=False)


@pytest.mark.parametrize("unrolled", [True, False])
def test_several_updates_in_one_call_are_refused(unrolled):
    """A loop over micro-batches inside of the compiled function, unrolled or not."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = steps.network()
    optimizer = steps.momentum(net.trainable_params())
    before = steps.values(net)
    gradients_of = ms.value_and_grad(scripts.cross_entropy_of(net), None, net.trainable_params())

    @ms.jit
    def unrolled_steps(xs, ys):
        for i in range(4):
            _, gradients = gradients_of(xs[i], ys[i])
            optimizer(gradients)
        return xs

    @ms.jit
    def looped_steps(xs, ys):
        i = ms.Tensor(0, ms.int32)
        while i < 4:
            _, gradients = gradients_of(xs[i], ys[i])
            optimizer(gradients)
            i = i + 1
        return xs

    bc.enable(ACCUMULATION)
    with pytest.raises(Error, match="after the same step has updated it" if unrolled else "inside function"):
        (unrolled_steps if unrolled else looped_steps)(ms.Tensor(steps.X[:4]), ms.Tensor(steps.Y[:4]))
    assert steps.worst(steps.values(net), before) == 0
