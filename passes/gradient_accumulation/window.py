"""States that stay, for the network, as they were when the window of micro-batches began.

A queue of features is read by the loss and written behind it. Each micro-batch pushes its own, but the big batch would
have read the queue as the last update left it, and so do all micro-batches: what is written meanwhile goes to a state
beside it, ``window.<state>``, which the update copies over::

    %now = Select(first, Load(%queue), Load(%window.queue))          // first: no micro-batch has been counted yet
    Assign(%window.queue, push(%now, …))                             // in each micro-batch
    Assign(%queue, Load(%window.queue))                              // in the update

Where what is written is itself computed by way of what the network reads (a running mean by which the input is
normalised, a hidden state), the network sees it move, as natively.

A write in front of the forward part that takes nothing of the batch (a key encoder that follows the weights, a step
count) happens once in a window, in front of its first micro-batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...ir.analysis.effects.state_access import Effect, describe
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.gradient_path import PASSING
from ...ir.analysis.training.gradient_sources import ASSIGNING
from ...ir.analysis.training.network import BACKWARD, FORWARD, mark
from ...ir.analysis.training.own_writes import leading_writes
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import PassError
from ...ir.core.graph import Node, State, Value
from ...ir.core.names import FORWARD_ID
from ...ir.core.op import CALL
from ...ir.core.predicates import written_operands
from ...ir.core.program import Program
from ...ir.core.sites import site
from ...ir.core.types import is_monad
from ...ir.core.walk import carried_operands, live_nodes, walk
from ...ir.rewrite.effects.editing import Effects
from .graphs import COUNT, NUMBER, SCOPE

_COPYING = PASSING | {"Load"}


def hold_states(program: Program, found: TrainingAnatomy) -> bool:
    """Says whether it changed the graph of ``found``."""
    writes = [e for e in found.effects.writes() if e.node.op is not CALL and e.writes]
    ahead = _ahead(found)
    classes = _held(found, writes)
    if not ahead and not classes:
        return False
    window = _Window(program, found)
    for effect in ahead:
        window.write_once(effect)
    for states in classes:
        for state in states:
            window.hold(state, [e.node for e in writes if state in e.writes])
    window.fx.commit()
    return True


# -- what is to be held -------------------------------------------------------------------------------------------


def _held(found: TrainingAnatomy, writes: Sequence[Effect]) -> list[list[State]]:
    """The classes of states that the network reads before each micro-batch writes them, where nothing of what it
    computes is part of what is written."""
    parts = found.parts
    inside = _derived(found)
    own = [e for e in writes if parts.get(e.node) == FORWARD and e.node not in inside and mark(e.node) is None]
    others = {s for e in writes if e not in own for s in e.writes}
    states = {s for e in own for s in e.writes if isinstance(s, State) and s not in others}
    place = found.effects.place
    first = {s: min(place[e.node] for e in own if s in e.writes) for s in states}
    reads: dict[State, set[Value]] = {s: set() for s in states}
    fed: set[State] = set()
    for e in own:
        direct, tops = _behind([v for v in e.node.operands if not is_monad(v.type)], inside)
        through = {v for v in walk(tops, carried_operands) if isinstance(v, State)}
        for s in e.writes & states:
            assert isinstance(s, State)
            reads[s] |= direct | through
            if through & states:
                fed |= {s, *(t for t in through & states if isinstance(t, State))}
    classes: list[list[State]] = []

    def linked_to(state: State) -> list[State]:
        return [s for s in states if s in reads[state] or state in reads[s]]

    left = dict.fromkeys(sorted(states, key=lambda s: s.name))
    while left:
        start = next(iter(left))
        linked = list(walk([start], linked_to))
        for s in linked:
            left.pop(s, None)
        readers = [n for s in linked for n in s.uses if n in inside]
        late = any(n.op.name == "Load" and place.get(n, 0) > first[s] for s in linked for n in s.uses if n in inside)
        if readers and not late and fed.isdisjoint(linked):
            classes.append(linked)
    return classes


def _derived(found: TrainingAnatomy) -> set[Node]:
    """What autodiff marked, and what that is computed from."""
    parts = found.parts
    return live_nodes([n for n in found.graph if parts.get(n) == BACKWARD or (n in parts and mark(n))], tokens=False)


def _behind(values: Iterable[Value], inside: Collection[Node]) -> tuple[set[Value], list[Value]]:
    """The states that values read outside of the network, and the values of the network that they take."""

    def following(value: Value) -> Sequence[Value]:
        copies = isinstance(value, Node) and value.op.name in _COPYING
        return carried_operands(value) if value not in inside or copies else ()

    found = list(walk(values, following))
    tops: list[Value] = [v for v in found if isinstance(v, Node) and v in inside and v.op.name not in _COPYING]
    return {v for v in found if isinstance(v, State)}, tops


def _ahead(found: TrainingAnatomy) -> list[Effect]:
    """The writes in front of the forward part that take nothing of the batch."""
    inputs: set[Value] = set(found.graph.inputs)
    return [
        effect for effect in leading_writes(found.effects.effects, found.parts)
        if effect.node.op.name in ASSIGNING
        and not any(v in inputs for v in walk([effect.node.operand(1)], carried_operands))
    ]  # fmt: skip


# -- the rewriting ------------------------------------------------------------------------------------------------


class _Window:
    def __init__(self, program: Program, found: TrainingAnatomy):
        self.program = program
        self.found = found
        self.graph = found.graph
        self.inside = _derived(found)
        self.fx = Effects(found.graph, listed=found.effects)
        number = self.fx.load(self.graph.state(COUNT, NUMBER), scope=SCOPE)
        self.first = self._made("Equal", number, self.graph.constant(scalar_tensor("float32", 0.0)))
        self._mine(number)

    def _mine(self, node: Node) -> Node:
        """A node of the forward part: it runs for each micro-batch."""
        node.primal = {**node.primal, FORWARD_ID: f"{SCOPE}.{node.name}"}
        return node

    def _made(self, op: str, *operands: Value) -> Node:
        return self._mine(self.graph.create(op, operands, scope=SCOPE))

    def _described(self, node: Node) -> None:
        """The effect of a node that writes or reads another state than before."""
        effect = describe(node, self.found.known)
        assert effect is not None
        self.fx.list = [effect if e.node is node else e for e in self.fx.list]

    def write_once(self, effect: Effect) -> None:
        """A write happens in front of the first micro-batch alone; later ones find the state as it left it."""
        node, graph = effect.node, self.graph
        state, value = node.operand(0), node.operand(1)
        with graph.inserting_before(node):
            if node.op.name == "Assign":
                old = self._mine(self.fx.load(state, scope=SCOPE))
                new = self._made("Select", self.first, value, old)
                taken = [(u, i) for u, i in value.use_sites() if u is not new and u.op.name != "UpdateState"]
                for user, i in taken if isinstance(value, Node) else [(node, 1)]:
                    user.set_operand(i, new)
            else:
                new = self._made("Select", self.first, value, self._made("ZerosLike", value))
                node.set_operand(1, new)
        self._refuse_both(node, new)
        self._mine(node)

    def _refuse_both(self, write: Node, new: Node) -> None:
        """A network that reads what the state held before is to do so in each micro-batch, and it is gone then."""
        state, place = write.operand(0), self.found.effects.place
        starts = [n for n in self.graph if self.found.part(n) == BACKWARD or (n in self.found.parts and mark(n))]
        behind = walk(starts, lambda node: [v for v in carried_operands(node) if isinstance(v, Node) and v is not new])
        if any(n.op.name == "Load" and n.operand(0) is state and place.get(n, 0) < place[write] for n in behind):
            raise PassError(
                f"the network reads {site(state)} both before and after {site(write)} writes it in front of the "
                "forward part: that happens once a window, and later micro-batches would not find the value from before"
            )

    def hold(self, state: State, writers: Collection[Node]) -> None:
        """``writers`` of a state write beside it instead, and what is no part of the network reads there."""
        graph, fx = self.graph, self.fx
        name = f"window.{state.name}"
        variable = self.program.state[state.name]
        self.program.add_state(name, variable.type, "carried")
        beside = graph.state(name, state.type)
        place = self.found.effects.place
        start = min(place[n] for n in writers)
        now = self._made(
            "Select", self.first, self._mine(fx.load(state, scope=SCOPE)), self._mine(fx.load(beside, scope=SCOPE))
        )
        known = {now, *now.operands}
        for user, i in list(state.use_sites()):
            if user in known or user.op.name == "UpdateState":
                continue
            if user in writers and i in written_operands(user):
                self._mine(user).set_operand(i, beside)
                self._described(user)
            elif user.op.name == "Load" and user not in self.inside and place.get(user, 0) > start:
                user.set_operand(0, beside)
                self._described(user)
            elif user.op.name in _COPYING:
                self._copied(user, now)
            elif user not in self.inside:
                user.set_operand(i, now)
        at = next(k for k, e in enumerate(fx.list) if e.node in writers)
        if fx.list[at].node.op.name != "Assign":
            filled = self._mine(fx.append("Assign", [beside, now], scope=SCOPE))
            fx.list.insert(at, fx.list.pop())
            assert fx.list[at].node is filled
        fx.append("Assign", [state, fx.load(beside, scope=SCOPE, initial=False)], scope=SCOPE)

    def _copied(self, copy: Node, now: Value) -> None:
        """Who takes a copy of the state outside of the network takes what it holds by now."""
        for user, i in list(copy.use_sites()):
            if user.op.name in _COPYING and user in self.inside:
                self._copied(user, now)
            elif user not in self.inside and user.op.name != "UpdateState":
                user.set_operand(i, now)
