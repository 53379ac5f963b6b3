"""Gradients that no backward node made become nodes of the backward part: copies of what the updates are handed.

The loss may be linear in a weight, or a cell's own ``bprop`` may return what it was given. Then autodiff leaves a
forward value, an input or a weight in the place of the gradient. Passes cut, scale and measure it like any other once
it is a node that nobody takes for anything else. For example, of ``new``::

    %g = TensorMove(%x)                                                // a node of the backward part
    %new = ApplyMomentum(%w, %m, %rate, %g, 0.9, %t)                   // it took %x
"""

from __future__ import annotations

from ..analysis.training.anatomy import TrainingAnatomy, anatomy
from ..analysis.training.gradient_users import GradientUsers
from ..analysis.training.weights import WeightInfo
from ..builders.nodes import Nodes
from ..core.errors import AnatomyError
from ..core.graph import Constant, Graph, Input, Node, State, Use, Value
from ..core.names import BACKWARD_ID
from ..core.sites import site
from .effects.editing import Effects

SCOPE = "gradients"


def settled_anatomy(graph: Graph) -> TrainingAnatomy:
    """The anatomy of a graph whose gradients are settled first."""
    found = anatomy(graph)
    return anatomy(graph) if settle_gradients(found) else found


def settle_gradients(found: TrainingAnatomy) -> bool:
    """Says whether it changed the graph of ``found``. AnatomyError where such a gradient cannot be told from what else
    the update takes."""
    handed = [info for info in found.weights if any(not isinstance(v, Constant) for v in info.fixed)]
    if not handed:
        return False
    graph, users = found.graph, GradientUsers(found.parts, found.bound)
    fx = Effects(graph, listed=found.effects)
    for info in handed:
        value, uses = _only(found, users, info)
        copied = fx.load(value, scope=SCOPE) if isinstance(value, State) else value
        with graph.inserting_after(copied):
            copy = Nodes(graph, SCOPE, {BACKWARD_ID: f"{SCOPE}.{info.name}"}).op("TensorMove", copied)
        for user, i in uses:
            user.set_operand(i, copy)
    fx.commit()
    return True


def _only(found: TrainingAnatomy, users: GradientUsers, info: WeightInfo) -> tuple[Value, list[Use]]:
    """The one value that an update is handed, and who takes it for the gradient."""
    if len(info.fixed) == 1:
        (value,) = info.fixed
        if isinstance(value, State):
            uses = [(node, i) for node, i in value.use_sites() if node in info.updates and i != 0]
            told = value.name == info.name and len(info.updates) == len(uses) == 1
        else:
            uses = [use for of in users.of(value) for use in of if info.name in users.updated_by(*use)]
            told = isinstance(value, Input) or (isinstance(value, Node) and value.graph is found.graph)
            load = isinstance(value, Node) and value.op.name == "Load"
            told = told and len(uses) > 0 and (len(uses) == 1 or not load)
        if told:
            return value, uses
    taken = ", ".join(site(v) if isinstance(v, Node) else f"'{v.name}'" for v in info.fixed)
    raise AnatomyError(
        f"weight '{info.name}': its update by {site(info.updates[0])} takes {taken}, and which of it is the gradient "
        "cannot be told from what else the update takes: leave out the passes that work on gradients"
    )
