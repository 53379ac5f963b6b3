"""Which values of a training graph its network computes: those that the loss is taken of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...analysis.training.network import BACKWARD, network_parts
from ...analysis.training.origins import passed_on
from ...core.errors import PassError
from ...core.graph import Graph, Node, Value
from ...core.names import LOSS
from ...core.program import Program
from ...core.walk import carried_operands, result_value, walk
from .forward import Forward, ancestors, cell
from .label_note import noted_label
from .labels import Labels, find_labels

__all__ = [
    "NetworkOutputs",
    "ancestors",
    "find_outputs",
    "is_training",
    "loss_of",
    "network_outputs",
    "results_of",
]


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
    return passed_on(graph, network_parts(graph), [loss])[0] or loss


def is_training(graph: Graph) -> bool:
    """Whether a graph has a backward part."""
    return BACKWARD in network_parts(graph).values()


@dataclass(frozen=True)
class NetworkOutputs:
    """``values``: by name, as :func:`network_outputs` has them. ``label``: the input that alone is the label, where
    that is known. ``unsure``: inputs that count as labels and may as well belong to the network."""

    values: dict[str, Value]
    label: str | None
    unsure: tuple[str, ...]


def network_outputs(program: Program, graph: Graph) -> dict[str, Value]:
    """The values that the network of a training graph computes: ``output``, or ``output0``, ``output1``, … of several
    heads; the ``loss`` where its outputs cannot be told from it. Linear in nodes.

    Three rules find them. The *data* are the inputs that reach a layer, which is a node that takes a weight; the others
    are labels, but for those that belong to the network all the same (:mod:`.labels`). The network is all that the
    layers and these inputs need, and what follows them without a label. A cell that handles labels and holds no part of
    the layers belongs to the loss, so what it does before a label comes in (a LogSoftmax, a Reshape) is no more the
    network's. Where every input is data (the labels of a language model are its tokens), a value that depends on an
    input and on no weight is the label of what takes it behind the last layer.
    """
    return find_outputs(program, graph).values


def find_outputs(program: Program, graph: Graph) -> NetworkOutputs:
    """The outputs, and what is known of labels."""
    loss = loss_of(graph)
    weights = {name for name, v in program.state.items() if v.role == "weight"}
    forward = Forward(graph, loss, weights)
    noted = noted_label(program)
    labels = find_labels(forward, noted)
    found = _outputs(forward, labels)
    values: dict[str, Value] = {"output" if len(found) == 1 else f"output{i}": value for i, value in enumerate(found)}
    return NetworkOutputs(values or {LOSS: loss}, noted if forward.bit(noted) else None, labels.unsure)


def _outputs(forward: Forward, labels: Labels) -> list[Node]:
    """The outputs in the order of the graph; empty where none is found."""
    cut = _Cut(forward, labels)
    handling = {name for name in map(cell, cut.labelled) if not labels.cells.holds(name)}
    shared = {cell(n) for n in labels.core if n in forward.fed}
    found = cut.ends(handling - shared)
    if len(found) > 1:  # several: perhaps what a loss that stands among the layers made of one
        closer = cut.ends(handling)
        found = closer if len(closer) < len(found) else found
    return found


class _Cut:
    """Where a network ends."""

    def __init__(self, forward: Forward, labels: Labels):
        self._forward, self._core = forward, labels.core
        self.labelled: set[Value] = {n for n in forward.order if forward.fed.get(n, 0) & labels.fed}
        """The nodes that depend on a label."""
        if not self.labelled:
            self.labelled = self._labelled_by_data()

    def _labelled_by_data(self) -> set[Value]:
        forward = self._forward
        labelled: set[Value] = set()
        for node in forward.order:
            if node not in self._core and node in forward.weighted:
                operands = carried_operands(node)
                if any(v in labelled or (v in forward.fed and v not in forward.weighted) for v in operands):
                    labelled.add(node)
        return labelled

    def ends(self, cells: Collection[str]) -> list[Node]:
        """Where the network ends if nothing of ``cells`` that the layers do not need belongs to it."""
        forward = self._forward
        inside: set[Value] = set()
        for node in forward.order:
            if node in self._core:
                inside.add(node)
            elif node not in self.labelled and all(
                v in inside for v in carried_operands(node) if v in forward.weighted
            ):
                unpacks = node.op.name == "TupleGetItem" and node.operand(0) in inside
                if unpacks or cell(node) not in cells:
                    inside.add(node)
        left = {v for n in forward.order if n not in inside for v in carried_operands(n)}
        found = {
            n: None for n in forward.order if n in inside and n in left and n in forward.weighted and n in forward.fed
        }
        return [n for n in found if not self._follows(n, found)]

    def _follows(self, node: Node, others: Collection[Node]) -> bool:
        """Whether a node is computed from another output without a further layer: the loss does that too."""
        starts: list[Value] = [node]
        behind = walk(starts, lambda here: [] if here in self._core else carried_operands(here))
        return any(operand in others for here in behind if here not in self._core for operand in carried_operands(here))
