"""The nodes that measure: in the graph that updates, and in the one that takes the other micro-batches of a cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.state_access import state_behind
from ...ir.analysis.training.gradient_path import weights_of
from ...ir.analysis.training.stages import GradientPath
from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import BIG, reduce_sum, square_sum
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.names import MONITORED_CYCLES, monitor_of
from ...ir.core.primitives import CPU, VIEWS
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType, tensor
from ...ir.core.walk import through
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.effects.outline import skip_where
from ..step.accumulated import adding_nodes

SCOPE = "monitor"
LARGEST = (2 - 2**-23) * 2.0**127
"""The largest number in float32."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: ``vectors`` by kind, each of these weights; ``sums``: the weights of which the squared norms of
    micro-batches are summed over a cycle, with the states that sum their gradients; ``every``: the cycles from one
    measured to the next."""

    vectors: Mapping[str, Sequence[str]]
    sums: Mapping[str, Sequence[str]]
    every: int


def accumulators(program: Program, updating: Sequence[Graph]) -> dict[str, list[str]]:
    """The states that sum the gradient of each weight, or its summands, over a cycle. Weights with the same gradient
    (the two biases of a recurrent cell) share them."""
    found: dict[str, list[str]] = {}
    for name, variable in program.state.items():
        if variable.role == "accumulator" and variable.weight:
            found.setdefault(variable.weight, []).append(name)
    for together in (weights_of(node) for graph in updating for node in graph):
        for first in [w for w in together if w in found][:1]:
            found.update((w, found[first]) for w in together)
    return found


def measure_micro_batch(program: Program, graph: Graph, plan: Plan) -> None:
    """Adds the squared norms of the gradients that a graph accumulates to the sums of the cycle."""
    measuring = _Measuring(program, graph, plan)
    measuring.add_micro_batch()
    measuring.commit()


def measure_cycle(program: Program, graph: Graph, plan: Plan, paths: Mapping[str, GradientPath]) -> None:
    """Measures gradients, weights and updates in a graph that updates, and counts the cycle."""
    measuring = _Measuring(program, graph, plan)
    measuring.count_cycle()
    measuring.measure(paths)
    measuring.commit()


class _Measuring:
    def __init__(self, program: Program, graph: Graph, plan: Plan):
        self.program = program
        self.graph = graph
        self.plan = plan
        self.fx = Effects(graph)
        self.n = Nodes(graph, SCOPE)
        cycles = self.fx.load(graph.state(MONITORED_CYCLES, tensor("int32")), scope=SCOPE)
        self.cycle = self.n.op("Add", cycles, self.n.number(1, "int32"))
        """The number of this cycle."""
        self.effects: list[Node] = []
        """What happens in cycles that are measured."""
        self.always: list[Value] = []
        """What is computed in all cycles: it needs memory that is overwritten before the weights are updated."""
        self._squares: dict[tuple[Value, ...], Value] = {}

    def commit(self) -> None:
        fx, every = self.fx, self.plan.every
        if every > 1:
            since = self.n.op("FloorMod", self.cycle, self.n.number(every, "int32"))
            idle = self.n.op("NotEqual", since, self.n.number(0, "int32"))
            chosen = [e for e in fx.list if e.node in set(self.effects)]
            skip_where(fx, idle, chosen, stay=self.always, name="monitor", scope=SCOPE)
        fx.commit()

    def count_cycle(self) -> None:
        self.fx.append("Assign", [self.graph.state(MONITORED_CYCLES), self.cycle], scope=SCOPE)

    def add_micro_batch(self) -> None:
        terms = _terms(self.graph)
        squares = self._stack(self._square_of_terms(terms, weight) for weight in self.plan.sums)
        self._write("sums", squares, op="AssignAdd")

    def measure(self, paths: Mapping[str, GradientPath]) -> None:
        kinds: dict[str, Callable[[], Value]] = {
            "weight-norm": self._weight_norms,
            "update-ratio": self._update_ratios,
        }
        if self.plan.sums:
            kinds |= self._over_the_cycle()
        for kind, weights in self.plan.vectors.items():
            if kind == "non-finite":
                self._count_non_finite([paths.get(w) for w in weights])
                continue
            if kind in kinds:
                vector = kinds[kind]()
            else:
                stage = kind.partition(".")[2]
                vector = self.n.op("Sqrt", self._stack(self._square_at(paths.get(w), stage) for w in weights))
            self._write(kind, vector)

    # -- gradients -------------------------------------------------------------------------------------------

    def _square_at(self, path: GradientPath | None, stage: str) -> Value:
        """The squared norm of a gradient behind a stage; 0 in a graph that does not update the weight."""
        if path is None:
            return self.n.number(0.0)
        return self._square((path.points[0] if stage == "raw" else path.at(stage, self.graph)).values)

    def _square(self, values: Sequence[Value]) -> Value:
        """The squared norm of a sum of values."""
        key = tuple(values)
        if key not in self._squares:
            self._squares[key] = self._square_sum(self._sum(values))
            self._keep(values, self._squares[key])
        return self._squares[key]

    def _count_non_finite(self, paths: Sequence[GradientPath | None]) -> None:
        """Counts where there is something to count: where a sum of squares is a number, so are the elements."""
        squares = self._stack(self._square_at(path, "raw") for path in paths)
        total = reduce_sum(self.graph, squares, scope=SCOPE)
        finite = self.n.op("LessEqual", total, self.n.number(LARGEST))  # a NaN is not
        self._write("non-finite", self.n.op("ZerosLike", squares))
        self._write("non-finite", self._stack(map(self._non_finite, paths)))
        counted = [e for e in self.fx.list if e.node is self.effects[-1]]
        self.effects[-1] = skip_where(self.fx, finite, counted, stay=self.always, name="count", scope=SCOPE)

    def _non_finite(self, path: GradientPath | None) -> Value:
        """How many elements of a gradient are no finite numbers."""
        if path is None:
            return self.n.number(0.0)
        values = path.points[0].values
        finite = self.n.op("IsFinite", self._sum(values))
        broken = self.n.cast(self.n.op("LogicalNot", finite), DType.FLOAT32)
        number = self._square_sum(broken)  # of zeros and ones: their sum
        self._keep(values, number)
        return number

    def _square_sum(self, value: Value) -> Value:
        """The sum of squares. On CPU it is the product of a big tensor with itself: the kernel takes a fifth of the
        time of ReduceSum (docs/training.md)."""
        type_ = tensor_type(value)
        if self.program.target != CPU or type_.dtype is not DType.FLOAT32 or type_.size < BIG:
            return square_sum(self.graph, value, scope=SCOPE)
        row = self.n.reshape(value, 1, type_.size)
        return self.n.reshape(self.n.matmul(row, row, transpose_b=True))

    def _sum(self, values: Sequence[Value]) -> Value:
        total = values[0]
        for other in values[1:]:
            total = self.n.op("Add", total, other)
        return total

    def _keep(self, values: Sequence[Value], measure: Value) -> None:
        """What is measured of the memory of a state is measured before the state is overwritten."""
        if any(state_behind(through(value, VIEWS)) is not None for value in values):
            self.always.append(measure)

    # -- weights ---------------------------------------------------------------------------------------------

    def _weight_norms(self) -> Value:
        return self.n.op("Sqrt", self._stack(self._square_after(w) for w in self.plan.vectors["weight-norm"]))

    def _square_after(self, weight: str) -> Value:
        return self._square_sum(self._after(weight))

    def _after(self, weight: str) -> Node:
        return self.fx.load(self.graph.state(weight), scope=SCOPE, initial=False)

    def _update_ratios(self) -> Value:
        before, moved = [], []
        for weight in self.plan.vectors["update-ratio"]:
            # A copy: the memory of the weight is what the update writes.
            old = self.n.op("TensorMove", self.fx.load(self.graph.state(weight), scope=SCOPE))
            self.always.append(old)
            wide = tensor_type(old).dtype.widened
            step = self.n.op("Sub", self.n.cast(self._after(weight), wide), self.n.cast(old, wide))
            before.append(self._square_sum(old))
            moved.append(self._square_sum(step))
        lengths = [self.n.op("Sqrt", self._stack(squares)) for squares in (moved, before)]
        return self.graph.create("DivNoNan", lengths, tensor_type(lengths[0]), scope=SCOPE)

    # -- the micro-batches of a cycle ------------------------------------------------------------------------

    def _over_the_cycle(self) -> dict[str, Callable[[], Value]]:
        """What the squared norms of the micro-batches and of their sum say; clears the sums of the former."""
        n, graph, count = self.n, self.graph, self.program.schedule.count
        assert count is not None
        terms = _terms(graph)
        own = self.program.consumes(graph.name)
        counted = self.fx.load(graph.state(count, tensor("float32")), scope=SCOPE)
        number = n.op("Add", counted, n.number(1.0 if own else 0.0))
        self.always.append(number)
        type_ = self.program.state[monitor_of("sums")].type
        sums = graph.state(monitor_of("sums"), type_)
        loaded: Value = self.fx.load(sums, scope=SCOPE)
        squares: Value = loaded
        if own:
            squares = n.op("Add", loaded, self._stack(self._square_of_terms(terms, w) for w in self.plan.sums))
        mean = n.op("Div", squares, number)
        self._write("micro-batches", number)
        self._append("Assign", [sums, n.op("ZerosLike", loaded)])

        def of_mean() -> Value:
            totals = self._stack(self._square_of_sums(weight) for weight in self.plan.sums)
            return n.op("Div", totals, n.op("Mul", number, number))

        return {
            "gradient-norm.raw": lambda: n.op("Sqrt", mean),
            "noise-scale.parts": lambda: mean,
            "noise-scale.mean": of_mean,
        }

    def _square_of_terms(self, terms: Mapping[str, Value], weight: str) -> Value:
        """The squared norm of what this graph's micro-batch adds to the sums of a weight's gradient."""
        found = [terms[name] for name in self.plan.sums[weight] if name in terms]
        return self._square(found) if found else self.n.number(0.0)

    def _square_of_sums(self, weight: str) -> Value:
        """The squared norm of the sum of a weight's gradients over the cycle."""
        graph, names = self.graph, self.plan.sums[weight]
        if self.program.consumes(graph.name):
            sums: list[Value] = [node for node in adding_nodes(graph) if _added_to(node) in names]
        else:
            sums = [self.fx.load(graph.state(name, self.program.state[name].type), scope=SCOPE) for name in names]
        return self._square(sums) if sums else self.n.number(0.0)

    # -- writing ---------------------------------------------------------------------------------------------

    def _stack(self, numbers: Iterable[Value]) -> Node:
        """The vector of some scalars."""
        packed = self.n.op("MakeTuple", *numbers)
        type_ = TensorType(DType.FLOAT32, (packed.num_operands,))
        return self.graph.create("Stack", [packed], type_, attributes={"axis": 0}, scope=SCOPE)

    def _write(self, what: str, value: Value, op: str = "Assign") -> None:
        name = monitor_of(what)
        self._append(op, [self.graph.state(name, self.program.state[name].type), value])

    def _append(self, op: str, operands: list[Value]) -> None:
        self.effects.append(self.fx.append(op, operands, scope=SCOPE))


def _added_to(node: Node) -> str:
    state = state_behind(node.operand(0))
    return "" if state is None else state.name


def _terms(graph: Graph) -> dict[str, Value]:
    """What a graph adds to each sum over the cycle, by the sum's name."""
    return {_added_to(node): node.operand(1) for node in adding_nodes(graph)}
