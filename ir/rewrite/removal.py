"""Removing state from a training graph together with everything that only serves it: reads, gradients, updates, slots,
the arguments that carry them into functions, and the share that they have in sums over all gradients.

A value is *dead* when all its uses go away. What a dead value flows into is dead too, with these exceptions:

* an update is dropped if it writes nothing but the removed state;
* a sum over many gradients (a global norm, a finite check) loses a summand;
* what merely waits for a dead value no longer waits.

Anything else that takes a dead value, and serves other state or the result, is an obstacle: the plan says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..analysis.effects.state_access import describe, summarize
from ..analysis.effects.tokens import orders_only, token_slots
from ..analysis.functions.calls import forget_unreached
from ..analysis.functions.closures import Closures, Path, element
from ..analysis.training.network import BACKWARD, FORWARD
from ..analysis.training.weights import WeightInfo
from ..builders.branch import plain, zeros
from ..core.attributes import TensorValue
from ..core.data import to_numpy
from ..core.graph import Constant, Graph, Input, Node, State, Value
from ..core.op import CALL, RETURN
from ..core.predicates import is_effect
from ..core.primitives import Family, named
from ..core.sites import site
from ..core.types import IOMONAD, TensorType, TupleType, Type, is_monad
from ..core.walk import walk
from .effects.editing import Effects

_MERGING = frozenset({"Add", "AddExt", "LogicalAnd", "LogicalOr", "Maximum"})
"""Ops of two operands by which sums, norms and checks over all gradients are formed."""
_MERGING_IN_PLACE = frozenset({"InplaceAddExt", "AssignAdd"})
_MERGING_TUPLE = frozenset({"AddN", "AllFinite"})
_STACKING = named(Family.JOIN)
_SUMMING = named(Family.TOTAL, Family.NORM)
"""Ops that give the same for a stack of numbers with a zero in it as without; in front of them, what keeps a zero."""
_KEEPING_ZERO = frozenset({"Square", "Abs", "Cast"})

Item = tuple[Value, Path]
"""A value, or the element at a path of a tuple."""
Site = tuple[Node, int]


class _Obstacle(Exception):
    """Something that stays takes a dead value."""


@dataclass(eq=False)
class Plan:
    """The removal of ``states``. ``obstacle`` says why it cannot be done ("" if it can)."""

    states: frozenset[str]
    own: frozenset[Node]
    obstacle: str = ""
    dead: dict[Item, None] = field(default_factory=dict)
    dropped: dict[Node, None] = field(default_factory=dict)
    """Effects that no longer happen; calls among them."""
    merges: dict[Node, dict[int, None]] = field(default_factory=dict)
    """Ops that merge dead operands (or elements of their tuple) with others: which ones are dead."""
    stacked: dict[Node, None] = field(default_factory=dict)
    """Ops that stack dead values with others, where zeros stand in their places."""
    tuples: dict[Node, dict[int, None]] = field(default_factory=dict)
    waiting: dict[Node, None] = field(default_factory=dict)
    network: dict[Node, None] = field(default_factory=dict)
    results: dict[Graph, None] = field(default_factory=dict)
    """Functions whose result is dead."""

    def is_dead(self, value: Value, path: Path = ()) -> bool:
        return any((value, path[:n]) in self.dead for n in range(len(path) + 1))


class Removal:
    """Plans and makes removals from one training graph."""

    def __init__(self, graph: Graph, parts: Mapping[Node, str], weights: Sequence[WeightInfo] = ()):
        """``parts``: the forward and backward nodes of ``graph``."""
        self.graph = graph
        self.parts = parts
        self.closures = Closures(self.graph)
        self.known = summarize(self.graph)
        self._slots = {info.name: info.slots for info in weights}
        self._unpacked: dict[Value, tuple[dict[int, list[Node]], list[Site]]] = {}

    # -- planning --------------------------------------------------------------------------------------------

    def plan_all(self, states: Iterable[str], values: Collection[Value], own: Collection[Node]) -> Plan:
        """As :meth:`plan`, with all state that serves nothing else: slots, and what only these updates need."""
        plan = self.plan([n for name in states for n in (name, *self._slots.get(name, ()))], values, own)
        tried: set[str] = set()
        while not plan.obstacle and (beside := self._beside(plan) - tried):
            tried |= beside
            for name in sorted(beside):
                larger = self.plan(plan.states | {name}, values, own)
                plan = plan if larger.obstacle else larger
        return plan

    def _beside(self, plan: Plan) -> set[str]:
        """Other states that dead nodes take."""
        taken: list[Value] = []
        for node in (*(value for value, path in plan.dead if not path), *plan.dropped):
            if isinstance(node, Node) and node.op is not CALL and node.op.name not in ("Partial", "UpdateState"):
                taken.extend(v.operand(0) if isinstance(v, Node) and v.op.name == "Load" else v for v in node.operands)
        found = walk(taken, lambda v: self._given(v) if isinstance(v, Input) else [])
        return {value.name for value in found if isinstance(value, State)} - plan.states

    def plan(
        self, states: Iterable[str], values: Iterable[Value], own: Collection[Node], *, kept: bool = False
    ) -> Plan:
        """The removal of ``states`` and ``values`` (their gradients) if the nodes ``own``, which the caller removes,
        are all of the network that uses them. ``kept``: only the updates of the states go. Linear in what goes."""
        plan = Plan(frozenset(states), frozenset(own))
        self._pending: list[Item] = []
        try:
            doomed = [] if kept else [self.graph.states[name] for name in sorted(plan.states)]
            for value in (*doomed, *values):
                self._kill(plan, value, ())
            self._run(plan)
            self._check_inputs(plan)
            plan.obstacle = self._network_obstacle(plan)
        except _Obstacle as obstacle:
            # Where the network takes a dead value, all that follows from it is no news.
            plan.obstacle = self._network_obstacle(plan) or str(obstacle)
        return plan

    def _kill(self, plan: Plan, value: Value, path: Path) -> None:
        if not plan.is_dead(value, path):
            plan.dead[value, path] = None
            self._pending.append((value, path))

    def _run(self, plan: Plan) -> None:
        while self._pending:
            while self._pending:
                value, path = self._pending.pop()
                for user, i in self._users(value, path):
                    self._use(plan, user, i, path)
            for node, at in plan.merges.items():
                if len(at) == self._width(node):
                    if is_effect(node):
                        plan.dropped[node] = None
                    self._kill(plan, node, ())

    @staticmethod
    def _width(node: Node) -> int:
        """How many values a merging op merges."""
        if node.op.name not in _MERGING_TUPLE:
            return 2
        items = node.operand(0).type
        return len(items.elements) if isinstance(items, TupleType) else 1

    def _users(self, value: Value, path: Path) -> Iterable[Site]:
        """Who takes a value, or an element of a tuple; picks from wide tuples are sorted by index once."""
        if not path:
            return list(value.use_sites())
        if value not in self._unpacked:
            by_index: dict[int, list[Node]] = {}
            others: list[Site] = []
            for user, i in value.use_sites():
                index = element(user) if user.op.name == "TupleGetItem" and i == 0 else None
                if index is None:
                    others.append((user, i))
                else:
                    by_index.setdefault(index, []).append(user)
            self._unpacked[value] = (by_index, others)
        by_index, others = self._unpacked[value]
        return [*((user, 0) for user in by_index.get(path[0], ())), *others]

    def _use(self, plan: Plan, user: Node, i: int, path: Path) -> None:
        name = user.op.name
        if user in plan.own or name == "UpdateState" or user in plan.dropped or (user, ()) in plan.dead:
            return
        if name == "Depend" and i == 1:
            if not path:
                plan.waiting[user] = None
        elif user.op is RETURN:
            self._leave(plan, user, path)
        elif name == "MakeTuple":
            if not path:
                plan.tuples.setdefault(user, {})[i] = None
            self._kill(plan, user, (i, *path))
        elif name == "TupleGetItem":
            self._kill(plan, user, path[1:])
        elif name == "Depend":
            self._kill(plan, user, path)
        elif name == "Switch":
            raise _Obstacle(f"{site(user)} decides by it")
        elif user.op is CALL or name == "Partial":
            self._enter(plan, user, i, path)
        elif path:
            self._take_element(plan, user, path)
        elif is_effect(user):
            self._affect(plan, user, i)
        elif name in _MERGING and self._is_number(user) and user.operand(1 - i).type == user.type:
            plan.merges.setdefault(user, {})[i] = None
        else:
            if self.parts.get(user) in (FORWARD, BACKWARD) and name != "Load":
                plan.network[user] = None
            self._kill(plan, user, ())

    def _is_number(self, node: Node) -> bool:
        """Whether the update side makes one number (a norm, a verdict): what many values are merged into."""
        if self.parts.get(node) in (FORWARD, BACKWARD):
            return False
        return isinstance(node.type, TensorType) and node.type.is_static and node.type.size == 1

    def _take_element(self, plan: Plan, user: Node, path: Path) -> None:
        name = user.op.name
        if len(path) == 1 and name in _MERGING_TUPLE and self._is_number(user):
            plan.merges.setdefault(user, {})[path[0]] = None
        elif len(path) == 1 and name in _STACKING and _is_summed(user):
            plan.stacked[user] = None  # a zero stands in its place
        elif name == "AddN":
            if self.parts.get(user) in (FORWARD, BACKWARD):
                plan.network[user] = None
            self._kill(plan, user, ())
        else:
            raise _Obstacle(f"{site(user)} takes it together with other values")

    def _affect(self, plan: Plan, user: Node, i: int) -> None:
        effect = describe(user, self.known)
        written = self._written(user)
        if effect is None or effect.io or effect.everything:
            raise _Obstacle(f"{site(user)} takes it out of the graph")
        if written is not None and written <= plan.states:
            plan.dropped[user] = None
            self._kill(plan, user, ())
        elif written is None and user.op.name in _MERGING_IN_PLACE and self._is_number(user) and i <= 1:
            plan.merges.setdefault(user, {})[i] = None
        else:
            what = f"'{min(written - plan.states)}'" if written else "a value"
            raise _Obstacle(f"{site(user)} computes {what} from it")

    def _written(self, node: Node) -> set[str] | None:
        """Names of the states that an effect writes, through functions; None where it writes something else."""
        effect = describe(node, self.known)
        names: set[str] = set()
        for value in walk([] if effect is None else effect.writes, self._given):
            if isinstance(value, State):
                names.add(value.name)
            elif not self._given(value):
                return None
        return names

    def _given(self, value: Value) -> list[Value]:
        """The values of the callers that a function's input stands for; what a Depend passes on."""
        if isinstance(value, Input):
            return [node.operand(i) for node, i in self.closures.bound.get(value, {})]
        return [value.operand(0)] if isinstance(value, Node) and value.op.name == "Depend" else []

    # -- functions -------------------------------------------------------------------------------------------

    def _goes(self, plan: Plan, call: Node) -> bool:
        """Whether a call that takes a dead value goes as a whole: what it writes is removed, or it writes nothing and
        its function serves other calls too (a function for each weight, not one for all)."""
        effect = describe(call, self.known)
        if effect is None or effect.passive:
            functions = self.closures.targets[call]
            return call not in self.closures.open and any(len(self.closures.callers[f]) > 1 for f in functions)
        written = self._written(call)
        return not (not written or effect.io or effect.everything) and written <= plan.states

    def _enter(self, plan: Plan, user: Node, i: int, path: Path) -> None:
        """A dead value is an argument: the call goes, or the function's input is dead."""
        calls: Iterable[Node] = (user,)
        if user.op is not CALL:
            function = getattr(user.operand(0), "graph", None)
            calls = self.closures.callers.get(function, ()) if isinstance(function, Graph) else ()
        if i > 0 and calls and all(self._goes(plan, call) for call in calls):
            for call in calls:
                if is_effect(call) and describe(call, self.known) is not None:
                    plan.dropped[call] = None
                self._kill(plan, call, ())
            if user.op is not CALL:
                plan.dead[user, ()] = None  # the Switch that takes it goes with the calls
            return
        formals = self.closures.formals.get((user, i), ())
        if not formals or any(call in self.closures.open for call in calls):
            raise _Obstacle(f"{site(user)} passes it on to where it cannot be followed")
        for formal in formals:
            self._kill(plan, formal, path)

    def _leave(self, plan: Plan, user: Node, path: Path) -> None:
        function = user.graph
        if function is None or function is self.graph:
            raise _Obstacle("it is a result of the graph")
        if not path:
            if not _has_zeros(user.operand(0).type):
                raise _Obstacle(f"function '{function.name}' returns it")
            plan.results[function] = None
        for call in self.closures.callers.get(function, ()):
            self._kill(plan, call, path)

    # -- checks ----------------------------------------------------------------------------------------------

    def _network_obstacle(self, plan: Plan) -> str:
        """A node of forward or backward that takes a dead value together with one that stays ("" for none)."""
        for node in plan.network:
            for operand in node.operands:
                if not (isinstance(operand, Constant) or is_monad(operand.type) or self._all_dead(plan, operand)):
                    return f"{site(node)} of the {self.parts.get(node)} part takes it too"
        return ""

    def _check_inputs(self, plan: Plan) -> None:
        for value, path in plan.dead:
            if not isinstance(value, Input):
                continue
            for node, i in self.closures.bound[value]:
                if node not in plan.dropped and not plan.is_dead(node) and not plan.is_dead(node.operand(i), path):
                    owner = next((g.name for g in self.graph.functions.values() if value in g.inputs), "?")
                    raise _Obstacle(f"function '{owner}', which takes it, serves other weights too")

    def _all_dead(self, plan: Plan, value: Value) -> bool:
        if plan.is_dead(value):
            return True
        n = len(value.type.elements) if isinstance(value.type, TupleType) else 0
        return n > 0 and all(plan.is_dead(value, (i,)) for i in range(n))

    # -- making it so ----------------------------------------------------------------------------------------

    def apply(self, plan: Plan, rewire: Callable[[], object]) -> None:
        """Makes a plan so. ``rewire`` replaces what others take from the plan's ``own`` nodes, which go too."""
        used = [name for name, state in self.graph.states.items() if state.uses]
        owners = {value.graph for value, _ in plan.dead if isinstance(value, Node)}
        self._forget_inputs(plan)
        known = summarize(self.graph)
        for function in self.graph.functions.values():
            if function in owners:
                self._edit(Effects(function, known), plan, lambda: None)
        self._edit(Effects(self.graph), plan, rewire)
        forget_unreached(self.graph)
        for name in used:
            if not self.graph.states[name].uses:
                del self.graph.states[name]

    def _edit(self, fx: Effects, plan: Plan, rewire: Callable[[], object]) -> None:
        graph = fx.graph
        rewire()
        gone = plan.dropped.keys() | plan.own
        for node in plan.waiting:
            if node.graph is graph:
                node.replace_uses(node.operand(0))
        for node, at in plan.merges.items():
            if node.graph is graph and not plan.is_dead(node):
                gone |= self._unmerge(node, at)
        for node, at in plan.tuples.items():
            if node.graph is graph:
                self._untuple(node, at)
        effects = {e.node for e in fx.list}
        for node in graph:
            if node.op is CALL and node not in effects:
                # A pure call waits for nothing, not even for what goes.
                for holder, i in token_slots(node):
                    holder.set_operand(i, fx.first_token(io=holder.operand(i).type == IOMONAD))
        fx.drop([e for e in fx.list if e.node in gone])
        fx.commit(zeros(graph, plain(graph.result.type), "") if graph in plan.results else None)

    def _untuple(self, node: Node, at: Collection[int]) -> None:
        """Takes dead values out of a tuple that only orders; in one that is unpacked, zeros stand in their places."""
        graph = node.home
        if orders_only(node, 0):
            rest = [v for i, v in enumerate(node.operands) if i not in at]
            with graph.inserting_before(node):
                node.replace_uses(graph.create("MakeTuple", rest, scope=node.scope, sources=[node]))
        else:
            for i in at:
                node.set_operand(i, self._nothing(node, i))

    @staticmethod
    def _nothing(node: Node, i: int) -> Value:
        """A value in place of a dead one in a tuple: of the same type, if somebody may read it."""
        type_ = node.operand(i).type
        return zeros(node.home, plain(type_), node.scope) if _has_zeros(type_) else node.home.constant(True)

    def _unmerge(self, node: Node, at: Collection[int]) -> set[Node]:
        """Takes dead values out of what merges them with others; returns the effects that go with it. In a tuple that
        comes from elsewhere zeros stand in their places."""
        graph = node.home
        if node.op.name not in _MERGING_TUPLE:
            kept = node.operand(1 - next(iter(at)))
            node.replace_uses(kept)
            return {node} if is_effect(node) else set()
        items = node.operand(0)
        if isinstance(items, Node) and items.op.name == "MakeTuple":
            rest = [v for i, v in enumerate(items.operands) if i not in at]
            if len(rest) == 1 and node.op.name == "AddN":
                node.replace_uses(rest[0])
            else:
                with graph.inserting_before(node):
                    node.set_operand(0, graph.create("MakeTuple", rest, scope=node.scope, sources=[items]))
        return set()

    def _forget_inputs(self, plan: Plan) -> None:
        """Dead inputs of functions go, with the operands that bind them."""
        dead = {value for value, path in plan.dead if isinstance(value, Input) and not path}
        sites = self.closures.binding(dead)
        for function in self.graph.functions.values():
            if any(formal in dead for formal in function.inputs):
                function.inputs = [formal for formal in function.inputs if formal not in dead]
        for node, at in sites.items():
            node.set_operands([v for i, v in enumerate(node.operands) if i not in at])


def _has_zeros(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return all(map(_has_zeros, type_.elements))
    return isinstance(type_, TensorType) and type_.is_static


def _is_summed(node: Node) -> bool:
    """Whether a stack of numbers is only used in ways to which a zero makes no difference."""

    def stays_zero(value: Node, user: Node) -> bool:
        power = user.op.name == "Pow" and user.operand(0) is value and _is_positive(user.operand(1))
        return power or user.op.name in _KEEPING_ZERO

    return all(
        stays_zero(value, user) or user.op.name in _SUMMING or user.op.name == "UpdateState"
        for value in walk([node], lambda v: [user for user in v.uses if stays_zero(v, user)])
        for user in value.uses
    )


def _is_positive(value: Value) -> bool:
    content = value.literal
    if isinstance(content, TensorValue) and content.type.size == 1:
        content = to_numpy(content.type, content.data).item()
    return isinstance(content, (int, float)) and content > 0
