"""Random losses, optimizers and training cells, and whole plans."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from .build import LOSSES
from .grammar import networks
from .pipelines import pipelines
from .plan import Network, Options, Part, Plan

RATES = ("constant", "constant", "exponential_list", "cosine_list", "exponential", "cosine", "polynomial", "inverse",
         "warm_up")  # fmt: skip

_DECAY = st.sampled_from((0.0, 0.02))
OPTIMIZERS: dict[str, tuple[float | None, dict[str, st.SearchStrategy[Any]]]] = {
    "Momentum": (
        0.05,
        {"momentum": st.sampled_from((0.9, 0.5)), "weight_decay": _DECAY, "use_nesterov": st.booleans()},
    ),
    "SGD": (0.05, {"momentum": st.sampled_from((0.0, 0.9)), "dampening": st.just(0.0), "weight_decay": _DECAY}),
    "Adam": (
        0.01,
        {"weight_decay": _DECAY, "use_nesterov": st.booleans(), "beta1": st.sampled_from((0.9, 0.5))},
    ),
    "AdamWeightDecay": (0.01, {"weight_decay": _DECAY, "eps": st.sampled_from((1e-6, 1e-3))}),
    "LazyAdam": (0.01, {"weight_decay": _DECAY}),
    "RMSProp": (
        0.01,
        {"weight_decay": _DECAY, "momentum": st.sampled_from((0.0, 0.9)), "centered": st.booleans()},
    ),
    "Adagrad": (0.02, {"weight_decay": _DECAY, "update_slots": st.just(True)}),
    "FTRL": (0.02, {"weight_decay": _DECAY, "l1": st.sampled_from((0.0, 0.01)), "l2": st.sampled_from((0.0, 0.01))}),
    "ProximalAdagrad": (0.02, {"weight_decay": _DECAY, "l1": st.sampled_from((0.0, 0.001))}),
    "AdaMax": (0.01, {"weight_decay": _DECAY}),
    "Adadelta": (0.5, {"weight_decay": _DECAY}),
    "ASGD": (0.02, {"weight_decay": _DECAY}),
    "Rprop": (0.01, {"weight_decay": _DECAY}),
    "AdaFactor": (
        None,
        {"scale_parameter": st.booleans(), "warmup_init": st.just(False), "beta1": st.sampled_from((None, 0.9))},
    ),
}
"""The rate (without one: the optimizer's own) and the options of each."""
CONSTANT = ("FTRL", "ProximalAdagrad", "Rprop", "ASGD")
"""Optimizers that take no other rate; the first two none for a group either."""
SCALED = ("Momentum", "SGD", "Adam", "LazyAdam", "RMSProp", "Adagrad", "FTRL", "ProximalAdagrad")
"""Optimizers that take the loss scale of the training cell out of the gradients."""


@st.composite
def optimizers(draw: st.DrawFn, scaled: bool) -> Part:
    name = draw(st.sampled_from(SCALED if scaled else tuple(OPTIMIZERS)))
    rate, options = OPTIMIZERS[name]
    drawn: Options = {key: draw(strategy) for key, strategy in options.items()}
    if name == "Adam" and not drawn["use_nesterov"]:
        drawn["use_amsgrad"] = draw(st.booleans())
    if name == "SGD" and drawn["momentum"]:
        drawn["nesterov"] = draw(st.booleans())
    if rate is not None:
        kinds = RATES if name not in CONSTANT else ("constant",)
        drawn["rate"] = {"kind": draw(st.sampled_from(kinds)), "value": rate}
    drawn["groups"] = draw(st.sampled_from(("one", "one", "decay", "rates", "ordered")))
    if name == "AdaFactor":
        drawn["groups"] = "one"
    if drawn["groups"] == "rates" and (name in CONSTANT or drawn["rate"]["kind"] != "constant"):
        # The rates of all groups must be of one kind.
        drawn["groups"] = "decay"
    return Part(name, drawn)


@st.composite
def losses(draw: st.DrawFn) -> Part:
    name = draw(st.sampled_from(tuple(LOSSES)))
    if name == "cross_entropy":
        return Part(name, {"reduction": draw(st.sampled_from(("mean", "sum")))})
    if name == "smoothed":
        return Part(name, {"smoothing": draw(st.sampled_from((0.0, 0.1)))})
    return Part(name)


@st.composite
def cells(draw: st.DrawFn) -> Part:
    kinds = ("step", "step", "step", "functional", "sens", "loss_scale", "clipped", "gated", "averaged")
    name = draw(st.sampled_from(kinds))
    if name == "loss_scale":
        return Part(name, {"scale": draw(st.sampled_from((16.0, 1024.0))), "window": draw(st.sampled_from((2, 3)))})
    return Part(name)


def _weight(network: Network, loss: Part) -> str | None:
    """The input that weighs samples, by its name in the file."""
    return f"inputs{len(network.inputs) + 1}" if loss.name == "weighted" else None


PIPELINES = 4
"""Of one network."""


@st.composite
def families(draw: st.DrawFn) -> tuple[Plan, ...]:
    """Plans that differ in their pipelines."""
    cell, loss = draw(cells()), draw(losses())
    network = draw(networks(half=draw(st.integers(0, 4)) == 4))
    optimizer = draw(optimizers(scaled=cell.name == "sens"))
    batch = draw(st.integers(2, 4))
    found = []
    for _ in range(PIPELINES):
        pipeline = draw(pipelines(_weight(network, loss)))
        # Some pipelines are compiled in several calls.
        first = draw(st.integers(0, len(pipeline))) if draw(st.integers(0, 3)) == 3 else len(pipeline)
        calls = tuple(n for n in (first, len(pipeline) - first) if n)
        found.append(Plan(network, loss, optimizer, cell, batch, pipeline, calls))
    return tuple(found)
