"""The formulas of passes/dim_reduce/subspace.py in numpy, in float64, on losses and gradients that others compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

Values = dict[str, np.ndarray]
Batch = Sequence[np.ndarray]


class Network(Protocol):
    """Means over the micro-batches, at any weights."""

    def loss(self, weights: Mapping[str, np.ndarray], batches: Sequence[Batch]) -> float: ...

    def gradients(self, weights: Mapping[str, np.ndarray], batches: Sequence[Batch]) -> Values: ...


@dataclass
class Iteration:
    """What one cycle computed. ``losses`` are those of its trials; ``bounds`` what each had to be less than."""

    g: np.ndarray
    d: np.ndarray
    base: float
    losses: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    accepted: bool = False
    length: float = 0.0


class Reference:
    """Upstream's algorithm, one ``step`` a cycle."""

    def __init__(
        self, network: Network, weights: Mapping[str, np.ndarray], basis: np.ndarray,
        rho: float, gamma: float, alpha: float, sigma: float, max_trials: int,
    ) -> None:  # fmt: skip
        self.network = network
        self.shapes = {name: value.shape for name, value in weights.items()}
        self.w = self.flat(weights)
        self.P = basis.astype(np.float64)
        self.rho, self.gamma, self.alpha, self.sigma, self.max_trials = rho, gamma, alpha, sigma, max_trials
        k = len(basis)
        self.r = np.zeros_like(self.w)
        self.B = np.eye(k)
        self.s = np.zeros(k)
        self.g_last = np.zeros(k)

    def flat(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([values[name].astype(np.float64).reshape(-1) for name in self.shapes])

    def split(self, flat: np.ndarray) -> Values:
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        parts = np.split(flat, ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def step(self, batches: Sequence[Batch]) -> Iteration:
        gradient = self.flat(self.network.gradients(self.split(self.w), batches))
        base = self.network.loss(self.split(self.w), batches)
        g = self.P @ gradient
        B = self.B
        y = g - self.g_last
        if y @ self.s > 1e-20:
            p = 1 / (y @ self.s)
            T = np.eye(len(g)) - p * np.outer(y, self.s)
            B = T.T @ B @ T + p * np.outer(self.s, self.s)
        d = -B @ g
        self.r = self.gamma * self.r + gradient - self.P.T @ g
        seen = Iteration(g, d, base)
        for m in range(self.max_trials):
            length = self.rho**m
            seen.losses.append(self.network.loss(self.split(self.w + length * (self.P.T @ d)), batches))
            seen.bounds.append(base + self.sigma * length * (g @ d))
            if seen.losses[-1] < seen.bounds[-1]:
                seen.accepted, seen.length = True, length
                self.s, self.B, self.g_last = length * d, B, g
                break
        self.w = self.w - (self.alpha * self.r - seen.length * (self.P.T @ d))
        return seen
