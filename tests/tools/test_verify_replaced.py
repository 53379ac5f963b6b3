"""boost-verify on replaced optimizers: what they are given, what they make of it, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.analysis.training.stages import Point
from boost_compile.ir.builders.nodes import Nodes
from boost_compile.ir.core.graph import Value
from boost_compile.passes.replace_optimizer import lion, replace_optimizer
from boost_compile.passes.replace_optimizer.composed import Composed
from boost_compile.tools.verification.replaced import ReplacedOptimizers
from boost_compile.tools.verification.report import FAILED, PASSED, Result

import boost_compile as bc
from tests.boundary import slow

Exported = Callable[[str], Path]

MOMENTUM = 'replace-optimizer{to="momentum{lr=0.01,momentum=0.9}",match=*.weight}'
LION = "replace-optimizer{to=lion}"


def judged(source: bc.Program, pipeline: str) -> Result:
    found = bc.verify(source, bc.compile(source, pipeline), quick=True, bisect=False)
    return next(r for r in found.results if r.name == ReplacedOptimizers.name)


@pytest.mark.parametrize(
    "case",
    [
        (f"{MOMENTUM},gradient-accumulation{{steps=2}}", "2 weights, 3 updates; 2 other weights as before"),
        (f"{MOMENTUM},replace-optimizer{{to=lion,match=*.bias}}", "4 weights, 3 updates"),
        *slow(
            ("replace-optimizer{to=adam-weight-decay}", "4 weights, 3 updates"),
            ("replace-optimizer{to=muon}", "4 weights, 3 updates"),
            ("replace-optimizer{to=schedule-free-adamw}", "4 weights, 3 updates"),
            ("replace-optimizer{to=lamb},lora{match=[hidden.weight],rank=2}", "weights, 3 updates"),
        ),
    ],
)
def test_what_holds(exported: Exported, case: tuple[str, str]) -> None:
    pipeline, said = case
    found = judged(bc.load(exported("mlp_adam")), pipeline)
    assert found.status == PASSED
    assert said in found.detail
    assert "not compared" not in found.detail


def test_an_optimizer_that_does_not_run_here_may_be_replaced(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lamb has no kernel on CPU. The new optimizer is judged all the same."""
    source = bc.load(exported("mlp_lamb"))
    found = judged(source, LION)
    assert found.status == PASSED
    assert found.detail.endswith("the old optimizer does not run here, so what it is given is not compared")
    monkeypatch.setattr(lion, "make", _ascending)
    assert "is not what its optimizer makes of it" in judged(source, LION).detail


_whole, _make = replace_optimizer._whole, lion.make


def _twice(point: Point, n: Nodes) -> Value:
    value = _whole(point, n)
    doubled: Value = n.graph.create("Add", [value, value])
    return doubled


def _ascending(made: Composed) -> bc.Program:
    made.options["lr"] = -made.options["lr"]
    program: bc.Program = _make(made)
    return program


def _all_trained(program: bc.Program, match: Sequence[str], trained: Collection[str]) -> set[str]:
    return set(trained)


@pytest.mark.parametrize(
    ("pipeline", "room", "name", "wrong", "said"),
    [
        (MOMENTUM, replace_optimizer, "_whole", _twice, "is not what its optimizer makes of it"),
        (LION, lion, "make", _ascending, "is not what its optimizer makes of it"),
        (MOMENTUM, replace_optimizer, "trained_matching", _all_trained, "serves a weight that no use names"),
    ],
    ids=["gradients twice", "another formula", "all weights"],
)
def test_what_is_wrong_is_found(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, pipeline: str, room: Any, name: str, wrong: Any, said: str
) -> None:
    """The pass is given a fault, and the original with the new optimizer has it then."""
    monkeypatch.setattr(room, name, wrong)
    found = judged(bc.load(exported("mlp_adam")), pipeline)
    assert found.status == FAILED
    assert said in found.detail
