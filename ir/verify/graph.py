"""Rules of one graph by itself: list, definitions, use-lists, types, tokens, effects that reach the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter, is_

from ..core.errors import VerifyError
from ..core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ..core.inference import RULES, Rule, converted, infer
from ..core.op import CALL, Op
from ..core.predicates import has_token, is_effect, rests
from ..core.primitives import facts
from ..core.types import (
    UNKNOWN,
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    SimpleType,
    TensorType,
    TupleType,
    Type,
    is_monad,
)
from ..core.walk import dead_nodes
from ..core.wording import counted
from .problems import Problems, Rank, short, shown


@dataclass(slots=True, eq=False)
class Sweep:
    """The findings of the sweeps over one graph, for the checks that span graphs."""

    graph: Graph
    values: set[Value]
    """Every value that is defined here or used here."""
    num_operands: int = 0
    repeated: dict[int, set[int]] = field(default_factory=dict)
    """Where a node takes a value several times: the operand indices that the value lists, by their own id."""
    num_repeated: int = 0
    """Operands of such nodes that are such values."""
    defined: bool = True
    """Whether every operand is defined, in this graph and before its user."""
    calls: list[Node] = field(default_factory=list)
    partials: list[Node] = field(default_factory=list)
    written: dict[Input, Node] = field(default_factory=dict)
    """Inputs that are written in place, and by which node."""
    dead_calls: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Profile:
    """The facts of a primitive that the checks need, looked up once for all nodes that apply it."""

    rule: Rule | None
    check: Callable[[_Sweeper, Node], None] | None
    writes: tuple[int, ...]
    """The operands that it writes in place, where these must be state."""
    ends_in_token: bool
    """Whether a token that it takes is its last operand."""


def check_graph(graph: Graph, problems: Problems) -> Sweep | None:
    """All rules but those that look across graphs; None if the list of nodes itself is broken."""
    nodes = _list(graph, problems)
    if nodes is None:
        return None
    return _Sweeper(graph, problems).run(nodes)


def _list(graph: Graph, problems: Problems) -> list[Node] | None:
    """The nodes, if the links between them are whole."""
    listed = list(islice(graph, len(graph) + 1))
    back = map(is_, map(attrgetter("_prev"), listed), chain((None,), listed))
    whole = len(listed) == len(graph) and all(back) and graph._last is (listed[-1] if listed else None)
    if whole and set(map(attrgetter("graph"), listed)) <= {graph}:
        return listed
    nodes: list[Node] = []
    previous: Node | None = None
    node = graph._first
    broken = ""
    while node is not None and not broken:
        if node._prev is not previous:
            broken = f"%{node.name} does not point back to the node before it"
        elif node.graph is not graph:
            broken = f"%{node.name} stands in the list but belongs to {_owner(node)}"
        elif len(nodes) >= graph._count:
            broken = f"its list holds more nodes than its count of {graph._count}"
        nodes.append(node)
        previous, node = node, node._next
    if not broken and (len(nodes) != graph._count or graph._last is not previous):
        broken = f"its list holds {counted(len(nodes), 'node')}, its count is {graph._count}, or its end is wrong"
    if broken:
        problems.unlisted.add(graph)
        remedy = "change the list through Graph's operations only (insert, move, erase, reorder)"
        problems.add(Rank.STRUCTURE, graph, None, f"the list of nodes is broken: {broken}", remedy)
        return None
    return nodes


def _owner(node: Node) -> str:
    return "no graph (it was erased)" if node.graph is None else f"graph '{node.graph.name}'"


class _Sweeper:
    def __init__(self, graph: Graph, problems: Problems):
        self.graph = graph
        self.problems = problems
        self.sweep = Sweep(graph, {*graph.inputs, *graph.states.values()})
        self._profiles: dict[Op, _Profile] = {}
        self._tokens: set[Value] = {v for v in graph.inputs if is_monad(v.type)}
        self._broken: Node | None = None
        """The last node met with an operand that is no value at all: no rule can look at it."""

    def report(self, rank: Rank, node: Node, what: str, remedy: str) -> None:
        self.problems.add(rank, self.graph, node, what, remedy)

    def run(self, nodes: list[Node]) -> Sweep:
        graph, sweep = self.graph, self.sweep
        known, tokens, profiles = sweep.values, self._tokens, self._profiles
        end = graph._return
        num_operands = 0
        for node in (*nodes, end) if graph.has_result else nodes:
            operands = node._operands
            if not known.issuperset(operands):
                self._first_uses(node)
                if node is self._broken:
                    known.add(node)
                    continue
            i = 0
            for value in operands:
                at = value.uses.get(node)
                if at != i:
                    self._repeated(node, i, value, at)
                i += 1
            num_operands += i
            op = node.op
            profile = profiles.get(op)
            if profile is None:
                profile = profiles[op] = _profile(op)
            token = profile.ends_in_token and not tokens.isdisjoint(operands) and self._token_last(node)
            if node is end:
                break
            known.add(node)
            type_ = node.type
            if type_.__class__ is SimpleType:
                if is_monad(type_):
                    tokens.add(node)
                elif type_ is UNKNOWN:
                    self._unknown_type(node)
            elif type_.__class__ is not TensorType and not isinstance(type_, Type):
                self._unknown_type(node)
            if profile.writes:
                self._writes(node, profile.writes, token)
            if profile.rule is not None:
                try:
                    expected = profile.rule(op, operands)
                except (VerifyError, IndexError, TypeError, ValueError):
                    self._not_inferred(node)
                else:
                    if expected is not type_ and not agree(expected, type_):
                        self._disagrees(node, expected)
            if profile.check is not None:
                profile.check(self, node)
        sweep.num_operands = num_operands
        if not graph.has_result:
            self.problems.add(
                Rank.STRUCTURE, graph, None, "it has no result", "set graph.result to the value that it returns"
            )
        else:
            self._reach(nodes)
        return sweep

    # -- operands --------------------------------------------------------------------------------------------

    def _first_uses(self, node: Node) -> None:
        """Definitions of what is not known so far."""
        known = self.sweep.values
        for i, value in enumerate(node._operands):
            if value in known:
                continue
            if value.__class__ is Constant and value.type.__class__ is not SimpleType:  # as nearly all are
                known.add(value)
            else:
                self._first_use(node, i, value)

    def _repeated(self, node: Node, i: int, value: Value, at: int | set[int] | None) -> None:
        """The value lists another use by the node than operand ``i``: fine if it lists several, this one among them."""
        if isinstance(at, set) and i in at:
            self.sweep.num_repeated += 1
            self.sweep.repeated[id(at)] = at
        else:
            self.report(
                Rank.STRUCTURE, node, f"operand {i}, {shown(value)}, does not list the node as a user",
                "change operands through set_operand, set_operands or replace only",
            )  # fmt: skip

    def _token_last(self, node: Node) -> bool:
        """Whether a token is the last operand of a node that takes one, where it belongs."""
        operands = node._operands
        if operands[-1] in self._tokens and self._tokens.isdisjoint(operands[:-1]):
            return True
        token = False
        for i, value in enumerate(node._operands):
            if is_monad(value.type):
                token = True
            elif token:
                self.report(
                    Rank.EFFECT, node, f"operand {i}, {shown(value)}, stands after an effect token",
                    "tokens are the last operands",
                )  # fmt: skip
                token = False
        return token and is_monad(node._operands[-1].type)

    def _first_use(self, node: Node, i: int, value: Value) -> None:
        """A value not met so far: fine if it is a constant or a function."""
        graph = self.graph
        if isinstance(value, Value) and is_monad(value.type):
            self._tokens.add(value)
        if isinstance(value, Constant):
            self.sweep.values.add(value)
            return
        where = f"operand {i}, {value!r}," if not graph.is_return(node) else f"{value!r}"
        if isinstance(value, GraphRef):
            self.sweep.values.add(value)
            owner = graph.owner or graph
            if owner.functions.get(value.graph.name) is not value.graph:
                self.report(
                    Rank.DEFINITION, node, f"{where} is no function of graph '{owner.name}'",
                    "make it with add_function of that graph, and refer to it with graph.reference",
                )  # fmt: skip
            elif not isinstance(value.type, FunctionType):
                self.report(Rank.TYPE, node, f"{where} has no function type", "refer to functions with graph.reference")
            return
        self.sweep.defined = False
        remedy = "replace this operand, or put the node into the graph again"
        if not isinstance(value, Value):
            self._broken = node
            self.report(
                Rank.DEFINITION, node, f"{where} is no value", "give it an input, a state, a constant or a node"
            )
            return
        if isinstance(value, Node) and value.graph is graph and not graph.is_return(value):
            what = "is used before its definition"
            remedy = "insert the user after it, or call graph.sort()"
        elif isinstance(value, Node) and value.graph is None:
            what = "stands in no graph (it was erased)"
        elif isinstance(value, State):
            what = "is not among the graph's states"
            remedy = "refer to state with graph.state(name)"
            if graph.owner is not None:
                what = "is state, which a function cannot use directly"
                remedy = "pass it in through Partial"
        else:
            home = value.graph if isinstance(value, Node) else None
            what = "belongs to another graph" if home is None else f"belongs to graph '{home.name}'"
            remedy = "a graph uses only its own values: pass this one in (to a function, through Partial)"
        self.report(Rank.DEFINITION, node, f"{where} {what}", remedy)

    # -- types -----------------------------------------------------------------------------------------------

    def _unknown_type(self, node: Node) -> None:
        if not isinstance(node.type, Type):
            self.report(Rank.TYPE, node, f"its type is {node.type!r}", "give it a type of ir.types")
        elif node.origin is not None and node.origin.passes:
            self.report(
                Rank.TYPE, node, f"its type is not known, though pass '{node.origin.passes[-1]}' made it",
                "give the type to graph.create, or add a rule to ir/core/inference.py",
            )  # fmt: skip

    def _not_inferred(self, node: Node) -> None:
        made = node.origin is not None and node.origin.passes
        if not made and self._converted(node):
            return
        if any(v.type is UNKNOWN or isinstance(v.type, OpaqueType) for v in node._operands):
            return
        try:
            infer(node.op, node._operands)
        except VerifyError as e:  # which says what the rule could not take
            self.report(Rank.TYPE, node, str(e), "fix the operands, or insert a Cast or Reshape")

    def _disagrees(self, node: Node, expected: Type) -> None:
        self.report(
            Rank.TYPE, node,
            f"its type is {short(node.type)}, but {node.op.name} of these operands gives {short(expected)}",
            "give it that type, or fix the operands",
        )  # fmt: skip

    def _converted(self, node: Node) -> bool:
        """Arithmetic on two element types, which files of MindSpore hold."""
        try:
            found = converted(node.op, node._operands)
        except VerifyError:
            return False
        return found is not None and agree(found, node.type)

    def condition(self, node: Node) -> None:
        """Switch: its condition is one bool."""
        type_ = node.operand(0).type if node.num_operands else UNKNOWN
        dtype = getattr(type_, "dtype", None)
        if node.num_operands != 3:
            self.report(
                Rank.TYPE, node, f"Switch takes 3 operands, not {node.num_operands}", "give (condition, then, else)"
            )
        elif type_ is not UNKNOWN and (dtype is not DType.BOOL or (isinstance(type_, TensorType) and type_.size != 1)):
            self.report(
                Rank.TYPE, node, f"the condition, {shown(node.operand(0))}, is not one bool", "reduce it with ReduceAll"
            )

    def tuple_(self, node: Node) -> None:
        """MakeTuple: the types of its elements, told without a type made of them."""
        types = tuple([value.type for value in node._operands])
        if not isinstance(node.type, TupleType) or node.type.elements != types:
            expected = TupleType(types, dynamic=False)
            if not agree(expected, node.type):
                self._disagrees(node, expected)

    # -- effects ---------------------------------------------------------------------------------------------

    def load(self, node: Node) -> None:
        operands = node._operands
        if len(operands) != 2 or operands[1] not in self._tokens:
            self.report(Rank.EFFECT, node, "Load takes what it reads and a token", "give it both: Load(state, token)")

    def update_state(self, node: Node) -> None:
        operands = node._operands
        if not operands or operands[0] not in self._tokens:
            what = "the first operand of UpdateState is not a token"
            self.report(Rank.EFFECT, node, what, "give it the token that it follows")
        elif node not in self._tokens:
            self.report(Rank.EFFECT, node, f"UpdateState is of type {node.type}", "it makes a token: umonad or iomonad")

    def call(self, node: Node) -> None:
        self.sweep.calls.append(node)

    def partial(self, node: Node) -> None:
        self.sweep.partials.append(node)

    def _writes(self, node: Node, writes: tuple[int, ...], token: bool) -> None:
        """In-place writes go to state, and a token says when."""
        if not token and rests(node) and not has_token(node):
            return  # a BatchNorm that was told to leave its statistics alone
        operands = node._operands
        for i in writes:
            if i >= len(operands):
                continue
            value = operands[i]
            if value.__class__ is State:
                continue
            if isinstance(value, Input):
                if self.graph.owner is None:
                    self._bad_write(node, i, value)
                else:
                    self.sweep.written.setdefault(value, node)
            elif not (isinstance(value.type, TensorType) and value.type.ref):
                self._bad_write(node, i, value)
        if not token:
            self.report(
                Rank.EFFECT, node, f"{node.op.name} writes in place but has no token, so its moment is undefined",
                "give it a token as last operand, or append it through Effects",
            )  # fmt: skip

    def _bad_write(self, node: Node, i: int, value: Value) -> None:
        self.report(
            Rank.EFFECT, node, f"{node.op.name} writes operand {i}, {shown(value)}, in place, which is not state",
            "give it the state itself, not a value loaded or computed from it",
        )  # fmt: skip

    def _reach(self, nodes: list[Node]) -> None:
        """Effects that the result does not need."""
        for node in dead_nodes(reversed(nodes)):
            if node.op is CALL:
                self.sweep.dead_calls.append(node)
            elif is_effect(node):
                unreached(self.problems, self.graph, node)


def unreached(problems: Problems, graph: Graph, node: Node) -> None:
    problems.add(
        Rank.EFFECT, graph, node, "its effect would silently not happen: nothing ties it to the result",
        "feed it to UpdateState and Depend the result on that token, or erase it",
    )  # fmt: skip


def check_use_counts(sweeps: list[Sweep], problems: Problems) -> None:
    """Every operand is among its value's uses (checked already); equal counts mean that there are no other uses."""
    values = sweeps[0].values if len(sweeps) == 1 else set().union(*(s.values for s in sweeps))
    users = sum(map(len, map(attrgetter("uses"), values)))
    repeated = {i: at for s in sweeps for i, at in s.repeated.items()}
    num_repeated = sum(s.num_repeated for s in sweeps)
    once = sum(s.num_operands for s in sweeps) - num_repeated
    if users == once + len(repeated) and num_repeated == sum(map(len, repeated.values())):
        return
    graphs = {s.graph for s in sweeps}
    for sweep in sweeps:
        for value in sweep.values:
            for user, i in value.use_sites():
                if user.graph in graphs and i < user.num_operands and user.operand(i) is value:
                    continue
                place = value if isinstance(value, Node) else None
                problems.add(
                    Rank.STRUCTURE, sweep.graph, place,
                    f"{shown(value)} lists operand {i} of %{user.name} as a use, which it is not",
                    "change operands through set_operand, set_operands or replace only",
                )  # fmt: skip


_TOKEN_ELSEWHERE = frozenset({"UpdateState", "Depend", "MakeTuple", "Load"})
"""Primitives whose tokens need not stand last, or are looked at by their own check."""
_CHECKS: dict[str, Callable[[_Sweeper, Node], None]] = {
    "Load": _Sweeper.load,
    "MakeTuple": _Sweeper.tuple_,
    "UpdateState": _Sweeper.update_state,
    "Switch": _Sweeper.condition,
    "Partial": _Sweeper.partial,
}


def _profile(op: Op) -> _Profile:
    writes = () if facts(op).any_tensor else facts(op).writes
    rule = RULES.get(op.name) if op.name != "MakeTuple" else None
    check = _Sweeper.call if op is CALL else _CHECKS.get(op.name)
    return _Profile(rule, check, writes, op.name not in _TOKEN_ELSEWHERE)


def agree(expected: Type, found: Type) -> bool:
    """Whether two types say the same of element type and shape. Dimensions known only at run time, what a tensor
    aliases, and marks on tuples are not compared; what is not known agrees with anything."""
    if expected.__class__ is TensorType is found.__class__:  # as nearly all are
        return expected.dtype is found.dtype and _shapes_agree(expected.shape, found.shape)
    if expected is found or expected == found:
        return True
    if UNKNOWN in (expected, found) or OpaqueType in (type(expected), type(found)):
        return True
    if isinstance(expected, ScalarType):
        expected = TensorType(expected.dtype, ())
    if isinstance(found, ScalarType):
        found = TensorType(found.dtype, ())
    if isinstance(expected, TensorType) and isinstance(found, TensorType):
        return expected.dtype is found.dtype and _shapes_agree(expected.shape, found.shape)
    if isinstance(expected, TupleType) and isinstance(found, TupleType):
        if expected.dynamic or found.dynamic:
            return True
        return len(expected.elements) == len(found.elements) and all(map(agree, expected.elements, found.elements))
    # The names in a recorded closure type may be those of functions from before the exporter's last transformations.
    return isinstance(expected, FunctionType) and isinstance(found, FunctionType)


def _shapes_agree(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if a == b or -2 in a or -2 in b:
        return True
    return len(a) == len(b) and all(x == y or x < 0 or y < 0 for x, y in zip(a, b, strict=True))
