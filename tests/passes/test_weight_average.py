"""Averages of weights, against MindSpore's own arithmetic on the weights of native training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.names import average_of
from mindspore import nn, ops

import boost_compile as bc
from tests.boundary import slow
from tests.compare import State, assert_equal
from tests.native import initial_state, train_steps
from tests.networks import CASES, names
from tests.passes.two_compilations import assert_found_later

Exported = Callable[[str], Path]

FEW = ["mlp_adam", "lenet_bn_decay", "mlp_half_weights", "branch_state"]
MANY = [n for n in ["gpt_sgd", *names("optimizer", runs_on_cpu=True)[:20]] if n not in FEW]
STEPS = 3


_move = ops.MultitypeFuncGraph("move")


@_move.register("Number", "Tensor", "Tensor")
def _move_average(decay, average, weight):
    return ops.assign(average, average * decay + weight.astype(ms.float32) * (1 - decay))


class Averages(nn.Cell):
    """Moving averages of weights, as one writes them in MindSpore."""

    def __init__(self, weights: list[np.ndarray], decay: float) -> None:
        super().__init__()
        wide = [ms.Tensor(weight.astype(np.float32)) for weight in weights]
        self.averages = ms.ParameterTuple(ms.Parameter(w, name=f"average{i}") for i, w in enumerate(wide))
        self.decay = decay
        self.map = ops.HyperMap()

    def construct(self, weights):
        return self.map(ops.partial(_move, self.decay), self.averages, weights)


@pytest.mark.parametrize("name", [*FEW, *slow(*MANY)])
def test_a_moving_average_has_the_bits_of_the_native_cell(exported: Exported, name: str) -> None:
    batches = CASES[name].batches(STEPS)
    source = bc.load(exported(name))
    program = bc.compile(source, "weight-average{decay=0.9}")
    averaged = [n for n in source.state if average_of(n) in program.state]
    assert averaged
    session = bc.Session(program, seed=0)
    start = initial_state(name)
    cell = Averages([start[n] for n in averaged], 0.9)
    for batch in batches:
        session.step(*batch)
        ours = session.state()
        cell(tuple(ms.Tensor(ours[n]) for n in averaged))
        wanted = {average_of(n): p.asnumpy() for n, p in zip(averaged, cell.averages, strict=True)}
        assert_equal({n: ours[n] for n in wanted}, wanted)
    natively = train_steps(name, batches)[1]
    assert_equal({n: ours[n] for n in natively}, natively)


def test_lookahead_goes_on_from_the_slow_weights(exported: Exported) -> None:
    """Between two steps of the slow weights the training is the native one from there."""
    batches = CASES["mlp_adam"].batches(6)
    source = bc.load(exported("mlp_adam"))
    weights = [n for n, v in source.state.items() if v.role == "weight"]
    program = bc.compile(source, "weight-average{kind=lookahead,every=3,decay=0.25}")
    assert not program.reports[-1].preserves
    ours, native = bc.Session(program), bc.Session(source)
    slow = {n: source.state[n].initial for n in weights}
    for number, batch in enumerate(batches, 1):
        ours.step(*batch)
        native.step(*batch)
        if number % 3 == 0:
            after = native.state()
            slow = {n: slow[n] * np.float32(0.25) + after[n] * np.float32(0.75) for n in weights}
            native.load_state(slow, strict=False)
        state: State = ours.state()
        assert_equal({n: state[n] for n in weights}, native.state(weights))
        assert_equal({n: state[average_of(n)] for n in weights}, slow)


@pytest.mark.parametrize(
    "later", ["gradient-accumulation{steps=2}", "overflow-check", "gradient-freeze{groups=2,type=round-robin}"]
)
@pytest.mark.parametrize("options", ["decay=0.9", "kind=swa,warmup=1,every=2", "kind=lookahead,every=2"])
def test_passes_of_a_later_compilation_find_the_same_training(exported: Exported, later: str, options: str) -> None:
    assert_found_later(exported("mlp_adam"), f"weight-average{{{options}}}", later)


def test_predictions_exports_and_files_take_the_averages(exported: Exported, tmp_path: Path) -> None:
    case = CASES["lenet_bn_adam"]
    source = bc.load(exported("lenet_bn_adam"))
    session = bc.Session(bc.compile(source, "weight-average{decay=0.5}"))
    images, labels = case.batches(1)[0]
    for batch in case.batches(3):
        session.step(*batch)
    trained, network = session.predict(images), bc.Session(source)
    session.weights = "average"
    averaged = session.predict(images)
    assert not np.array_equal(trained, averaged)
    session.save_weights(tmp_path / "averages.ckpt")
    session.save(tmp_path / "state.safetensors")
    network.load_state(tmp_path / "averages.ckpt", strict=False)
    np.testing.assert_array_equal(network.predict(images), averaged)
    assert session.evaluate((images, labels)) == network.evaluate((images, labels))
    again = bc.Session(session.program)
    again.load_state(tmp_path / "state.safetensors")
    np.testing.assert_array_equal(again.predict(images), trained)
    session.weights = "trained"
    np.testing.assert_array_equal(session.predict(images), trained)
    with pytest.raises(PassError, match="keeps no averages"):
        network.weights = "average"
