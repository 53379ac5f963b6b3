"""On CPU: numbers and averages that a graph writes to states behind all that reads them are computed by the session.

The rule of a loss scale and the count of skipped cycles are some 16 kernels of one number each, 2 to 3 µs apiece, and
nothing else in the step needs them. A graph on a CPU has been computed when its call returns, and the memory of a state
is the host's. So the session asks for what they depend on (whether the gradients were finite) and computes the rest.

An average of weights takes two products, a sum and a copy, which read and write memory eleven times over. The host
moves it piece by piece in the cache, which reads both states and writes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.state_access import Effect
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import forget_unreached
from ...ir.core.graph import Constant, Graph, Node, State, Value, tensor_type
from ...ir.core.primitives import CPU
from ...ir.core.program import Program
from ...ir.core.types import TupleType
from ...ir.core.walk import live_nodes, result_value, walk
from ...ir.core.wording import counted
from ...ir.rewrite.cpu.host_clearing import sharing_memory
from ...ir.rewrite.effects.editing import Effects
from .context import Context
from .host_part import COMPUTED, HostPart, is_number
from .measures import is_constant, reads_state
from .moves import Move, moves_of

FEWEST = 4
"""Kernels that are saved by each number that the device is asked for: reading one takes 6 µs."""
_FROM_GRADIENTS = ("weight", "slot", "accumulator", "average")
_WRITES = {"Assign": None, "AssignAdd": "Add", "AssignSub": "Sub"}
"""Primitives that write a state, and what they compute of it and their operand."""


def applies(graph: Graph, context: Context) -> bool:
    if context.target != CPU or not context.clears:
        return False
    return any(moves_of(node) or _writes_number(node) for node in graph)


def run(graph: Graph, context: Context) -> str:
    fx = Effects(graph)
    plan = _Plan(fx, _last_writes(fx, context.program))
    while refused := plan.refused():
        plan = _Plan(fx, [write for write in plan.writes if write not in refused])
    saved, moves = plan.saved(), sum(len(write.moves) for write in plan.writes)
    if not plan.writes or saved + FEWEST * moves < FEWEST * max(1, len(plan.asked)):
        return ""
    context.hosted[graph.name] = plan.carry_out()
    forget_unreached(graph)
    kernels = [f"{counted(saved, 'kernel')} of one number"] if saved else []
    return " and ".join([*kernels, *([counted(moves, "average")] if moves else [])]) + " left to the session"


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """What leaves the graph: an effect that writes a number, or makes ``moves`` alone."""

    effect: Effect
    moves: Sequence[Move] = ()

    @property
    def numbers(self) -> list[Value]:
        """What the host needs for it, beside states."""
        return [number for move in self.moves for number in move.numbers] or [self.effect.node.operand(1)]


def _writes_number(node: Node) -> bool:
    return node.op.name in _WRITES and all(map(is_number, node.operands[:2]))


def _last_writes(fx: Effects, program: Program) -> list[_Write]:
    """The writes of numbers and averages that are the only ones of their states, and behind which nothing touches
    these. Other numbers that gradients change stay: they would have to be asked for."""
    if any(effect.everything for effect in fx.list):
        return []
    times = Counter(state for effect in fx.list for state in effect.writes)
    place = {effect.node: i for i, effect in enumerate(fx.list)}
    last = {state: i for i, effect in enumerate(fx.list) for state in effect.writes}
    found, touched = [], set[Value]()
    for i, effect in reversed([*enumerate(fx.list)]):
        node = effect.node
        moves = moves_of(node)
        states: list[Value] = [move.average for move in moves]
        if not moves and _writes_number(node) and _role(program, node.operand(0)) not in _FROM_GRADIENTS:
            states = [node.operand(0)]
        if (
            states
            and touched.isdisjoint(states)
            and all(orders_only(*use) for use in node.use_sites())
            and all(_role(program, state) and times[state] == 1 for state in states)
            # The host takes a weight as the whole graph leaves it.
            and all(last.get(move.weight, -1) < place.get(move.read, i) for move in moves)
        ):
            found.append(_Write(effect, moves))
        else:
            touched |= effect.touched
    return found[::-1]


def _role(program: Program, value: Value) -> str:
    """The role of a state of the program; nothing of any other value."""
    return program.state[value.name].role if isinstance(value, State) and value.name in program.state else ""


class _Plan:
    """That ``writes`` leave the graph, and with them the numbers that only they need, and results that need no others.
    ``asked``: the numbers that the device returns for that."""

    def __init__(self, fx: Effects, writes: Sequence[_Write]) -> None:
        self._fx = fx
        self.writes = writes
        moved = {write.effect.node for write in writes}
        stay = [effect for effect in fx.list if effect.node not in moved]
        self._needed = live_nodes([effect.node for effect in stay if not effect.passive], tokens=False)
        self._free = _of_states_alone(fx.graph, {state for effect in stay for state in effect.writes})
        behind = list(walk([number for write in writes for number in write.numbers], self._sources))
        self.asked = [v for v in behind if not self._is_known(v)]
        whole = result_value(fx.graph)
        several = isinstance(whole, Node) and whole.op.name == "MakeTuple"
        self._results = list(whole.operands) if isinstance(whole, Node) and several else [whole]
        self._leaving = {v for v in self._results if self._computes(v) and not self._unknown(v) - set(self.asked)}
        if not self.asked and self._leaving.issuperset(self._results):
            self._leaving = set()  # a graph returns something
        self._staying = [v for v in self._results if v not in self._leaving]
        computed = set(walk([*behind, *self._leaving], self._sources))
        self._computed = [node for node in fx.graph if node in computed]

    def _computes(self, value: Value) -> bool:
        """Whether the host computes a value, and no node needs it that stays, but for what is as free as it is."""
        if not (isinstance(value, Node) and value.op.name in COMPUTED and is_number(value)):
            return False
        return value in self._free or value not in self._needed

    def _is_known(self, value: Value) -> bool:
        """Whether the host computes or reads a value."""
        return self._computes(value) or value in self._free or is_constant(value)

    def _sources(self, value: Value) -> Sequence[Value]:
        return value.operands if isinstance(value, Node) and self._computes(value) else ()

    def _unknown(self, value: Value) -> set[Value]:
        return {v for v in walk([value], self._sources) if not self._is_known(v)}

    def refused(self) -> list[_Write]:
        """The writes that cannot leave: of something that the device cannot be asked for, or to a state whose memory a
        result may be."""
        returned = set(sharing_memory([*self._staying, *self.asked]))
        bad = {v for v in self.asked if not is_number(v) or isinstance(v, Constant) or reads_state(v)}
        return [
            write
            for write in self.writes
            if not returned.isdisjoint(write.effect.writes) or any(bad & self._unknown(v) for v in write.numbers)
        ]

    def saved(self) -> int:
        """How many kernels of one number the device runs no more."""
        stays = self._needed | live_nodes([*self._staying, *self.asked], tokens=False)
        alone = sum(not write.moves for write in self.writes)
        return alone + sum(self._computes(node) and node not in stays for node in self._computed)

    def carry_out(self) -> HostPart:
        device = list(dict.fromkeys([*self._staying, *self.asked]))
        leaving = [v for v in dict.fromkeys(self._results) if v in self._leaving]
        places = {v: (i, host) for values, host in ((device, False), (leaving, True)) for i, v in enumerate(values)}
        part = HostPart(
            self._host_graph(leaving), [device.index(v) for v in self.asked], [places[v] for v in self._results]
        )
        graph, names = self._fx.graph, dict(zip(self._results, self._fx.graph.outputs, strict=False))
        named = bool(names) and not any(isinstance(v.type, TupleType) for v in device)  # what tuples hold has names too
        graph.outputs = tuple(names.get(v, f"asked_{i}") for i, v in enumerate(device)) if named else ()
        self._fx.drop([write.effect for write in self.writes])
        self._fx.commit(device[0] if len(device) == 1 else graph.create("MakeTuple", device))
        graph.forget_unused_states()
        return part

    def _host_graph(self, results: Sequence[Value]) -> Graph:
        host = Graph(self._fx.graph.name)
        host.result = host.constant(True)
        fx = Effects(host)
        new: dict[Value, Value] = {v: host.add_input(f"asked_{i}", v.type) for i, v in enumerate(self.asked)}

        def of(value: Value) -> Value:
            return new[value] if value in new else host.constant(value.value)  # type: ignore[attr-defined]

        def state(value: Value) -> State:
            return host.state(value.name, tensor_type(value))

        for node in self._computed:
            if node.op.name == "Load":
                new[node] = fx.load(state(node.operand(0)), scope=node.scope)
            elif node not in new and self._computes(node):
                new[node] = host.create(node.op, [of(v) for v in node.operands], node.type, scope=node.scope)
        for write in self.writes:
            node = write.effect.node
            for move in write.moves:
                old, weight = (fx.load(state(s), scope=node.scope) for s in (move.average, move.weight))
                terms = [host.create("Mul", [old, of(move.kept)]), host.create("Mul", [weight, of(move.taken)])]
                mean = host.create("Add", terms)
                if move.condition is not None:
                    ways = [old, mean] if move.skips else [mean, old]
                    mean = host.create("Select", [of(move.condition), *ways])
                fx.append("Assign", [state(move.average), mean], scope=node.scope)
            if not write.moves:
                target, value = state(node.operand(0)), of(node.operand(1))
                if (how := _WRITES[node.op.name]) is not None:
                    value = host.create(how, [fx.load(target, scope=node.scope), value], scope=node.scope)
                fx.append("Assign", [target, value], scope=node.scope)
        fx.commit(host.create("MakeTuple", [of(v) for v in results]))
        return host


def _of_states_alone(graph: Graph, written: Collection[Value]) -> set[Value]:
    """The numbers that depend on nothing but states that are not ``written``."""
    free: set[Value] = set()
    for node in graph:
        if not is_number(node):
            continue
        reads = node.op.name == "Load" and isinstance(node.operand(0), State) and node.operand(0) not in written
        if reads or (node.op.name in COMPUTED and all(v in free or is_constant(v) for v in node.operands)):
            free.add(node)
    return free
