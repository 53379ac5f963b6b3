"""The interface to effects. No pass edits tokens by hand.

MindIR orders effects by tokens: ``Load(state, u)`` reads, an in-place primitive takes the token as its last operand,
``UpdateState(u, x…)`` is the token after ``x``, ``Depend(result, u)`` ties the last one to the result. UpdateState
also lists plain values: the consumers of Loads, which must run before the state is overwritten.

A pass works on the *list* of effects: drop some, create and append others, then :meth:`Effects.commit` rebuilds the
chain (:mod:`ir.memory.token_chain`) from what the effects read and write and removes what nothing needs any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...analysis.effects.effect_list import EffectList, list_effects
from ...analysis.effects.state_access import Effect, Summary, describe, summarize
from ...analysis.effects.tokens import orders_only
from ...analysis.functions.calls import called_functions
from ...core.attributes import MonadValue
from ...core.errors import VerifyError
from ...core.graph import Graph, Node, Value
from ...core.op import CALL, MAKE_TUPLE
from ...core.predicates import is_effect, may_act
from ...core.types import IOMONAD, UMONAD, Type
from ...core.walk import live_nodes, needed_only_by, result_value, walk
from ...memory.token_chain import TokenChain


class Rebuilt(NamedTuple):
    """What became of a chain: its links before and after, and how many nodes went away (negative when it grew)."""

    links_before: int
    links_after: int
    removed: int


class Effects:
    """The ordered list of effects of a graph, for editing. Nothing is final before :meth:`commit`.

    ``known``: :func:`summarize` of the main graph, for who works on all of its functions. ``listed``: the effects, for
    who has the list of this graph as it is, or of what it is a clone of (:meth:`EffectList.of_clone`).
    """

    def __init__(self, graph: Graph, known: dict[str, Summary] | None = None, *, listed: EffectList | None = None):
        listed = list_effects(graph, known) if listed is None else listed
        if listed.graph is not graph:
            raise VerifyError(f"the list of effects is that of '{listed.graph.name}', not that of '{graph.name}'")
        self.graph = graph
        self._known = listed.known
        self._first: dict[bool, Value] = {}
        self._listed = listed
        self.list: list[Effect] = list(listed.effects)

    def writes(self) -> list[Effect]:
        """The effects that are not mere reads, in order."""
        return [e for e in self.list if not e.passive]

    def first_token(self, io: bool = False) -> Value:
        """The token that the graph starts from: its monad input in a function, else a constant."""
        first = self._first.get(io)
        if first is None:
            kind: Type = IOMONAD if io else UMONAD
            given = next((v for v in self.graph.inputs if v.type == kind), None)
            first = self._first[io] = given or self.graph.constant(MonadValue(str(kind)), "io" if io else "u")
        return first

    def drop(self, effects: Iterable[Effect]) -> None:
        """The effects no longer happen. Values that others compute from their results must be rewired by the caller."""
        gone = {e.node for e in effects}
        self.list = [e for e in self.list if e.node not in gone]
        for node in gone:
            self._detach(node)

    def _detach(self, node: Node) -> None:
        """Cuts the uses of an effect that only order: they have nothing left to wait for."""
        for user, i in node.use_sites():
            if user.op.name == "Depend" and i == 1:
                user.replace_uses(user.operand(0))
                if self.graph.result is user:
                    self.graph.result = user.operand(0)
            elif user.op.name in MAKE_TUPLE and orders_only(user, i):
                user.set_operand(i, self.graph.constant(True))

    def append(self, op: str, operands: list[Value], *, scope: str = "", sources: Iterable[Value] = ()) -> Node:
        """A new effect after all others (it is ordered against them only where they touch the same state)."""
        node = self.graph.create(op, [*operands, self.first_token()], scope=scope, sources=sources)
        self.adopt(node)
        return node

    def adopt(self, node: Node) -> None:
        """Takes a node that has a token operand already (a call whose Partials hold one, say) in as the last effect."""
        if node.op is CALL and any(f.name not in self._known for f in called_functions(node)):
            self._known = summarize(self.graph.owner or self.graph)
        effect = describe(node, self._known)
        if effect is None:
            raise VerifyError(f"{node!r} has no effect")
        self.list.append(effect)

    def load(self, state: Value, *, scope: str = "", initial: bool = True) -> Node:
        """A new read of a state: of its value before all writes of this graph, or after all so far."""
        node = self.graph.create("Load", [state, self.first_token()], scope=scope)
        effect = Effect(node, reads=frozenset((state,)), passive=True, initial=initial)
        self.list.append(effect)  # commit puts the initial ones first
        return node

    # -- commit ----------------------------------------------------------------------------------------------

    def commit(self, result: Value | None = None) -> int:
        """Rebuilds the chain and the result (``result``: what the graph is to compute from now on), removes dead nodes.

        Returns how many nodes went away (negative when the graph grew).
        """
        self.list.sort(key=lambda e: not e.initial)
        value = result_value(self.graph) if result is None else result
        live = live_nodes([value, *(e.node for e in self.writes())], tokens=False)
        self._refuse_dropped(live)
        before = len(self.graph)
        self._rebuild(value, {node: None for node in self.graph if node not in live}, in_order=False)
        self.graph.sort()
        return before - len(self.graph)

    def recommit(self) -> Rebuilt:
        """As :meth:`commit`, for who changed nothing, in a graph that is in order: most of what stays is not looked
        at."""
        graph, place = self.graph, self._listed.place
        before = len(graph)
        idle = [node for node in graph if node not in place] if before > len(place) else []
        idle += [node for node in place if node.op.name == "UpdateState"]
        links = sum(node.op.name == "UpdateState" for node in idle)
        value = graph.result
        while isinstance(value, Node) and value.op.name == "Depend":
            idle.append(value)
            value = value.operand(0)
        gone = needed_only_by(idle, {value, *(e.node for e in self.writes())})
        chain = self._rebuild(value, gone, in_order=True)
        if not chain.in_order:
            graph.sort()
        return Rebuilt(links, chain.links, before - len(graph))

    def _refuse_dropped(self, live: set[Node]) -> None:
        """Effects whose result is taken stay. Besides what was listed, only nodes that were made since can act."""
        graph = self.graph
        strange = live.difference(self._listed.place).union([e.node for e in self._listed.effects])
        strange.difference_update([e.node for e in self.list])
        for node in [node for node in graph if node in strange and node in live and may_act(node)] if strange else ():
            if (node.op.name == "Load" or is_effect(node)) and describe(node, self._known) is not None:
                users = ", ".join("%" + u.name for u in node.users[:3])
                raise VerifyError(
                    f"graph '{graph.name}': effect {node!r} was dropped, but its result is still used (by {users})"
                )

    def _rebuild(self, value: Value, gone: dict[Node, None], *, in_order: bool) -> TokenChain:
        """``gone``: the nodes that do not stay; ``in_order`` as for :class:`TokenChain`."""
        graph = self.graph
        effects = [e for e in self.list if e.node not in gone]  # without Loads that nothing takes any more
        chain = TokenChain(graph, effects, gone, self._listed.place, in_order=in_order)
        for token in chain.build(self.first_token):
            value = graph.create("Depend", [value, token])
        graph.result = value
        self._erase(gone, [e.node for e in effects if not e.passive])
        return chain

    def _erase(self, gone: dict[Node, None], effects: Iterable[Node]) -> None:
        """Removes what is ``gone``, but for what nodes that stay take still; also what the result does not need, where
        nothing ties one of the ``effects`` to it."""
        graph, names = self.graph, gone.keys()
        if any(names >= effect.uses.keys() for effect in effects):
            live = live_nodes([graph.result])
            graph.erase_all([node for node in graph if node not in live])
            return
        taken = [node for node in gone if not names >= node.uses.keys()]
        needed = set(walk(taken, lambda node: [v for v in node._operands if v in gone]))
        graph.erase_all([node for node in gone if node not in needed])
