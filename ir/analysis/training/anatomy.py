"""Training anatomy: what each part of an exported training graph is for. Passes ask here; none matches scope names
itself.

How it is found. Forward and backward are what :mod:`.network` tells. Everything else is the update side: loss scaling,
reduction over ranks, clipping, weight decay, the optimizer. From there:

* an *update* is an in-place write that is not part of forward or backward;
* walking up from the value it writes, through the update side only and along operands of the same shape, leads to
  the first backward nodes: the *gradient* (several where a weight is used in several places and the sum is formed on
  the update side; none where autodiff had nothing to compute: then what the optimizer is handed instead);
* a state that an update with a gradient writes and that forward or backward reads is a *weight*; without such a
  reader a *slot*; a state that forward writes is a *statistic*, and so is one that forward reads and the update side
  writes from a weight (a target network); what else the update side reads or writes is a *hyperparameter*.

The modules take these steps one by one: :mod:`.update_side`, :mod:`.gradient_sources`, :mod:`.weights`. For example::

    state %w: float32[2]                                                 // weight
    state %frozen: float32[2]                                            // weight
    state %mean: float32[2]                                              // statistic
    state %m: float32[2]                                                 // slot
    state %rate: float32[]                                               // hyperparameter
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %f0 = Load(%frozen, umonad) : float32[2] primal {unique_id = "4"}
      %y = Mul(%w0, %f0) : float32[2] primal {unique_id = "2"}
      %seen = Assign(%mean, %y, umonad) : float32[2] primal {unique_id = "5"}
      %loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "3"}   // loss
      %ones = OnesLike(%y) : float32[2] primal {forward_unique_id = "3"}             // seed
      %g = Mul(%ones, %f0) : float32[2] primal {forward_unique_id = "2"}             // gradient
      %new = ApplyMomentum(%w, %m, %rate, %g, float32[]<0.9>, umonad) : float32[2]   // update
      %t = UpdateState(umonad, %seen)
      %t1 = UpdateState(%t, %new)
      %result = Depend(%loss, %t1)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

from ...core.errors import AnatomyError, NotTraining
from ...core.graph import Constant, Graph, Input, Node, Value
from ...core.names import GRADIENT
from ...core.predicates import is_effect, is_optimizer
from ...core.sites import site
from ..effects.effect_list import EffectList, list_effects
from ..effects.state_access import Summary, describe, states_behind, summarize
from ..functions.calls import bindings
from .gradient_sources import handed
from .interpretation import READ, Interpretation, Term, interpret
from .loss import find_loss
from .network import BACKWARD, FORWARD, OTHER, mark, network_parts
from .origins import Computed, Origins, image
from .update_side import UpdateSide, update_side
from .weights import WeightInfo, find_weights

HOW_TO_EXPORT = (
    "boost-compile needs a training graph: forward, backward and optimizer in one file. Export the training cell:\n"
    "    net = nn.TrainOneStepCell(nn.WithLossCell(network, loss_fn), optimizer).set_train()\n"
    "    mindspore.export(net, inputs, labels, file_name='train', file_format='MINDIR')\n"
    "Or let boost-compile differentiate a forward graph: --optimizer 'momentum{lr=0.01,momentum=0.9}', and "
    "--loss softmax-cross-entropy unless it returns its loss."
)


@dataclass
class TrainingAnatomy:
    """``roles`` maps every state name to its role."""

    graph: Graph
    loss: Value | None
    """None where the graph returns none: training needs the gradients alone. Where branches compute it after the update
    (``loss / scale``), a node of one of them."""
    loss_path: tuple[int, ...] | None
    """Where it stands among the results: the indices that lead to it through tuples."""
    weights: list[WeightInfo]
    roles: dict[str, str]
    side: UpdateSide = field(repr=False)
    parts: dict[Node, str] = field(repr=False)
    bound: dict[Input, list[Value]] = field(repr=False)
    """Function inputs and the caller's values that they stand for."""
    known: dict[str, Summary] = field(repr=False)
    """The effects of each function."""

    @cached_property
    def effects(self) -> EffectList:
        """The effects of the graph as it was analysed: to be asked for before it is changed."""
        return list_effects(self.graph, self.known)

    def image(self, value: Value) -> Value | None:
        """The :func:`.origins.image` of a value of this graph."""
        return image(self.graph, self.parts, self.side.done, value)

    def part(self, node: Node) -> str:
        """``forward``, ``backward``, ``optimizer`` (the update side) or ``other`` (order and packaging)."""
        return self.parts.get(node, OTHER)

    def weight(self, name: str) -> WeightInfo:
        for info in self.weights:
            if info.name == name:
                return info
        raise AnatomyError(f"'{name}' is no trained weight of graph '{self.graph.name}'")


def anatomy(graph: Graph, parts: dict[Node, str] | None = None) -> TrainingAnatomy:
    """The anatomy of a training graph; :class:`AnatomyError` where it is none or cannot be told. Linear in nodes.
    ``parts``: :func:`.network.network_parts` of the graph as it is, for who asked already."""
    bound, known = bindings(graph), summarize(graph)
    parts = network_parts(graph, known) if parts is None else parts
    done = interpret(graph, parts)
    if done.closed is not None:
        raise AnatomyError(f"graph '{graph.name}' calls functions too often to follow {site(done.closed)}")
    if BACKWARD not in parts.values() and not _has_linear_loss(graph, parts, done):
        _refuse_forward(graph, done)
    if not done.writes:
        raise NotTraining(f"'{graph.name}' computes gradients but updates no state: no optimizer. {HOW_TO_EXPORT}")
    origins = Origins(graph, parts, done)
    updated = {version.state for w in done.writes for version in w.versions if version.state is not None}
    found = find_loss(origins, origins.results(), updated)
    loss = found.origin if found is not None else None
    side = update_side(graph, parts, bound, done)
    weights = find_weights(side)
    if not weights:
        name = next(iter(side.versions))
        raise AnatomyError(f"graph '{graph.name}' updates state ({name}), but none from a gradient. {HOW_TO_EXPORT}")
    return TrainingAnatomy(
        graph,
        loss.node if isinstance(loss, Computed) else loss,
        found.path if found is not None else None,
        weights,
        _roles(side, weights, bound, known),
        side,
        parts,
        bound,
        known,
    )


def _has_linear_loss(graph: Graph, parts: Mapping[Node, str], done: Interpretation) -> bool:
    """Whether autodiff had nothing to compute: it marked the forward part, and an optimizer takes what is there."""
    fed = any(GRADIENT in node.marks for node in graph)  # by accumulators: the forward part is in another graph
    return not fed and any(is_optimizer(write.node) for write in done.writes) and any(map(mark, parts))


def _refuse_forward(graph: Graph, done: Interpretation) -> NoReturn:
    """An optimizer may well stand in a graph without a backward part: it updates from something else."""
    for write in done.writes:
        if not is_optimizer(write.node):
            continue
        state = write.versions[0].state
        raise AnatomyError(
            f"graph '{graph.name}' updates '{write.node.name if state is None else state.name}' (by "
            f"{site(write.node)}) but holds no backward part: what it updates from is "
            f"{_said(handed(write.versions[0])[0])}, no gradient of a loss that MindSpore derived. {HOW_TO_EXPORT}"
        )
    raise NotTraining(f"'{graph.name}' is a forward graph: it holds no backward part. {HOW_TO_EXPORT}")


def _said(term: Term) -> str:
    """A value that an update takes for a gradient, in words."""
    while term.kind == READ or term.name in ("Cast", "Reshape"):
        term = term.operands[0]
    if term.state is not None:
        return f"the state '{term.state.name}'"
    if isinstance(term.value, Constant):
        return "a constant of the file"
    return f"the input '{term.value.name}'" if isinstance(term.value, Input) else site(term.value)


def _roles(
    side: UpdateSide,
    weights: list[WeightInfo],
    bound: Mapping[Input, Sequence[Value]],
    known: dict[str, Summary],
) -> dict[str, str]:
    trained = {w.name for w in weights}
    slots = {s for w in weights for s in w.slots}
    statistics = {s for w in weights for s in w.copies}
    for node in side.graph.all_nodes():
        if side.parts.get(node) in (FORWARD, BACKWARD) and is_effect(node):
            effect = describe(node, known)
            if effect is not None:
                statistics.update(s.name for v in effect.writes for s in states_behind(v, bound))
    roles: dict[str, str] = {}
    for name in side.graph.states:
        if name in trained:
            roles[name] = "weight"
        elif name in slots:
            roles[name] = "slot"
        elif name in statistics:
            roles[name] = "statistic"
        elif name in side.versions or name not in side.read:
            roles[name] = "hyperparameter"
        else:
            roles[name] = "weight"  # read by the network, never updated: a frozen weight
    return roles
