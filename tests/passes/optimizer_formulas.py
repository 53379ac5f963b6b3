"""The optimizers that stand here, by the formulas of their papers, in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray
Rule = Callable[[dict[str, Array], str, Array, Array, int], Array]
"""The weight after an update, from the state that a rule keeps, its name, its value, its gradient, and the number of
the update. All in double precision."""


def lion(kept: dict[str, Array], name: str, w: Array, g: Array, t: int) -> Array:
    m = kept.get(name, np.zeros_like(w))
    kept[name] = 0.99 * m + 0.01 * g
    return w - 0.01 * (np.sign(0.9 * m + 0.1 * g) + 0.1 * w)


def _adam(kept: dict[str, Array], name: str, g: Array, t: int, beta1: float, beta2: float, eps: float) -> Array:
    m = kept[name + " m"] = beta1 * kept.get(name + " m", 0.0) + (1 - beta1) * g
    v = kept[name + " v"] = beta2 * kept.get(name + " v", 0.0) + (1 - beta2) * g * g
    return (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)


def lamb(kept: dict[str, Array], name: str, w: Array, g: Array, t: int) -> Array:
    r = _adam(kept, name, g, t, 0.9, 0.999, 1e-6) + 0.01 * w
    return w - 0.01 * np.linalg.norm(w) / np.linalg.norm(r) * r


def muon(kept: dict[str, Array], name: str, w: Array, g: Array, t: int) -> Array:
    if w.ndim < 2:
        return w - 0.002 * (_adam(kept, name, g, t, 0.9, 0.95, 1e-10) + 0.1 * w)
    b = kept[name] = 0.95 * kept.get(name, 0.0) + g
    x = (g + 0.95 * b).reshape(len(w), -1)
    scale = math.sqrt(max(1.0, x.shape[0] / x.shape[1]))
    tall = x.shape[0] > x.shape[1]
    x = (x.T if tall else x) / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return w - 0.02 * (scale * (x.T if tall else x).reshape(w.shape) + 0.1 * w)


def schedule_free(kept: dict[str, Array], name: str, y: Array, g: Array, t: int) -> Array:
    """As the authors' code moves y and z; x is what it evaluates."""
    z = kept.get(name, y)
    v = kept[name + " v"] = 0.999 * kept.get(name + " v", 0.0) + 0.001 * g * g
    s = g / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + 0.1 * y
    c = 1 / t
    y = y + c * (z - y) + 0.01 * (0.9 * (1 - c) - 1) * s
    z = kept[name] = z - 0.01 * s
    kept["average." + name] = (y - 0.1 * z) / 0.9
    return y


RULES: dict[str, tuple[str, Rule]] = {
    "lion": ("lion{lr=0.01,weight_decay=0.1}", lion),
    "lamb": ("lamb{lr=0.01,weight_decay=0.01}", lamb),
    "muon": ("muon{lr=0.02,weight_decay=0.1,adam_lr=0.002}", muon),
    "schedule-free": ("schedule-free-adamw{lr=0.01,weight_decay=0.1}", schedule_free),
}
