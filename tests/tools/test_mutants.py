"""Passes broken on purpose, one fault each: boost-verify finds every one, and names the pass. boost-prove proves none.

A mutant is made in this process, by replacing a part of a pass for the length of one test; the pipeline that compiles
the program is then the one that the bisection runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.analysis.training.stages import GradientPath
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Graph, Node, Value
from boost_compile.ir.core.predicates import is_optimizer, is_random
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.passes import (
    clip_gradients,
    common_subexpression_elimination,
    dead_code_elimination,
    gradient_freeze,
    loss_scale,
    lower_gradient_centralization,
    overflow_check,
    parameter_groups,
)
from boost_compile.passes.gradient_accumulation import graphs as accumulation
from boost_compile.passes.normalised_head import rewrite as normalised
from boost_compile.passes.step import dynamic_loss_scale
from boost_compile.tools.verification.reference import Reference
from boost_compile.tools.verification.verifier import verify

import boost_compile as bc

Patch = pytest.MonkeyPatch

ACCUMULATE = "gradient-accumulation{steps=4}"


def wrong_divisor(patch: Patch) -> None:
    """The mean divides by N + 1."""
    real = accumulation.declare_divisor

    def declare(node: Node, **options: Any) -> Node:
        graph = node.graph
        assert graph is not None
        return real(graph.create("Add", [node, graph.constant(scalar_tensor("float32", 1.0))]), **options)

    patch.setattr(accumulation, "declare_divisor", declare)


def _with_append(patch: Patch, change: Callable[[Effects, str, list[Value]], tuple[str, list[Value]] | None]) -> None:
    """Accumulation that appends other effects than it means to; None: it leaves this one out."""

    class Mutant(Effects):
        def append(self, op: str, operands: list[Value], *, scope: str = "", sources: Iterable[Value] = ()) -> Node:
            changed = change(self, op, operands)
            if changed is None:
                return operands[-1]  # type: ignore[return-value]
            return super().append(changed[0], changed[1], scope=scope, sources=sources)

    patch.setattr(accumulation, "Effects", Mutant)


def missing_clear(patch: Patch) -> None:
    """One accumulator keeps what it has."""

    def change(fx: Effects, op: str, operands: list[Value]) -> tuple[str, list[Value]] | None:
        return None if op == "Assign" and operands[0].name == "accum.output.bias" else (op, operands)

    _with_append(patch, change)


def overwriting_accumulation(patch: Patch) -> None:
    """A gradient replaces the sum of those before it."""

    def change(fx: Effects, op: str, operands: list[Value]) -> tuple[str, list[Value]]:
        return ("Assign" if operands[0].name == "accum.hidden.weight" else op), operands

    _with_append(patch, change)


def wrong_gradient(patch: Patch) -> None:
    """Two weights of one shape get each other's gradients."""
    heads = {"accum.kind.weight": "accum.place.weight", "accum.place.weight": "accum.kind.weight"}

    def change(fx: Effects, op: str, operands: list[Value]) -> tuple[str, list[Value]]:
        other = heads.get(operands[0].name) if op == "AssignAdd" else None
        return op, [fx.graph.state(other, operands[0].type), *operands[1:]] if other else operands

    _with_append(patch, change)


def uncounted_micro_batch(patch: Patch) -> None:
    """A short cycle divides by a whole one's number."""

    def change(fx: Effects, op: str, operands: list[Value]) -> tuple[str, list[Value]]:
        if op == "AssignAdd" and operands[0].name == "accumulation.count":
            # The last micro-batch makes it N, whatever came before.
            return "Assign", [operands[0], fx.graph.constant(scalar_tensor("float32", 4.0))]
        return op, operands

    _with_append(patch, change)


def update_every_micro_batch(patch: Patch) -> None:
    """The accumulating graph keeps the update side."""
    patch.setattr(accumulation, "drop_update_side", lambda fx, parts: None)


def dropped_effect(patch: Patch) -> None:
    """One update is lost where the network side is cut away."""

    class Mutant(Effects):
        def commit(self, result: Value | None = None) -> int:
            if self.graph.name == "apply":
                self.drop([e for e in self.writes() if is_optimizer(e.node)][-1:])
            return super().commit(result)

    patch.setattr(accumulation, "Effects", Mutant)


def stale_statistics(patch: Patch) -> None:
    """What forward writes is lost with the update side."""
    real = accumulation.drop_update_side

    def drop(fx: Effects, parts: dict[Node, str]) -> None:
        real(fx, parts)
        fx.drop(fx.writes())

    patch.setattr(accumulation, "drop_update_side", drop)


class _Early(GradientPath):
    __slots__ = ()

    def at(self, stage: str, graph: Graph | None = None) -> Any:
        return super().at("all-reduce", graph)


def clip_before_unscale(patch: Patch) -> None:
    """Gradients are clipped while they are still those of the scaled loss."""
    real = clip_gradients.unscaled_paths

    def early(graph: Graph, said: str) -> list[GradientPath]:
        return [_Early(path.weight, path.points) for path in real(graph, said)]

    patch.setattr(clip_gradients, "unscaled_paths", early)


def norm_without_one(patch: Patch) -> None:
    """The common norm forgets a gradient."""
    real = clip_gradients.norm
    patch.setattr(clip_gradients, "norm", lambda graph, squares: real(graph, list(squares)[:-1] or squares))


def one_weight_still_scaled(patch: Patch) -> None:
    """The loss scale is not divided out of one gradient."""
    real = loss_scale.divide_gradients

    def divide(graph: Graph, divisors: dict[Any, Any], **options: Any) -> None:
        real(graph, dict(list(divisors.items())[1:]), **options)

    patch.setattr(loss_scale, "divide_gradients", divide)


def scale_falls_twice(patch: Patch) -> None:
    """An overflow divides the scale by the factor twice."""
    real = dynamic_loss_scale._put

    def put(graph: Graph, overflow: Value, factor: float, *rule: float) -> None:
        real(graph, overflow, factor * factor, *rule)

    patch.setattr(dynamic_loss_scale, "_put", put)


def unchecked_gradient(patch: Patch) -> None:
    """The overflow check forgets one gradient."""
    real = overflow_check.gradient_paths
    patch.setattr(overflow_check, "gradient_paths", lambda graph: real(graph)[1:])


def dropped_still_counts(patch: Patch) -> None:
    """The mean still divides by the micro-batches that overflowed."""
    patch.setattr(overflow_check, "change_count", lambda graph, make: None)


def decay_twice(patch: Patch) -> None:
    """A weight decays twice by its group's coefficient."""
    real = parameter_groups._Group._decayed

    def decayed(self: Any, body: Graph, gradient: Value, *place: Any) -> Value:
        return real(self, body, real(self, body, gradient, *place), *place)

    patch.setattr(parameter_groups._Group, "_decayed", decayed)


def frozen_slot_moves(patch: Patch) -> None:
    """A frozen variant still writes a slot of a frozen weight."""
    real = gradient_freeze.frozen_copy

    def freeze(program: bc.Program, source: Graph, name: str, frozen: set[str], shared: set[str]) -> Graph:
        graph = real(program, source, name, frozen, shared)
        slot = next(v for v in program.state.values() if v.role == "slot" and v.weight in frozen)
        if graph.name.startswith("step"):
            fx = Effects(graph)
            weight = graph.state(slot.weight, slot.type)
            fx.append("AssignAdd", [graph.state(slot.name, slot.type), fx.load(weight)])
            fx.commit()
        return graph

    patch.setattr(gradient_freeze, "frozen_copy", freeze)


def wrong_axes(patch: Patch) -> None:
    """The mean is taken over the first axis instead of all others."""
    patch.setattr(lower_gradient_centralization, "_axes", lambda variable: (0,))


def merged_random_nodes(patch: Patch) -> None:
    """Equal random nodes become one."""
    real = common_subexpression_elimination._may_merge
    patch.setattr(common_subexpression_elimination, "_may_merge", lambda node: is_random(node) or real(node))


def needed_effect_eliminated(patch: Patch) -> None:
    """The last write of the graph counts as dead."""
    real = dead_code_elimination._clean

    def clean(main: Graph) -> tuple[int, int]:
        fx = Effects(main)
        fx.drop(fx.writes()[-1:])
        fx.commit()
        return real(main)

    patch.setattr(dead_code_elimination, "_clean", clean)


def wrong_backward(patch: Patch) -> None:
    """The gradient of the head's input is that of the input at length one."""

    def through_length(self: Any, gradient: Node, value: Value, unit: Value, axis: int) -> Node:
        return gradient

    patch.setattr(normalised.Builder, "through_length", through_length)


@dataclass(frozen=True)
class Mutant:
    """`make` breaks a pass of `pipeline`; `guilty` is its name."""

    make: Callable[[Patch], None]
    case: str
    pipeline: str
    guilty: str


CLEAN = "common-subexpression-elimination,{},dead-code-elimination"
MUTANTS = [
    Mutant(wrong_divisor, "mlp", f"overflow-check,{ACCUMULATE}", "gradient-accumulation"),
    Mutant(missing_clear, "mlp", ACCUMULATE, "gradient-accumulation"),
    Mutant(overwriting_accumulation, "mlp", CLEAN.format(ACCUMULATE), "gradient-accumulation"),
    Mutant(wrong_gradient, "two_heads", ACCUMULATE, "gradient-accumulation"),
    Mutant(uncounted_micro_batch, "mlp", ACCUMULATE, "gradient-accumulation"),
    Mutant(update_every_micro_batch, "mlp", ACCUMULATE, "gradient-accumulation"),
    Mutant(dropped_effect, "mlp", f"{ACCUMULATE},loss-scale{{mode=static}}", "gradient-accumulation"),
    Mutant(stale_statistics, "running_average", ACCUMULATE, "gradient-accumulation"),
    Mutant(clip_before_unscale, "mlp", "loss-scale{mode=static},clip-gradients{limit=0.1}", "clip-gradients"),
    Mutant(norm_without_one, "mlp", f"{ACCUMULATE},clip-gradients{{limit=0.1}}", "clip-gradients"),
    Mutant(one_weight_still_scaled, "mlp", "loss-scale{mode=static,init=2.0}", "loss-scale"),
    Mutant(scale_falls_twice, "mlp", "loss-scale", "loss-scale"),
    Mutant(unchecked_gradient, "mlp", "overflow-check", "overflow-check"),
    Mutant(dropped_still_counts, "mlp", f"{ACCUMULATE},overflow-check{{policy=skip-micro}}", "overflow-check"),
    Mutant(decay_twice, "mlp", "parameter-groups{weight_decay=0.001}", "parameter-groups"),
    Mutant(frozen_slot_moves, "mlp", "gradient-freeze{groups=2}", "gradient-freeze"),
    Mutant(wrong_axes, "mlp", "lower-gradient-centralization", "lower-gradient-centralization"),
    Mutant(needed_effect_eliminated, "mlp", "loss-scale{mode=static},dead-code-elimination", "dead-code-elimination"),
    Mutant(wrong_backward, "mlp", "normalised-head", "normalised-head"),
]


MATERIAL = Path(__file__).parents[1] / "material"


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.case == "mlp"], ids=lambda m: m.make.__name__)
def test_mutants_are_not_proved(mutant: Mutant, monkeypatch: Patch) -> None:
    """What the whole pass makes is proved, and what the broken one makes is not."""
    source = bc.load(MATERIAL / "mlp.ir")
    assert bc.prove(source, bc.compile(source, mutant.pipeline)).proved
    mutant.make(monkeypatch)
    assert not bc.prove(source, bc.compile(source, mutant.pipeline)).proof.proved


@pytest.fixture(scope="module")
def references() -> dict[Any, dict[Any, Reference]]:
    """What MindSpore has compiled of each original."""
    return {}


def judge(source: bc.Program, mutant: Mutant, patch: Patch, references: dict[Any, Reference]) -> Any:
    mutant.make(patch)
    program = bc.compile(source, mutant.pipeline)
    return verify(source, program, references=references)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.make.__name__)
def test_mutants_are_caught_and_the_pass_is_named(
    mutant: Mutant,
    exported: Callable[[str], Any],
    monkeypatch: Patch,
    references: dict[Any, dict[Any, Reference]],
) -> None:
    source = bc.load(str(exported(mutant.case)))
    found = judge(source, mutant, monkeypatch, references.setdefault(mutant.case, {}))
    assert not found.verified
    assert found.failures
    assert found.guilty is not None
    assert found.guilty.name == mutant.guilty, found.guilty


def drop_twice(source: bc.Program) -> bc.Program:
    """The hidden values are dropped twice, by two equal random nodes, and both are used."""
    program = source.copy()
    (graph,) = program.graphs.values()
    (first,) = (n for n in graph if n.op.name == "Dropout")
    (kept,) = (u for u in first.uses if u.op.name == "TupleGetItem" and _is_first(u))
    takers = list(kept.use_sites())
    with graph.inserting_after(kept):
        second = graph.create(first.op, list(first.operands), first.type)
        again = graph.create(kept.op, [second, kept.operand(1)], kept.type)
        both = graph.create("Add", [kept, again])
    for node, like in ((second, first), (again, kept), (both, kept)):
        node.primal = dict(like.primal)
    for user, i in takers:
        user.set_operand(i, both)
    return program


def _is_first(node: Node) -> bool:
    return getattr(node.operand(1), "value", None) == 0


def test_merged_random_nodes_are_caught(exported: Callable[[str], Any], monkeypatch: Patch) -> None:
    source = drop_twice(bc.load(str(exported("dropout"))))
    clean = bc.compile(source, "common-subexpression-elimination")
    assert verify(source, clean).verified
    mutant = Mutant(merged_random_nodes, "", f"common-subexpression-elimination,{ACCUMULATE}", "")
    found = judge(source, mutant, monkeypatch, {})
    assert [r.name for r in found.failures] == ["random draws"]
    assert found.guilty is not None
    assert found.guilty.name == "common-subexpression-elimination"
