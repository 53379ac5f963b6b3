"""Programs for a GPU train as MindSpore does on the CPU, where the kernels of the stand-ins compute.

MindSpore's GPU backend chooses, fuses and orders the kernels, plans which tensors share memory and follows branches.
The kernels themselves (sources/kernels, sources/cublas.cc, sources/cudnn) are ours and say nothing of NVIDIA's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boost_compile as bc
from tests.compare import assert_close
from tests.reference import Clip, LossScale, train

from .available import built
from .programs import Job, compiled
from .running import STUBS, run
from .worker import LOSSES, batches

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
BESIDE = ("freeze", "group-scale", "groups", "head")
"""Pipelines that are judged by the same program on the CPU."""
NETWORKS = ("mlp_adam", "lenet_bn", "gpt", pytest.param("resnet18", marks=pytest.mark.slow))
Exported = Callable[[str], Path]
Trained = Callable[[str], Path]


@pytest.fixture(scope="module")
def trained(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """`trained(network)` is the folder with what all pipelines left on the stand-in for a GPU."""
    folders: dict[str, Path] = {}

    def of(network: str) -> Path:
        if network not in folders:
            folders[network] = tmp_path_factory.mktemp(network)
            jobs = [Job(network, pipeline) for pipeline in (*NATIVE, *BESIDE)]
            outcomes = run(built("GPU"), jobs, exported, cycles=cycles_of(network), keep=folders[network])
            assert [outcome.end for outcome in outcomes] == ["ran"] * len(jobs), [*map(str, outcomes)]
        return folders[network]

    return of


@pytest.mark.parametrize("network", NETWORKS)
def test_every_kernel_computes(network: str, trained: Trained) -> None:
    """Else a comparison would look at what memory held."""
    called = (trained(network) / STUBS).read_text().split()
    assert "nvrtcVersion" in called
    assert not [name for name in called if not re.fullmatch(r"cu[a-z]+(Dn)?(Set|Get|Stream)\w*|nvrtcVersion", name)]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("pipeline", NATIVE)
def test_as_mindspore_trains_on_the_cpu(pipeline: str, network: str, trained: Trained, exported: Exported) -> None:
    job, native = Job(network, pipeline), NATIVE[pipeline]
    flat = batches(job, native.micro * cycles_of(network))
    cycles = [flat[i : i + native.micro] for i in range(0, len(flat), native.micro)]
    tagged = tagged_weights(exported(network)) if native.centralize else ()
    reference = train(network, cycles, centralize=tagged, **native.options)
    losses, state = kept(trained, job)
    expected = [loss for cycle in reference.cycles for loss in cycle.losses]
    np.testing.assert_allclose(losses, expected, rtol=tolerance(network))
    final = reference.cycles[-1].state
    assert_close({name: state[name] for name in final}, final, reference.initial, tolerance(network), reference.noise())
    has_overflow = "overflow" in native.options and network != "gpt"  # whose inputs are whole numbers
    assert any(cycle.overflow for cycle in reference.cycles) == has_overflow


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("pipeline", BESIDE)
def test_as_the_same_program_trains_on_the_cpu(
    pipeline: str, network: str, trained: Trained, exported: Exported, tmp_path: Path
) -> None:
    job = Job(network, pipeline)
    session = bc.Session(compiled(job, bc.load(str(exported(network))), "cpu", tmp_path))
    initial = session.state()
    flat = batches(job, session.cycle_length * cycles_of(network))
    expected = [session.step(*batch).loss for batch in flat]
    losses, state = kept(trained, job)
    np.testing.assert_allclose(losses, expected, rtol=tolerance(network))
    noise = train(network, [flat]).noise()
    assert_close(state, session.state(), initial, tolerance(network), noise)


def test_a_kernel_that_computes_something_else_is_found(exported: Exported, trained: Trained) -> None:
    """The comparison itself: one weight of one network moved by a thousandth of its way."""
    reference = train("lenet_bn", [[batch] for batch in batches(Job("lenet_bn", "legalize"), 3)])
    _, state = kept(trained, Job("lenet_bn", "legalize"))
    final = reference.cycles[-1].state
    ours = {name: state[name] for name in final}
    weight = ours["conv2.weight"]
    ours["conv2.weight"] = weight + 1e-3 * (weight - reference.initial["conv2.weight"])
    with pytest.raises(AssertionError, match=r"conv2\.weight is off"):
        assert_close(ours, final, reference.initial, TOLERANCE, reference.noise())


def cycles_of(network: str) -> int:
    return 1 if network in DEEP else 3


def tolerance(network: str) -> float:
    return OF_DEEP if network in DEEP else TOLERANCE


def tagged_weights(path: Path) -> frozenset[str]:
    program = bc.compile(bc.load(str(path)), "tag-gradient-centralization")
    return frozenset(name for name, variable in program.state.items() if "centralize" in variable.info)


def kept(trained: Trained, job: Job) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    with np.load(trained(job.network) / f"{job}.npz") as file:
        state = dict(file)
    return state.pop(LOSSES), state
