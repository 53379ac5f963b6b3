"""Where gradients begin in a graph, whatever the update side does with them: as they leave the backward part, or as
they come from accumulators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.gradient_path import gradient_paths, weights_of
from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.core.errors import PassError
from ...ir.core.graph import Constant, Graph, Node, Use, Value
from ...ir.core.predicates import is_float_tensor
from ...ir.core.sites import site
from ...ir.core.walk import through
from ...ir.core.wording import counted
from .normalisation import division_of


@dataclass(slots=True)
class Start:
    """A gradient, or one summand of it, where it begins, and who takes it. ``divided``: its users divide it by what was
    counted."""

    weights: tuple[str, ...]
    value: Node
    uses: list[Use]
    divided: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant of the graph, which got a node only so that a mark can stand there."""
        return _is_constant(self.value)


def _is_constant(value: Value) -> bool:
    return isinstance(through(value, ("TensorMove",)), Constant)


def crossings(graph: Graph) -> list[Use]:
    """The uses of backward values by the update side."""
    parts = network_parts(graph)
    backward = (node for node in graph if parts.get(node) == BACKWARD and is_float_tensor(node))
    return [use for node in backward for use in update_uses(node, parts)]


def leaving_backward(found: TrainingAnatomy, refusal: str) -> list[Start]:
    """The gradients as the backward part leaves them. PassError, which ends with ``refusal``, for one that is computed
    inside a function."""
    names: dict[Node, list[str]] = {}
    for info in found.weights:
        for gradient in info.gradient:
            if gradient.graph is not found.graph:
                raise PassError(
                    f"the gradient {site(gradient)} of weight '{info.name}' is computed inside function "
                    f"'{gradient.home.name}'{refusal}"
                )
            names.setdefault(gradient, []).append(info.name)
    return [Start(tuple(weights), value, update_uses(value, found.parts)) for value, weights in names.items()]


def accumulated(graph: Graph) -> list[Start]:
    """The gradients that come from accumulators: sums of a cycle, or their means."""
    return [Start(weights, node, taken(node)) for node in graph if (weights := weights_of(node))]


def derived_weights(graphs: Iterable[Graph]) -> set[str]:
    """The weights that the graphs update by a derivative: their gradient is no constant."""
    paths = [path for graph in graphs for path in gradient_paths(graph)]
    return {path.weight for path in paths if not all(map(_is_constant, path.points[0].values))}


def gradients_at(weights: int, places: int) -> str:
    """How many gradients there are, for reports: of weights, which may have several summands, or one together."""
    if weights == places:
        return counted(weights, "gradient")
    return f"the gradients of {counted(weights, 'weight')} (at {counted(places, 'place')})"


def sums(graph: Graph) -> list[Start]:
    """The same before they are divided by what was counted; as they come where nothing is."""
    found = accumulated(graph)
    for start in found:
        division = division_of(start.value)
        if division is not None:
            total = division.operand(0)
            assert isinstance(total, Node)
            start.value, start.uses, start.divided = total, [(division, 0)], True
    return found


def update_uses(value: Value, parts: Mapping[Node, str]) -> list[Use]:
    """Those who take a value and are no part of forward or backward."""
    return [(user, i) for user, i in taken(value) if parts.get(user) not in (FORWARD, BACKWARD)]


def taken(value: Value) -> list[Use]:
    return [(user, i) for user, i in value.use_sites() if takes_value(user, i)]


def takes_value(user: Node, i: int) -> bool:
    """Whether a use takes the value: it neither merely waits for it nor asks for its shape alone."""
    return user.op.name != "ZerosLike" and not orders_only(user, i)
