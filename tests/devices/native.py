"""How MindSpore itself trains as a pipeline says, and how far a device may be off: the judge of trainings there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import boost_compile as bc
from tests.compare import Comparison, assert_close
from tests.reference import Cells, Clip, LossScale, Run, train

from .programs import Job
from .worker import batches

TOLERANCE, OF_DEEP = 2e-4, 2e-3
"""Of how far training moved a parameter. Both compute in float32, but make their sums in other orders. (Measured: 6e-5
is the worst of the small networks, 1e-3 that of resnet18.)"""
DEEP = frozenset({"resnet18"})
"""A deep network with BatchNorm over 4 samples takes rounding up a thousandfold in a cycle: it trains for one alone."""


@dataclass(frozen=True)
class Native:
    """How MindSpore trains likewise: micro-batches a cycle, and what tests/reference.py is to do."""

    micro: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    centralize: bool = False


SKIP = {"overflow": "skip-cycle"}
NATIVE = {
    "legalize": Native(),
    "clean": Native(),
    "accumulate": Native(2),
    "fused": Native(2),
    "ranks": Native(2),
    "check": Native(1, SKIP),
    "skip-micro": Native(2, {"overflow": "skip-micro"}),
    "dynamic-scale": Native(2, {**SKIP, "loss_scale": LossScale(65536.0, window=2)}),
    "global-norm": Native(1, {"loss_scale": LossScale(1024.0), "clip": Clip("global-norm", 1.0)}),
    "tensor-norm": Native(1, {"clip": Clip("tensor-norm", 1.0)}),
    "value": Native(1, {"clip": Clip("value", 1.0)}),
    "centralize": Native(1, centralize=True),
}
"""By the short name of a pipeline (programs.py)."""


def train_natively(job: Job, source: Path, cells: Cells | None = None) -> Run:
    """MindSpore's training on the micro-batches of a job; `source` is its exported file, `cells` those of its network
    where they are not to be on the CPU."""
    native = NATIVE[job.pipeline]
    flat = batches(job, native.micro * cycles_of(job.network))
    cycles = [flat[i : i + native.micro] for i in range(0, len(flat), native.micro)]
    return train(job.network, cycles, centralize=centralized(job, source), cells=cells, **native.options)


def hold_against(native: Run, job: Job, losses: np.ndarray, state: dict[str, np.ndarray]) -> Comparison:
    """AssertionError unless losses and state are those of native training, within the tolerance of the network."""
    expected = [loss for cycle in native.cycles for loss in cycle.losses]
    np.testing.assert_allclose(losses, expected, rtol=tolerance(job.network))
    final = native.cycles[-1].state
    ours = {name: state[name] for name in final}
    return assert_close(ours, final, native.initial, tolerance(job.network), native.noise())


def centralized(job: Job, source: Path) -> frozenset[str]:
    """The weights whose gradients the pipeline of a job centralizes."""
    if not NATIVE[job.pipeline].centralize:
        return frozenset()
    program = bc.compile(bc.load(str(source)), "tag-gradient-centralization")
    return frozenset(name for name, variable in program.state.items() if "centralize" in variable.info)


def cycles_of(network: str) -> int:
    return 1 if network in DEEP else 3


def tolerance(network: str) -> float:
    return OF_DEEP if network in DEEP else TOLERANCE
