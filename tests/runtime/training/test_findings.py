"""What is wrong in a training is named by weight, in the cycle in which it begins: faults made on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.runtime.training.findings import DEAD, EXPLODING, NOT_FINITE, SPIKE, Examiner
from boost_compile.runtime.training.monitors import Readings

import boost_compile as bc
from tests.networks import CASES

USUAL = 5
"""Cycles that go well before a fault."""
WEIGHTS = {"hidden.weight", "hidden.bias", "output.weight", "output.bias"}
Change = Callable[[np.ndarray], Any]

FAULTS: list[tuple[str, Change, str, set[str]]] = [
    # What is changed (a state, or the data), and of which weights something is to be said.
    (
        "hidden.weight",
        lambda a: np.where(np.arange(a.size).reshape(a.shape) == 3, np.nan, a),
        NOT_FINITE,
        {"hidden.weight"},
    ),
    ("output.bias", lambda a: a + np.inf, NOT_FINITE, WEIGHTS),
    ("moment1.output.weight", lambda a: a + np.nan, NOT_FINITE, {"output.weight"}),
    ("data", lambda a: a + np.inf, NOT_FINITE, {"hidden.weight"}),
    ("hidden.bias", lambda a: a - 1e3, DEAD, WEIGHTS - {"output.bias"}),
    ("output.weight", lambda a: a * 0, DEAD, {"hidden.weight", "hidden.bias"}),
    ("data", lambda a: a * -300, SPIKE, {"hidden.weight", "output.weight"}),
    ("output.weight", lambda a: a * 300, SPIKE, {"hidden.weight", "hidden.bias"}),
    ("hidden.weight", lambda a: a * 1e-6, EXPLODING, {"hidden.weight"}),
    ("learning_rate", lambda a: a * 1e4, EXPLODING, WEIGHTS),
]


class Fault(bc.Callback):
    """Changes a state of the session behind the last cycle that goes well."""

    def __init__(self, place: str, change: Change):
        self.place, self.change = place, change

    def on_cycle(self, session: Any, cycle: Any) -> None:
        if cycle.number == USUAL:
            value = session.state([self.place])[self.place]
            session.load_state({self.place: np.asarray(self.change(value), value.dtype)}, strict=False)


def test_faults_made_on_purpose_are_named_within_one_cycle(exported: Callable[[str], Path], tmp_path: Path) -> None:
    """As a user reads it: in the file of a log, of a training by ``fit``."""
    program = bc.compile(bc.load(exported("mlp_adam")), "overflow-check,monitor")
    session = bc.Session(program)
    batch = CASES["mlp_adam"].batches(1)[0]
    start = session.state()
    found: list[tuple[str, str, set[str]]] = []
    for place, change, what, weights in FAULTS:
        session.load_state(start)
        images, *others = (np.concatenate([a] * (USUAL + 1)) for a in batch)
        log = tmp_path / "run.jsonl"
        callbacks: list[bc.Callback] = [bc.Log(f"jsonl:{log}")]
        if place == "data":
            images[-len(batch[0]) :] = change(batch[0])
        else:
            callbacks.append(Fault(place, change))
        session.fit(
            (images, *others), epochs=1, shuffle=False, callbacks=callbacks, allow_nonfinite=True, progress=False
        )
        _, *cycles, _ = map(json.loads, log.read_text().splitlines())
        assert [c["cycle"] for c in cycles if "findings" in c] == [USUAL + 1], "nothing is wrong before, and then it is"
        findings = [f for f in cycles[USUAL]["findings"] if f["what"] == what]
        named = {f["weight"] for f in findings}
        assert named >= weights, (place, what, findings)
        found.append((place, what, {f["weight"] for f in findings if "of the weight is" in f["detail"]}))
        if weights != WEIGHTS and what != SPIKE:
            assert named == weights
    # A weight that is not finite itself is told from those whose gradients it spoils.
    assert [own for place, what, own in found if what == NOT_FINITE][:2] == [{"hidden.weight"}, {"output.bias"}]
    assert len(found) == 10


def reading(cycle: int, **kinds: float) -> Readings:
    return Readings(cycle, {kind.replace("_", "-"): {"w": value} for kind, value in kinds.items()})


@pytest.mark.parametrize(
    ("usual", "then", "what"),
    [
        ([1.0, 1.2, 0.9], 13.0, "its gradient (raw) is 13 long, 13 times as usual"),
        ([1.0, 1.2, 0.9], 9.0, None),
        ([1.0, 1.2, 0.9], 11.0, None),  # not ten times the longest
        ([1.0, 1.2], 12.0, None),  # too few to know what is usual
        ([1.0] * 3, 0.0, "its gradient is zero: nothing that it computes reaches the loss"),
    ],
)
def test_a_spike_is_judged_by_what_is_usual(usual: list[float], then: float, what: str | None) -> None:
    examiner = Examiner()
    for cycle, value in enumerate(usual, 1):
        assert examiner.examine(Readings(cycle, {"gradient-norm.raw": {"w": value}})) == []
    found = examiner.examine(Readings(9, {"gradient-norm.raw": {"w": then}}))
    assert [f.detail for f in found] == ([] if what is None else [what])
    assert [str(f) for f in found] == ([] if what is None else [f"window 9, w: {what}"])


def test_a_gradient_that_grows_bit_by_bit_is_no_spike() -> None:
    """That of A in a fresh adapter, which is as long as B is."""
    examiner = Examiner()
    for cycle, norm in enumerate([1e-5, 1e-4, 5e-4, 2e-3, 5e-3, 2e-2], 1):
        assert examiner.examine(Readings(cycle, {"gradient-norm.raw": {"w": norm}})) == []
    assert [f.what for f in examiner.examine(Readings(9, {"gradient-norm.raw": {"w": 0.3}}))] == [SPIKE]


def test_the_first_updates_of_a_bias_of_zeros_do_not_explode() -> None:
    examiner = Examiner()
    for cycle, ratio in enumerate([0.0, 3.0, 1.5, 1.2], 1):
        assert examiner.examine(reading(cycle, update_ratio=ratio)) == []
    assert [f.what for f in examiner.examine(reading(5, update_ratio=2.5))] == [EXPLODING]


def test_weights_that_rest_on_purpose_are_not_dead() -> None:
    zero = Readings(1, {"gradient-norm.raw": {"w": 0.0}})
    assert [f.what for f in Examiner().examine(zero)] == [DEAD]
    assert Examiner(resting=True).examine(zero) == []


def test_a_fresh_adapter_is_not_dead(exported: Callable[[str], Path]) -> None:
    """The gradient of A is zero until B, which begins at zero, has moved; that of a weight that has stopped is not."""
    program = bc.compile(bc.load(exported("mlp_adam")), "lora{match=[hidden.weight],rank=2},monitor")
    found = bc.Log()
    images, labels = CASES["mlp_adam"].batches(1)[0]
    bc.Session(program).fit((images, labels), epochs=2, callbacks=[found], progress=False)
    assert found.findings == []
    examiner = Examiner(waiting={"a"})
    judged = [examiner.examine(Readings(n, {"gradient-norm.raw": {"a": norm}})) for n, norm in enumerate((0, 0, 1, 0))]
    assert [[f.what for f in each] for each in judged] == [[], [], [], [DEAD]]
