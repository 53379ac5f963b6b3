"""Data parallelism: every rank trains on its own part of the data, and all update by the same gradients."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ..ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ..ir.analysis.training.divisor import NORMALISATION, find_divisor, quotients
from ..ir.analysis.training.gradient_path import gradient_paths, is_fed, updating_graphs
from ..ir.analysis.training.network import BACKWARD, network_parts
from ..ir.analysis.training.stages import GradientPath
from ..ir.builders.cast import cast
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import PassError, VerifyError
from ..ir.core.graph import Constant, Graph, Node, Value, rewire, tensor_type
from ..ir.core.names import LOCAL, STAGE
from ..ir.core.primitives import CPU
from ..ir.core.program import Program, StateVariable
from ..ir.core.report import PassResult
from ..ir.core.types import DType
from ..ir.core.walk import through
from ..ir.core.wording import agreed, counted, print_bytes
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.ranks.buckets import ALL_REDUCE, Item, plan_buckets, source_of, sum_over_ranks
from ..ir.rewrite.ranks.collectives import SUMMED, WORLD, all_reduce, cycle_traffic, group_of, is_collective
from ..ir.rewrite.stages import mark
from .framework.base import Pass
from .framework.options import option
from .step.clip_each_rank import clipped_by_rank, own_count
from .step.crossings import Start, leaving_backward, sums, taken, update_uses
from .step.exported_reductions import SCOPE, take_out_reductions
from .step.names import COUNTED, FUSION, TALLY
from .step.normalisation import change_divisor, declare_divisor, divide
from .step.tally import declare_tally, move_marks, tallies

RANKS = "ranks"
"""The tally of the ranks themselves: one each."""
OWN_DIVISION = "own_division"
"""Mark of the division of a gradient that each rank keeps for itself: by what the rank has counted."""
MEGABYTE = 2**20


class DataParallel(Pass):
    """Sums the gradients of all ranks, once a cycle, before anything else is done to them.

    The pass replaces each gradient that updates a weight by its sum over the ranks of the job, in float32 where the
    gradient is half. Everything after it (unscaling, finite check, clipping, weight decay, update) sees the same on
    every rank. So weights that began equal stay equal in every bit. With accumulation the sums of a whole cycle are
    exchanged.

    ``mean`` divides by the count of all ranks together (micro-batches, their weights, or ranks), which is exchanged
    too. So the program knows no number of ranks, and short cycles and dropped micro-batches weigh what they should.
    With ``mean=false`` the gradient is that mean times the number of ranks. Ranks take some decisions from numbers of
    their own (``overflow-check`` with ``policy=skip-micro`` or ``detect=status``): the program takes them from sums
    over all.

    An export made in DATA_PARALLEL mode reduces its gradients itself. The pass takes out these reductions and the
    factor 1/ranks behind them, and puts the program's own where they belong. If ``mean`` is not given, it follows such
    a file, and is true elsewhere.

    Gradients smaller than ``fusion`` megabytes are exchanged together, in the order in which the backward part has them
    ready, each bucket of at most that size. Those that ``parameter-groups`` has numbered go group by group.

    Preserves training: the weights are those of one process that trains on the concatenated micro-batches of all ranks
    (with losses that are means over samples), up to rounding. BatchNorm takes its statistics from each rank's own data.

    Source: MindSpore's ``DistributedGradReducer``, once a cycle instead of once a micro-batch.
    """

    name = "data-parallel"
    stage = "all-reduce"
    late = True
    redone = True
    mean: bool | None = option(None, help="average over ranks, not sum (as the file does, else true)")
    fusion: float = option(4.0, help="megabytes that are exchanged together; 0: each gradient alone", minimum=0)

    def undo(self, program: Program) -> None:
        for graph in program.graphs.values():
            _undo(graph)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        before = cycle_traffic(program)
        updating = updating_graphs(program)
        own = [take_out_reductions(graph) for graph in updating]
        for name in {name for found in own for name in found.left_alone}:
            for state in program.state.values():
                if name in (state.name, state.weight):
                    state.info[LOCAL] = True
        mean = self.mean
        if mean is None:
            mean = all(found.mean for found in own)
        elif any(found.kept for found in own):
            raise PassError(
                "the file multiplies gradients behind its own sums over ranks by a constant in which 1/ranks may be "
                f"one factor of several: leave out mean={str(mean).lower()}, and what the file does stays"
            )
        result.options["mean"] = mean
        search = program.schedule.search
        if search is not None and not mean:
            raise PassError("a line search compares mean losses, so the gradients must be means too: use mean=true")
        reduced: dict[str, None] = {}
        fixed: dict[str, None] = {}
        buckets = 0
        for graph in updating:
            rewrite = _Rewrite(program, graph, mean, int(self.fusion * MEGABYTE))
            buckets = max(buckets, rewrite.run())
            reduced.update(dict.fromkeys(rewrite.reduced))
            fixed.update(dict.fromkeys(rewrite.fixed))
        if search is not None:
            judge = program.graphs[search.judge]
            fx = Effects(judge)
            for _, node in list(tallies(judge)):
                _reduce_tally(judge, node, WORLD[program.target])
            fx.commit()
        for name, variable in program.state.items():
            if variable.role == "weight" and name not in reduced:
                result.miss(name, _why_not(variable, fixed))
        after = cycle_traffic(program)
        result.matched = result.changed = len(reduced)
        result.statistics = {
            "gradients": len(reduced),
            "collectives a cycle before": before.count,
            "bytes a cycle before": before.nbytes,
            "collectives a cycle": after.count,
            "bytes a cycle": after.nbytes,
        }
        result.summary = (
            f"{counted(len(reduced), 'gradient')} in {counted(buckets, 'collective')}; a cycle exchanges "
            f"{print_bytes(after.nbytes)} ({print_bytes(before.nbytes)} before)"
        )
        kept = max((found.kept for found in own), default=0)
        if kept:
            result.miss(
                f"{counted(kept, 'factor')} of the file",
                "may be more than 1/ranks, and kept: right for as many ranks as the file was exported for",
            )
        replaced = max((found.number for found in own), default=0)
        if replaced:
            result.summary += f"; {counted(replaced, 'reduction')} of the file {agreed(replaced, 'is', 'are')} replaced"
        return result


def _why_not(weight: StateVariable, fixed: Mapping[str, None]) -> str:
    if weight.info.get(LOCAL):
        return "the file reduces other gradients and not this one: each rank keeps its own weight"
    if weight.name in fixed:
        return "its gradient is a constant, the same on every rank"
    if weight.trainable is False:
        return "nothing trains it"
    return "the loss does not depend on it, or nothing updates it: there is no gradient"


class _Rewrite:
    """Puts the reductions into one graph; ``limit``: bytes of a bucket."""

    def __init__(self, program: Program, graph: Graph, mean: bool, limit: int):
        self.program = program
        self.graph = graph
        self.mean = mean
        self.limit = limit
        self.group = WORLD[program.target]
        self.reduced: list[str] = []
        self.fixed: list[str] = []

    def run(self) -> int:
        """Returns the number of collectives for gradients."""
        graph = self.graph
        fx = Effects(graph)
        terms = self._in_order(self._terms())
        own = self._own_divisions(fx)
        _sum_flags(graph, self.program.target, self.group)
        wide = [_widened(graph, term.value) for term in terms]
        buckets = self._buckets(terms, wide)
        sums: dict[int, Node] = {}
        for bucket in buckets:
            found = sum_over_ranks(graph, [wide[i] for i in bucket], self.group, scope=SCOPE)
            sums.update(zip(bucket, found, strict=True))
        divisor = self._divisor(terms)
        for i, term in enumerate(terms):
            self._wire(term, sums[i], None if term.divided else divisor)
        for what, node in list(tallies(graph)):
            if what != RANKS:
                _reduce_tally(graph, node, self.group)
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
        return len(buckets)

    # -- what is reduced -------------------------------------------------------------------------------------

    def _terms(self) -> list[Start]:
        """The values to be summed over ranks. Of those that leave the backward part all uses by the update side count:
        who asks whether they are finite too, so that all ranks hear the same."""
        if is_fed(self.graph):
            starts = sums(self.graph)
            self.fixed.extend(name for start in starts if start.is_constant for name in start.weights)
            terms = [start for start in starts if not start.is_constant]
        else:
            found = anatomy(self.graph)
            self.fixed.extend(info.name for info in found.weights if not info.gradient and info.fixed)
            terms = leaving_backward(
                found, ", which not every rank may call: only gradients of the main graph can be reduced"
            )
            self._check_crossings(found, {start.value for start in terms})
        if self.fixed and not self.mean:
            raise PassError(
                f"the gradient of weight '{self.fixed[0]}' is a constant of graph '{self.graph.name}', which "
                "data-parallel cannot sum over ranks: use mean=true"
            )
        for term in terms:
            if not term.divided and (clipped := clipped_by_rank(term.value)) is not None:
                term.value, term.uses = clipped, taken(clipped)  # what each rank makes of its own is summed
            dtype = tensor_type(term.value).dtype
            if dtype not in SUMMED:
                raise PassError(
                    f"the gradient of weight '{term.weights[0]}' ({term.value!r}) is {dtype}, which AllReduce does not "
                    "add up: train this weight in float32"
                )
        state = self.program.state
        return self._merged([t for t in terms if not all(state[w].info.get(LOCAL) for w in t.weights)])

    def _check_crossings(self, found: TrainingAnatomy, gradients: Container[Value]) -> None:
        """Refuses other values of the backward part that the update side takes: they are each rank's own, such as the
        rows of a sparse gradient."""
        for node in self.graph:
            if found.part(node) != BACKWARD or node in gradients:
                continue
            for user, _ in update_uses(node, found.parts):
                raise PassError(
                    f"the update side (by {user!r}) takes {node!r}, which is not the gradient of a weight and "
                    "differs by rank: a sparse gradient has rows of its own on every rank; export the network with "
                    "sparse=False in its embeddings"
                )

    def _merged(self, terms: Sequence[Start]) -> list[Start]:
        """Weights whose gradient is a sum of several get one term: their sum."""
        of_weight: dict[str, list[Start]] = {}
        for term in terms:
            for name in term.weights:
                of_weight.setdefault(name, []).append(term)
        several = {name: found for name, found in of_weight.items() if len(found) > 1}
        paths = {path.weight: path for path in gradient_paths(self.graph)} if several else {}
        gone: set[int] = set()
        for name, summands in several.items():
            if any(t.weights != (name,) for t in summands) or not _meets_in_sum(paths.get(name)):
                continue
            first, *others = summands
            for other in others:
                operands = [_widened(self.graph, t.value) for t in (first, other)]
                first.value = self.graph.create("Add", operands, scope=SCOPE, sources=operands)
                rewire(other.uses, self.graph.create("ZerosLike", [other.value], scope=SCOPE))
                gone.add(id(other))
        return [term for term in terms if id(term) not in gone]

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


def _meets_in_sum(path: GradientPath | None) -> bool:
    return path is not None and path.is_sum and not path.points[0].measures


def _widened(graph: Graph, value: Value) -> Value:
    """In float32 at least, in which sums over ranks are taken."""
    return cast(graph, value, tensor_type(value).dtype.widened, scope=SCOPE)


def _reduce_tally(graph: Graph, node: Node, group: str) -> None:
    """The sum of a tally over ranks takes its place."""
    uses = [(user, i) for user, i in node.use_sites() if user.op.name != "UpdateState"]
    total = all_reduce(graph, node, group, scope=SCOPE)
    rewire(uses, total)
    _take_over(node, total)


def _take_over(old: Node, new: Node) -> None:
    move_marks(old, new, (TALLY, COUNTED))
    if old.marks.get(STAGE) == NORMALISATION:
        move_marks(old, new, (STAGE,))


def _undo(graph: Graph) -> None:
    """Takes out what the pass put into a graph."""
    results = [n for n in graph if n.marks.get(STAGE) == ALL_REDUCE]
    fx = Effects(graph)
    for node in results:
        node.replace_uses(source_of(node))
    for what, node in list(tallies(graph)):
        if what == RANKS:
            for user, i in node.use_sites():
                if i == 1:
                    remaining = user.operand(0)
                    assert isinstance(remaining, Node)
                    user.replace_uses(remaining)
                    move_marks(user, remaining, (STAGE,))
        elif is_collective(node):
            source = node.operand(0)
            node.replace_uses(source)
            assert isinstance(source, Node)
            _take_over(node, source)
    divisor = find_divisor(graph)
    for node in [n for n in graph if OWN_DIVISION in n.marks]:
        assert divisor is not None
        node.set_operand(1, cast(graph, divisor, tensor_type(node).dtype, scope=SCOPE))
    fx.commit()


def _sum_flags(graph: Graph, target: str, group: str) -> None:
    """Overflow flags that the file keeps: asked of the device they differ by rank, so they are summed; and MindSpore's
    CPU sums no integers, so those that are summed already go through float32."""
    parts = network_parts(graph)
    own = [n for n in graph if n.op.name == "AllReduce" and n not in parts and not isinstance(n.operand(0), Constant)]
    for node in list(graph):
        if node.op.name == "NPUGetFloatStatus" and not own:
            raise PassError(
                f"graph '{graph.name}' asks this device alone for overflows (by {node!r}), so ranks would skip updates "
                "apart from each other: export the training cell in DATA_PARALLEL mode"
            )
        asked_by_file = node.op.name == "NPUGetFloatStatusV2" and node.origin is None
        if asked_by_file and not any(is_collective(user) for user in node.uses):
            uses = taken(node)
            rewire(uses, all_reduce(graph, node, group, scope=SCOPE))
    for node in own:
        dtype = tensor_type(node).dtype
        if target == CPU and not dtype.is_float:
            number = cast(graph, node.operand(0), DType.FLOAT32, scope=SCOPE)
            total = all_reduce(graph, number, group_of(node), scope=SCOPE)
            node.replace_uses(cast(graph, total, dtype, scope=SCOPE))
