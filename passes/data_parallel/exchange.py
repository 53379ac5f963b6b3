"""The exchange of gradients in one graph: buckets, sums, and what the sums are divided by."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.analysis.training.divisor import NORMALISATION, find_divisor, quotients
from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.builders.cast import cast
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import PassError, VerifyError
from ...ir.core.graph import Graph, Node, Value, rewire, tensor_type
from ...ir.core.names import LOCAL, STAGE
from ...ir.core.program import Program
from ...ir.core.walk import through
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.ranks.buckets import Item, plan_buckets, sum_over_ranks
from ...ir.rewrite.ranks.collectives import WORLD, all_reduce
from ...ir.rewrite.stages import mark
from ..step.clip_each_rank import own_count
from ..step.crossings import Start
from ..step.exported_reductions import SCOPE
from ..step.names import COUNTED, FUSION, TALLY
from ..step.normalisation import change_divisor, declare_divisor, divide
from ..step.tally import declare_tally, move_marks, tallies
from .flags import sum_flags
from .terms import reduced_terms, widened

RANKS = "ranks"
"""The tally of the ranks themselves: one each."""
OWN_DIVISION = "own_division"
"""Mark of the division of a gradient that each rank keeps for itself: by what the rank has counted."""


class Exchange:
    """Puts the reductions into one graph; ``limit``: bytes of a bucket. ``reduced`` are the weights whose gradients are
    exchanged, by so many ``collectives``; ``fixed`` those whose gradients are constants."""

    def __init__(self, program: Program, graph: Graph, mean: bool, limit: int):
        self.program = program
        self.graph = graph
        self.mean = mean
        self.limit = limit
        self.group = WORLD[program.target]
        self.reduced: list[str] = []
        self.fixed: list[str] = []
        self.collectives = 0

    def run(self) -> None:
        graph = self.graph
        fx = Effects(graph)
        found, self.fixed = reduced_terms(self.program, graph, mean=self.mean)
        terms = self._in_order(found)
        own = self._own_divisions(fx)
        sum_flags(graph, self.program.target, self.group)
        wide = [widened(graph, term.value) for term in terms]
        buckets = self._buckets(terms, wide)
        sums: dict[int, Node] = {}
        for bucket in buckets:
            totals = sum_over_ranks(graph, [wide[i] for i in bucket], self.group, scope=SCOPE)
            sums.update(zip(bucket, totals, strict=True))
        divisor = self._divisor(terms)
        for i, term in enumerate(terms):
            self._wire(term, sums[i], None if term.divided else divisor)
        for what, node in list(tallies(graph)):
            if what != RANKS:
                reduce_tally(graph, node, self.group)
        for division, divisor_of_rank in own.items():
            division.set_operand(1, divisor_of_rank)
        try:
            fx.commit()
        except VerifyError as error:
            raise PassError(
                "some gradients are computed after others have updated their weights, so they cannot be exchanged "
                f"together ({error}): use fusion=0"
            ) from error
        self.reduced = list(dict.fromkeys(w for term in terms for w in term.weights))
        self.collectives = len(buckets)

    def _in_order(self, terms: Sequence[Start]) -> list[Start]:
        """As the backward part has them ready, as far as the graph says; else the last layer's first."""
        depth: dict[Value, int] = {}
        for node in self.graph:
            depth[node] = 1 + max((depth.get(v, 0) for v in node.operands), default=0)
        last_first = terms[::-1]
        return sorted(last_first, key=lambda term: depth[term.value])

    def _buckets(self, terms: Sequence[Start], wide: Sequence[Value]) -> list[list[int]]:
        items = []
        for i, (term, value) in enumerate(zip(terms, wide, strict=True)):
            type_ = tensor_type(value)
            if type_.is_static:
                number = self.program.state[term.weights[0]].info.get(FUSION)
                items.append(Item(i, type_.dtype, type_.nbytes, number))
            else:  # it cannot be taken out of a bucket again
                items.append(Item(i, type_.dtype, self.limit))
        return plan_buckets(items, self.limit)

    # -- what they are divided by ----------------------------------------------------------------------------

    def _divisor(self, terms: Sequence[Start]) -> Node | None:
        """Sees to the mean; returns the divisor where it must be put behind the sums, which nothing divides yet."""
        counted = any(term.divided for term in terms)
        if self.mean == counted:
            return None
        graph = self.graph
        one = graph.constant(scalar_tensor("float32", 1.0))
        ranks = declare_tally(all_reduce(graph, one, self.group, scope=SCOPE), RANKS)
        op = "Mul" if self.mean else "RealDiv"
        if change_divisor(graph, lambda old: graph.create(op, [old, ranks], scope=SCOPE)):
            return None
        return declare_divisor(ranks)

    def _own_divisions(self, fx: Effects) -> dict[Node, Value]:
        """The divisions of gradients that each rank keeps for itself, and what the rank itself divides by."""
        divisor = find_divisor(self.graph)
        local = {name for name, variable in self.program.state.items() if variable.info.get(LOCAL)}
        if divisor is None:
            return {}
        own = own_count(fx, divisor, SCOPE)
        paths = [path for path in gradient_paths(self.graph) if path.weight in local]
        on_path = {through(value, ("Cast",)) for path in paths for point in path.points for value in point.values}
        found: dict[Node, Value] = {}
        for by, divisions in quotients(divisor).items():
            for division in (d for d in divisions if d in on_path):
                found[division] = cast(self.graph, own, tensor_type(by).dtype, scope=SCOPE)
                mark(division, {OWN_DIVISION: True})
        return found

    def _wire(self, term: Start, total: Value, divisor: Node | None) -> None:
        graph = self.graph
        if divisor is not None:
            total = divide(graph, total, divisor, scope=SCOPE)
        wide = tensor_type(total).dtype
        for user, i in term.uses:
            if user.op.name == "Cast" and tensor_type(user).dtype is wide:
                # The sum of half-precision numbers need not fit in half precision before it is divided.
                user.replace_uses(total)
            else:
                user.set_operand(i, cast(graph, total, tensor_type(user.operand(i)).dtype, scope=SCOPE))


def reduce_tally(graph: Graph, node: Node, group: str) -> None:
    """The sum of a tally over ranks takes its place."""
    uses = [(user, i) for user, i in node.use_sites() if user.op.name != "UpdateState"]
    total = all_reduce(graph, node, group, scope=SCOPE)
    rewire(uses, total)
    take_over(node, total)


def take_over(old: Node, new: Node) -> None:
    move_marks(old, new, (TALLY, COUNTED))
    if old.marks.get(STAGE) == NORMALISATION:
        move_marks(old, new, (STAGE,))
