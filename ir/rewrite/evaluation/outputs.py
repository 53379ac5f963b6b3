"""Which values of a training graph its network computes: those that the loss is taken of."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...analysis.training.network import BACKWARD, network_parts, passed_on
from ...core.errors import PassError
from ...core.graph import Graph, Node, Value
from ...core.names import LOSS
from ...core.program import Program
from ...core.types import TensorType
from ...core.walk import carried_operands, result_value, walk


def results_of(graph: Graph) -> dict[str, Value]:
    """The results of a graph, by name."""
    value = result_value(graph)
    values = list(value.operands) if isinstance(value, Node) and value.op.name == "MakeTuple" else [value]
    names = graph.outputs if len(graph.outputs) == len(values) else [f"output{i}" for i in range(len(values))]
    return dict(zip(names, values, strict=True))


def loss_of(graph: Graph) -> Value:
    """The loss of a training graph: its result of that name, or the first. PassError where results have other names."""
    results = results_of(graph)
    if graph.outputs and LOSS not in graph.outputs:
        raise PassError(
            f"graph '{graph.name}' returns no loss (but {', '.join(graph.outputs)}), and what the network computes is "
            "told by what its loss is taken of",
            python="Return the loss from the training cell, or say where the network ends: result='NODE'.",
            command="Return the loss from the training cell, or say where the network ends: "
            "boost-inspect --forward --result NODE.",
        )
    loss = results.get(LOSS) or next(iter(results.values()))
    return passed_on(graph, [loss])[0] or loss


def is_training(graph: Graph) -> bool:
    """Whether a graph has a backward part."""
    return BACKWARD in network_parts(graph).values()


def network_outputs(program: Program, graph: Graph) -> dict[str, Value]:
    """The values that the network of a training graph computes: ``output``, or ``output0``, ``output1``, … of several
    heads; the ``loss`` where its outputs cannot be told from it. Linear in nodes.

    Three rules find them. The *data* are the inputs that reach a layer, which is a node that takes a weight; the others
    are labels. The network is all that the layers need, and what follows them without a label. A cell that handles
    labels and holds no part of the layers belongs to the loss, so what it does before a label comes in (a LogSoftmax,
    a Reshape) is no more the network's. Where every input is data (the labels of a language model are its tokens), a
    value that depends on an input and on no weight is the label of what takes it behind the last layer.
    """
    loss = loss_of(graph)
    weights = {name for name, v in program.state.items() if v.role == "weight"}
    found = _Forward(graph, loss, weights).outputs()
    if not found:
        return {LOSS: loss}
    return {"output" if len(found) == 1 else f"output{i}": value for i, value in enumerate(found)}


class _Forward:
    """The forward part behind a loss: what each node depends on."""

    def __init__(self, graph: Graph, loss: Value, weights: Collection[str]):
        needed = ancestors([loss])
        self.order = [n for n in graph if n in needed]
        self.fed: dict[Value, int] = {value: 1 << i for i, value in enumerate(graph.inputs)}
        """The inputs that a value depends on, a bit for each."""
        self.weighted: set[Value] = {s for name, s in graph.states.items() if name in weights}
        for node in self.order:
            operands = carried_operands(node)
            fed = 0
            for operand in operands:
                fed |= self.fed.get(operand, 0)
            if fed:
                self.fed[node] = fed
            if any(v in self.weighted for v in operands):
                self.weighted.add(node)

    def outputs(self) -> list[Node]:
        """The outputs in the order of the graph; empty where none is found."""
        layers = [n for n in self.order if self._is_layer(n)]
        core = ancestors(layers)
        labelled = self._labelled(layers, core)
        handling = {_cell(n) for n in labelled}
        shared = {_cell(n) for n in core if n in self.fed}
        found = self._cut(core, labelled, handling - shared)
        if len(found) > 1:  # several: perhaps what a loss that stands among the layers made of one
            closer = self._cut(core, labelled, handling)
            found = closer if len(closer) < len(found) else found
        return found

    def _cut(self, core: Collection[Value], labelled: Collection[Value], cells: Collection[str]) -> list[Node]:
        """Where the network ends if nothing of ``cells`` that the layers do not need belongs to it."""
        inside: set[Value] = set()
        for node in self.order:
            if node in core:
                inside.add(node)
            elif node not in labelled and all(v in inside for v in carried_operands(node) if v in self.weighted):
                unpacks = node.op.name == "TupleGetItem" and node.operand(0) in inside
                if unpacks or _cell(node) not in cells:
                    inside.add(node)
        left = {v for n in self.order if n not in inside for v in carried_operands(n)}
        found = {n: None for n in self.order if n in inside and n in left and n in self.weighted and n in self.fed}
        return [n for n in found if not self._follows(n, found, core)]

    def _follows(self, node: Node, others: Collection[Node], core: Collection[Value]) -> bool:
        """Whether a node is computed from another output without a further layer: the loss does that too."""
        starts: list[Value] = [node]
        behind = walk(starts, lambda here: [] if here in core else carried_operands(here))
        return any(operand in others for here in behind if here not in core for operand in carried_operands(here))

    def _is_layer(self, node: Node) -> bool:
        """Whether data meets a weight here. A penalty on weights meets the loss, which is a single number."""
        if node not in self.fed or (isinstance(node.type, TensorType) and node.type.shape == ()):
            return False
        return any(v in self.weighted and v not in self.fed for v in carried_operands(node))

    def _labelled(self, layers: Iterable[Node], core: Collection[Value]) -> set[Value]:
        """The nodes that depend on a label."""
        data = 0
        for node in layers:
            data |= self.fed[node]
        labelled: set[Value] = {n for n in self.order if self.fed.get(n, 0) & ~data}
        if labelled:
            return labelled
        for node in self.order:
            if node not in core and node in self.weighted:
                operands = carried_operands(node)
                if any(v in labelled or (v in self.fed and v not in self.weighted) for v in operands):
                    labelled.add(node)
        return labelled


def ancestors(values: Iterable[Value]) -> set[Value]:
    """The values and what they are computed from, order left aside."""
    return set(walk(values, carried_operands))


def _cell(node: Value) -> str:
    """The cell that a node stands in; a scope's last part is the operation itself."""
    return node.scope.rpartition("/")[0] if isinstance(node, Node) else ""
