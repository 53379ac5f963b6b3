"""Gradient centralization: no mean over all axes but the first, behind the decay that optimizers add to gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import reference
from tests.boundary import check, slow, train
from tests.networks import CASES

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

OPTIMIZERS = ["mlp_momentum_decay", "mlp_adam_decay", "mlp_asgd_decay", "mlp_momentum_groups"]
OPTIMIZERS += slow("mlp_sgd_decay", "mlp_rprop_decay", "mlp_rmsprop_decay", "mlp_adagrad_decay", "mlp_ftrl_decay")
OPTIMIZERS += slow("mlp_nesterov_decay", "mlp_amsgrad_decay", "mlp_lazy_adam_decay", "mlp_rmsprop_centered_decay")
OPTIMIZERS += slow(
    "mlp_proximal_adagrad_decay", "mlp_adamax_decay", "mlp_adadelta_decay", "mlp_adam_groups", "mlp_adam"
)
DECOUPLED = ["mlp_adam_weight_decay", "mlp_adam_weight_decay_decomposed", "mlp_adafactor"]
DECOUPLED += slow("mlp_adafactor_fixed_rate")


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


@pytest.mark.parametrize("name", [*OPTIMIZERS, *DECOUPLED])
def test_every_optimizer(exported: Exported, name: str) -> None:
    """Behind decay where the optimizer adds it to the gradient, before the update where decay is decoupled or in the
    kernel."""
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(2, 1)
    run = reference.train(name, data, centralize=MLP)
    check(train(bc.compile(source, CENTRALIZE), source, data), run, source)


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
