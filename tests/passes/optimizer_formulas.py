"""The optimizers that stand here, with some options, by the formulas of their papers, in double precision: none of this
is how ``replace-optimizer`` makes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from boost_compile.ir.core.spec import parse_spec
from boost_compile.passes.replace_optimizer.own import settle_own

Array = np.ndarray
Options = Mapping[str, float]
Rule = Callable[[dict[str, Array], str, Array, Array, int], Array]
"""The weight after an update, from the state that a rule keeps, its name, its value, its gradient, and the number of
the update, from 1."""


def _adam(kept: dict[str, Array], name: str, g: Array, t: int, beta1: float, beta2: float, eps: float) -> Array:
    m = kept[name + " m"] = beta1 * kept.get(name + " m", 0.0) + (1 - beta1) * g
    v = kept[name + " v"] = beta2 * kept.get(name + " v", 0.0) + (1 - beta2) * g * g
    return np.asarray((m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps))


def lion(o: Options, kept: dict[str, Array], name: str, w: Array, g: Array, t: int) -> Array:
    """Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2."""
    m = kept.get(name, 0.0)
    kept[name] = o["beta2"] * m + (1 - o["beta2"]) * g
    return np.asarray(w - o["lr"] * (np.sign(o["beta1"] * m + (1 - o["beta1"]) * g) + o["weight_decay"] * w))


def lamb(o: Options, kept: dict[str, Array], name: str, w: Array, g: Array, t: int) -> Array:
    """You et al., Large Batch Optimization for Deep Learning, 2020, algorithm 2."""
    r = _adam(kept, name, g, t, o["beta1"], o["beta2"], o["eps"]) + o["weight_decay"] * w
    lengths = float(np.linalg.norm(w)), float(np.linalg.norm(r))
    return np.asarray(w - o["lr"] * (lengths[0] / lengths[1] if all(lengths) else 1.0) * r)


def muon(o: Options, kept: dict[str, Array], name: str, w: Array, g: Array, t: int) -> Array:
    """Jordan et al., Muon, 2024; what has one axis is updated by AdamW."""
    if w.ndim < 2:
        step = _adam(kept, name, g, t, o["adam_beta1"], o["adam_beta2"], o["adam_eps"])
        return np.asarray(w - o["adam_lr"] * (step + o["weight_decay"] * w))
    b = kept[name] = o["momentum"] * kept.get(name, 0.0) + g
    x = (g + o["momentum"] * b if o["nesterov"] else b).reshape(len(w), -1)
    scale, tall = math.sqrt(max(1.0, x.shape[0] / x.shape[1])), x.shape[0] > x.shape[1]
    x = (x.T if tall else x) / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return np.asarray(w - o["lr"] * (scale * (x.T if tall else x).reshape(w.shape) + o["weight_decay"] * w))


def schedule_free(o: Options, kept: dict[str, Array], name: str, y: Array, g: Array, t: int) -> Array:
    """Defazio et al., The Road Less Scheduled, 2024; as the authors' code moves y and z. x is what it evaluates."""
    z = kept.get(name, y)
    v = kept[name + " v"] = o["beta2"] * kept.get(name + " v", 0.0) + (1 - o["beta2"]) * g * g
    s = g / (np.sqrt(v / (1 - o["beta2"] ** t)) + o["eps"]) + o["weight_decay"] * y
    c = 1 / t
    y = y + c * (z - y) + o["lr"] * (o["beta1"] * (1 - c) - 1) * s
    z = kept[name] = z - o["lr"] * s
    kept["average." + name] = (y - (1 - o["beta1"]) * z) / o["beta1"]
    return np.asarray(y)


FORMULAS = {"lion": lion, "lamb": lamb, "muon": muon, "schedule-free-adamw": schedule_free}


def _rule(to: str) -> tuple[str, Rule]:
    spec = settle_own(parse_spec(to, "optimizer"), "cpu", None)
    assert spec is not None
    return to, partial(FORMULAS[spec.name], spec.options)


RULES: dict[str, tuple[str, Rule]] = {
    "lion": _rule("lion{lr=0.01,weight_decay=0.1}"),
    "lamb": _rule("lamb{lr=0.01,weight_decay=0.01}"),
    "muon": _rule("muon{lr=0.02,weight_decay=0.1,adam_lr=0.002}"),
    "schedule-free": _rule("schedule-free-adamw{lr=0.01,weight_decay=0.1}"),
}
