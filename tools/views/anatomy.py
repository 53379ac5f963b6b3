"""The purpose of each part of a training graph: its loss, the gradient, updates and slots of each weight, the roles of
its state."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.analysis.training.network import told
from ...ir.analysis.training.weights import WeightInfo
from ...ir.core.graph import Node, State, Value
from ...ir.core.naming import spell
from ...passes.step.names import TAG
from .analysed import Analysed, listed


def anatomy_lines(view: Analysed) -> Iterator[str]:
    """AnatomyError where the graph is no training graph. ``view.full`` adds the part of every node."""
    found = view.anatomy()
    if view.chosen is None or (isinstance(found.loss, Node) and view.keeps([found.loss])):
        place = f", result {'.'.join(map(str, found.loss_path))}" if found.loss_path else ""
        yield "no loss" if found.loss is None else f"loss {view.name(found.loss)}{place}"
    stages = {path.weight: path for path in gradient_paths(view.graph, found)}
    for weight in found.weights:
        if view.keeps([*weight.gradient, *weight.updates]):
            yield f"weight %{spell(weight.name)}"
            yield from (f"  {line}" for line in _weight(view, weight))
            for point in stages[weight.name].points if weight.name in stages else ():
                values = [v for v in point.values if isinstance(v, Node)]
                if point.stage and values:
                    yield f"  {point.stage} {listed(map(view.node, values))}"
    taken = None if view.chosen is None else {v for node in view.chosen for v in node.operands if isinstance(v, State)}
    for name, role in found.roles.items():
        if taken is None or view.graph.states[name] in taken:
            yield f"state %{spell(name)}: {role}"
    if view.full:
        yield from (f"{told(node, found.part(node))} {view.node(node)}" for node in view.nodes())


def _weight(view: Analysed, weight: WeightInfo) -> Iterator[str]:
    gradient: tuple[Value, ...] = weight.gradient or weight.fixed
    summands = " + ".join(map(view.name, gradient))
    yield f"gradient {'constant ' if weight.fixed else ''}{summands}" if gradient else "no gradient"
    yield from (f"update {view.node(update)}" for update in weight.updates)
    yield from (f"slot %{spell(slot)}" for slot in weight.slots)
    variable = view.program.state.get(weight.name)
    if variable is not None and TAG in variable.info:
        yield f"tag {TAG} = {variable.info[TAG]}"
