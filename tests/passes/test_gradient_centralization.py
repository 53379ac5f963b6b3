"""Gradient centralization: no mean over all axes but the first, behind the decay that optimizers add to gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import reference
from tests.boundary import FIRST, assert_same_training, check, slow, train, train_file
from tests.networks import CASES
from tests.reference import Clip, LossScale

Exported = Callable[[str], Path]

CENTRALIZE = "gradient-centralization"

MLP = {"hidden.weight", "output.weight"}
LENET = {"conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"}
BLOCK = {"attention.query", "attention.key", "attention.value", "attention.output", "up", "down"}
GPT = {f"blocks.{i}.{layer}.weight" for i in (0, 1) for layer in BLOCK}
TAGGED = {
    "mlp_sgd": MLP,
    "lenet_bn_sgd": LENET,
    "grouped_conv_sgd": {"stem.weight", "pointwise.weight", "head.weight"},
    "gpt_sgd": {*GPT, "head.weight"},
}
"""By network: what a convolution or a matrix product consumes, without depthwise and grouped convolutions."""

OPTIMIZERS = ["mlp_momentum_decay", "mlp_sgd_decay", "mlp_adam_decay"]
OPTIMIZERS += ["mlp_asgd_decay", "mlp_rprop_decay", "mlp_momentum_groups"]
OPTIMIZERS += slow("mlp_rmsprop_decay", "mlp_adagrad_decay", "mlp_ftrl_decay")
OPTIMIZERS += slow("mlp_nesterov_decay", "mlp_amsgrad_decay", "mlp_lazy_adam_decay", "mlp_rmsprop_centered_decay")
OPTIMIZERS += slow(
    "mlp_proximal_adagrad_decay", "mlp_adamax_decay", "mlp_adadelta_decay", "mlp_adam_groups", "mlp_adam"
)
DECOUPLED = ["mlp_adam_weight_decay", "mlp_adam_weight_decay_decomposed", "mlp_adafactor", "mlp_adafactor_fixed_rate"]


def accumulating(steps: int, split: str = "apply") -> str:
    return f"gradient-accumulation{{steps={steps},split={split}}}"


def mean(values: np.ndarray) -> np.ndarray:
    return values.astype("f8").mean(axis=tuple(range(1, values.ndim)))


@pytest.mark.parametrize("name", TAGGED)
def test_the_first_step_of_plain_sgd_has_no_mean(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(1, 2)
    [plain] = train(bc.compile(source, accumulating(2)), source, data)
    [ours] = train(bc.compile(source, f"{accumulating(2)},{CENTRALIZE}"), source, data)
    start = {k: np.array(v) for k, v in bc.Session(source).state().items()}
    weights = [n for n, variable in source.state.items() if variable.role == "weight"]
    assert TAGGED[name] < set(weights)
    had_a_mean = []
    for weight in weights:
        step, before = ours.state[weight] - start[weight], plain.state[weight] - start[weight]
        if weight not in TAGGED[name]:
            np.testing.assert_array_equal(step, before, err_msg=weight)
            continue
        size = np.abs(before).max()
        rounding = np.spacing(np.abs(start[weight]).max()) + 1e-6 * size
        assert np.abs(mean(step)).max() <= rounding, weight
        had_a_mean.append(np.abs(mean(before)).max() > 10 * rounding)
        np.testing.assert_allclose(step, reference.centered(before), rtol=0, atol=4 * rounding, err_msg=weight)
    # Not all have: the gradient of what follows a LayerNorm has none by itself.
    assert any(had_a_mean)


@pytest.mark.parametrize("name", TAGGED)
def test_the_report_names_what_it_left_alone(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    program = bc.compile(source, CENTRALIZE)
    report = program.reports[0]
    assert report.changed == len(TAGGED[name])
    assert not {miss.site for miss in report.misses} & TAGGED[name]


@pytest.mark.parametrize("name", [*OPTIMIZERS, *DECOUPLED])
def test_every_optimizer(exported: Exported, name: str) -> None:
    """Behind decay where the optimizer adds it to the gradient, before the update where decay is decoupled or in the
    kernel."""
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(2, 1)
    run = reference.train(name, data, centralize=MLP)
    check(train(bc.compile(source, CENTRALIZE), source, data), run, source)


LSTM = {"lstm.weight_ih_l0", "lstm.weight_hh_l0", "head.weight"}


def test_a_recurrent_layer(exported: Exported) -> None:
    """Its weights are those of products, though the layer takes them joined; its biases have one axis."""
    source = bc.load(str(exported("lstm")))
    program = bc.compile(source, f"{accumulating(2)},{CENTRALIZE}")
    assert {name for name, variable in program.state.items() if "centralize" in variable.info} == LSTM
    data = CASES["lstm"].cycles(2, 2)
    run = reference.train("lstm", data, centralize=LSTM)
    # Adam divides elements near zero by their own size.
    check(train(program, source, data), run, source, first=1e-4)


def test_an_embedding_says_why_and_how(exported: Exported) -> None:
    source = bc.load(str(exported("gpt")))
    [report, *_] = bc.compile(source, CENTRALIZE).reports
    [reason] = [miss.reason for miss in report.misses if miss.site == "tokens.embedding_table"]
    assert "an embedding (embeddings=true tags it)" in reason
    asked = 'parameter-groups{match=["tokens.*"],centralize=true}'
    program = bc.compile(source, f"tag-gradient-centralization,{asked},lower-gradient-centralization")
    assert program.state["tokens.embedding_table"].info["centralize"] == [1]
    program = bc.compile(source, "tag-gradient-centralization{embeddings=true},lower-gradient-centralization")
    assert program.state["tokens.embedding_table"].info["centralize"] == [1]


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["mlp_adam_decay", "lenet_bn_decay", *slow("gpt")])
def test_with_accumulation(exported: Exported, name: str, split: str) -> None:
    """The mean is taken of the averaged gradient, behind decay and clipping."""
    tagged = {"mlp_adam_decay": MLP, "lenet_bn_decay": LENET, "gpt": TAGGED["gpt_sgd"]}[name]
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(3, 3)
    run = reference.train(name, data, centralize=tagged)
    check(train(bc.compile(source, f"{accumulating(3, split)},{CENTRALIZE}"), source, data), run, source)


@pytest.mark.parametrize("name", ["mlp_momentum_decay", "lenet_bn_decay", "mlp_adam_decay"])
def test_behind_clipping_and_loss_scale(exported: Exported, name: str) -> None:
    tagged = LENET if name.startswith("lenet") else MLP
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(3, 2)
    pipeline = f"{accumulating(2)},loss-scale{{mode=static,init=256}},clip-gradients{{limit=0.05}},{CENTRALIZE}"
    clip, scale = Clip("global-norm", 0.05), LossScale(256.0)
    run = reference.train(name, data, centralize=tagged, clip=clip, loss_scale=scale)
    # Centralization leaves some elements near zero, and Adam divides them by their own size.
    check(train(bc.compile(source, pipeline), source, data), run, source, first=1e-4 if "adam" in name else FIRST)


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_the_file_alone_trains_as_the_session_does(exported: Exported, tmp_path: Path, split: str) -> None:
    source = bc.load(str(exported("lenet_bn_decay")))
    program = bc.compile(source, f"{accumulating(2, split)},{CENTRALIZE}")
    program.save(str(tmp_path / "whole.mindir"))
    data = CASES["lenet_bn_decay"].cycles(3, 2)
    assert_same_training(train_file(tmp_path / "whole.mindir", source, data), train(program, source, data))
