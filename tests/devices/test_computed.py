"""Programs for a GPU train as MindSpore does on the CPU, where the kernels of the stand-ins compute.

MindSpore's GPU backend chooses, fuses and orders the kernels, plans which tensors share memory and follows branches.
The kernels themselves (sources/kernels, sources/cublas.cc, sources/cudnn) are ours and say nothing of NVIDIA's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boost_compile as bc
from tests.compare import assert_close
from tests.reference import train

from .available import built
from .native import NATIVE, cycles_of, hold_against, tolerance, train_natively
from .programs import Job, compiled
from .running import STUBS, run
from .worker import LOSSES, batches

BESIDE = ("freeze", "group-scale", "groups", "head")
"""Pipelines that are judged by the same program on the CPU."""
NETWORKS = ("mlp_adam", "lenet_bn", "gpt", pytest.param("resnet18", marks=pytest.mark.slow))


def pipelines_of(network: str) -> tuple[str, ...]:
    """All; for a GPT, whose programs take longest, some of those with other nodes around the network."""
    return ("fused", "dynamic-scale", "global-norm", "freeze") if network == "gpt" else (*NATIVE, *BESIDE)


def choices(pipelines: Collection[str]) -> list[Any]:
    """(pipeline, network), slow ones among them."""
    found = []
    for network in NETWORKS:
        name = network if isinstance(network, str) else str(network.values[0])
        marks = () if isinstance(network, str) else network.marks
        found += [pytest.param(p, name, marks=marks) for p in pipelines_of(name) if p in pipelines]
    return found


Exported = Callable[[str], Path]
Trained = Callable[[str], Path]


@pytest.fixture(scope="module")
def trained(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """`trained(network)` is the folder with what all pipelines left on the stand-in for a GPU."""
    folders: dict[str, Path] = {}

    def of(network: str) -> Path:
        if network not in folders:
            folders[network] = tmp_path_factory.mktemp(network)
            jobs = [Job(network, pipeline) for pipeline in pipelines_of(network)]
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


@pytest.mark.parametrize(("pipeline", "network"), choices(NATIVE))
def test_as_mindspore_trains_on_the_cpu(pipeline: str, network: str, trained: Trained, exported: Exported) -> None:
    job = Job(network, pipeline)
    native = train_natively(job, exported(network))
    hold_against(native, job, *kept(trained, job))
    has_overflow = "overflow" in NATIVE[pipeline].options and network != "gpt"  # whose inputs are whole numbers
    assert any(cycle.overflow for cycle in native.cycles) == has_overflow


@pytest.mark.parametrize(("pipeline", "network"), choices(BESIDE))
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
    job = Job("lenet_bn", "legalize")
    native = train_natively(job, exported(job.network))
    losses, state = kept(trained, job)
    weight = state["conv2.weight"]
    state["conv2.weight"] = weight + 1e-3 * (weight - native.initial["conv2.weight"])
    with pytest.raises(AssertionError, match=r"conv2\.weight is off"):
        hold_against(native, job, losses, state)


def kept(trained: Trained, job: Job) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    with np.load(trained(job.network) / f"{job}.npz") as file:
        state = dict(file)
    return state.pop(LOSSES), state
