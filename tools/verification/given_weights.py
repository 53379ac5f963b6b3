"""A training program whose updates are given: what a cell does to its weights behind their updates, alone.

Each weight takes an input in the place of its update. What comes behind stays: bounds, copies to other networks,
averages. For example, of ``w = w - g; w = min(w, 1)`` the first becomes ``w = given``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ...ir.analysis.effects.state_access import Effect
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import called_functions
from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.own_writes import own_writes
from ...ir.core.errors import AnatomyError
from ...ir.core.graph import Node, State
from ...ir.core.op import CALL
from ...ir.core.program import Program
from ...ir.core.walk import walk
from ...ir.rewrite.effects.editing import Effects
from ...runtime.training.session import Session
from .reference import Batch, Values

PREFIX = "given."


class GivenWeights:
    """The original in MindSpore, with some trained weights given. AnatomyError as :func:`give_weights`."""

    def __init__(self, original: Program, weights: Collection[str], device: str):
        self.weights = tuple(weights)
        self._session = Session(give_weights(original, self.weights), device=device)
        self.initial: Values = self._session.state()

    def step(self, state: Mapping[str, np.ndarray], batch: Batch, given: Mapping[str, np.ndarray]) -> Values:
        """The state after one step whose updates leave these weights."""
        self._session.load_state(state)
        self._session.step(*batch, *(given[name] for name in self.weights))
        return self._session.state()


def give_weights(original: Program, weights: Collection[str]) -> Program:
    """The program with one more input for each of ``weights``, in their order. What only their updates need goes;
    other weights are updated as before. AnatomyError where the cell writes one of them before its update, or in a
    function together with it."""
    program = original.copy()
    (graph,) = program.graphs.values()
    found = anatomy(graph)
    own = own_writes(graph, found)
    updates = {info.name: set(info.updates) - own.keys() for info in found.weights}
    fx = Effects(graph)
    given: dict[Node, Effect] = {}
    for name in weights:
        state = graph.states[name]
        writes = [e for e in fx.list if state in e.writes]
        done = [_nodes(e.node) for e in writes]
        updating = [not nodes.isdisjoint(updates[name]) for nodes in done]
        if not all(updating[: sum(updating)]):
            raise AnatomyError(f"the training cell writes '{name}' by itself before its update")
        for effect, nodes, is_update in zip(writes, done, updating, strict=True):
            if is_update:
                if any(own.get(node) == name for node in nodes):
                    raise AnatomyError(f"the training cell writes '{name}' by itself in the function that updates it")
                given[effect.node] = effect
        last = writes[sum(updating) - 1]
        fx.append("Assign", [state, graph.add_input(PREFIX + name, state.type)])
        fx.list.insert(fx.list.index(last) + 1, fx.list.pop())
    others = updates.keys() - set(weights)
    fx.drop([e for e in given.values() if _only_updates(e, others)])
    fx.commit()
    return program


def _nodes(node: Node) -> set[Node]:
    """A node, with all that happens where it is a call."""
    if node.op is not CALL:
        return {node}
    functions = walk(called_functions(node), lambda f: (g for n in f if n.op is CALL for g in called_functions(n)))
    return {node, *(inner for function in functions for inner in function)}


def _only_updates(effect: Effect, others: Collection[str]) -> bool:
    """Whether nothing takes what an update returns, and it writes none of the ``others``."""
    if effect.node.op is CALL or any(isinstance(v, State) and v.name in others for v in effect.writes):
        return False
    return all(orders_only(user, i) for user, i in effect.node.use_sites())
