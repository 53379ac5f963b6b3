"""The optimizers that MindSpore lacks, by the formulas of their papers, in double precision: none of this is how
``replace-optimizer`` makes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Options = Mapping[str, float]
Rule = Callable[[Options, dict[str, Array], str, Array, Array, int], Array]
"""The weight after an update, from the optimizer's options, the state that a rule keeps, the weight's name, its value,
its gradient, and the number of the update, from 1."""


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


RULES: Mapping[str, Rule] = {"lion": lion, "lamb": lamb, "muon": muon, "schedule-free-adamw": schedule_free}
BOUND = 1e-5
"""How far a weight may be from its formula, relative to the largest weight, at least to 1."""
SMALL = 1e-4
"""Elements of a gradient below this part of its largest are not judged: a sign, or a ratio of moments, of rounding says
nothing. Nor are gradients that are nothing but rounding (a bias in front of a BatchNorm)."""
ROUNDING = 1e-6


def judged(rule: Rule, w: Array, g: Array) -> Array:
    """The elements of a weight that a formula can judge."""
    size = np.abs(g).max(initial=0.0)
    if size < ROUNDING:
        return np.zeros(w.shape, bool)
    return np.ones(w.shape, bool) if rule is muon and w.ndim > 1 else np.abs(g) > SMALL * size


def excess(wanted: Array, found: Array, which: Array) -> float:
    """How far these elements are from what is wanted, in parts of what is allowed."""
    off = np.abs(found.astype(np.float64) - wanted)[which].max(initial=0.0)
    return float(off) / (BOUND * max(float(np.abs(wanted).max(initial=0.0)), 1.0))
