"""Sharded optimizer state: each rank of a job holds the slots of some weights, and updates these."""

from __future__ import annotations

from collections.abc import Set
from fnmatch import fnmatchcase

from ..ir.analysis.training.gradient_path import has_stage, updating_graphs
from ..ir.core.errors import PassError, nearest
from ..ir.core.names import LOCAL, OWNED, average_of
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.wording import counted, print_bytes
from ..ir.rewrite.ranks.adasum import ADASUM
from ..ir.rewrite.ranks.buckets import ALL_REDUCE
from ..ir.rewrite.ranks.collectives import SUMMED, Traffic, cycle_traffic
from ..ir.rewrite.ranks.dealing import FLAT, PARTITIONS, WHOLE, bytes_of_ranks, deal, owned_states
from ..ir.rewrite.ranks.ownership import Updates
from ..ir.rewrite.ranks.pieces import Pieces
from .framework.base import Pass
from .framework.options import option
from .step.each_micro_batch import sum_each_micro_batch, summed_accumulators
from .step.monitored import is_monitored

SHOWN = (2, 4, 8)
"""The numbers of ranks for which the report says what one of them holds."""
_CUT = f"weights cut, {counted(SHOWN[1], 'rank')}"


class ShardOptimizer(Pass):
    """Deals the weights out to the ranks: the owner of a weight alone holds its optimizer state and updates it.

    All ranks still sum all gradients. Then each rank updates the weights that it owns, and all receive the new weights,
    once a window. The runtime deals out by size when a job starts. With ``stage=2`` the owner alone holds the sum of
    the gradients of a window, too, so the ranks sum the gradients of every micro-batch.

    With ``partition=flat`` a weight that is larger than a rank's share is cut into pieces, one for each rank; with
    ``auto`` also others, until no rank holds more than 5 % over the mean. That needs an update that works element by
    element. The report names each weight that stays whole, or on every rank, with the reason. A saved file has the
    state of all ranks together.

    Preserves training: with ``stage=1`` bit for bit, next to ``data-parallel`` alone; with ``stage=2`` too where a
    window is one micro-batch. In longer windows stage 2 adds up the same gradients in another order.

    Source: Rajbhandari et al., ZeRO, 2020, stages 1 and 2; Xu et al., Automatic Cross-Replica Sharding of Weight Update
    in Data-Parallel Training, 2020, for updates on pieces.
    """

    name = "shard-optimizer"
    at_stage = "update"
    late = True
    redone = True
    stage: int = option(1, help="1: deal out optimizer state; 2: also the sums of a window", minimum=1, maximum=2)
    partition: str = option(
        WHOLE,
        help="whole: each weight has one owner; flat: what is larger than a rank's share is cut into a piece for each "
        "rank; auto: also what the balance needs",
        choices=PARTITIONS,
    )
    match: tuple[str, ...] = option(("*",), help="globs over the names of the weights that are dealt out")

    def undo(self, program: Program) -> None:
        for variable in program.state.values():
            variable.info.pop(OWNED, None)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if any(node.op.name == ADASUM for graph in program.graphs.values() for node in graph.all_nodes()):
            raise PassError(
                "adasum lets groups of ranks update all weights apart from each other: leave one of the two out"
            )
        if any(average_of(name) in program.state for name in program.state):
            raise PassError(
                "weight-average reads all weights behind their updates, before the ranks exchange them: leave one of "
                "the two out"
            )
        if is_monitored(program):
            raise PassError(
                "monitor measures all weights behind their updates, before the ranks exchange them: leave one of the "
                "two out"
            )
        if not has_stage(program, ALL_REDUCE):
            raise PassError(
                "the ranks do not sum their gradients, so none can update a weight for the others: ask for "
                "data-parallel too"
            )
        before = cycle_traffic(program)
        weights = [name for name, variable in program.state.items() if variable.role == "weight"]
        for glob in self.match:
            if not any(fnmatchcase(name, glob) for name in weights):
                result.miss(glob, f"no weight has such a name{nearest(glob, weights)}")
        sums = self._sums(program, result)
        updates = [Updates(graph) for graph in updating_graphs(program)]
        for weight in weights:
            slots = [name for name, v in program.state.items() if v.weight == weight and v.role == "slot"]
            states = [*slots, *sums.get(weight, ())]
            reason = self._why_not(program, weight, slots, states, updates)
            if reason:
                result.miss(weight, reason)
                sums.pop(weight, None)
                continue
            for name in states:
                program.state[name].info[OWNED] = WHOLE
        if sums:
            sum_each_micro_batch(program, {name for names in sums.values() for name in names})
        gathered = self._let_cut(program, result) if self.partition != WHOLE else set()
        self._report(program, result, before, gathered)
        return result

    def _sums(self, program: Program, result: PassResult) -> dict[str, list[str]]:
        """With stage 2, by weight: the accumulators that one rank can hold for all."""
        if self.stage == 1:
            return {}
        found = summed_accumulators(program)
        trial = program.copy()
        sum_each_micro_batch(trial, {name for names in found.values() for name in names})
        updates = [Updates(graph) for graph in trial.graphs.values()]
        for name, variable in program.state.items():
            if variable.role != "accumulator" or not variable.weight:
                continue
            reason = "what is summed over the ranks is made of it on each"
            if variable.weight in found:
                slots = [n for n, v in program.state.items() if v.weight == variable.weight and v.role == "slot"]
                states = [*slots, *found[variable.weight]]
                reason = next((why for u in updates if (why := u.obstacle(variable.weight, states))), "")
            if reason:
                result.miss(name, f"every rank holds it: {reason}")
                found.pop(variable.weight, None)
        if not found:
            result.miss("stage 2", "there are no sums of a window to deal out: as stage 1")
        return found

    def _why_not(
        self, program: Program, weight: str, slots: list[str], states: list[str], updates: list[Updates]
    ) -> str:
        if not any(fnmatchcase(weight, glob) for glob in self.match):
            return "not named by match: every rank updates it"
        if program.state[weight].info.get(LOCAL):
            return "each rank keeps its own weight"
        if program.state[weight].dtype not in SUMMED:
            return f"is {program.state[weight].dtype}, which no collective sends"
        if not states:
            return "has no optimizer state: there is nothing to share out"
        if not any(name in u.graph.states for u in updates for name in states):
            return "nothing updates its optimizer state"
        return next((f"every rank updates it: {why}" for u in updates if (why := u.obstacle(weight, slots))), "")

    def _let_cut(self, program: Program, result: PassResult) -> set[str]:
        """Notes the weights that may be cut; the others are misses, with the reason. Returns those of which every rank
        needs the sum of a cycle whole."""
        gathered: set[str] = set()
        updates = [Pieces(graph) for graph in program.graphs.values()]
        owned = owned_states(program)
        reasons: dict[str, str] = {}
        for weight, states in owned.items():
            sums = [name for name in states if program.state[name].role == "accumulator"]
            regions = [pieces.region(weight, [s for s in states if s not in sums], sums) for pieces in updates]
            reasons[weight] = next((region.obstacle for region in regions if region.obstacle), "")
            if any(region.whole for region in regions):
                gathered.add(weight)
        if self.partition == FLAT and owned and all(reasons.values()):
            weight, why = next(iter(reasons.items()))
            raise PassError(
                f"partition=flat cuts weights, and none can be updated in pieces, '{weight}' because {why}: use "
                "partition=auto, or partition=whole"
            )
        for weight, why in reasons.items():
            if why:
                result.miss(weight, f"has one owner, whatever its size: {why}")
                continue
            for name in owned[weight]:
                program.state[name].info[OWNED] = self.partition
        return gathered

    def _report(self, program: Program, result: PassResult, before: Traffic, gathered: Set[str]) -> None:
        owned = owned_states(program)
        states = [program.state[s] for names in owned.values() for s in names]
        nbytes = sum(v.nbytes for v in states)
        sent = sum(program.state[w].nbytes for w in owned)
        after = cycle_traffic(program)
        result.matched = result.changed = len(owned)
        result.statistics = {
            "weights": len(owned),
            "states": len(states),
            "bytes of them": nbytes,
            "bytes of gradients a window before": before.nbytes,
            "bytes of gradients a window": after.nbytes,
            "bytes of new weights a window": sent,
        }
        for ranks in SHOWN:
            if self.partition != WHOLE:
                cut = deal(program, ranks).cut
                result.statistics[f"weights cut, {counted(ranks, 'rank')}"] = len(cut)
                result.statistics[f"bytes of sums gathered a window, {counted(ranks, 'rank')}"] = sum(
                    program.state[w].nbytes for w in gathered & cut.keys()
                )
            result.statistics[f"bytes a rank holds, {counted(ranks, 'rank')}"] = max(bytes_of_ranks(program, ranks))
        of_four = result.statistics[f"bytes a rank holds, {counted(SHOWN[1], 'rank')}"]
        what = "slots and sums" if any(v.role == "accumulator" for v in states) else "slots"
        result.summary = (
            f"the {what} of {counted(len(owned), 'weight')} ({print_bytes(nbytes)}) dealt out: one of {SHOWN[1]} ranks "
            f"holds at most {print_bytes(of_four)}"
            + (f" ({100 * (of_four * SHOWN[1] / nbytes - 1):.0f} % over the mean)" if nbytes else "")
            + (f", {counted(result.statistics[_CUT], 'weight')} cut" if self.partition != WHOLE else "")
            + f"; a window sends {print_bytes(sent)} of new weights"
        )
        if after != before:
            result.summary += (
                f" and sums {print_bytes(after.nbytes)} of gradients, one time each micro-batch "
                f"({print_bytes(before.nbytes)} before)"
            )
