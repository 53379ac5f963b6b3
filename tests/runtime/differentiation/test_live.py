"""Live Cells: captured without a file, trained in place, and what a user gets who hands over something else."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops
from mindspore.experimental import optim as experimental
from mindspore.train import Model

import boost_compile as bc
from tests import native
from tests.compare import assert_close, assert_equal
from tests.networks import CASES, build
from tests.networks.case import seed_everything, state_of
from tests.networks.lenet import LeNetBatchNorm
from tests.networks.mlp import MLP, cross_entropy, momentum
from tests.runtime.training.support import dataset
from tests.waiting import PATIENCE

MLP_BATCH = CASES["mlp"].batches(1)[0]


def parts() -> tuple[nn.Cell, nn.Cell, nn.Cell]:
    """Network, loss, optimizer: the same each time."""
    ms.set_context(mode=ms.GRAPH_MODE)
    seed_everything()
    network = MLP()
    return network, cross_entropy(), momentum(network.trainable_params())


@pytest.mark.parametrize(
    "name",
    [
        "lenet_bn", "mlp_adam_weight_decay", "mlp_rmsprop_centered", "mlp_adam_rate_list", "mlp_half_compute",
        "mlp_half_weights", "two_inputs",
    ],
)  # fmt: skip
def test_a_live_cell_is_trained_in_place_as_natively(name: str) -> None:
    case = CASES[name]
    batches = case.batches(3)
    built = build(case)
    session = bc.Session(built.train_step, inputs=batches[0])
    losses = [session.step(*batch).loss for batch in batches]
    native_losses, state = native.train_steps(case, batches)
    assert losses == native_losses
    # Weights, statistics, slots and hyperparameters of the user's own cells; those of the session are the same ones.
    assert_equal(state_of(built.train_step), state)
    assert_equal(session.state(), state)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_accumulation_trains_the_network_that_the_user_holds(mode: int, tmp_path: Path) -> None:
    case = CASES["lenet_bn"]
    cycles = case.cycles(2, 2)
    reference = native.train_accumulated(case, cycles)
    initial = native.initial_state(case)
    seed_everything()
    network, loss = case.network(), case.loss()
    assert isinstance(network, LeNetBatchNorm)
    optimizer = case.optimizer(network.trainable_params())
    ms.set_context(mode=mode)
    try:
        session = bc.Session(
            bc.compile(network, "gradient-accumulation{steps=2}", loss, optimizer, *map(ms.Tensor, cycles[0][0]))
        )
        images = ms.Tensor(cycles[0][0][0])
        before = network(images).asnumpy()
        data = [np.concatenate(column) for column in zip(*(batch for cycle in cycles for batch in cycle), strict=True)]
        session.fit(tuple(data), shuffle=False)
        ours = {**state_of(network), **state_of(optimizer)}
        assert_close(ours, reference.states[-1], initial, 1e-5, reference.noise())
        assert not network.training, "capturing left the cells in the mode that they were in"
        # Evaluation sees it, MindSpore's own and ours, and so do checkpoints.
        after = network(images).asnumpy()
        assert not np.allclose(before, after)
        np.testing.assert_allclose(session.predict(images), after, rtol=1e-5, atol=1e-6)
        result = Model(network, loss, metrics={"loss"}).eval(dataset(*data).batch(4), dataset_sink_mode=False)
        ms.save_checkpoint(network, str(tmp_path / "network.ckpt"))
        fresh = case.network()
        ms.load_param_into_net(fresh, ms.load_checkpoint(str(tmp_path / "network.ckpt")))
        again = Model(fresh, loss, metrics={"loss"}).eval(dataset(*data).batch(4), dataset_sink_mode=False)
        assert result == again
        # What the user loads into the network, the session trains from.
        ms.load_param_into_net(network, {n: ms.Parameter(ms.Tensor(v), name=n) for n, v in initial.items()})
        assert_equal({n: v for n, v in session.state().items() if n in state_of(network)}, state_of(network))
    finally:
        ms.set_context(mode=ms.GRAPH_MODE)


def test_model_fit_trains_and_evaluates_the_live_network() -> None:
    network, loss, optimizer = parts()
    case = CASES["mlp"]
    batches = case.batches(6)
    session = bc.Session(bc.capture(network, loss, optimizer, *batches[0]))
    data = dataset(*(np.concatenate(column) for column in zip(*batches, strict=True))).batch(4)
    evaluation = nn.WithEvalCell(network, loss)
    model = Model(session.cell, eval_network=evaluation, eval_indexes=[0, 1, 2], metrics={"acc", "loss"})
    model.fit(1, data, data, dataset_sink_mode=False)
    _, state = native.train_steps(case, batches)
    assert_equal({**state_of(network), **state_of(optimizer)}, state)
    fresh = MLP()
    ms.load_param_into_net(fresh, {p.name: ms.Parameter(ms.Tensor(state[p.name])) for p in fresh.get_parameters()})
    expected = Model(fresh, loss, metrics={"acc", "loss"}).eval(data, dataset_sink_mode=False)
    assert model.eval(data, dataset_sink_mode=False) == expected


def test_dynamic_batch_and_a_network_that_returns_its_loss() -> None:
    network, loss, optimizer = parts()
    session = bc.Session(
        bc.capture(
            nn.WithLossCell(network, loss),
            None,
            optimizer,
            ms.Tensor(shape=[None, 8], dtype=ms.float32),
            ms.Tensor(shape=[None], dtype=ms.int32),
        )
    )
    for size in (3, 5):
        before = network.hidden.weight.asnumpy().copy()
        assert session.step(*CASES["mlp"].batch(np.random.default_rng(0), size)).updated
        assert not np.array_equal(before, network.hidden.weight.asnumpy())


def test_sources_of_a_program_are_one(exported: Any) -> None:
    path = exported("mlp")
    network, loss, optimizer = parts()
    cell = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer)
    pipeline = "gradient-accumulation{steps=2}"
    programs = [
        bc.compile(str(path), pipeline),
        bc.compile(bc.load(path), pipeline),
        bc.compile(cell, pipeline, *MLP_BATCH),
        bc.compile(bc.capture(network, loss, optimizer, *MLP_BATCH), pipeline),
    ]
    states = []
    for program in programs:
        session = bc.Session(program, share=False)
        for batch in CASES["mlp"].batches(2):
            session.step(*batch)
        states.append(session.state())
    for state in states[1:]:
        assert_equal(state, states[0])
    assert_equal(state_of(network), {n: v for n, v in native.initial_state("mlp").items() if n in state_of(network)})
    with pytest.raises(bc.Error, match="inputs were given with the file"):
        bc.Session(path, inputs=MLP_BATCH)


def test_sessions_share_a_live_network_or_have_weights_of_their_own(caplog: Any, tmp_path: Path) -> None:
    network, loss, optimizer = parts()
    program = bc.capture(network, loss, optimizer, *MLP_BATCH)
    initial = state_of(network)
    own = bc.Session(program, share=False)
    first = bc.Session(program)
    assert "another session" not in caplog.text
    own.step(*MLP_BATCH)
    assert_equal(state_of(network), initial)
    first.step(*MLP_BATCH)
    assert_equal(first.state(), own.state())
    with caplog.at_level(logging.WARNING, "boost_compile"):
        second = bc.Session(bc.compile(program, "dead-code-elimination"))
    assert "another session trains the same network" in caplog.text
    first.save(tmp_path / "state.ckpt")
    second.step(*MLP_BATCH)
    first.load(tmp_path / "state.ckpt")  # into the network, so the second session goes on from there too
    second.step(*MLP_BATCH)
    own.step(*MLP_BATCH)
    assert_equal({n: first.state()[n] for n in initial}, {n: own.state()[n] for n in initial})
    # Verification tries things out, but not on the user's network.
    trained = state_of(network)
    with pytest.warns(bc.passes.NoMatchWarning):
        compiled = bc.compile(program, "gradient-accumulation{steps=2},less-bn?")
    assert bc.verify(program, compiled, bisect=False).verified, "an optional pass without a match promises nothing"
    assert_equal(state_of(network), trained)
    # The program keeps what was captured; state that was given by hand goes into the network.
    program.save(str(tmp_path / "program.mindir"))
    assert_equal({n: bc.load(tmp_path / "program.mindir").state[n].initial for n in initial}, initial)
    bc.Session(program.with_values({"output.bias": np.ones(4, np.float32)}))
    assert network.output.bias.asnumpy().tolist() == [1, 1, 1, 1]


def test_a_state_is_copied_back_where_it_is_not_shared(exported: Any, caplog: Any) -> None:
    session = bc.Session(exported("mlp"))
    session.step(*MLP_BATCH)
    network, _, optimizer = parts()
    assert session.update(network) == [parameter.name for parameter in network.get_parameters()]
    assert session.update(optimizer)
    assert "was updated, but" not in caplog.text
    assert_equal({**state_of(network), **state_of(optimizer)}, session.state())
    other = LeNetBatchNorm()
    with pytest.raises(bc.Error, match="no Parameter of this LeNetBatchNorm is state of the program"):
        session.update(other)
    other = MLP()
    other.output = nn.Dense(16, 5)
    other.update_parameters_name()
    before = state_of(other)
    with pytest.raises(bc.Error, match=r"'output.weight' is float32\[4, 16\] in the session and float32\[5, 16\]"):
        session.update(other)
    assert_equal(state_of(other), before)
    with pytest.raises(bc.Error, match="a dict has no Parameters"):
        session.update({})
    with caplog.at_level(logging.WARNING, "boost_compile"):
        session.update(network.hidden)
    assert "the network lacks output.weight, output.bias" in caplog.text


def test_a_pass_that_makes_another_network_says_so(caplog: Any) -> None:
    network, loss, optimizer = parts()
    with caplog.at_level(logging.WARNING, "boost_compile"):
        session = bc.Session(bc.compile(network, "normalised-head", loss, optimizer, *MLP_BATCH))
    assert "the passes made another network of the live one" in caplog.text
    assert "session.predict" in caplog.text
    session.step(*MLP_BATCH)
    assert np.array_equal(session.state()["hidden.weight"], network.hidden.weight.asnumpy())


def test_batch_norms_that_a_pass_removed_stay_as_they_were(caplog: Any) -> None:
    case = CASES["residual_upstream"]
    built = build(case)
    batch = case.batches(1)[0]
    before = state_of(built.train_step)
    with caplog.at_level(logging.WARNING, "boost_compile"):
        session = bc.Session(bc.compile(built.train_step, "less-bn", *batch))
    removed = [name for name in before if name not in session.program.state]
    assert any(f"'{name}' is removed" in caplog.text for name in removed)
    session.step(*batch)
    after = state_of(built.train_step)
    assert all(np.array_equal(before[name], after[name]) for name in removed)
    assert_equal({n: after[n] for n in session.state() if n in after}, session.state())
    caplog.clear()
    session.update(built.train_step)
    assert "the session lacks" in caplog.text


class OwnStep(nn.Cell):
    """A training cell with an optimizer that keeps its learning rate in no Cell."""

    def __init__(self, network: nn.Cell, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = nn.WithLossCell(network, loss)
        self.optimizer = experimental.SGD(network.trainable_params(), lr=0.1)
        self.weights = ms.ParameterTuple(network.trainable_params())
        self.gradients = ops.value_and_grad(self.network, None, self.weights)

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        return ops.depend(loss, self.optimizer(gradients))


def test_a_parameter_of_no_cell_is_named_and_the_advice_helps() -> None:
    network, loss, _ = parts()
    cell = OwnStep(network, loss)
    with pytest.raises(bc.Error, match=r"'learning_rate_group_0' is part of no Cell.*insert_param_to_cell"):
        bc.capture(cell, *MLP_BATCH)
    for group in cell.optimizer.param_groups:
        cell.optimizer.insert_param_to_cell(group["lr"].name, group["lr"])
    before = network.output.weight.asnumpy().copy()
    bc.Session(bc.compile(bc.capture(cell, *MLP_BATCH), "overflow-check")).step(*MLP_BATCH)
    assert np.any(network.output.weight.asnumpy() != before)


def wrong() -> dict[str, tuple[tuple[Any, ...], str]]:
    network, loss, optimizer = parts()
    x, y = MLP_BATCH
    return {
        "a network alone": ((network, x), r"MLP is a forward graph.*bc\.capture\(network, loss, optimizer"),
        "a network with labels": ((network, x, y), r"MLP cannot be compiled.*bc\.capture\(network, loss, optimizer"),
        "a network with its loss": ((nn.WithLossCell(network, loss), x, y), "MLP is a forward graph"),
        "no inputs": ((network, loss, optimizer), "MLP: the inputs are missing"),
        "one input": ((network, loss, optimizer, x), r"cannot be compiled for float32\[4, 8\]: .*\. Do the inputs fit"),
        "float64": ((network, loss, optimizer, x.astype(np.float64), y), r"array\.astype\('float32'\)"),
        "a text": ((network, loss, optimizer, "x", y), r"this str is no input \(number 0\)"),
        "a class": ((MLP, loss, optimizer, x, y), r"Make one: MLP\("),
        "the class of an optimizer": ((network, loss, nn.Momentum, x, y), "the class Momentum is no instance"),
        "the class of a loss": ((network, nn.MSELoss, optimizer, x, y), "the class MSELoss is no loss"),
        "another order": ((network, optimizer, loss, x, y), "optimizer is argument 2, but the order is network, loss"),
        "an optimizer first": ((optimizer, network, loss, x, y), "The order is network, loss, optimizer"),
        "an optimizer of experimental": (
            (network, loss, experimental.SGD(network.trainable_params(), lr=0.1), x, y),
            "SGD is an optimizer that MindSpore cannot export",
        ),
        "no optimizer": ((network, loss, x, y), "no optimizer stands behind it"),
        "another network's": ((network, loss, parts()[2], x, y), "updates no Parameter of MLP"),
        "a Model": ((Model(network, loss, optimizer),), r"model\.train_network"),
        "a function": ((print, x), "the function print is no Cell that trains"),
        "a path": (("model.mindir",), r"bc\.load, bc\.compile and bc\.Session take paths"),
        "a program": ((bc.capture(network, loss, optimizer, x, y),), "a Program already"),
    }


def test_a_wrong_argument_is_one_error_that_says_what_to_pass() -> None:
    for arguments, message in wrong().values():
        with pytest.raises(bc.Error, match=message):
            bc.capture(*arguments)


SCRIPT = """
import mindspore as ms
import numpy as np
from mindspore import nn

import boost_compile as bc


class MyNetwork(nn.Cell):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Dense(8, 64)
        self.output = nn.Dense(64, 4)

    def construct(self, x):
        return self.output(nn.ReLU()(self.hidden(x)))


ms.set_seed(1)
rng = np.random.default_rng(0)
train_images = rng.standard_normal((256, 8)).astype(np.float32)
train_labels = train_images[:, :4].argmax(1).astype(np.int32)
images, labels = ms.Tensor(train_images[:16]), ms.Tensor(train_labels[:16])
network = MyNetwork()
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.01, momentum=0.9)
"""
TOLD = """
print("loss:", float(loss(network(images), labels).asnumpy()), float(loss(MyNetwork()(images), labels).asnumpy()))
"""


def test_each_block_of_the_readme_is_a_script(tmp_path: Path) -> None:
    """Those that train do: with the same seed, their loss is less than that of a network that nobody trained."""
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    running = []
    for k, block in enumerate(blocks):
        folder = tmp_path / str(k)
        folder.mkdir()
        (folder / "train.py").write_text(f"{SCRIPT}ms.set_seed(1)\n{block}\nms.set_seed(1){TOLD}", encoding="utf-8")
        command = [sys.executable, "train.py"]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder))
    for k, (block, process) in enumerate(zip(blocks, running, strict=True)):
        said, failed = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"{block}\n{failed}"
        if "ms.export" in block:
            assert bc.load(tmp_path / str(k) / "model.mindir").state
        else:
            after, before = map(float, said.rpartition("loss:")[2].split())
            assert after < before, block
    assert "bc.enable" in blocks[0]


def test_a_class_that_no_file_holds_is_refused() -> None:
    code = "class Net(nn.Cell):\n    def construct(self, x):\n        return x * self.weight\n"
    names: dict[str, Any] = {"nn": nn, "__name__": "__main__"}
    exec(code, names)
    bare = names["Net"]()
    bare.weight = ms.Parameter(np.ones(8, np.float32), name="weight")
    said = r"Net: MindSpore compiles the source of a Cell.*import them \(in a notebook"
    with pytest.raises(bc.Error, match=re.compile(said, re.DOTALL)):
        bc.capture(bare, nn.MSELoss(), nn.SGD([bare.weight], 0.1), MLP_BATCH[0], MLP_BATCH[0])
