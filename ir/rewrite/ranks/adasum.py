"""AdaSum: how the steps that groups of ranks took apart from each other become one step.

A program says only ``AdaSum(old, new)``: a weight before and after the local update of a rank. The result is the weight
that all ranks go on with. It holds for any number of ranks; :func:`expand_adasum` writes it out for one rank of a job,
in primitives.

The ranks stand in groups of ``devices_per_group`` neighbours that took the same step. Two steps a and b (differences
old - new of one weight) combine to (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b: their sum where they are orthogonal,
their mean where they are the same. The groups combine pairwise, and pairs of groups pairwise, and so on (Maleki et al.,
Scaling Distributed Training with Adaptive Summation, MLSys 2021), by recursive halving: the steps of all weights lie in
one buffer, of which each rank of a group takes its share; at each level a rank gives away half of what it has and gets
what its partner has of the other half; the three dot products of each weight are added up over the ranks that hold
parts of them. At the end each rank holds the combination of its part, and all gather all parts.

Communication: AllReduce (sum) over groups of ranks and AllGather over all of them, which exist on every target.
MindSpore on CPU has no AllGather over some of the ranks, so a pair that is not the whole job exchanges halves by adding
zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...builders.branch import plain
from ...builders.cast import cast
from ...builders.reduce import reduce_sum
from ...core.attributes import TensorValue, scalar_tensor
from ...core.data import ZeroData
from ...core.errors import RuntimeFailure
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.names import STAGE
from ...core.primitives import CPU, make_op
from ...core.types import DType, TensorType
from ...core.wording import agreed, counted
from ..effects.editing import Effects
from .buckets import ALL_REDUCE, collective_of, source_of
from .collectives import WORLD, all_gather, all_reduce, group_of, is_collective

ADASUM = "AdaSum"
DEVICES = "devices_per_group"
SCOPE = "adasum"
_NEIGHBOURS = "neighbours_of_"
_LEAST = 2.0**-126
"""Instead of the norm of a step that is zero: its dot products are zero too."""


def adasum(graph: Graph, old: Value, new: Value, devices: int) -> Node:
    """The weight after the combined step, in a job whose groups have ``devices`` ranks."""
    op = make_op(ADASUM, {DEVICES: devices})
    return graph.create(op, [old, new], plain(tensor_type(new)), scope=SCOPE, sources=[new])


def neighbours(devices: int) -> str:
    """The group of the ranks that take the same step, which :func:`expand_adasum` makes a real one."""
    return f"{_NEIGHBOURS}{devices}"


def needs_job(graph: Graph) -> bool:
    """Whether :func:`expand_adasum` has something to write out."""
    return any(node.op.name == ADASUM or _among_neighbours(node) for node in graph.all_nodes())


def check_ranks(graph: Graph, ranks: int) -> None:
    """RuntimeFailure if a job of so many ranks cannot run the graph."""
    for node in graph.all_nodes():
        if node.op.name == ADASUM:
            Job(0, ranks, CPU).levels(int(node.op.attributes[DEVICES]))


def _among_neighbours(node: Node) -> bool:
    return is_collective(node) and group_of(node).startswith(_NEIGHBOURS)


def is_combination(node: Node) -> bool:
    """Whether a node writes a combined weight: an Assign of what AdaSum returns."""
    value = node.operand(1) if node.op.name == "Assign" else None
    return isinstance(value, Node) and value.op.name == ADASUM


@dataclass
class Job:
    """One rank of a job of ``ranks``. ``groups``: the ranks of each group that the graphs written so far name and that
    this rank is in; whoever runs the graphs creates them."""

    rank: int
    ranks: int
    target: str
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def group(self, *members: int) -> str:
        """The name of a group of ranks, in rising order; that of the world where all are in it."""
        if len(members) == self.ranks:
            return WORLD[self.target]
        first, last = members[0], members[-1]
        in_a_row = last - first == len(members) - 1
        name = f"ranks.{first}-{last}" if in_a_row else "ranks." + ".".join(map(str, members))
        self.groups[name] = members
        return name

    def levels(self, devices: int) -> int:
        """How often groups of ``devices`` combine pairwise until one is left; a process by itself has nobody to."""
        if self.ranks == 1:
            return 0
        groups, rest = divmod(self.ranks, devices)
        if rest or groups & (groups - 1):
            below = 1 << (max(groups, 1).bit_length() - 1)
            have = counted(groups, "group") + (f" and {counted(rest, 'rank')} over" if rest else "")
            raise RuntimeFailure(
                f"adasum combines groups of {counted(devices, 'rank')} pairwise, so their number must be a power of "
                f"two, and {counted(self.ranks, 'rank')} {agreed(self.ranks, 'is', 'are')} {have}: start "
                f"{below * devices} or {counted(2 * below * devices, 'rank')}, or compile with another {DEVICES}."
            )
        return groups.bit_length() - 1


def expand_adasum(graph: Graph, job: Job) -> bool:
    """Writes AdaSum and the collectives among neighbours out for one rank of a job, in place; whether there were any.

    Where there is one group the weights stay as the update left them, with every bit.
    """
    found = False
    for body in graph.all_graphs():
        sums = [n for n in body if _among_neighbours(n)]
        steps = [n for n in body if n.op.name == ADASUM]
        if sums or steps:
            found = True
            fx = Effects(body)
            _resolve(body, sums, job)
            _expand(fx, steps, job)
            fx.commit()
    return found


def _resolve(body: Graph, sums: Sequence[Node], job: Job) -> None:
    """Sums over the ranks of a group; over one rank they go."""
    alone: set[Node] = set()
    for node in sums:
        devices = int(group_of(node).removeprefix(_NEIGHBOURS))
        job.levels(devices)
        if devices == 1 or job.ranks == 1:
            alone.add(node)
        else:
            first = job.rank - job.rank % devices
            node.set_attribute("group", job.group(*range(first, first + devices)))
    if alone:
        for result in list(body):
            if result.marks.get(STAGE) == ALL_REDUCE and collective_of(result) in alone:
                result.replace_uses(source_of(result))
        for node in alone:
            node.replace_uses(node.operand(0))


def _expand(fx: Effects, nodes: Sequence[Node], job: Job) -> None:
    devices = {int(n.op.attributes[DEVICES]) for n in nodes}
    if len(devices) > 1:
        raise RuntimeFailure(
            f"graph '{fx.graph.name}' combines groups of different sizes: compile it again with one adasum"
        )
    if any(job.levels(size) for size in devices):
        combined = _Combination(fx.graph, nodes, min(devices), job).run()
        for node, value in zip(nodes, combined, strict=True):
            node.replace_uses(value)
    else:
        fx.drop([e for e in fx.list if is_combination(e.node)])
        for node in nodes:
            node.replace_uses(node.operand(1))


class _Combination:
    """The steps of several weights, combined over the ranks of a job."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], devices: int, job: Job):
        self.graph = graph
        self.nodes = nodes
        self.devices = devices
        self.job = job
        self.levels = job.levels(devices)
        self.sizes = [tensor_type(node).size for node in nodes]
        # What fills the buffer up to equal parts counts as part of the last weight: its steps are zero.
        self.padding = -sum(self.sizes) % job.ranks
        self.bounds = [0]
        for size in self.sizes:
            self.bounds.append(self.bounds[-1] + size)
        self.bounds[-1] += self.padding

    def run(self) -> list[Value]:
        """The new weights, in the order of the nodes."""
        wide = [DType.FLOAT64 if tensor_type(n).dtype is DType.FLOAT64 else DType.FLOAT32 for n in self.nodes]
        steps: list[Value] = []
        olds: list[Value] = []
        for node, dtype in zip(self.nodes, wide, strict=True):
            old, new = (cast(self.graph, value, dtype, scope=SCOPE) for value in node.operands)
            olds.append(old)
            steps.append(cast(self.graph, self._make("Sub", old, new), DType.FLOAT32, scope=SCOPE))
        start, part = self._share(self._joined(steps))
        for level in range(self.levels):
            start, part = self._combine(level, start, part)
        total = self._gathered(part)
        combined: list[Value] = []
        for i, (node, old) in enumerate(zip(self.nodes, olds, strict=True)):
            type_ = tensor_type(node)
            step = self._reshaped(self._slice(total, self.bounds[i], self.sizes[i]), type_.shape)
            moved = self._make("Sub", old, cast(self.graph, step, wide[i], scope=SCOPE))
            combined.append(cast(self.graph, moved, type_.dtype, scope=SCOPE))
        return combined

    def _joined(self, steps: Sequence[Value]) -> Value:
        parts = [self._reshaped(step, (size,)) for step, size in zip(steps, self.sizes, strict=True)]
        parts.extend(self._zeros(self.padding))
        return self._concat(parts)

    def _share(self, buffer: Value) -> tuple[int, Value]:
        """The part of the buffer that this rank of its group combines, and where it starts."""
        size = self.bounds[-1] // self.devices
        start = self.job.rank % self.devices * size
        return start, buffer if self.devices == 1 else self._slice(buffer, start, size)

    def _combine(self, level: int, start: int, part: Value) -> tuple[int, Value]:
        """Half of ``part``, combined with what the partner of this level has of it, and where it starts."""
        half = tensor_type(part).size // 2
        upper = bool(self._side(self.job.rank, level))
        halves = [self._slice(part, 0, half), self._slice(part, half, half)]
        kept, given = halves[upper], halves[not upper]
        start += half * upper
        received = self._exchanged(level, given, upper)
        # The same order of operands on both sides: the one of lower rank first.
        a, b = (received, kept) if upper else (kept, received)
        factors = self._factors(level, start, half, a, b)
        terms = [self._make("Mul", value, factor) for value, factor in zip((a, b), factors, strict=True)]
        return start, self._make("Add", *terms)

    def _side(self, rank: int, level: int) -> int:
        """0 for a rank that keeps the first half at this level, 1 for one that keeps the second."""
        return rank // self.devices >> level & 1

    def _exchanged(self, level: int, given: Value, upper: bool) -> Value:
        """The half that the partner gives away."""
        distance = self.devices << level
        lower = self.job.rank - distance * upper
        group = self.job.group(lower, lower + distance)
        size = tensor_type(given).size
        if self.job.ranks == 2:
            both: Value = all_gather(self.graph, given, group, 2, scope=SCOPE)
        else:
            nothing = self._make("ZerosLike", given)
            own = self._concat([nothing, given] if upper else [given, nothing])
            both = all_reduce(self.graph, own, group, scope=SCOPE)
        return self._slice(both, 0 if upper else size, size)

    def _factors(self, level: int, start: int, size: int, a: Value, b: Value) -> list[Value]:
        """The factors of each element of ``a`` and ``b``: 1 - a.b / 2|a|^2 and 1 - a.b / 2|b|^2 of its weight."""
        products = [self._make("Mul", x, y) for x, y in ((a, b), (a, a), (b, b))]
        ab, aa, bb = self._sums(level, start, size, products)
        one, two, least = (self.graph.constant(scalar_tensor("float32", x)) for x in (1.0, 2.0, _LEAST))
        factors: list[Value] = []
        for norm in (aa, bb):
            twice = self._make("Mul", self._make("Maximum", norm, least), two)
            factor = self._make("Sub", one, self._make("RealDiv", ab, twice))
            spread: list[Value] = []
            for i, _, count in self._pieces(start, size):
                own = self._slice(factor, i, 1)
                shape = self.graph.constant((count,))
                type_ = TensorType(DType.FLOAT32, (count,))
                spread.append(self.graph.create("BroadcastTo", [own, shape], type_, scope=SCOPE))
            factors.append(self._concat(spread))
        return factors

    def _sums(self, level: int, start: int, size: int, products: Sequence[Value]) -> list[Value]:
        """The sum of each product over each weight, of the parts that all ranks hold: one number a weight."""
        pieces = self._pieces(start, size)
        first, last = pieces[0][0], pieces[-1][0]
        parts: list[Value] = []
        for product in products:
            parts.extend(self._zeros(first))
            for _, at, count in pieces:
                # Reduced whole, not along an axis: there MindSpore's CPU kernel adds in pairs and not in a row.
                parts.append(reduce_sum(self.graph, self._slice(product, at, count), keep=True, scope=SCOPE))
            parts.extend(self._zeros(len(self.nodes) - 1 - last))
        width = self.devices << (level + 1)
        base = self.job.rank - self.job.rank % width
        group = self.job.group(*range(base, base + width))
        sums = all_reduce(self.graph, self._concat(parts), group, scope=SCOPE)
        return [self._slice(sums, k * len(self.nodes), len(self.nodes)) for k in range(len(products))]

    def _pieces(self, start: int, size: int) -> list[tuple[int, int, int]]:
        """The weights of which a part of the buffer holds elements: number, where they are in the part, how many."""
        found = []
        for i, (low, high) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            low, high = max(low, start), min(high, start + size)
            if low < high:
                found.append((i, low - start, high - low))
        return found

    def _gathered(self, part: Value) -> Value:
        """The parts of all ranks, in the order of the buffer."""
        size = tensor_type(part).size
        parts = all_gather(self.graph, part, WORLD[self.job.target], self.job.ranks, scope=SCOPE)
        order = sorted(range(self.job.ranks), key=self._place)
        if order == list(range(self.job.ranks)):
            return parts
        return self._concat([self._slice(parts, rank * size, size) for rank in order])

    def _place(self, rank: int) -> tuple[int, ...]:
        return rank % self.devices, *(self._side(rank, level) for level in range(self.levels))

    # -- nodes -----------------------------------------------------------------------------------------------

    def _make(self, op: str, *operands: Value) -> Value:
        return self.graph.create(op, operands, scope=SCOPE)

    def _zeros(self, count: int) -> list[Value]:
        type_ = TensorType(DType.FLOAT32, (count,))
        return [self.graph.constant(TensorValue(type_, ZeroData(type_.nbytes)))] if count else []

    def _slice(self, value: Value, start: int, size: int) -> Value:
        if tensor_type(value).shape == (size,):
            return value
        bounds = [self.graph.constant((start,)), self.graph.constant((size,))]
        return self.graph.create("Slice", [value, *bounds], TensorType(DType.FLOAT32, (size,)), scope=SCOPE)

    def _reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        if tensor_type(value).shape == shape:
            return value
        type_ = TensorType(DType.FLOAT32, shape)
        return self.graph.create("Reshape", [value, self.graph.constant(shape)], type_, scope=SCOPE)

    def _concat(self, values: Sequence[Value]) -> Value:
        if len(values) == 1:
            return values[0]
        total = TensorType(DType.FLOAT32, (sum(tensor_type(v).size for v in values),))
        packed = self.graph.create("MakeTuple", values, scope=SCOPE)
        return self.graph.create("Concat", [packed, self.graph.constant(0)], total, scope=SCOPE)
