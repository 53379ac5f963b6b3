"""Programs on MindSpore's own GPU and Ascend backends, without such devices; `cover.txt` says which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.passes.framework.registry import REGISTRY

from tests.boundary import slow

from .available import built
from .cover import CHOSEN, NETWORKS, Signature, chosen, cover, every
from .known import fails, judge, refusal
from .programs import DEVICES, NATIVE, PIPELINES, Job, passes
from .running import Outcome, run

Exported = Callable[[str], Path]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return built(request.param)


@pytest.mark.parametrize("part", ["most", *slow("rest")])
def test_the_chosen_programs(device: str, part: str, exported: Exported) -> None:
    """One of four in the long sweeps: the others show what passes emit but for a few types of operands."""
    jobs = [job for i, job in enumerate(chosen()[device]) if (i % 4 == 3) == (part == "rest")]
    outcomes = run(device, jobs, exported)
    assert not judge(device, outcomes, exported)
    assert sum(outcome.end == "ran" for outcome in outcomes) > len(outcomes) * 3 / 4


CONTROLS = {
    "mlp_lars": "Unsupported op [LARSUpdate] on GPU",
    "scaled_910a": "Unsupported op [NPUClearFloatStatusV2] on GPU",
    "scaled_half_compute": "Unsupported op [NPUGetFloatStatusV2] on GPU",
    "mlp_half_compute": "Select GPU operator[SparseSoftmaxCrossEntropyWithLogits] fail! Unsupported data type",
    "lstm": "For 'LSTM', the size of weight must be equal to 2048 but got 1920",
    "mlp": "",
}
"""Exports of a CPU, and with what words MindSpore's GPU backend refuses them as they are."""


def test_what_has_no_kernel_is_found(exported: Exported) -> None:
    """The backend itself says so: these run without our compiler."""
    outcomes = run(built("GPU"), [Job(network, NATIVE) for network in CONTROLS], exported)
    for outcome in outcomes:
        expected = CONTROLS[outcome.job.network]
        assert outcome.end == ("failed" if expected else "ran"), outcome
        assert expected in outcome.message
    told = judge("GPU", outcomes, exported)
    unknown = ("lstm", "mlp_lars", "scaled_910a", "scaled_half_compute")
    assert [text.partition(":")[0] for text in told] == [f"{network} native" for network in unknown]


def test_a_process_that_ends_badly_is_told_and_the_others_go_on(exported: Exported) -> None:
    jobs = [Job("mlp", pipeline) for pipeline in ("abort", "endless", "exit", "legalize")]
    outcomes = run(built("GPU"), jobs, exported, limit=10, worker="tests.devices.bad_worker")
    assert [outcome.end for outcome in outcomes] == ["crashed", "no end", "crashed", "ran"]
    assert "ended with -6" in outcomes[0].message
    assert "last words" in outcomes[0].message
    assert "ended with 3" in outcomes[2].message


def test_a_known_failure_that_runs_is_told(exported: Exported) -> None:
    ran = [Outcome(Job("mlp_half_compute", NATIVE), "ran"), Outcome(Job("mlp", "check"), "ran")]
    assert len(judge("GPU", ran, exported)) == 1


def test_a_refusal_for_one_device_alone_is_told(exported: Exported) -> None:
    job = Job("mlp", "less-bn")
    message = refusal(job, exported)
    assert message
    assert not judge("GPU", [Outcome(job, "refused", message)], exported)
    assert judge("GPU", [Outcome(job, "refused", "another")], exported)
    assert judge("GPU", [Outcome(Job("mlp", "check"), "refused", "no such kernel")], exported)


def test_every_pass_is_run_with_several_networks() -> None:
    assert set().union(*(passes(Job("", pipeline)) for pipeline in PIPELINES)) == set(REGISTRY)
    for device, jobs in chosen().items():
        networks = defaultdict(set)
        for job in jobs:
            for name in passes(job):
                networks[name].add(job.network)
        # patch-convolution is for one network of the zoo.
        alone = {name for name in REGISTRY if len(networks[name]) < NETWORKS}
        assert alone == {"patch-convolution"}, device
        assert not [job for job in jobs if fails(device, job)]


@pytest.mark.slow
def test_the_chosen_programs_hold_all_that_passes_emit(exported: Exported) -> None:
    """Else: `python -m tests.devices.cover` chooses anew."""
    from tests.networks import CASES

    for device in DEVICES:
        jobs = [Job(network, pipeline) for network in CASES for pipeline in PIPELINES]
        programs = every({name: exported(name) for name in CASES}, device, jobs)
        held = set[Signature]().union(*(programs[job].signatures for job in chosen()[device]))
        assert held == set[Signature]().union(*(found.signatures for found in programs.values())), CHOSEN
        assert len(chosen()[device]) <= 1.5 * len(cover(programs))


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_network(pipeline: str, device: str, exported: Exported) -> None:
    from tests.networks import CASES

    jobs = [Job(network, pipeline) for network in CASES]
    outcomes = run(device, [job for job in jobs if not fails(device, job)], exported, processes=2)
    assert not judge(device, outcomes, exported)
