"""Freezing for good: the other weights train as in a network whose frozen weights stand still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import boost_compile as bc
from tests.boundary import slow
from tests.compare import assert_equal
from tests.networks import CASES

Exported = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "globs"),
    [
        ("lenet_bn_adam", "conv*"), ("mlp_rprop", "hidden*"), ("gpt_sgd", "*0*"),
        *(pytest.param(*given, marks=pytest.mark.slow)
          for given in (("mlp_adafactor", "output.*"), ("resnet18", "layer1*"), ("lstm", "*hh*"), ("mlp_adam", "h*"))),
    ],
)  # fmt: skip
@pytest.mark.parametrize("later", ["", *slow(",recompute?,effect-chain-minimization")])
def test_the_others_train_as_if_the_frozen_ones_stood_still(
    exported: Exported, name: str, globs: str, later: str
) -> None:
    """The reference: the whole network, whose frozen weights and slots are put back after each step."""
    source = bc.load(exported(name))
    program = bc.compile(source, f"freeze{{match=[{globs}]}}{later}")
    frozen = [n for n, v in source.state.items() if v.trainable and not program.state[n].trainable]
    assert frozen
    assert not any(v.weight in frozen for v in program.state.values()), "their slots are gone"
    held = [n for n, v in source.state.items() if n in frozen or v.weight in frozen]
    ours, whole = bc.Session(program, seed=0), bc.Session(source, seed=0)
    start = whole.state(held)
    for batch in CASES[name].batches(3):
        ours.step(*batch)
        whole.step(*batch)
        whole.load_state(start, strict=False)
    state = ours.state()
    assert_equal(state, whole.state(list(state)))


def test_a_frozen_program_is_saved_without_the_slots_and_compiled_further(exported: Exported, tmp_path: Path) -> None:
    source = bc.load(exported("mlp_adam"))
    program = bc.compile(source, "freeze{match=[hidden.*]}")
    (report,) = program.reports
    assert report.statistics["state removed"] != "0 B"
    program.save(tmp_path / "frozen.boost")
    loaded = bc.load(tmp_path / "frozen.boost")
    assert set(source.state) - set(loaded.state) == {
        *("moment1.hidden.weight", "moment2.hidden.weight", "moment1.hidden.bias", "moment2.hidden.bias"),
    }
    later = "gradient-accumulation{steps=2},clip-gradients,overflow-check"
    again = bc.compile(loaded, later)
    assert not any(v.weight.startswith("hidden") for v in again.state.values())
    together = bc.compile(source, f"freeze{{match=[hidden.*]}},{later}")
    one, other = bc.Session(again), bc.Session(together)
    for batch in CASES["mlp_adam"].batches(4):
        one.step(*batch)
        other.step(*batch)
    assert_equal(one.state(), other.state())
