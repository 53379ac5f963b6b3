"""Overflow check: an update whose gradients are not all finite does not happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.attributes import scalar_tensor
from ..ir.dtypes import cast
from ..ir.effects import Effect, Effects, live_nodes
from ..ir.errors import PassError
from ..ir.gradient_path import STAGE, gradient_paths, updating_graphs
from ..ir.graph import Graph
from ..ir.outline import make_conditional
from ..ir.program import CYCLE_ROLES, Program
from ..ir.reductions import all_finite
from ..ir.report import PassResult
from ..ir.training import BACKWARD, FORWARD, network_parts
from ..ir.types import DType, tensor
from ..ir.values import CALL, Node, Value
from .base import Pass
from .dynamic_loss_scale import put_scale_rule
from .normalisation import change_count
from .options import option
from .results import with_results

SCOPE = "overflow-check"
SKIPPED = "overflow.skipped_cycles"
DROPPED = "overflow.dropped_micro_batches"
ASKS_FOR_OVERFLOW = frozenset({
    "IsFinite", "IsInf", "IsNan", "AllFinite", "FloatStatus", "NPUGetFloatStatus", "NPUGetFloatStatusV2",
})  # fmt: skip


class OverflowCheck(Pass):
    """Skips the whole update of a cycle in which any gradient is not finite.

    Every gradient is tested as the optimizer would get it, averaged and unscaled: infinities and NaNs survive every
    sum, so one test a cycle sees those of each micro-batch. The update side (weights, slots, step count, everything
    that it writes) becomes a function that a Switch calls or leaves alone: no value leaves the device for the decision.
    Accumulators and counters are cleared either way. What the forward pass writes (BatchNorm statistics) is written as
    MindSpore does natively, also by a micro-batch that overflows.

    ``policy=skip-micro`` drops only the micro-batches that overflow: they add nothing, and the mean is taken over the
    others; the update is skipped if none is left. With ``reduction=sum`` the rest is summed.

    Outputs: ``overflow`` (bool; with ``skip-micro`` also of each accumulating step), ``skipped_cycles`` (how many
    updates were skipped in a row, 0 after one that happened). A session ends with an error after more than
    ``max_skipped`` of them.

    Preserves: training is the same as long as all gradients are finite. Replaces ``NPUGetFloatStatus`` and its kin,
    which exist on Ascend alone, for exports without a check of their own.
    """

    name = "overflow-check"
    stage = "finite-check"
    policy: str = option(
        "skip-cycle", help="what a gradient that is not finite drops", choices=("skip-cycle", "skip-micro")
    )
    max_skipped: int = option(50, help="skipped cycles in a row that end training; 0: never", minimum=0)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if SKIPPED in program.state:
            raise PassError("the program checks its gradients already: ask for overflow-check once")
        roles = {name: variable.role for name, variable in program.state.items()}
        updating = updating_graphs(program)
        program.add_state(SKIPPED, tensor("int32"), "counter")
        count = program.schedule.count if self.policy == "skip-micro" else None
        if count is not None:
            program.add_state(DROPPED, tensor("float32"), "counter")
            for graph in program.graphs.values():
                if graph not in updating:
                    _drop_micro_batch(graph)
        checked: dict[str, None] = {}
        for graph in updating:
            checked.update(dict.fromkeys(_Check(graph, roles, count).run()))
        program.schedule = replace(program.schedule, max_skipped=self.max_skipped or None)
        put_scale_rule(program)
        result.matched = result.changed = len(checked)
        result.statistics = {"gradients checked": len(checked), "graphs": len(updating)}
        unit = "cycle" if count is None else "micro-batch"
        result.summary = f"{len(checked)} gradients checked; one that is not finite skips its {unit}"
        return result


def _drop_micro_batch(graph: Graph) -> None:
    """A micro-batch that overflows adds nothing to the accumulators of ``graph``, and is counted as dropped."""
    fx = Effects(graph)
    finite = _keep_finite_terms(graph)
    overflow = graph.create("LogicalNot", [finite], scope=SCOPE)
    dropped = cast(graph, overflow, DType.FLOAT32, scope=SCOPE)
    fx.append("AssignAdd", [graph.state(DROPPED, tensor("float32")), dropped], scope=SCOPE)
    fx.commit(with_results(graph, [("overflow", overflow)]))


def _keep_finite_terms(graph: Graph) -> Value:
    """Makes what this micro-batch adds to sums zero unless all of it is finite; returns whether it is."""
    adding = [n for n in graph if n.marks.get(STAGE) == "accumulate" and n.op.name in ("Add", "AssignAdd")]
    terms = list(dict.fromkeys(n.operand(1) for n in adding))
    finite = all_finite(graph, terms, scope=SCOPE)
    for node in adding:
        term = node.operand(1)
        nothing = graph.create("ZerosLike", [term], scope=SCOPE)
        node.set_operand(1, graph.create("Select", [finite, term, nothing], scope=SCOPE, sources=[term]))
    return finite


class _Check:
    """Makes the update of one graph conditional. ``count`` names the state that counts micro-batches where single ones
    may be dropped."""

    def __init__(self, graph: Graph, roles: Mapping[str, str], count: str | None):
        self.graph = graph
        self.count = count
        self.fx = Effects(graph)
        self.updates = update_effects(self.fx, roles)
        self.zero = graph.constant(scalar_tensor("float32", 0.0))
        self.one = graph.constant(scalar_tensor("float32", 1.0))

    def run(self) -> list[str]:
        """Returns the weights whose gradients are checked."""
        graph, fx = self.graph, self.fx
        _refuse_own_check(graph, self.updates)
        finite_terms = _keep_finite_terms(graph) if self.count is not None and graph.inputs else None
        paths = gradient_paths(graph)
        values = dict.fromkeys(v for path in paths for v in path.at("finite-check", graph).values)
        finite = all_finite(graph, list(values), scope=SCOPE)
        overflow: Value = graph.create("LogicalNot", [finite], scope=SCOPE)
        cleared = [graph.state(DROPPED, tensor("float32"))] if self.count is not None else []
        if self.count is not None:
            dropped = self._total(DROPPED, None if finite_terms is None else self._as_number(finite_terms, negate=True))
            some_dropped = graph.create("Greater", [dropped, self.zero], scope=SCOPE)
            overflow = graph.create("LogicalOr", [overflow, some_dropped], scope=SCOPE)
            # Where none was valid the sums are zero, and an update by zero would still move what has momentum.
            count = self._total(self.count, None if finite_terms is None else self.one)
            some_valid = graph.create("Greater", [count, dropped], scope=SCOPE)
            finite = graph.create("LogicalAnd", [finite, some_valid], scope=SCOPE)
            change_count(graph, lambda old: graph.create("Sub", [old, dropped], scope=SCOPE))
        skipped = graph.state(SKIPPED, tensor("int32"))
        none, single = (graph.constant(scalar_tensor("int32", n)) for n in (0, 1))
        more = graph.create("Add", [fx.load(skipped, scope=SCOPE), single], scope=SCOPE)
        in_a_row = graph.create("Select", [finite, none, more], scope=SCOPE)
        make_conditional(fx, finite, self.updates, stay=[overflow, in_a_row], name="update", scope=SCOPE)
        fx.append("Assign", [skipped, in_a_row], scope=SCOPE)
        for state in cleared:
            fx.append("Assign", [state, self.zero], scope=SCOPE)
        fx.commit(with_results(graph, [("overflow", overflow), ("skipped_cycles", in_a_row)]))
        return [path.weight for path in paths]

    def _total(self, state: str, own: Value | None) -> Value:
        loaded = self.fx.load(self.graph.state(state, tensor("float32")), scope=SCOPE)
        return loaded if own is None else self.graph.create("Add", [loaded, own], scope=SCOPE)

    def _as_number(self, condition: Value, *, negate: bool) -> Value:
        if negate:
            condition = self.graph.create("LogicalNot", [condition], scope=SCOPE)
        return cast(self.graph, condition, DType.FLOAT32, scope=SCOPE)


def update_effects(fx: Effects, roles: Mapping[str, str]) -> list[Effect]:
    """The effects of the update side, but for those on state of the cycle itself (accumulators, counters) and
    output."""
    parts = network_parts(fx.graph)
    return [
        e for e in fx.list
        if not (e.passive or e.io or parts.get(e.node) in (FORWARD, BACKWARD))
        and not (e.writes and all(roles.get(state.name) in CYCLE_ROLES for state in e.writes))
    ]  # fmt: skip


def _refuse_own_check(graph: Graph, updates: Sequence[Effect]) -> None:
    """Two checks would fight over who counts; the file's own one knows nothing of this one."""
    for effect in updates:
        switch = effect.node.operand(0) if effect.node.op is CALL else None
        if isinstance(switch, Node) and switch.op.name == "Switch":
            found = next((n for n in live_nodes([switch.operand(0)]) if n.op.name in ASKS_FOR_OVERFLOW), None)
            if found is not None:
                raise PassError(
                    f"graph '{graph.name}' skips its update by itself where gradients overflow (by {found!r}): leave "
                    "overflow-check out, or export a training cell without loss scale"
                )
