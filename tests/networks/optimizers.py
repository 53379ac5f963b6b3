"""Every optimizer of mindspore.nn that exports, on the MLP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import nn

from .case import Case
from .mlp import MLP, classes, cross_entropy, momentum

Parameters = list[ms.Parameter]
OPTIMIZERS: dict[str, Callable[[Parameters], nn.Cell]] = {
    "momentum_decay": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=1e-3),
    "nesterov": lambda p: nn.Momentum(p, 0.1, 0.9, use_nesterov=True),
    "nesterov_decay": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=1e-3, use_nesterov=True),
    "sgd": lambda p: nn.SGD(p, 0.1),
    "sgd_momentum": lambda p: nn.SGD(p, 0.1, momentum=0.9),
    "sgd_decay": lambda p: nn.SGD(p, 0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: nn.Adam(p, 0.01),
    "adam_decay": lambda p: nn.Adam(p, 0.01, weight_decay=1e-3),
    "adam_nesterov": lambda p: nn.Adam(p, 0.01, use_nesterov=True),
    "amsgrad": lambda p: nn.Adam(p, 0.01, use_amsgrad=True),
    "amsgrad_decay": lambda p: nn.Adam(p, 0.01, use_amsgrad=True, weight_decay=1e-3),
    "adam_lazy": lambda p: nn.Adam(p, 0.01, use_lazy=True),
    "adam_offload": lambda p: nn.Adam(p, 0.01, use_offload=True),
    "lazy_adam": lambda p: nn.LazyAdam(p, 0.01),
    "lazy_adam_decay": lambda p: nn.LazyAdam(p, 0.01, weight_decay=1e-3),
    "adam_weight_decay": lambda p: nn.AdamWeightDecay(p, 0.01, weight_decay=0.01),
    "adam_weight_decay_none": lambda p: nn.AdamWeightDecay(p, 0.01),
    "adam_weight_decay_decomposed": lambda p: decomposed(nn.AdamWeightDecay(p, 0.01, weight_decay=0.01)),
    "rmsprop": lambda p: nn.RMSProp(p, 0.01),
    "rmsprop_decay": lambda p: nn.RMSProp(p, 0.01, momentum=0.9, weight_decay=1e-3),
    "rmsprop_centered": lambda p: nn.RMSProp(p, 0.01, centered=True),
    "rmsprop_centered_decay": lambda p: nn.RMSProp(p, 0.01, centered=True, weight_decay=1e-3),
    "adagrad": lambda p: nn.Adagrad(p, learning_rate=0.01),
    "adagrad_decay": lambda p: nn.Adagrad(p, learning_rate=0.01, weight_decay=1e-3),
    "ftrl": lambda p: nn.FTRL(p, learning_rate=0.01),
    "ftrl_decay": lambda p: nn.FTRL(p, learning_rate=0.01, weight_decay=1e-3),
    "proximal_adagrad": lambda p: nn.ProximalAdagrad(p, learning_rate=0.01),
    "proximal_adagrad_decay": lambda p: nn.ProximalAdagrad(p, learning_rate=0.01, weight_decay=1e-3),
    "adafactor": lambda p: nn.AdaFactor(p),
    "adafactor_fixed_rate": lambda p: nn.AdaFactor(
        p, learning_rate=0.01, scale_parameter=False, relative_step=False, weight_decay=1e-3
    ),
    "adamax": lambda p: nn.AdaMax(p, 0.01),
    "adamax_decay": lambda p: nn.AdaMax(p, 0.01, weight_decay=1e-3),
    "adadelta": lambda p: nn.Adadelta(p, 0.01),
    "adadelta_decay": lambda p: nn.Adadelta(p, 0.01, weight_decay=1e-3),
    "asgd": lambda p: nn.ASGD(p, 0.01),
    "asgd_decay": lambda p: nn.ASGD(p, 0.01, weight_decay=1e-3),
    "rprop": lambda p: nn.Rprop(p, 0.01),
    "rprop_decay": lambda p: nn.Rprop(p, 0.01, weight_decay=1e-3),
    # Learning rates that change: a list indexed by the step, and schedules computed from it.
    "momentum_rate_list": lambda p: nn.Momentum(p, nn.exponential_decay_lr(0.1, 0.9, 10, 2, 1), 0.9),
    "momentum_rate_schedule": lambda p: nn.Momentum(p, nn.ExponentialDecayLR(0.1, 0.9, 4), 0.9),
    "adam_rate_list": lambda p: nn.Adam(p, nn.cosine_decay_lr(0.001, 0.01, 10, 2, 4)),
    "adam_rate_schedule": lambda p: nn.Adam(p, nn.CosineDecayLR(0.001, 0.01, 8)),
    "adam_weight_decay_warmup": lambda p: nn.AdamWeightDecay(p, nn.WarmUpLR(0.01, 4), weight_decay=0.01),
    # Parameter groups.
    "momentum_groups": lambda p: nn.Momentum(groups(p, 0.1, 0.05), 0.1, 0.9),
    "adam_groups": lambda p: nn.Adam(groups(p, 0.01, 0.005), 0.01),
    "adam_weight_decay_groups": lambda p: nn.AdamWeightDecay(groups(p, 0.01, 0.005), 0.01, weight_decay=0.02),
    "momentum_groups_rate_list": lambda p: nn.Momentum(groups(p, [0.1, 0.09, 0.08], [0.05, 0.04, 0.03]), 0.1, 0.9),
    "momentum_groups_ordered": lambda p: nn.Momentum([*groups(p, 0.1, 0.05), {"order_params": p}], 0.1, 0.9),
}

EXPORT_ONLY: dict[str, Callable[[Parameters], nn.Cell]] = {
    "lamb": lambda p: nn.Lamb(p, 0.01),
    "lamb_decay": lambda p: nn.Lamb(p, 0.01, weight_decay=0.01),
    "lars": lambda p: nn.LARS(nn.Momentum(p, 0.1, 0.9)),
    "lars_decay": lambda p: nn.LARS(nn.Momentum(p, 0.1, 0.9, weight_decay=1e-3)),
    "momentum_centralized": lambda p: nn.Momentum([{"params": p, "grad_centralization": True}], 0.1, 0.9),
}


def decomposed(optimizer: nn.Cell) -> nn.Cell:
    """The form that AdamWeightDecay takes off the CPU: plain arithmetic and three assignments a weight."""
    optimizer.use_fused_opt = False
    return optimizer


Rate = float | list[float]


def groups(parameters: Parameters, weights_rate: Rate, biases_rate: Rate) -> list[dict[str, Any]]:
    """Weights with decay and one learning rate, biases without decay and with another."""
    weights = [p for p in parameters if p.name.endswith("weight")]
    biases = [p for p in parameters if not p.name.endswith("weight")]
    return [{"params": weights, "lr": weights_rate, "weight_decay": 0.01}, {"params": biases, "lr": biases_rate}]


def scaled_by_1024(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    return nn.TrainOneStepCell(network, optimizer, sens=1024.0)


def fixed_loss_scale(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    return nn.TrainOneStepWithLossScaleCell(network, optimizer, scale_sense=ms.Tensor(1024.0, ms.float32))


def dynamic_loss_scale(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    manager = nn.DynamicLossScaleUpdateCell(loss_scale_value=1024, scale_factor=2, scale_window=10)
    return nn.TrainOneStepWithLossScaleCell(network, optimizer, scale_sense=manager)


def scaled_momentum(parameters: Parameters) -> nn.Cell:
    return nn.Momentum(parameters, 0.1, 0.9, loss_scale=1024.0)


def adam(parameters: Parameters) -> nn.Cell:
    return nn.Adam(parameters, 0.01)


_OPTIMIZER = frozenset({"optimizer"})
_LOSS_SCALE = frozenset({"loss_scale"})

CASES = [
    *(Case(f"mlp_{k}", MLP, make, classes, cross_entropy, tags=_OPTIMIZER) for k, make in OPTIMIZERS.items()),
    *(
        Case(f"mlp_{k}", MLP, make, classes, cross_entropy, tags=_OPTIMIZER, runs_on_cpu=False)
        for k, make in EXPORT_ONLY.items()
    ),
    Case("mlp_sens", MLP, scaled_momentum, classes, cross_entropy, scaled_by_1024, tags=_LOSS_SCALE),
    *(
        Case(f"mlp_{k}", MLP, make, classes, cross_entropy, wrap, tags=_LOSS_SCALE, runs_on_cpu=False)
        for k, make, wrap in (
            ("loss_scale_fixed", momentum, fixed_loss_scale),
            ("loss_scale_dynamic", momentum, dynamic_loss_scale),
            ("loss_scale_dynamic_adam", adam, dynamic_loss_scale),
        )
    ),
]
