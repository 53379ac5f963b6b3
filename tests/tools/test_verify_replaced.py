"""boost-verify on replaced optimizers: what they are given, what they make of it, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.core.graph import Value
from boost_compile.passes.replace_optimizer import lion, replace_optimizer
from boost_compile.passes.replace_optimizer.composed import Composed
from boost_compile.tools.verification.replaced import ReplacedOptimizers
from boost_compile.tools.verification.report import FAILED, PASSED, Result

import boost_compile as bc
from tests.boundary import slow
from tests.graphs import program

Exported = Callable[[str], Path]

MOMENTUM = 'replace-optimizer{to="momentum{lr=0.01,momentum=0.9}",match=*.weight}'
LION = "replace-optimizer{to=lion}"


def judged(source: bc.Program, pipeline: str) -> Result:
    """Of an optimizer that MindSpore has, and no formula."""
    found = bc.verify(source, bc.compile(source, pipeline), quick=True, bisect=False)
    return found.result(ReplacedOptimizers.name)


def failures(source: bc.Program, program: bc.Program | str) -> list[str]:
    program = bc.compile(source, program) if isinstance(program, str) else program
    return [r.name for r in bc.verify(source, program, bisect=False).failures]


WINDOWS = "different micro-batches"


@pytest.mark.parametrize(
    "case",
    [
        (f"{MOMENTUM},gradient-accumulation{{steps=2}}", "2 weights, 3 updates; 2 other weights as before"),
        *slow(("replace-optimizer{to=adam-weight-decay}", "4 weights, 3 updates")),
    ],
)
def test_what_holds(exported: Exported, case: tuple[str, str]) -> None:
    pipeline, said = case
    found = judged(bc.load(exported("mlp_adam")), pipeline)
    assert found.status == PASSED
    assert said in found.detail
    assert "not compared" not in found.detail


@pytest.mark.parametrize(
    "pipeline",
    [
        f"{LION},gradient-accumulation{{steps=2}}",
        "replace-optimizer{to=lion,match=*.weight},replace-optimizer{to=muon,match=*.bias}",
        *slow("replace-optimizer{to=muon}", "replace-optimizer{to=schedule-free-adamw}"),
        *slow("replace-optimizer{to=lamb},lora{match=[hidden.weight],rank=2}"),
    ],
)
def test_optimizers_with_a_formula(exported: Exported, pipeline: str) -> None:
    source = bc.load(exported("mlp_adam"))
    found = bc.verify(source, bc.compile(source, pipeline), quick=True)
    assert found.verified, found
    assert found.result(WINDOWS).status == PASSED
    assert found.result(ReplacedOptimizers.name).detail == "a formula states it"


def test_an_optimizer_that_does_not_run_here_may_be_replaced(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lamb has no kernel on CPU. The new optimizer is judged all the same."""
    source = bc.load(exported("mlp_lamb"))
    found = judged(source, 'replace-optimizer{to="momentum{lr=0.01,momentum=0.9}"}')
    assert found.status == PASSED
    assert found.detail.endswith("the old optimizer does not run here, so what it is given is not compared")
    monkeypatch.setattr(lion, "make", _ascending)
    assert failures(source, LION)


_given, _make = replace_optimizer._given, lion.make


def _twice(*handed: Any) -> Value:
    value = _given(*handed)
    doubled: Value = handed[-1].graph.create("Add", [value, value])
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
        (MOMENTUM, replace_optimizer, "_given", _twice, "is not what its optimizer makes of it"),
        (MOMENTUM, replace_optimizer, "trained_matching", _all_trained, "serves a weight that no use names"),
    ],
    ids=["gradients twice", "all weights"],
)
def test_what_is_wrong_is_found(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, pipeline: str, room: Any, name: str, wrong: Any, said: str
) -> None:
    """The pass is given a fault, and the original with the new optimizer has it then."""
    monkeypatch.setattr(room, name, wrong)
    found = judged(bc.load(exported("mlp_adam")), pipeline)
    assert found.status == FAILED
    assert said in found.detail


@pytest.mark.parametrize(
    ("room", "name", "wrong", "shows"),
    [(replace_optimizer, "_given", _twice, WINDOWS), (lion, "make", _ascending, "initial state")],
    ids=["gradients twice", "another rate"],
)
def test_what_is_no_formula_is_found(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, room: Any, name: str, wrong: Any, shows: str
) -> None:
    """Lion takes signs alone of a gradient, so what shows that it gets twice the gradient is its momentum."""
    monkeypatch.setattr(room, name, wrong)
    source = bc.load(exported("mlp_adam"))
    found = bc.verify(source, bc.compile(source, LION), quick=True)
    assert [r.name for r in found.failures] == [shows]
    assert found.guilty is not None
    assert found.guilty.name == "replace-optimizer"


OWN_WRITES = Path(__file__).parents[1] / "passes" / "replace_optimizer_own_writes.ir"


def changed(folder: Path, *changes: tuple[str, str]) -> bc.Program:
    text = OWN_WRITES.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "changed.ir").write_text(text, encoding="utf-8")
    return bc.load(folder / "changed.ir")


def lose(program: bc.Program, name: str) -> None:
    """The node of this name, a bound or a copy, does nothing any more."""
    for graph in program.graphs.values():
        for node in [n for n in graph if n.name == name]:
            if node.op.name == "Assign":
                node.set_operand(1, node.operand(0))
            else:
                node.replace_uses(node.operand(0))


@pytest.mark.parametrize("pipeline", [LION, "gradient-accumulation{steps=2}"])
def test_a_program_that_has_lost_what_the_cell_does_to_its_weights(pipeline: str) -> None:
    source = bc.load(OWN_WRITES)
    program = bc.compile(source, pipeline)
    found = bc.verify(source, program, bisect=False)
    assert found.verified
    lose(program, "least")
    assert failures(source, program)


@pytest.mark.parametrize("node", ["least", "copied"])
def test_a_pass_that_loses_what_the_cell_does_to_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    exchange = replace_optimizer._exchange

    def losing(program: bc.Program, *rest: Any) -> list[str]:
        gone: list[str] = exchange(program, *rest)
        lose(program, node)
        return gone

    monkeypatch.setattr(replace_optimizer, "_exchange", losing)
    source = changed(tmp_path, ("float32[]<0.5>", "float32[]<0.1>"))  # weights are above it
    assert {WINDOWS, "other weights"} <= set(failures(source, LION))


def test_a_pass_that_changes_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = replace_optimizer._exchange

    def without_seed(program: bc.Program, *rest: Any) -> list[str]:
        gone: list[str] = exchange(program, *rest)
        (node,) = (node for graph in program.graphs.values() for node in graph if node.name == "dy")
        node.replace_uses(node.operand(0))
        return gone

    monkeypatch.setattr(replace_optimizer, "_exchange", without_seed)
    assert WINDOWS in failures(bc.load(OWN_WRITES), LION)


def test_a_weight_without_a_gradient_is_said_to_be_no_judge(exported: Exported) -> None:
    found = judged(bc.load(exported("stopped_target")), 'replace-optimizer{to="momentum{lr=0.01,momentum=0.9}"}')
    assert found.status == PASSED
    assert "'target.bias' has no gradient, so what its optimizer makes of it is not compared" in found.detail


STRAIGHT_THROUGH = """
state %w: float32[3]<0.5, 1.25, -0.75> role=weight
state %rate: float32[]<0.1> role=hyperparameter
graph @step(%x: float32[4,3]) -> (loss) {
  %w0 = Load(%w, umonad) : float32[3] @f
  %y = Mul(%x, %w0) : float32[4,3] @f
  %whole = Floor(%y) : float32[4,3] @f
  %square = Square(%whole) : float32[4,3] @f
  %loss = ReduceSum(%square, (), false, false) : float32[] @f
  %double = Mul(%whole, float32[]<2.0>) : float32[4,3] @b
  %summands = Mul(%double, %x) : float32[4,3] @b
  %g = ReduceSum(%summands, (0,), false, false) : float32[3] @b
  %new = ApplyGradientDescent(%w, %rate, %g, umonad) : float32[3]
  %t = UpdateState(umonad, %new)
  %r = Depend(%loss, %t)
  return %r
}"""


def test_gradients_that_are_no_derivative_on_purpose_may_go_to_another_optimizer() -> None:
    source = program(STRAIGHT_THROUGH)
    found = bc.verify(source, bc.compile(source, "replace-optimizer{to=lion{lr=0.01}}"), bisect=False)
    assert found.verified
    assert "no derivative of its loss either" in found.result("derivative").detail
