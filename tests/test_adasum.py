"""AdaSum on real ranks: 2 and 4 groups of one, and 2 groups of two, against MindSpore's own steps combined in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import boost_compile as bc
from tests.adasum_job import Run, write
from tests.adasum_reference import LocalTraining, train_groups
from tests.compare import assert_close, assert_equal
from tests.native import State, initial_state, train_accumulated
from tests.networks import CASES
from tests.ranks import run_ranks

Exported = Callable[[str], Path]

CHECKED = "overflow-check,loss-scale{mode=dynamic,init=1024}"
TWO = {
    "momentum": ("mlp", "adasum", {}),
    "shared": ("shared_weights", "gradient-accumulation{steps=2,split=fused},adasum", {"micro": 2}),
    "statistics": ("lenet_bn", "adasum", {}),
    "half": ("mlp_half_weights", "adasum", {}),
    "overflow": ("mlp_adam", f"{CHECKED},adasum", {"overflow": 1}),
    "own_check": ("scaled_dynamic", "adasum", {"overflow": 1}),
}
FOUR = {
    "momentum": ("mlp", "adasum", {}),
    "groups_accumulated": (
        "mlp",
        f"data-parallel,adasum{{devices_per_group=2}},gradient-accumulation{{steps=2}},{CHECKED}",
        {"devices": 2, "micro": 2, "overflow": 1},
    ),
}
MORE = {
    "decay": ("mlp_adam_weight_decay", "gradient-accumulation{steps=2},adasum", {"micro": 2}),
    "alike": ("mlp_adam", "adasum", {"alike": True}),
    "groups": ("mlp_adam", "adasum{devices_per_group=2}", {"devices": 2}),
    "decomposed": ("mlp_adam_weight_decay_decomposed", "adasum,gradient-accumulation{steps=2}", {"micro": 2}),
    "gated": ("gated_update", "adasum", {}),
}
TOLERANCE = {"half": 2e-3}


class Job:
    """A finished job: its runs by name, what the ranks reported, and what MindSpore and numpy make of the same."""

    def __init__(
        self, specs: dict[str, tuple[str, str, dict[str, Any]]], ranks: int, exported: Exported, folder: Path
    ) -> None:
        self.ranks = ranks
        self.runs: dict[str, Run] = {}
        for name, (case, pipeline, options) in specs.items():
            path = folder / f"{name}.boost"
            bc.compile(bc.load(exported(case)), pipeline).save(str(path))
            self.runs[name] = Run(name, case, str(path), **options)
        description = folder / "runs.json"
        write(list(self.runs.values()), description)
        self.reported = run_ranks("tests.adasum_job", ranks, str(description))
        trainable = [run for run in self.runs.values() if CASES[run.case].runs_on_cpu]
        self.expected = references(trainable, ranks)

    def state(self, name: str, cycle: int, rank: int) -> State:
        prefix = f"{name}/{cycle}/"
        return {k.removeprefix(prefix): v for k, v in self.reported[rank].items() if k.startswith(prefix)}

    def check(self, name: str) -> None:
        """Every cycle of every rank as the reference, and weights with the same bits on all ranks."""
        run = self.runs[name]
        initial, states, weights, noise = self.expected[name]
        for cycle, of_group in enumerate(states):
            first = self.state(name, cycle, 0)
            for rank in range(self.ranks):
                own = self.state(name, cycle, rank)
                group = rank // run.devices
                reference = of_group[group]
                # Each cycle stores the weights once more.
                ours = {k: own[k] for k in reference}
                assert_close(ours, reference, initial, TOLERANCE.get(name, 1e-5), noise, ulps=cycle + 1)
                assert_equal({w: own[w] for w in weights}, {w: first[w] for w in weights})


Expected = tuple[State, list[list[State]], list[str], State]


def references(runs: Sequence[Run], ranks: int) -> dict[str, Expected]:
    """For each run: the first state, the states of each group by cycle, the names of the weights, and which of their
    elements have no gradient but rounding noise."""
    found = {}
    for run in runs:
        batches = run.batches(ranks)
        weights = LocalTraining(CASES[run.case]).weights
        groups = [
            [list(chain.from_iterable(of_cycle[g : g + run.devices])) for g in range(0, ranks, run.devices)]
            for of_cycle in batches
        ]
        if run.alike:  # what one rank does by itself
            groups = [of_cycle[:1] for of_cycle in groups]
        states = train_groups(run.case, groups, skipped=[run.overflow])
        if run.alike:
            states = [of_cycle * (ranks // run.devices) for of_cycle in states]
        initial = initial_state(run.case)
        noise: State = {}
        if any("moving_mean" in name for name in initial):  # a bias in front of BatchNorm has no gradient
            noise = train_accumulated(run.case, [list(chain.from_iterable(of_cycle)) for of_cycle in batches]).noise()
        found[run.name] = (initial, states, weights, noise)
    return found


@pytest.fixture(scope="module")
def two(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(TWO, 2, exported, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(FOUR, 4, exported, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize("name", [name for name in TWO if name != "own_check"])
def test_two_ranks(two: Job, name: str) -> None:
    two.check(name)


@pytest.mark.parametrize("name", FOUR)
def test_four_ranks(four: Job, name: str) -> None:
    four.check(name)


@pytest.mark.slow
def test_more_of_four_ranks(exported: Exported, tmp_path: Path) -> None:
    job = Job(MORE, 4, exported, tmp_path)
    for name in MORE:
        job.check(name)


def test_overflow_on_one_rank_skips_the_cycle_on_all(two: Job) -> None:
    for rank in range(2):
        before, after = (two.state("overflow", cycle, rank) for cycle in (0, 1))
        for name in two.expected["overflow"][0]:
            assert after[name].tobytes() == before[name].tobytes(), name
        assert after["overflow.skipped_cycles"] == 1
        assert two.state("overflow", 2, rank)["loss_scale.value"] == 512


def test_overflow_in_a_file_that_checks_by_itself(two: Job) -> None:
    """`nn.TrainOneStepWithLossScaleCell`: weights, slots and the step stay, and the scale is the same on both ranks."""
    trained = bc.load(two.runs["own_check"].program).state
    weights = [name for name, variable in trained.items() if variable.trainable]
    for rank in range(2):
        states = [two.state("own_check", cycle, rank) for cycle in range(3)]
        for name in weights:
            assert states[1][name].tobytes() == states[0][name].tobytes() != states[2][name].tobytes(), name
            assert states[1][f"moments.{name}"].tobytes() == states[0][f"moments.{name}"].tobytes(), name
        assert [float(state["scale_sense"]) for state in states] == [1024, 512, 512]
    first, second = (two.state("own_check", 2, rank) for rank in range(2))
    assert_equal({name: first[name] for name in weights}, {name: second[name] for name in weights})
