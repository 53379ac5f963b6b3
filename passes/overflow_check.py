"""Overflow check: an update whose gradients are not all finite does not happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from ..ir.analysis.training.network import network_parts
from ..ir.analysis.training.stages import TREATMENT
from ..ir.builders.cast import cast
from ..ir.builders.reduce import all_finite, any_true
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import PassError
from ..ir.core.graph import Graph, Node, Value
from ..ir.core.names import LOSS, OVERFLOW, SKIPPED_CYCLES
from ..ir.core.primitives import ASCEND
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.sites import site
from ..ir.core.types import DType, tensor
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.effects.outline import skip_where
from ..ir.rewrite.settle_results import settle_results
from .framework.base import Pass
from .framework.options import option
from .step.accumulated import adding_nodes
from .step.dynamic_loss_scale import put_scale_rule
from .step.exported_reductions import reduces_gradients
from .step.float_status import float_status
from .step.names import DROPPED, EACH, OWN, SKIPPED
from .step.normalisation import change_count
from .step.own_check import OwnCheck, find_own_check, look_at_all, skips
from .step.results import named_results, with_results
from .step.tally import cycle_total, declare_tally, find_tally
from .step.turns import Turn, find_turns, skip_in_turn, take_back
from .step.update_side import update_effects

SCOPE = "overflow-check"


class OverflowCheck(Pass):
    """Skips the whole update of a window in which any gradient is not finite.

    The pass tests every gradient as the optimizer would get it. Infinities and NaN survive every sum, so one test a
    window sees those of each micro-batch. Weights, optimizer state and step count stay; accumulators and counters are
    cleared. The forward pass writes running statistics as MindSpore does natively, also for a micro-batch that
    overflows. What a cell has updated before it takes other gradients of the same step (a GAN, a step by sharpness) is
    taken back where one of these is not finite.

    ``policy=skip-micro`` drops only the micro-batches that overflow, and takes the mean over the others.
    ``detect=status`` is for an Ascend in saturation mode: each micro-batch asks the device's overflow flag. (Not run on
    a chip.)

    A file that skips its update by itself (``if not overflow: self.optimizer(grads)``) keeps its own check. The pass
    makes it look at the gradients that it does not see, with ``policy=skip-cycle`` only.

    Outputs: ``overflow`` (bool), ``skipped_cycles`` (how many updates were skipped in a row). A session ends with an
    error after more than ``max_skipped`` of them.

    Preserves training as long as all gradients are finite.

    Source: ``nn.TrainOneStepWithLossScaleCell``, without ``NPUGetFloatStatus`` and its kin, which exist on Ascend
    alone.
    """

    name = "overflow-check"
    at_stage = "finite-check"
    policy: str = option(
        "skip-cycle",
        help="drop the whole window, or only the micro-batch that overflows",
        choices=("skip-cycle", "skip-micro"),
    )
    detect: str = option("values", help="test the gradients, or ask a saturating Ascend", choices=("values", "status"))
    max_skipped: int = option(50, help="skipped windows in a row that end training; 0: never", minimum=0)

    def needs(self, program: Program) -> Sequence[str]:
        # Where the file sums gradients over ranks, all ranks must also skip together.
        return ["data-parallel"] if reduces_gradients(program) else []

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if SKIPPED in program.state:
            raise PassError(
                "the program checks its gradients already, by an earlier overflow-check or the one that a dynamic "
                "loss-scale brings along: ask for it once, with its options, before loss-scale or in the same pipeline"
            )
        if self.detect == "status" and program.target != ASCEND:
            raise PassError(f"detect=status asks a flag that only Ascend has, and the target is {program.target}")
        roles = {name: variable.role for name, variable in program.state.items()}
        updating = updating_graphs(program)
        program.add_state(SKIPPED, tensor("int32"), "counter")
        each = self.policy == "skip-micro" or self.detect == "status"
        if each and program.schedule.count is None:
            program.state[SKIPPED].info[EACH] = True
        count = program.schedule.count if each else None
        if count is not None:
            program.add_state(DROPPED, tensor("float32"), "counter")
            for graph in program.graphs.values():
                if graph not in updating:
                    self._check_micro_batch(graph)
        checked: dict[str, None] = {}
        adopted = False
        for graph in updating:
            own_check = _settled_check(graph, roles)
            adopted = own_check is not None
            if own_check is not None:
                found = self._adopt(graph, own_check, result)
            else:
                found = self._check_update(graph, roles, count, consumes=program.consumes(graph.name))
            checked.update(dict.fromkeys(found))
        program.schedule = replace(program.schedule, max_skipped=self.max_skipped or None)
        put_scale_rule(program)
        result.matched = result.changed = len(checked)
        result.statistics = {"gradients checked": len(checked), "graphs": len(updating)}
        unit = "micro-batch" if count is not None and self.policy == "skip-micro" else "window"
        result.summary = f"{counted(len(checked), 'gradient')} checked; one that is not finite skips its {unit}"
        if adopted:
            program.state[SKIPPED].info[OWN] = True
            result.summary += ", by the check that the file brings"
        return result

    def _check_micro_batch(self, graph: Graph) -> None:
        """Counts the micro-batches that overflow, in a graph that only accumulates."""
        fx = Effects(graph)
        overflow = self._micro_batch_overflows(graph)
        number = cast(graph, overflow, DType.FLOAT32, scope=SCOPE)
        fx.append("AssignAdd", [graph.state(DROPPED, tensor("float32")), number], scope=SCOPE)
        fx.commit(with_results(graph, [(OVERFLOW, overflow)]))

    def _micro_batch_overflows(self, graph: Graph) -> Value:
        """Whether the micro-batch of this graph overflows; with ``skip-micro`` what it adds to sums is then zero."""
        adding = adding_nodes(graph)
        if self.detect == "status":
            overflow = float_status(graph, dict(named_results(graph)).get(LOSS), scope=SCOPE)
        else:
            terms = list(dict.fromkeys(n.operand(1) for n in adding))
            overflow = graph.create("LogicalNot", [all_finite(graph, terms, scope=SCOPE)], scope=SCOPE)
        if self.policy == "skip-micro":
            for node in adding:
                term = node.operand(1)
                nothing = graph.create("ZerosLike", [term], scope=SCOPE)
                kept = graph.create("Select", [overflow, nothing, term], scope=SCOPE, sources=[term])
                node.set_operand(1, kept)
        return overflow

    def _check_update(self, graph: Graph, roles: Mapping[str, str], count: str | None, *, consumes: bool) -> list[str]:
        """Makes the update of one graph conditional; returns the weights whose gradients are checked. ``count`` names
        the state that counts micro-batches, where each is judged by itself; ``consumes``: whether the graph has one."""
        fx = Effects(graph)
        updates = update_effects(fx, roles)
        by_itself = consumes and (count is not None or self.detect == "status")
        own = self._micro_batch_overflows(graph) if by_itself else None
        paths = gradient_paths(graph)
        gradients = {v: path.weight for path in paths for v in path.at("finite-check", graph).values}
        for value, weight in gradients.items():
            if isinstance(value, Node) and value.graph is not graph:
                raise PassError(
                    f"the gradient {site(value)} of weight '{weight}' is computed inside a function, and the check "
                    "stands "
                    "in front of all updates: only gradients of the main graph can be checked"
                )
        # Gradients stay in front of the Switch, where later passes look for them, also as their optimizer takes them.
        treated = [v for path in paths for p in path.points if p.stage == TREATMENT for v in p.values]
        turns = find_turns(fx, updates, gradients)
        if len(turns) > 1 and self.detect == "status":
            raise PassError(
                f"graph '{graph.name}' takes the gradient of '{gradients[turns[-1][1][0]]}' after other updates, and "
                "detect=status asks once in a step, behind all gradients: use detect=values"
            )
        old = skip_in_turn(fx, turns[:-1], [*gradients, *treated], scope=SCOPE)
        zero = graph.constant(scalar_tensor("float32", 0.0))
        overflows: list[Value] = []
        skips: list[Value] = []
        if self.detect == "values":
            finite = all_finite(graph, list(gradients), scope=SCOPE)
            overflows.append(graph.create("LogicalNot", [finite], scope=SCOPE))
            skips.extend(overflows)
        if count is not None:
            one = None if own is None else graph.constant(scalar_tensor("float32", 1.0))
            fed = find_tally(graph, count) or declare_tally(cycle_total(fx, count, one, scope=SCOPE), count)
            own_number = None if own is None else cast(graph, own, DType.FLOAT32, scope=SCOPE)
            dropped = declare_tally(cycle_total(fx, DROPPED, own_number, scope=SCOPE), DROPPED)
            some_dropped = graph.create("Greater", [dropped, zero], scope=SCOPE)
            overflows.append(some_dropped)
            if self.policy == "skip-micro":
                # Where none is left the sums are zero, and an update by zero would still move what has momentum.
                skips.append(graph.create("LessEqual", [fed, dropped], scope=SCOPE))
                change_count(graph, lambda old: graph.create("Sub", [old, dropped], scope=SCOPE))
            else:
                skips.append(some_dropped)
        elif own is not None:
            number = cast(graph, own, DType.FLOAT32, scope=SCOPE)
            assert isinstance(number, Node)
            raised = graph.create("Greater", [declare_tally(number, OVERFLOW), zero], scope=SCOPE)
            overflows.append(raised)
            skips.append(raised)
        stay = [any_true(graph, overflows, scope=SCOPE), *gradients, *treated]
        skip = any_true(graph, skips, scope=SCOPE)
        self._skip(fx, turns[-1], stay, skip, old, counting=count is not None)
        return [path.weight for path in paths]

    def _adopt(self, graph: Graph, own: OwnCheck, result: PassResult) -> list[str]:
        """Counts what the file's own check skips, and makes it look at every gradient; returns the weights whose
        gradients it looks at."""
        if self.policy != "skip-cycle" or self.detect != "values":
            raise PassError(
                f"graph '{graph.name}' skips its update by itself where gradients overflow (by {site(own.nodes[0])}): "
                "policy=skip-micro and detect=status need a training cell without a check of its own"
            )
        paths = gradient_paths(graph)
        unseen = look_at_all(graph, own, paths, scope=SCOPE)
        for weight in unseen:
            result.miss(
                weight, f"the file's own check (by {site(own.nodes[0])}) cannot be made to look at its gradient"
            )
        skip = skips(graph, own, scope=SCOPE)
        fx = Effects(graph)
        in_a_row = self._count(fx, skip)
        fx.append("Assign", [graph.state(SKIPPED, tensor("int32")), in_a_row], scope=SCOPE)
        fx.commit(with_results(graph, [(OVERFLOW, skip), (SKIPPED_CYCLES, in_a_row)]))
        return [path.weight for path in paths if path.weight not in unseen]

    @staticmethod
    def _count(fx: Effects, skip: Value) -> Node:
        """How many updates in a row were skipped, with this one."""
        graph = fx.graph
        none, one = (graph.constant(scalar_tensor("int32", n)) for n in (0, 1))
        skipped = graph.state(SKIPPED, tensor("int32"))
        more = graph.create("Add", [fx.load(skipped, scope=SCOPE), one], scope=SCOPE)
        return graph.create("Select", [skip, more, none], scope=SCOPE)

    @classmethod
    def _skip(
        cls, fx: Effects, turn: Turn, stay: Sequence[Value], skip: Value, old: Mapping[Value, Value], *, counting: bool
    ) -> None:
        """``stay``: values that must not become part of the update; the first is whether gradients overflow. ``old``:
        what the states of earlier turns held before the step."""
        graph = fx.graph
        skipped = graph.state(SKIPPED, tensor("int32"))
        in_a_row = cls._count(fx, skip)
        skip_where(fx, skip, turn[0], stay=[*stay, in_a_row, *old.values()], name="update", scope=SCOPE)
        take_back(fx, skip, old, scope=SCOPE)
        fx.append("Assign", [skipped, in_a_row], scope=SCOPE)
        if counting:
            dropped = graph.state(DROPPED, tensor("float32"))
            fx.append("Assign", [dropped, graph.constant(scalar_tensor("float32", 0.0))], scope=SCOPE)
        fx.commit(with_results(graph, [(OVERFLOW, stay[0]), (SKIPPED_CYCLES, in_a_row)]))


def _settled_check(graph: Graph, roles: Mapping[str, str]) -> OwnCheck | None:
    """The file's own check of a graph. What the graph returns is settled first: a loss that comes out of a branch that
    updates is returned from where the network computed it, since a skipped update must not take it away."""
    settle_results(graph, network_parts(graph))
    return find_own_check(graph, update_effects(Effects(graph), roles))
