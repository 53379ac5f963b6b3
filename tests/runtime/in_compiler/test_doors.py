"""bc.enable, as its users come: each door against plain steps on the concatenated batch, by the names of Parameters."""

from __future__ import annotations

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn

import boost_compile as bc
from tests.ranks import run_ranks
from tests.runtime.in_compiler import steps

pytestmark = pytest.mark.mindspore
ACCUMULATION = "gradient-accumulation{steps=4}"


@pytest.fixture(autouse=True)
def _as_before():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    bc.disable()


def dataset() -> ds.Dataset:
    data = {"x": steps.X.reshape(-1, 4), "y": steps.Y.reshape(-1)}
    return ds.NumpySlicesDataset(data, shuffle=False).batch(steps.MICRO)


DOORS = {
    "cell": (ms.GRAPH_MODE, steps.cell_step, steps.momentum),
    "function": (ms.PYNATIVE_MODE, steps.function_step, steps.momentum),
    "jit construct": (ms.PYNATIVE_MODE, steps.compiled_step, steps.momentum),
    "experimental optimizer": (ms.PYNATIVE_MODE, steps.function_step, steps.adamw),
    "mint optimizer": (ms.PYNATIVE_MODE, steps.function_step, steps.mint_adam),
}


def trained(door: str, batches, enabled: str = "") -> dict[str, np.ndarray]:
    mode, make, optimizer = DOORS[door]
    ms.set_context(mode=mode)
    net = steps.network()
    step = make(net, optimizer(net.trainable_params()))
    with bc.enable(enabled) if enabled else pytest.MonkeyPatch.context() as handle:
        for x, y in batches:
            step(x, y)
        if enabled:
            assert handle.steps_taken == 1
    return steps.values(net)


@pytest.mark.parametrize("door", DOORS)
def test_accumulated_steps_are_those_of_the_whole_batch(door):
    plain = trained(door, steps.big_batches())
    assert steps.worst(trained(door, steps.micro_batches(), ACCUMULATION), plain) < 1e-6


@pytest.mark.parametrize(("method", "sinks"), [("train", False), ("train", True), ("fit", False), ("fit", True)])
def test_model(method, sinks):
    plain = trained("cell", steps.big_batches())
    net = steps.network()
    model = ms.Model(net, steps.loss_function(), steps.momentum(net.trainable_params()), metrics={"loss"})
    with bc.enable(ACCUMULATION) as handle:
        if method == "train":
            model.train(1, dataset(), dataset_sink_mode=sinks)
        else:
            model.fit(1, dataset(), dataset(), dataset_sink_mode=sinks, valid_dataset_sink_mode=sinks)
    assert handle.steps_taken == 1
    assert steps.worst(steps.values(net), plain) < 1e-6
    assert model.eval(dataset(), dataset_sink_mode=False)["loss"] > 0


def test_evaluation_and_export_stay_as_they_are(tmp_path):
    net = steps.network()
    step = steps.cell_step(net, steps.momentum(net.trainable_params()))
    x, y = steps.micro_batches()[0]
    ms.export(step, x, y, file_name=str(tmp_path / "plain"), file_format="MINDIR")
    before = net(x).asnumpy()
    with bc.enable(ACCUMULATION) as handle:
        again = steps.network()
        np.testing.assert_array_equal(again(x).asnumpy(), before)
        ms.export(step, x, y, file_name=str(tmp_path / "enabled"), file_format="MINDIR")
        assert handle.steps_taken == 0
        step(x, y)
    assert handle.steps_taken == 1
    assert not bc.diff(tmp_path / "plain.mindir", tmp_path / "enabled.mindir", computation=True)


def test_a_session_is_left_alone():
    net = steps.network()
    step = steps.cell_step(net, steps.momentum(net.trainable_params()))
    with bc.enable(ACCUMULATION) as handle:
        session = bc.Session(bc.capture(step, *steps.micro_batches()[0]))
        session.step(steps.X[0], steps.Y[0])
        assert handle.steps_taken == 0
        other = steps.network("other.")
        steps.cell_step(other, steps.momentum(other.trainable_params()))(*steps.micro_batches()[0])


def test_two_steps_of_a_process_keep_their_state_apart():
    """Also where their Parameters have the same names."""
    one, two = steps.network(), steps.network()
    first = steps.cell_step(one, steps.momentum(one.trainable_params()))
    second = steps.cell_step(two, steps.momentum(two.trainable_params()))
    with bc.enable(ACCUMULATION, cell=one, name="one") as a, bc.enable("gradient-accumulation{steps=2}", cell=two) as b:
        for x, y in steps.micro_batches():
            first(x, y)
            second(x, y)
    assert (a.steps_taken, b.steps_taken) == (1, 1)
    assert set(a.state) == {f"one.{name}" for name in b.state}
    assert steps.worst(steps.values(one), trained("cell", steps.big_batches())) < 1e-6
    assert steps.worst(steps.values(two), trained("cell", steps.big_batches(2))) < 1e-6


def test_a_window_goes_on_in_a_batch_of_another_size():
    """MindSpore compiles the step again: it is the same step, with the same state."""
    net = steps.network()
    step = steps.cell_step(net, steps.momentum(net.trainable_params()))
    with bc.enable("gradient-accumulation{steps=2}") as handle:
        x, y = steps.micro_batches()[0]
        step(x, y)
        step(x[:2], y[:2])
    assert handle.steps_taken == 1
    assert not handle.state["accumulation.count"].asnumpy().any()


def test_two_ranks_train_as_one_on_all_batches():
    """With gradients that MindSpore's own cell exchanges, and with those of the pass."""
    plain = trained("cell", steps.big_batches())
    for seen in run_ranks("tests.runtime.in_compiler.ranks_job", 2):
        for key in ("native", "pass"):
            mine = {n.removeprefix(f"{key}/"): value for n, value in seen.items() if n.startswith(f"{key}/")}
            assert steps.worst(mine, plain) < 1e-6, key


def test_one_call_takes_the_steps_of_two_models():
    nets = steps.network("one."), steps.network("two.")
    made = [steps.cell_step(net, steps.momentum(net.trainable_params())) for net in nets]
    with bc.enable(ACCUMULATION) as handle:
        for x, y in steps.micro_batches():
            for step in made:
                step(x, y)
    assert handle.steps_taken == 2
    plain = trained("cell", steps.big_batches())
    for net, prefix in zip(nets, ("one.", "two."), strict=True):
        values = {name.removeprefix(prefix): value for name, value in steps.values(net).items()}
        assert steps.worst(values, plain) < 1e-6


def test_a_step_with_a_loss_scale_returns_it():
    """MindSpore's cell tests gradients by an operator that a CPU has no kernel for: what the passes make of it runs."""
    net = steps.network()
    scale = nn.FixedLossScaleUpdateCell(1024)
    inner = nn.WithLossCell(net, steps.loss_function())
    step = nn.TrainOneStepWithLossScaleCell(inner, steps.momentum(net.trainable_params()), scale_sense=scale)
    step.set_train()
    with bc.enable(ACCUMULATION):
        results = [step(x, y) for x, y in steps.micro_batches()]
    assert [float(result[2].asnumpy()) for result in results] == [1024.0] * len(results)
    assert steps.worst(steps.values(net), trained("cell", steps.big_batches())) < 1e-6
