"""What optimizers do to a weight w with gradient g, as their papers state it, in float32.

``lion``: Chen et al., Symbolic Discovery of Optimization Algorithms, 2023. ``muon``: Jordan et al., Muon, 2024; weights
of one axis by AdamW (Loshchilov and Hutter, 2019). ``schedule-free-adamw``: Defazio et al., The Road Less Scheduled,
2024. ``lamb``: You et al., Large Batch Optimization for Deep Learning, 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import prod, sqrt

from ...builders.nodes import Nodes
from ...builders.reduce import scalar_sum
from ...core.graph import Value
from ...core.names import average_of
from ...core.program import StateVariable

RATE, COUNT = "learning_rate", "global_step"


@dataclass
class Step:
    """One update of some weights. ``read``: what a state holds before, float32; ``gradients`` by weight; ``numbers``:
    the options; ``decaying``: the weights that the decay is for; ``leaves``: what a state holds after, by name."""

    w: Nodes
    numbers: Mapping[str, float]
    weights: Mapping[str, StateVariable]
    gradients: Mapping[str, Value]
    read: Callable[[str], Value]
    decaying: Collection[str]
    leaves: dict[str, Value] = field(default_factory=dict)

    def n(self, value: float) -> Value:
        return self.w.number(value)

    def add(self, *values: Value) -> Value:
        first, *others = values
        for other in others:
            first = self.w.op("Add", first, other)
        return first

    def minus(self, a: Value, b: Value) -> Value:
        return self.w.op("Sub", a, b)

    def times(self, *values: Value | float) -> Value:
        first, *others = (self.n(v) if isinstance(v, (int, float)) else v for v in values)
        for other in others:
            first = self.w.op("Mul", first, other)
        return first

    def over(self, a: Value, b: Value) -> Value:
        return self.w.op("Div", a, b)

    def mean(self, old: Value, new: Value, beta: float) -> Value:
        """β · old + (1 - β) · new."""
        return self.add(self.times(old, beta), self.times(new, 1.0 - beta))

    def length(self, value: Value) -> Value:
        return self.w.op("Sqrt", scalar_sum(self.w.graph, self.w.op("Square", value), scope=""))

    def lacks(self, power: str, beta: float) -> Value:
        """1 - βᵗ, with this update among the t."""
        if power not in self.leaves:
            self.leaves[power] = self.times(self.read(power), beta)
        return self.minus(self.n(1.0), self.leaves[power])

    def decayed(self, name: str, step: Value, decay: float) -> Value:
        """The step with decay · w, where the weight decays."""
        decays = decay and name in self.decaying
        return self.add(step, self.times(self.read(name), decay)) if decays else step

    def adamw(self, name: str, slots: tuple[str, str], betas: tuple[float, float], epsilon: float) -> Value:
        """(m / (1 - β1ᵗ)) / (√(v / (1 - β2ᵗ)) + ε)."""
        g, means = self.gradients[name], list[Value]()
        for k, (slot, beta, of) in enumerate(zip(slots, betas, (g, self.w.op("Square", g)), strict=True)):
            self.leaves[f"{slot}.{name}"] = mean = self.mean(self.read(f"{slot}.{name}"), of, beta)
            means.append(self.over(mean, self.lacks(f"beta{k + 1}_power", beta)))
        return self.over(means[0], self.add(self.w.op("Sqrt", means[1]), self.n(epsilon)))


def _lion(s: Step, name: str) -> None:
    g, w, m = s.gradients[name], s.read(name), s.read(f"lion_m.{name}")
    sign = s.w.op("Sign", s.mean(m, g, s.numbers["beta1"]))
    s.leaves[f"lion_m.{name}"] = s.mean(m, g, s.numbers["beta2"])
    s.leaves[name] = s.minus(w, s.times(s.read(RATE), s.decayed(name, sign, s.numbers["weight_decay"])))


def _lamb(s: Step, name: str) -> None:
    betas = s.numbers["beta1"], s.numbers["beta2"]
    step = s.adamw(name, ("lamb_m", "lamb_v"), betas, s.numbers["eps"])
    w, step = s.read(name), s.decayed(name, step, s.numbers["weight_decay"])
    long, short = s.length(w), s.length(step)
    both = s.w.op("LogicalAnd", s.w.op("Greater", long, s.n(0.0)), s.w.op("Greater", short, s.n(0.0)))
    ratio = s.w.op("Select", both, s.over(long, s.w.op("Select", both, short, s.n(1.0))), s.n(1.0))
    s.leaves[name] = s.minus(w, s.times(s.read(RATE), ratio, step))


def _muon(s: Step, name: str) -> None:
    lr, decay, shape = s.numbers["lr"], s.numbers["weight_decay"], s.weights[name].shape
    w, g = s.read(name), s.gradients[name]
    if len(shape) < 2:
        share = s.numbers["adam_lr"] / lr if lr else 0.0
        betas = s.numbers["adam_beta1"], s.numbers["adam_beta2"]
        step = s.times(s.adamw(name, ("muon_m", "muon_v"), betas, s.numbers["adam_eps"]), share)
        s.leaves[name] = s.minus(w, s.times(s.read(RATE), s.decayed(name, step, decay * share)))
        return
    b = s.add(s.times(s.read(f"muon_momentum.{name}"), s.numbers["momentum"]), g)
    s.leaves[f"muon_momentum.{name}"] = b
    u = s.add(g, s.times(b, s.numbers["momentum"])) if s.numbers["nesterov"] else b
    rows, columns = shape[0], prod(shape[1:])
    x: Value = s.w.reshape(u, rows, columns)
    x = s.over(x, s.add(s.length(x), s.n(1e-7)))
    x = s.w.transpose(x, 1, 0) if rows > columns else x
    for _ in range(5):
        a = s.w.matmul(x, x, transpose_b=True)
        factor = s.add(s.times(a, -4.7750), s.times(s.w.matmul(a, a), 2.0315))
        x = s.add(s.times(x, 3.4445), s.w.matmul(factor, x))
    x = s.w.reshape(s.w.transpose(x, 1, 0) if rows > columns else x, *shape)
    step = s.times(x, sqrt(max(1.0, rows / columns)))
    s.leaves[name] = s.minus(w, s.times(s.read(RATE), s.decayed(name, step, decay)))


def _schedule_free(s: Step, name: str) -> None:
    """y is the weight; z and the average x are slots."""
    beta1, beta2, rate = s.numbers["beta1"], s.numbers["beta2"], s.read(RATE)
    g, average = s.gradients[name], average_of(name)
    s.leaves[f"free_v.{name}"] = v = s.mean(s.read(f"free_v.{name}"), s.w.op("Square", g), beta2)
    root = s.w.op("Sqrt", s.over(v, s.lacks("beta2_power", beta2)))
    step = s.decayed(name, s.over(g, s.add(root, s.n(s.numbers["eps"]))), s.numbers["weight_decay"])
    s.leaves[f"free_z.{name}"] = z = s.minus(s.read(f"free_z.{name}"), s.times(rate, step))
    squared = s.w.op("Square", rate)
    s.leaves["free_rates"] = total = s.add(s.read("free_rates"), squared)
    part = s.over(squared, s.w.op("Maximum", total, s.n(1e-30)))
    x = s.add(s.times(s.read(average), s.minus(s.n(1.0), part)), s.times(z, part))
    s.leaves[average] = x
    s.leaves[name] = s.mean(x, z, beta1)


@dataclass(frozen=True)
class Optimizer:
    """``slots``: of a weight, by their names without it; those of ``copies`` begin as the weight, others with 0.
    ``powers``: of betas, which begin with 1. ``sums``: other numbers, which begin with 0."""

    defaults: Mapping[str, float]
    says: str
    step: Callable[[Step, str], None]
    slots: Callable[[StateVariable], tuple[str, ...]]
    powers: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


_BETAS = {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0}
_POWERS = ("beta1_power", "beta2_power")
OPTIMIZERS = {
    "lion": Optimizer(
        {"lr": 1e-4, **_BETAS, "beta2": 0.99}, "w' = w - lr · (sign(β1 · m + (1 - β1) · g) + decay · w)", _lion,
        lambda _: ("lion_m",),
    ),
    "lamb": Optimizer(
        {"lr": 1e-3, **_BETAS, "eps": 1e-6}, "w' = w - lr · (‖w‖ / ‖r‖) · r, r the step of AdamW", _lamb,
        lambda _: ("lamb_m", "lamb_v"), _POWERS,
    ),
    "muon": Optimizer(
        {"lr": 0.02, "momentum": 0.95, "nesterov": True, "weight_decay": 0.0, "adam_lr": 3e-4, "adam_beta1": 0.9,
         "adam_beta2": 0.95, "adam_eps": 1e-10},
        "a matrix loses lr times its momentum, made orthogonal; what is no matrix is updated by AdamW", _muon,
        lambda v: ("muon_m", "muon_v") if len(v.shape) < 2 else ("muon_momentum",), _POWERS,
    ),
    "schedule-free-adamw": Optimizer(
        {"lr": 2.5e-3, **_BETAS, "eps": 1e-8},
        "z' = z - lr · (g / (√v + ε) + decay · y), x' their mean, y' = (1 - β1) · z' + β1 · x'", _schedule_free,
        lambda _: ("free_v", "free_z", "average"), _POWERS[1:], ("free_rates",), ("free_z", "average"),
    ),
}  # fmt: skip


def with_name(name: str) -> Optimizer | None:
    """The optimizer of that name, whatever its case and hyphens."""
    plain = name.replace("-", "").replace("_", "").lower()
    return next((o for own, o in OPTIMIZERS.items() if own.replace("-", "") == plain), None)
