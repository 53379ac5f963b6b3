"""Another optimizer is proved against what its paper says; other numbers, and faults in it, are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.proof.verdict import PURPOSE, SAME
from boost_compile.passes.replace_optimizer.composed import Composed

import boost_compile as bc
from tests.ir.proof.attacks import attacks, load

TESTS = Path(__file__).parents[3]
OPTIMIZERS = ("lion{weight_decay=0.1}", "muon", "schedule-free-adamw{weight_decay=0.1,lr=0.02}", "lamb{eps=0.001}")
CYCLES = (
    "",
    "gradient-accumulation{steps=2,split=fused},overflow-check,loss-scale",
    "data-parallel,clip-gradients{limit=0.05},parameter-groups{match=[*.bias],lr_factor=2.0},schedule{total=9}",
)


def replaced(original: bc.Program, to: str, more: str = "", cycle: str = "") -> bc.Program:
    return bc.compile(original, f'replace-optimizer{{to="{to}"{more}}},{cycle}'.strip(","))


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("to", OPTIMIZERS)
def test_another_optimizer_is_proved(to: str, cycle: str) -> None:
    """Adam goes with its weight decay, which was part of it."""
    original = load("mlp_adam_decay")
    found = bc.prove(original, replaced(original, to, cycle=cycle))
    assert found.proved, found
    stated = next(s for s in found.proof.stated if s.by == "replace-optimizer")
    assert set(stated.weights) == {n for n, v in original.state.items() if v.role == "weight"}
    assert stated.says.startswith(f"optimizer {to}: ")
    kinds = {v.name: v.kind for v in found.proof.verdicts}
    assert kinds["hidden.weight"] == PURPOSE
    assert kinds["loss"] == SAME


def test_weights_that_do_not_match_keep_their_optimizer() -> None:
    """Both optimizers count, and have a rate; the new one's are called another way."""
    original = load("mlp")
    program = replaced(original, "muon", ",match=[hidden.*]", "gradient-accumulation{steps=2}")
    found = bc.prove(original, program)
    assert found.proved, found
    by = {v.name: v.detail for v in found.proof.verdicts}
    assert by["hidden.weight"] == by["optimizer2.muon_momentum.hidden.weight"] == "by replace-optimizer"
    assert by["output.weight"] == by["moments.output.weight"] == ""
    assert {"global_step", "optimizer2.global_step"} <= program.state.keys()


@pytest.mark.parametrize(
    "pipeline",
    [
        "lora{match=[hidden.weight],rank=2},replace-optimizer{to=muon},overflow-check,loss-scale",
        "replace-optimizer{to=lion},lora{match=[hidden.weight],rank=2,train=[*.bias]},schedule{total=5}",
        "replace-optimizer{to=muon},freeze{match=[hidden.*]},gradient-accumulation{steps=2}",
        "freeze{match=[hidden.*]},replace-optimizer{to=muon}",
        "normalised-head,replace-optimizer{to=lamb},mixed-precision{level=O1}",
        "replace-optimizer{to=lion,match=[hidden.*]},replace-optimizer{to=muon,match=[output.*]},schedule{total=4}",
    ],
)
def test_formulas_go_together_in_the_order_of_their_passes(pipeline: str) -> None:
    original = load("mlp")
    found = bc.prove(original, bc.compile(original, pipeline))
    assert found.proved, found


@pytest.mark.parametrize(
    ("to", "other"),
    [
        ("lion", "lion{beta1=0.8}"),
        ("lion", "lion{weight_decay=0.1}"),
        ("lion", "lion{lr=0.2}"),
        ("lion", "muon"),
        ("muon", "muon{nesterov=false}"),
        ("muon", "muon{adam_lr=0.001}"),
        ("schedule-free-adamw", "schedule-free-adamw{beta1=0.8}"),
        ("lamb", "lamb{eps=0.001}"),
    ],
)
def test_other_options_are_another_optimizer(to: str, other: str) -> None:
    original = load("mlp")
    program = replaced(original, to)
    assert bc.prove(original, program).proved
    program.reports[-1].options["to"] = other
    assert not bc.prove(original, program).proved


@pytest.mark.parametrize("name", ["lion_m.hidden.weight", "learning_rate", "global_step"])
def test_what_the_optimizer_begins_with_is_part_of_it(name: str) -> None:
    original = load("mlp")
    program = replaced(original, "lion")
    first = program.state[name].initial
    found = bc.prove(original, program.with_values({name: np.asarray(first + 1, first.dtype)}))
    assert [v.name for v in found.proof.failures] == [name]


def test_averages_begin_as_the_weight() -> None:
    original = load("mlp")
    program = replaced(original, "schedule-free-adamw")
    changed = {n: program.state[n].initial + 1 for n in ("average.output.bias", "free_z.output.bias")}
    assert {v.name for v in bc.prove(original, program.with_values(changed)).proof.failures} == changed.keys()


def test_an_optimizer_without_a_formula_says_so() -> None:
    original = load("mlp")
    program = replaced(original, "lion")
    program.reports[-1].options["to"] = "thor"
    found = bc.prove(original, program)
    assert not found.proved
    assert "no formula says what MindSpore's optimizer 'thor' does: law missing" in repr(found)


def _of_the_new(real: object) -> object:
    return lambda self, old, new, beta: real(self, new, old, beta)  # type: ignore[operator]


@pytest.mark.parametrize("to", OPTIMIZERS)
def test_a_fault_of_the_pass_is_not_proved(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean in which old and new have changed places."""
    original = load("mlp")
    monkeypatch.setattr(Composed, "mean", _of_the_new(Composed.mean))
    assert not bc.prove(original, replaced(original, to)).proved


def test_no_fault_in_another_optimizer_is_proved() -> None:
    pipelines = (
        "replace-optimizer{to=muon,match=[hidden.*]}",
        "replace-optimizer{to=lamb},gradient-accumulation{steps=2}",
        "replace-optimizer{to=schedule-free-adamw}",
    )
    total, kinds, through = attacks(range(400), 20, ("mlp", "mlp_adam_decay"), pipelines)
    assert through == []
    assert total == 20
    assert len(kinds) >= 4


def test_an_update_behind_a_check_of_the_file_says_so() -> None:
    original = bc.load(TESTS / "passes" / "step" / "own_update.ir")
    found = bc.prove(original, replaced(original, "lion"))
    assert not found.proved
    assert "under a condition of its own, where no formula puts an optimizer" in repr(found)


def test_what_the_cell_does_to_its_weights_stays_and_is_asked_for() -> None:
    """A bound on the weight and a target network behind the update; a program that has lost the bound is not proved."""
    original = bc.load(TESTS / "passes/replace_optimizer_own_writes.ir")
    program = replaced(original, "lion", cycle="gradient-accumulation{steps=2}")
    assert bc.prove(original, program).proved
    (apply,) = (graph for name, graph in program.graphs.items() if name == "apply")
    bound = next(node for node in apply if node.op.name == "Minimum" and node.name == "least")
    bound.replace_uses(bound.operand(0))
    found = bc.prove(original, program)
    assert {v.name for v in found.proof.verdicts if v.kind not in (PURPOSE, SAME)} >= {"w", "target"}
    assert not found.proved


@pytest.mark.parametrize("pipeline", ["freeze{match=[w]}", "gradient-freeze{groups=2,type=interval}"])
def test_a_copy_of_a_frozen_weight_is_still_made(pipeline: str) -> None:
    """Of the weight as it stands: the prover and the checker say so alike."""
    original = bc.load(TESTS / "passes/freeze_copies.ir")
    found = bc.prove(original, bc.compile(original, pipeline))
    assert found.proved, found


def test_accumulators_may_have_the_names_of_slots_that_went(tmp_path: Path) -> None:
    """MindSpore's SGD and Adagrad call their slots ``accum.<weight>``."""
    text = (TESTS / "passes/replace_optimizer_own_writes.ir").read_text(encoding="utf-8")
    named = tmp_path / "named.ir"
    named.write_text(text.replace("%m:", "%accum.w:").replace("%m,", "%accum.w,"), encoding="utf-8")
    original = bc.load(named)
    program = replaced(original, "lion", cycle="gradient-accumulation{steps=2}")
    assert program.state["accum.w"].role == "accumulator"
    found = bc.prove(original, program)
    assert found.proved, found
