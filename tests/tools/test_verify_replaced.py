"""boost-verify on replaced optimizers: what they are given, what they make of it, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.graph import Value
from boost_compile.passes.replace_optimizer import lion, replace_optimizer
from boost_compile.passes.replace_optimizer.composed import Composed
from boost_compile.tools.verification import replaced
from boost_compile.tools.verification.cell_writes import CellWrites
from boost_compile.tools.verification.replaced import ReplacedOptimizers
from boost_compile.tools.verification.report import FAILED, PASSED, Result

import boost_compile as bc
from tests.boundary import slow
from tests.graphs import program

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


OWN_WRITES = Path(__file__).parents[1] / "passes" / "replace_optimizer_own_writes.ir"


def written(source: bc.Program, program: bc.Program) -> Result:
    found = bc.verify(source, program, bisect=False)
    return next(r for r in found.results if r.name == CellWrites.name)


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
    assert "is not compared" not in " ".join(r.detail for r in found.results)
    lose(program, "least")
    assert written(source, program).status == FAILED


@pytest.mark.parametrize(
    ("node", "said", "of_the_update"),
    [
        ("least", "'w' is not", "of 'w' is not what its optimizer makes of it by itself"),
        ("copied", "'target' is not", "'target' stands still, and the original's updates move it"),
    ],
)
def test_a_pass_that_loses_what_the_cell_does_to_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str, said: str, of_the_update: str
) -> None:
    """The pass is given the fault, so the original with the new optimizer has it too."""
    exchange = replace_optimizer._exchange

    def losing(program: bc.Program, *rest: Any) -> list[str]:
        gone: list[str] = exchange(program, *rest)
        lose(program, node)
        return gone

    monkeypatch.setattr(replace_optimizer, "_exchange", losing)
    source = changed(tmp_path, ("float32[]<0.5>", "float32[]<0.1>"))  # weights are above it
    found = bc.verify(source, bc.compile(source, LION), bisect=False)
    assert found.result(CellWrites.name).status == FAILED
    assert found.result(CellWrites.name).detail.startswith(said)
    assert found.result(ReplacedOptimizers.name).status == FAILED
    assert of_the_update in found.result(ReplacedOptimizers.name).detail


def test_a_pass_that_changes_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = replace_optimizer._exchange

    def without_seed(program: bc.Program, *rest: Any) -> list[str]:
        gone: list[str] = exchange(program, *rest)
        (node,) = (node for graph in program.graphs.values() for node in graph if node.name == "dy")
        node.replace_uses(node.operand(0))
        return gone

    monkeypatch.setattr(replace_optimizer, "_exchange", without_seed)
    found = judged(bc.load(OWN_WRITES), LION)
    assert found.status == FAILED
    assert found.detail == "the gradient of 'w' is not the one that the old optimizer was given"


def test_a_cell_that_writes_its_weight_before_the_update(tmp_path: Path) -> None:
    """What its optimizer leaves cannot be given, and the report says so."""
    early = "%early = AssignAdd(%w, %w0, %u1) : float32[2,2]\n %u1b = UpdateState(%u1, %early)"
    source = changed(tmp_path, ("%up =", f"{early}\n %up ="), ("0.9>, %u1)", "0.9>, %u1b)"))
    said = "the training cell writes 'w' by itself before its update"
    assert written(source, bc.compile(source, "gradient-accumulation{steps=2}")).detail.endswith(said)
    assert f"what the optimizer makes of the gradients is not compared: {said}" in judged(source, LION).detail


def test_a_weight_without_a_gradient_is_said_to_be_no_judge(exported: Exported) -> None:
    found = judged(bc.load(exported("stopped_target")), 'replace-optimizer{to="lion{lr=0.01}"}')
    assert found.status == PASSED
    assert "'target.bias' has no gradient, so what its optimizer makes of it is not compared" in found.detail


def test_the_worst_weight_of_an_optimizer_is_judged() -> None:
    def off(wanted: np.ndarray, found: np.ndarray, *_: np.ndarray) -> float:
        return float(np.abs(wanted - found).max())

    def values(*numbers: float) -> dict[str, np.ndarray]:
        return {name: np.array([number]) for name, number in zip("abc", numbers, strict=True)}

    judges = replaced._Judges(
        [replaced._Alone("ab", lambda *_: {}, off), replaced._Alone("c", lambda *_: {}, off)], None
    )
    zero = values(0, 0, 0)
    assert [d.where for d in judges.deviations(values(1, 2, 0), zero, zero, zero)] == ["b", "c"]
    assert [d.excess for d in judges.deviations(values(3, 2, 1), zero, zero, zero)] == [3, 1]


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
