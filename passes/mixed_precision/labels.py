"""Which nodes of a training graph are to compute in half precision, and why others are not.

The forward part is judged node by node. The backward part follows it: a node of a gradient computes in the type of the
node that it is a gradient of, as MindSpore's autodiff would have made it. Sums of gradients have the type of the value
whose gradients they add: float32 for a weight, since autodiff takes each of its casts by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import called_functions
from ...ir.analysis.targets import item, operand_types, place_of
from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, GraphRef, Input, Node, State, Value
from ...ir.core.kernels import kernels
from ...ir.core.names import BACKWARD_ID, DUPLICATED, FORWARD_ID, LOSS
from ...ir.core.op import CALL
from ...ir.core.predicates import is_effect, written_operands
from ...ir.core.primitives import EVERYWHERE, VIEWS, Family, facts
from ...ir.core.program import Program
from ...ir.core.types import DType, TupleType
from ...ir.core.walk import carried_operands, through, walk
from ...ir.rewrite.evaluation.outputs import ancestors, network_outputs
from ..step.cells import named_cell
from .lists import ADDED, BLACK, FLOAT_OPERANDS, NO_BFLOAT16, NO_HALF, WHITE
from .narrow import halved, is_single, makes_float, narrowable, overflows

HALF, FULL, OUTSIDE = "half", "full", "outside"
"""What a node computes in: half precision, or float32 as part of the network, or float32 because it is part of the
loss and what else stands around the network."""
KEPT = "keep names its scope"
LARGE_CONSTANT = "a constant that it takes overflows in {}"
_PASSING = frozenset({Family.ORDER, Family.TUPLE})
_STRUCTURE = frozenset({Family.ORDER, Family.TUPLE, Family.CLOSURE})


@dataclass(slots=True)
class Labels:
    """The label of each forward and backward node. ``reasons``: why one that the level would take stays in float32.
    ``told``: whether it shows where the network ends and the loss begins."""

    graph: Graph
    parts: dict[Node, str]
    of: dict[Node, str] = field(default_factory=dict)
    reasons: dict[Node, str] = field(default_factory=dict)
    told: bool = True

    def half(self) -> Set[Node]:
        """In the order in which they were judged."""
        return dict.fromkeys(node for node, label in self.of.items() if label == HALF).keys()


@dataclass(frozen=True, slots=True)
class Rule:
    """What the options of the pass say about a node. ``keep``: globs over scopes; ``loss``: the loss is in half
    precision too, where MindSpore would have it."""

    level: str
    dtype: DType
    target: str
    keep: tuple[str, ...] = ()
    loss: bool = False

    def keeps(self, node: Node) -> bool:
        return any(self.named(node, glob) for glob in self.keep)

    def named(self, node: Node, glob: str) -> bool:
        return named_cell(node.scope, glob) is not None


def label(program: Program, graph: Graph, rule: Rule) -> Labels:
    """The labels of a main graph and its functions. Linear in nodes."""
    labels = Labels(graph, network_parts(graph))
    network = _network(program, graph)
    labels.told = network is not None
    forward = _Forward(labels, None if rule.loss else network, rule)
    for node in graph.all_nodes():
        if labels.parts.get(node) == FORWARD:
            forward.judge(node)
    _Backward(labels, rule).run()
    return labels


def _network(program: Program, graph: Graph) -> Collection[Value] | None:
    """The nodes that are the network's, and not the loss's or of what else a training cell computes; None where it does
    not show where the network ends."""
    try:
        outputs = network_outputs(program, graph)
    except PassError:
        return None
    if LOSS in outputs:
        return None
    inside = ancestors(outputs.values())
    called = [v.graph for n in inside if isinstance(n, Node) for v in n.operands if isinstance(v, GraphRef)]
    functions = walk(called, _called)
    return inside | {node for function in functions for node in function}


def _called(function: Graph) -> list[Graph]:
    referred = [v.graph for node in function for v in node.operands if isinstance(v, GraphRef)]
    return referred + [f for node in function if node.op is CALL for f in called_functions(node)]


def is_structure(node: Node) -> bool:
    """Whether a node computes nothing: it has the type of what it passes on."""
    return facts(node.op).family in _STRUCTURE or node.op is CALL


class _Forward:
    """``inside``: the nodes of the network; None where all of the forward part counts."""

    def __init__(self, labels: Labels, inside: Collection[Value] | None, rule: Rule):
        self.labels, self.inside, self.rule = labels, inside, rule
        self.large: set[Node] = set()
        """What stays in float32 because of a constant that overflows, and what is computed from it."""

    def judge(self, node: Node) -> None:
        labels = self.labels
        if self.inside is not None and node not in self.inside:
            labels.of[node] = OUTSIDE
            return
        labels.of[node] = FULL
        if is_structure(node):
            return
        if not self._is_listed(node):
            if self.rule.level == "O2" and node.op.name in BLACK:
                labels.reasons[node] = "O2 keeps it in float32"
            return
        if self.rule.keeps(node):
            labels.reasons[node] = KEPT
            return
        reason = obstacle(node, self.rule)
        if reason is None and self._takes_large(node):
            reason = f"a value that it takes comes of a constant that overflows in {self.rule.dtype}"
            self.large.add(node)
        elif reason == LARGE_CONSTANT.format(self.rule.dtype):
            self.large.add(node)
        if reason is None:
            labels.of[node] = HALF
        elif reason:
            labels.reasons[node] = reason

    def _takes_large(self, node: Node) -> bool:
        """Whether a node would take infinities in half precision. MindSpore's types would have widened it too: float32
        goes on from where it begins to the next product, which is cast."""
        if not self.large or node.op.name in WHITE:
            return False
        found = (maker for operand in node.operands for maker in makers(operand) if maker in self.large)
        return any(is_single(maker.type) or isinstance(maker.type, TupleType) for maker in found)

    def _is_listed(self, node: Node) -> bool:
        name = node.op.name
        copies = facts(node.op).family is Family.COPY
        if copies or (self.rule.level == "O1" and (name in VIEWS or name in ADDED)):
            return any(self.labels.of.get(maker) == HALF for maker in makers(node.operand(0)))
        if self.rule.level == "O2":
            return name not in BLACK
        return self.rule.level == "O3" or name in WHITE


def makers(value: Value) -> Iterator[Node]:
    """The nodes that compute a value, through what only passes it on."""
    for found in walk([value], lambda v: carried_operands(v) if isinstance(v, Node) and is_structure(v) else ()):
        if isinstance(found, Node) and not is_structure(found):
            yield found


def obstacle(node: Node, rule: Rule) -> str | None:
    """Why a node cannot compute in half precision; None if it can, "" where that is no question for it."""
    operands = narrowable(node)
    joined = any(isinstance(v.type, TupleType) and any(map(is_single, v.type.elements)) for v in node.operands)
    if not operands and not joined and not makes_float(node):
        return ""
    if is_effect(node) and node.op.name not in FLOAT_OPERANDS and not _writes_a_value(node):
        return "it changes state"
    if any(isinstance(node.operand(i), State) for i in operands):
        return "it takes a state itself"
    if isinstance(node.type, TupleType) and any(
        user.op.name != "TupleGetItem" and not orders_only(user, i) for user, i in node.use_sites()
    ):
        return "what it returns is passed on as a tuple"
    numbers = (v for i, v in enumerate(node.operands) if i in operands or isinstance(v.literal, float))
    if any(overflows(v, rule.dtype) for v in numbers):
        return LARGE_CONSTANT.format(rule.dtype)
    return _lacks_kernel(node, operands, rule)


def _writes_a_value(node: Node) -> bool:
    """Whether an effect writes nothing but a value of the network (``x += y``)."""
    written = written_operands(node)
    return bool(written) and not any(_is_state(node.operand(i)) for i in written)


def _is_state(value: Value) -> bool:
    behind = through(value, ("Load", "Depend"))
    return isinstance(behind, (State, Input))


def _lacks_kernel(node: Node, narrowed: Collection[int], rule: Rule) -> str | None:
    name = node.op.name
    if name in NO_HALF or (rule.dtype is DType.BFLOAT16 and name in NO_BFLOAT16):
        return f"MindSpore takes no {rule.dtype} for {name}"
    types = list(operand_types(node))
    for i in range(len(types)):
        if i in narrowed:
            types[i] = rule.dtype
        elif isinstance(types[i], tuple):
            types[i] = tuple(rule.dtype if t is DType.FLOAT32 else t for t in types[i])  # type: ignore[union-attr]
    result = item(halved(name, node.type, rule.dtype))
    if place_of(name, tuple(types), result, rule.target) != rule.target:
        return f"{rule.target} has no {rule.dtype} kernel for {name}"
    if FORWARD_ID in node.primal and not any(_knows(name, target, rule.dtype) for target in EVERYWHERE):
        return f"MindSpore has no {rule.dtype} kernel for {name} on any target"
    return None


def _knows(name: str, target: str, dtype: DType) -> bool:
    """Whether a target has a kernel of its own in that type, as far as the list of its kernels tells."""
    known = kernels(target)
    if not any(name in kernels(other) for other in EVERYWHERE) or known.ways(name) - {"cpu"}:
        return True
    return any(one.dtype in (None, dtype) for kernel in known.of(name) for one in (*kernel.inputs, *kernel.outputs))


class _Backward:
    def __init__(self, labels: Labels, rule: Rule):
        self.labels, self.rule = labels, rule
        self.nodes = [n for n in labels.graph.all_nodes() if labels.parts.get(n) == BACKWARD]
        self.forward: dict[object, list[Node]] = {}
        for node, part in labels.parts.items():
            if part == FORWARD:
                for key in (node.primal.get(FORWARD_ID), _place(node)):
                    self.forward.setdefault(key, []).append(node)

    def run(self) -> None:
        """First what says whose gradient, or copy, it is, then, in order, what adds and passes on."""
        later = []
        for node in self.nodes:
            if is_structure(node):
                continue
            found = {self.labels.of.get(n, FULL) for n in self._origins(node) if not is_structure(n)}
            if len(found) == 1:
                self._set(node, found.pop())
            else:
                later.append(node)
        for node in later:
            self._set(node, self._joined(node))

    def _origins(self, node: Node) -> list[Node]:
        """The forward nodes that a backward node may belong to. Of several with one number (a cell that is called
        twice) those whose values the node takes."""
        key = _place(node) if DUPLICATED in node.marks else node.primal.get(BACKWARD_ID)
        origins = self.forward.get(key, []) if key is not None else []
        taken = {v for operand in node.operands for v in (operand, *carried_operands(operand)) if isinstance(v, Node)}
        near = [n for n in origins if n in taken or any(v in node.operands for v in n.operands if isinstance(v, Node))]
        return near or origins

    def _set(self, node: Node, label: str) -> None:
        reason = obstacle(node, self.rule) if label == HALF else None
        self.labels.of[node] = label if reason is None else FULL
        if reason:
            self.labels.reasons[node] = reason

    def _joined(self, node: Node) -> str:
        """Of a node that belongs to no one node, such as the sum of the gradients of one value. What leaves the
        backward part, or its function, does so in float32. In O1 a value that also float32 takes was cast for each of
        its users in half precision, so that its gradients meet in float32."""
        takers = [user for user in users(node) if facts(user.op).family not in _PASSING]
        if any(user not in self.labels.parts or user.op is CALL or is_structure(user) for user in takers):
            return FULL
        made = [self.labels.of.get(m, FULL) for operand in node.operands for m in makers(operand)]
        if made and all(label == OUTSIDE for label in made):
            return OUTSIDE
        halves = [label == HALF for label in made] + [self.labels.of.get(user) == HALF for user in takers]
        joined = all if self.rule.level == "O1" and facts(node.op).family is Family.SUM else any
        return HALF if halves and joined(halves) else FULL


def _place(node: Node) -> tuple[str, str]:
    """Where a node stands; a copy that runs again stands where its original does."""
    return node.op.name, node.scope.rpartition("-op")[0]


def users(node: Node) -> Iterator[Node]:
    """Who computes from a node, also through what only passes it on; the return of a graph counts."""

    def following(value: Node) -> list[Node]:
        passes = value is node or (is_structure(value) and value.op is not CALL)
        return [u for u, i in value.use_sites() if not orders_only(u, i)] if passes else []

    return (user for user in walk([node], following) if user is not node)
