"""AdaSum: groups of ranks take their steps apart from each other, and the steps are combined."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.analysis.training.gradient_path import updating_graphs
from ..ir.builders.cast import cast
from ..ir.builders.reduce import all_true, reduce_all
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import PassError
from ..ir.core.graph import Graph, Node, Value, rewire, tensor_type
from ..ir.core.names import LOCAL, OVERFLOW, OWNED, STAGE, average_of
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.types import DType
from ..ir.core.wording import counted, print_bytes
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.ranks.adasum import SCOPE, Job, adasum, expand_adasum, is_combination, neighbours
from ..ir.rewrite.ranks.buckets import ALL_REDUCE, collective_of
from ..ir.rewrite.ranks.collectives import WORLD, all_reduce, is_collective, traffic
from ..ir.rewrite.stages import mark
from .framework.base import Pass
from .framework.options import option
from .step.exported_reductions import reduces_gradients
from .step.monitored import is_monitored
from .step.names import OWN, SKIPPED
from .step.own_check import find_own_check
from .step.results import named_results
from .step.tally import tallies

AGREED = "agreed"
"""Mark of a decision that all ranks take together."""


class AdaSum(Pass):
    """Combines the optimizer steps of groups of ranks by how much they agree, instead of averaging gradients.

    Every rank updates a copy of its weights with the gradients of its own group, and hands in the difference. Two
    differences a and b of a weight combine to (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b, the groups pairwise, then
    pairs of pairs. So orthogonal steps add up, and equal ones are their mean. This happens once a window.

    ``devices_per_group`` neighbouring ranks average their gradients. The number of groups must be a power of two. With
    one group, or outside of a job, the weights stay as the update leaves them. Optimizer state and running statistics
    stay those of each group and rank.

    Changes training: the effective learning rate grows with the number of groups.

    Source: Maleki et al., Scaling Distributed Training with Adaptive Summation, MLSys 2021; ``mindspore.boost.AdaSum``.
    """

    name = "adasum"
    at_stage = "update"
    preserves = False
    late = True
    redone = True
    devices_per_group: int = option(1, help="neighbouring ranks that take one step together", minimum=1)

    def needs(self, program: Program) -> Sequence[str]:
        # Gradients that the file sums over all ranks are to be summed over a group.
        return ["data-parallel"] if self.devices_per_group > 1 or reduces_gradients(program) else []

    def undo(self, program: Program) -> None:
        for graph in program.graphs.values():
            fx = Effects(graph)
            fx.drop([e for e in fx.list if is_combination(e.node)])
            for node in list(graph):
                if AGREED in node.marks:
                    node.replace_uses(_own_decision(node))
            fx.commit()

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if any(OWNED in variable.info for variable in program.state.values()):
            raise PassError("shard-optimizer has one rank update each weight for all: leave one of the two out")
        names: dict[str, None] = {}
        if any(average_of(name) in program.state for name in program.state):
            raise PassError("the program averages its weights, and adasum would change them after that: leave one out")
        if is_monitored(program):
            raise PassError(
                "monitor measures weights behind their updates, and adasum changes them after that: leave "
                "one of the two out"
            )
        for graph in updating_graphs(program):
            weights = _updated_weights(program, graph)
            names.update(dict.fromkeys(weights))
            self._reduce_among_neighbours(graph)
            if SKIPPED in program.state and OWN not in program.state[SKIPPED].info:
                _decide_together(graph, program.target)
            else:
                own = find_own_check(graph, Effects(graph).list)
                checks = [] if own is None else own.nodes
                if checks and not _test_together(graph, checks, program.target):
                    result.miss(checks[0].name, "the file's own overflow check: each group skips and scales by itself")
            self._combine(graph, weights)
        for name, variable in program.state.items():
            if variable.trainable and name not in names:
                result.miss(name, "nothing updates it, or each rank keeps its own")
        elements = sum(program.state[name].type.size for name in names)
        result.matched = result.changed = len(names)
        result.statistics = {"weights combined": len(names), "elements": elements}
        if names:
            for groups in (2, 4):
                result.statistics[f"bytes a rank gives, {counted(groups, 'group')}"] = self._bytes(program, groups)
        result.summary = (
            f"the steps of {counted(len(names), 'weight')} ({print_bytes(4 * elements)}) combined over groups of "
            f"{counted(self.devices_per_group, 'rank')}"
        )
        return result

    def _reduce_among_neighbours(self, graph: Graph) -> None:
        """The sums of data-parallel, of gradients and of their divisors, are taken within a group."""
        sums = [collective_of(n) for n in graph if n.marks.get(STAGE) == ALL_REDUCE]
        sums.extend(node for _, node in tallies(graph) if is_collective(node))
        for node in dict.fromkeys(sums):
            node.set_attribute("group", neighbours(self.devices_per_group))

    def _combine(self, graph: Graph, weights: Sequence[str]) -> None:
        fx = Effects(graph)
        for name in weights:
            state = graph.state(name)
            # A copy: the memory of the weight is what the update writes.
            old = graph.create("TensorMove", [fx.load(state, scope=SCOPE)], scope=SCOPE)
            new = fx.load(state, scope=SCOPE, initial=False)
            fx.append("Assign", [state, adasum(graph, old, new, self.devices_per_group)], scope=SCOPE)
        fx.commit()

    def _bytes(self, program: Program, groups: int) -> int:
        """The cost of combining for a rank each cycle, in a job with so many groups."""
        graph = updating_graphs(program)[0].clone()[0]
        before = traffic(graph)
        expand_adasum(graph, Job(0, groups * self.devices_per_group, program.target))
        return traffic(graph).nbytes - before.nbytes


def _updated_weights(program: Program, graph: Graph) -> list[str]:
    """The weights that a graph updates, but for those that each rank keeps for itself."""
    written = {state.name for effect in Effects(graph).list for state in effect.writes}
    return [
        name
        for name, variable in program.state.items()
        if name in written and variable.role == "weight" and not variable.info.get(LOCAL)
    ]


def _decide_together(graph: Graph, target: str) -> None:
    """An update that one rank skips is skipped by all: whether any does is put in the place of overflow-check's
    decisions."""
    decisions: dict[Value, None] = {value: None for name, value in named_results(graph) if name == OVERFLOW}
    skipped = graph.states.get(SKIPPED)
    for user in skipped.uses if skipped else ():
        if user.op.name == "Assign":
            in_a_row = user.operand(1)
            assert isinstance(in_a_row, Node)
            decisions[in_a_row.operand(0)] = None
    for own in decisions:
        uses = list(own.use_sites())
        agreed = _any_rank(graph, own, target)
        mark(agreed, {AGREED: True})
        rewire(uses, agreed)


def _any_rank(graph: Graph, own: Value, target: str) -> Node:
    """Whether ``own``, a bool, holds on any rank."""
    total = all_reduce(graph, cast(graph, own, DType.FLOAT32, scope=SCOPE), WORLD[target], scope=SCOPE)
    return graph.create("Greater", [total, graph.constant(scalar_tensor("float32", 0.0))], scope=SCOPE)


def _test_together(graph: Graph, checks: Sequence[Node], target: str) -> bool:
    """Where the file tests its gradients by itself, one of the tests fails on all ranks if any test fails on any: what
    follows from it (skipping, another scale, a result) then does so everywhere. False for a test of another kind."""
    if any(check.op.name != "IsFinite" for check in checks):
        return False
    smallest = min(checks, key=lambda check: tensor_type(check).size)
    uses = list(smallest.use_sites())
    finite = all_true(graph, [reduce_all(graph, check, scope=SCOPE) for check in checks], scope=SCOPE)
    somewhere = _any_rank(graph, graph.create("LogicalNot", [finite], scope=SCOPE), target)
    nowhere = graph.create("LogicalNot", [somewhere], scope=SCOPE)
    agreed = graph.create("LogicalAnd", [smallest, nowhere], scope=SCOPE)
    mark(agreed, {AGREED: True})
    rewire(uses, agreed)
    return True


def _own_decision(agreed: Node) -> Value:
    value: Value = agreed
    for _ in ("LogicalAnd",) if agreed.op.name == "LogicalAnd" else ("Greater", "AllReduce", "Cast"):
        assert isinstance(value, Node)
        value = value.operand(0)
    return value
