"""Rebuilds a graph's chain of tokens from what its effects read and write.

The chain is a sequence: each write takes the token of the one before it, in the order of the list. What must come in
order is less: effects that touch the same state where one writes it, and a write after all who read the value it
overwrites. Where the two disagree (an effect takes a value that a later one makes), only what must stays. The sequence
costs nothing on a device that runs one kernel after the other, and MindSpore's CPU runtime is faster with it than with
many small updates that it may run at once (docs/benchmarks.md).

The chain has levels. An effect's level is one above whatever it waits for and no lower than those it takes values
from. Level k's token is ``u_k = UpdateState(u_{k-1}, effects of level k-1, readers of what level k overwrites)``. So a
write waits for its own readers and not for those of later writes: an update runs as soon as its gradient is there.
Reads stand beside the sequence: they take the first token that comes after the writes whose value they read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter

from ..analysis.effects.state_access import Effect
from ..analysis.effects.tokens import token_slots
from ..core.errors import VerifyError
from ..core.graph import Graph, Node, Value
from ..core.op import CALL, RETURN
from ..core.predicates import is_effect
from ..core.primitives import BINDING, PASSING, PRIMITIVES, VIEWS, make_op
from ..core.types import IOMONAD, UMONAD, TensorType, holds_function

SEQUENCE, READER, MUST = range(3)
"""Why a node comes before another, the weakest reason first: where reasons form a cycle, the weakest gives way."""

NONE_YET = -1
"""The level of what has none yet."""

Before = tuple[Sequence[Node], Sequence[Node], Sequence[Node]]
"""What comes before an effect: the effects that it conflicts with, the readers of what it overwrites, and the write
before it in the sequence."""

Path = list[tuple[Node, int, Iterator[tuple[Value, int]]]]
"""A walk along requirements: each node, the reason why the one before it requires it, and what it still requires."""


def _aliases(value: Value) -> bool:
    """Whether the value's type says that it is the memory of a state, not a tensor of its own."""
    return isinstance(value.type, TensorType) and bool(value.type.ref)


class TokenChain:
    """One rebuilding. ``gone``: the nodes that do not stay, all tokens among them. ``order``: the place of nodes in the
    source graph. ``in_order``: whether each node of the graph stands behind what it takes now."""

    def __init__(
        self,
        graph: Graph,
        effects: Sequence[Effect],
        gone: Collection[Node],
        order: Mapping[Node, int],
        *,
        in_order: bool,
    ):
        self.graph = graph
        self.effects = effects
        self.in_order = in_order
        """As above; behind :meth:`build` whether that is so still."""
        self.links = 0
        """How many tokens were made."""
        self._gone = gone
        self._order = order
        self._nodes = {e.node for e in effects}
        self._slots: dict[bool, dict[Node, list[tuple[Node, int]]]] = {False: {}, True: {}}
        """Where the memory (False) and IO (True) tokens of an effect stand."""
        for e in effects:
            for slot in token_slots(e.node):
                kind = slot[0].operand(slot[1]).type
                self._slots[kind is not UMONAD and kind == IOMONAD].setdefault(e.node, []).append(slot)
        self._before: dict[Node, Before] = {}
        """Of effects that something comes before."""
        self._level: dict[Value, int] = {}
        """Of nodes that have none yet, or one above 0."""
        self._fence: dict[Node, int] = {}
        """What an effect waits for, and the level whose token does: the last one before the first such effect."""

    def build(self, first_token: Callable[[bool], Value]) -> list[Value]:
        """Creates the tokens and hands them to the effects; returns the last memory and the last IO token, where they
        must stay alive. ``first_token``: where each begins, memory (False) and IO (True)."""
        self._find_order()
        self._assign_levels()
        last = [self._chain(io, first_token) for io in (False, True) if self._slots[io]]
        return [token for token in last if token is not None]

    # -- what comes before what ------------------------------------------------------------------------------

    def _find_order(self) -> None:
        memory, io = self._slots[False], self._slots[True]
        last_write: dict[Value, Node] = {}
        written = last_write.keys()
        reads_since: dict[Value, list[Effect]] = {}
        direct = self._direct_readers()
        last_barrier: Node | None = None
        last_io: Node | None = None
        previous: Sequence[Node] = ()
        so_far: list[Effect] = []
        for e in self.effects:
            musts: list[Node] = [] if last_barrier is None else [last_barrier]
            readers: list[Node] = []
            sequence: Sequence[Node] = ()
            # MindSpore's runtime stalls where a loop's body runs beside the call that continues the loop: calls keep
            # their place.
            barrier = e.everything or e.node.op is CALL
            if barrier:
                musts.extend(p.node for p in so_far)
                for p in so_far:
                    if p.passive:
                        readers.extend(self._readers_of(p))
            if not e.passive and (e.node in memory or e.node in io):
                sequence, previous = previous, (e.node,)
            if not (written.isdisjoint(e.reads) and written.isdisjoint(e.writes)):
                musts += [last_write[state] for state in _by_name(e.touched) if state in last_write]
            for state in _by_name(e.writes):
                still_read: list[Effect] = []
                for r in reads_since.get(state, ()):
                    musts.append(r.node)
                    if r.passive:
                        found = self._readers_of(r)
                        late = self._later(found, e.node)
                        readers += [n for n in found if n not in late] if late else found
                        # What a call returns is no memory of the state: who takes it later may run on either side.
                        if late and r.node.op is not CALL:
                            self._read_later([r.node, *found], late, e.node)
                            still_read.append(r)
                readers.extend(direct.get(state, ()))
                version = last_write.get(state, state)
                if isinstance(version, Node) and (version is state or _aliases(version)):
                    readers.extend(self._users_of_memory(version))
                reads_since[state] = still_read
                last_write[state] = e.node
            for state in e.reads:
                if state not in e.writes:
                    reads_since.setdefault(state, []).append(e)
            if e.io:
                if last_io is not None:
                    musts.append(last_io)
                last_io = e.node
            if barrier:
                last_barrier, so_far = e.node, []
            else:
                so_far.append(e)
            if readers:
                gone = self._gone
                readers = [n for n in readers if n not in gone and n is not e.node and n.op is not RETURN]
            if musts or readers or sequence:
                self._before[e.node] = musts, readers, sequence

    def _readers_of(self, effect: Effect) -> list[Node]:
        """Nodes that may read, through memory shared with it, the state that a Load names."""
        found: list[Node] = []
        stack: list[Value] = [effect.node]
        seen: set[Value] = set(stack)
        while stack:
            for user in stack.pop().uses:
                name = user.op.name
                if user not in seen and name != "UpdateState":
                    seen.add(user)
                    if name not in BINDING:  # the call reads, not the binding (which may hold its own token)
                        found.append(user)
                    if name in VIEWS:
                        stack.append(user)
        return found

    def _later(self, readers: Sequence[Node], write: Node) -> set[Node]:
        """The readers that the source graph runs after ``write``."""
        place = self._order
        at = place.get(write)
        return set() if at is None else {n for n in readers if place.get(n, -1) > at}

    def _read_later(self, memory: Sequence[Node], late: set[Node], write: Node) -> None:
        """Makes those who run after a write of a state, and take a Load of it or a view from before the write
        (``memory``), wait for it: there they read the new value, and so must they here. Autodiff leaves such readers
        where forward overwrites a state that backward needs."""
        for value in memory:
            if value in late or value.op.name not in VIEWS:
                continue
            uses = [(user, i) for user, i in value.use_sites() if user in late]
            uses = [(user, i) for user, i in uses if not (user.op.name == "Depend" and user.operand(1) is write)]
            if uses:
                with self.graph.inserting_before(uses[0][0]):
                    waiting = self.graph.create("Depend", [value, write])
                self.in_order = False
                for user, i in uses:
                    user.set_operand(i, waiting)

    def _users_of_memory(self, value: Value, but: Container[Node] = ()) -> list[Node]:
        """Who reads, itself or through a view, the memory that a write is about to change: an activation, the result of
        an earlier write, or a state."""
        found: list[Node] = []
        stack = [value]
        seen: set[Node] = set()
        while stack:
            here = stack.pop()
            for user in here.uses:
                name = user.op.name
                if user in seen or user in but or user.op is RETURN:
                    continue
                if name in BINDING or (name == "Depend" and user.operand(0) is not here):
                    continue
                seen.add(user)
                if name in VIEWS:
                    stack.append(user)
                if name not in PASSING:
                    found.append(user)
        return found

    def _direct_readers(self) -> dict[Value, list[Node]]:
        """Pure nodes that take a state without a Load (BatchNormGrad takes gamma so), or a view of one: they read it
        whenever they run."""
        sources: list[Value] = [*self.graph.states.values(), *self.graph.inputs]
        taken = [state for state in sources if not self._nodes.issuperset(state.uses)]
        return {state: self._users_of_memory(state, but=self._nodes) for state in taken}

    # -- levels ----------------------------------------------------------------------------------------------

    def _assign_levels(self) -> None:
        """Levels in dependence order: of effects one above what comes before them, of pure nodes the highest among
        what they take values from."""
        level, before, gone, settle = self._level, self._before, self._gone, self._settle
        level.update(dict.fromkeys(self._met_later(), NONE_YET))
        level_of = level.get
        for node in self.graph:
            if node in gone:
                continue
            if node in before:
                settle(node)
                continue
            at = 0  # what _settle does, for nearly all nodes
            for operand in node._operands:
                below = level_of(operand, 0)
                if below > at:
                    at = below
                elif below == NONE_YET:
                    level[node] = NONE_YET
                    break
            else:
                if at or node in level:
                    level[node] = at
        # What is left was rewired to nodes that stand behind it, or is on cycles of requirements, or behind these.
        for root in [e.node for e in self.effects if level_of(e.node) == NONE_YET]:
            if level[root] != NONE_YET or self._settle(root):
                continue
            stack: Path = [(root, MUST, self._requirements(root))]
            on_way = {root}
            while stack:
                node, _, rest = stack[-1]
                for required, reason in rest:
                    if level.get(required, 0) != NONE_YET:
                        continue
                    assert isinstance(required, Node)
                    if required in on_way:
                        self._give_way(stack, on_way, required, reason)
                        break
                    if self._settle(required):
                        continue
                    on_way.add(required)
                    stack.append((required, reason, self._requirements(required)))
                    break
                else:
                    stack.pop()
                    on_way.discard(node)
                    level[node] = self._level_of(node)

    def _met_later(self) -> Iterable[Node]:
        """The nodes that a sweep may meet behind one that waits for them."""
        if not self.in_order:
            return [node for node in self.graph if node not in self._gone]
        place = self._order
        return [
            other
            for node, before in self._before.items()
            for others in before
            for other in others
            if place[other] > place[node]
        ]

    def _settle(self, node: Node) -> bool:
        """Gives a node its level if all that comes before it has one."""
        level_of, at = self._level.get, 0
        for operand in node._operands:
            below = level_of(operand, 0)
            if below > at:
                at = below
            elif below == NONE_YET:
                at = NONE_YET
                break
        before = self._before.get(node)
        if before is not None and at != NONE_YET:
            musts, readers, sequence = before
            waited = [*musts, *readers, *sequence]
            at = NONE_YET if NONE_YET in map(level_of, waited) else self._level_behind(waited, at)
        self._level[node] = at
        return at != NONE_YET

    def _level_of(self, node: Node) -> int:
        at = max([self._level.get(operand, 0) for operand in node._operands], default=0)
        if node not in self._before:
            return max(at, 0)
        # What gave way has no level yet.
        waited = [v for others in self._before[node] for v in others if self._level.get(v) != NONE_YET]
        return self._level_behind(waited, max(at, 0))

    def _level_behind(self, waited: Sequence[Node], at: int) -> int:
        """The level of an effect. ``at``: the highest level of what it takes."""
        level, fence = self._level, self._fence
        for other in waited:
            if (below := level.get(other, 0)) >= at:
                at = below + 1
        for other in waited:
            # MindSpore inspects Loads among UpdateState's operands too, so they stay listed.
            if fence.setdefault(other, at) > at:
                fence[other] = at
        return at

    def _give_way(self, stack: Path, on_way: set[Node], required: Node, reason: int) -> None:
        """The last node of ``stack`` requires one that requires it. Its requirement is left out, or the weaker one
        further up. A reader that itself needs the write reads a snapshot that the source graph took (MindSpore copies
        it). A cycle of musts is an error."""
        weakest, at = reason, len(stack)
        i = len(stack) - 1
        while stack[i][0] is not required:
            if stack[i][1] < weakest:
                weakest, at = stack[i][1], i
            i -= 1
        if weakest == MUST:
            node = stack[-1][0]
            raise VerifyError(f"graph '{self.graph.name}': {required!r} and {node!r} each must happen before the other")
        on_way.difference_update(abandoned for abandoned, _, _ in stack[at:])
        del stack[at:]

    def _requirements(self, node: Node) -> Iterator[tuple[Value, int]]:
        """What comes before a node, and why; among what it takes are values that need no level."""
        taken = zip(node._operands, repeat(MUST))
        if node not in self._before:
            return taken
        musts, readers, sequence = self._before[node]
        return chain(taken, zip(musts, repeat(MUST)), zip(readers, repeat(READER)), zip(sequence, repeat(SEQUENCE)))

    # -- tokens ----------------------------------------------------------------------------------------------

    def _chain(self, io: bool, first_token: Callable[[bool], Value]) -> Value | None:
        """The tokens of one kind; the last one, None where nothing needs it."""
        slots: dict[int, list[tuple[Node, int]]] = {}
        attach: dict[int, dict[Node, None]] = {}
        own, kind = self._slots[io], IOMONAD if io else UMONAD
        update = make_op("UpdateState")
        alive = False
        for e in self.effects:
            if e.node not in own:
                continue
            level = self._level.get(e.node, 0)
            slots.setdefault(level, []).extend(own[e.node])
            if not e.passive:
                alive = True
                attach.setdefault(level + 1, {})[e.node] = None
        if not io:
            for node, k in self._fence.items():
                attach.setdefault(k, {})[node] = None
        token = first_token(io)
        last = max(slots, default=-1)
        behind = -1
        for k in sorted(slots.keys() | attach.keys()):
            if k > last and not alive:
                break
            holders, waited = slots.get(k, ()), attach.get(k, ())
            first, behind = self._place(holders, waited, behind)
            with self.graph.inserting_before(first):
                for one in self._waits(waited):
                    token = self.graph.create(update, [token, one], kind)
                    self.links += 1
            for holder, i in holders:
                holder.set_operand(i, token)
        return token if alive else None

    def _place(
        self, holders: Sequence[tuple[Node, int]], waited: Iterable[Node], behind: int
    ) -> tuple[Node | None, int]:
        """The first of the nodes that take a token, and the place that it has, or what the token waits for if that
        stands later. ``behind``: what the tokens before it have."""
        place = self._order.get
        end = len(self._order)  # where those stand that are new
        first, at = None, end
        for holder, _ in holders:
            there = place(holder, end)
            if there < at:
                first, at = holder, there
        for node in waited:
            there = place(node, end)
            if there > behind:
                behind = there
        if behind < at:
            return first, at
        if first is not None:
            self.in_order = False
        return first, behind

    def _waits(self, nodes: Iterable[Node]) -> list[Value]:
        """The nodes as second operands of UpdateState, where MindSpore looks for effects; behind them is mere order.

        They stand in one tuple, but for effects on any tensor and those that we know nothing of: MindSpore drops some
        of them (InplaceSubExt) from a tuple. A node without effects stands in a tuple even if it is the only one:
        MindSpore removes a token that waits for nothing else, and the order with it. As in the exporter's chains, no
        closure stands among data: an element of a call's results stands for the call, and a closure itself comes from a
        call that is waited for already.
        """
        together: dict[Node, None] = {}
        alone: list[Value] = []
        for node in nodes:
            if not isinstance(node.type, TensorType) and holds_function(node.type):
                data = [i for i, t in enumerate(getattr(node.type, "elements", ())) if not holds_function(t)]
                if data:
                    together[self._item(node, data[0])] = None
                continue
            known = PRIMITIVES.get(node.op.name)
            if (known is None or known.any_tensor) and node.op is not CALL and is_effect(node):
                alone.append(node)
            else:
                together[node] = None
        if len(together) > 1 or not all(node.op.name == "Load" or is_effect(node) for node in together):
            return [self.graph.create("MakeTuple", list(together)), *alone]
        return [*together, *alone]

    def _item(self, node: Node, index: int) -> Node:
        for user, i in node.use_sites():
            if user.op.name == "TupleGetItem" and i == 0 and user.operand(1).literal == index:
                return user
        return self.graph.create("TupleGetItem", [node, self.graph.constant(index)])


_name = attrgetter("name")


def _by_name(values: Collection[Value]) -> Collection[Value]:
    """In an order that is the same in every run, unlike that of a set."""
    return values if len(values) < 2 else sorted(values, key=_name)
