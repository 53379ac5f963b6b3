"""In-place operations on computed tensors (``g *= scale``, ``m += x``): what they compute, and graphs without them.

MindSpore keeps ``x += y`` as a write into the memory of x. That is exact in the forward part, whose backward part was
derived from it, and hides from passes what happens to a gradient. In the update side it becomes the same operation
with a result of its own, and whoever reads the tensor afterwards takes that (:func:`without_writes`). So nothing else
needs to know that two values of the update side are one memory. For example, of ``new``::

    %g = MatMul(%x, %y)
    %half = InplaceMuls(%g, 0.5, %u1)                          // %half = Muls(%g, 0.5)
    %u2 = UpdateState(%u1, %half)
    %new = ApplyMomentum(%w, %m, %rate, %g, 0.9, %u2)          // takes %half

A constant is worse off: MindSpore 2.10 writes into the constant itself, so the next step, and whoever shares the
constant, starts from what the last one left. Such a write gets a copy of its own (:func:`copy_constants`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..analysis.effects.state_access import place
from ..analysis.effects.tokens import orders_only
from ..analysis.training.network import network_parts
from ..core.errors import PassError
from ..core.graph import Constant, Graph, Node, State, Value
from ..core.op import CALL
from ..core.predicates import is_effect, may_act, written_operands
from ..core.primitives import CPU, PASSING, facts
from ..core.sites import site
from ..memory.discharge import Undischarged, discharge
from ..memory.emit import emit
from .effects.editing import Effects


def written_constants(graph: Graph) -> list[tuple[Node, int]]:
    """The effects of a graph that write into a constant, and the operand that is one."""
    return [
        (node, i)
        for node in graph
        if not node.op.deals_in_tokens and may_act(node) and is_effect(node) and node.op is not CALL
        for i in written_operands(node)
        if isinstance(node.operand(i), Constant)
    ]


def copy_constants(graph: Graph) -> int:
    """Gives writes into a constant, and who reads it afterwards, a copy, in this graph alone; returns how many."""
    found = written_constants(graph)
    if not found:
        return 0
    copies: dict[Value, Node] = {}
    order = {e.node: k for k, e in enumerate(Effects(graph).list)}
    for node, i in sorted(found, key=lambda use: order.get(use[0], -1)):
        constant = node.operand(i)
        if constant not in copies:
            with graph.inserting_before(node):
                copies[constant] = graph.create("TensorMove", [constant], scope=node.scope, sources=[node])
            for user, at in constant.use_sites():
                if user.op.name == "Load" and order.get(user, -1) > order.get(node, -1):
                    user.set_operand(at, copies[constant])
        node.set_operand(i, copies[constant])
    Effects(graph).commit()
    return len(found)


def replaceable_writes(main: Graph, target: str) -> list[Node]:
    """The operations of a graph and its functions that :func:`without_writes` replaces; none where one of them writes
    into a constant, which gets a copy first (:func:`copy_constants`)."""
    if not any(map(_may_write_tensor, main.all_nodes())) or any(map(written_constants, main.all_graphs())):
        return []
    network = network_parts(main).keys()
    writes = [node for node in main.all_nodes() if _may_write_tensor(node)]
    for node in writes:
        made = [place(node.operand(i)) for i in written_operands(node)]
        if views := [v for v in made if v is not None and _is_view(v, target)]:
            if all(write in network for write in writes):
                return []
            raise PassError(
                f"graph '{node.home.name}': {site(node)} writes a tensor in place through a view of it "
                f"({site(views[0])}): assign the result of the operation (g = g * factor) and use that"
            )
    try:
        return _replaced(main, lambda node: node not in network)
    except PassError:
        if all(write in network for write in writes):
            return []  # the forward part is exact as it is
        raise


def without_writes(main: Graph, target: str) -> int:
    """Gives in-place operations on computed tensors a result of their own, in a graph and its functions; returns how
    many. What has no counterpart in :data:`..memory.emit.PURE` writes into a copy, which no one else has. What the
    network writes stays where nobody reads the tensor afterwards but by the operation's result. PassError where nothing
    says whether the update side reads a tensor before it is written or afterwards, and where it writes through a view.
    """
    found = replaceable_writes(main, target)
    if found:
        network = network_parts(main).keys()
        functional = discharge(main, copy=False)
        emit(functional, lambda node: node not in network or node in functional.renamed)
    return len(found)


def forward_without_writes(graph: Graph, forward: Collection[Node]) -> int:
    """The same for those of ``forward``, nodes of one graph or function, on tensors that nobody takes but by a Load;
    returns how many."""
    chosen = {node for node in forward if _may_write_tensor(node) and _read_by_loads(place(node.operand(0)))}
    main = graph.owner or graph
    found = _replaced(main, chosen.__contains__) if chosen else []
    if found:
        functional = discharge(main, copy=False)
        emit(functional, lambda node: node in chosen or node in functional.renamed)
    return len(found)


def _read_by_loads(root: Value | None) -> bool:
    """Whether all who take a written tensor say when: by a Load with a token, or as an effect."""
    uses = () if root is None else root.use_sites()
    return all(user.op.name == "Load" or is_effect(user) or orders_only(user, i) for user, i in uses)


def _replaced(main: Graph, pure: Callable[[Node], bool]) -> list[Node]:
    """The operations that :func:`..memory.emit.emit` gives another result, or a copy to write into."""
    try:
        functional = discharge(main)
        source = functional.source
        emitted = emit(functional, lambda node: pure(source[node]) or node in functional.renamed)
    except Undischarged as error:
        raise PassError(str(error)) from None
    left = {source[node] for node in emitted.all_nodes() if node in source}
    copied = {
        source[user]
        for node in emitted.all_nodes()
        if node.op.name == "TensorMove" and node not in source
        for user in node.users
        if user in source and _may_write_tensor(user)
    }
    return [node for node in main.all_nodes() if _may_write_tensor(node) and (node not in left or node in copied)]


def _is_view(value: Value, target: str) -> bool:
    """Whether a value is the memory of another one. On a CPU only what takes a token is."""
    if not isinstance(value, Node) or value.op.deals_in_tokens or value.op.name in PASSING:
        return False
    return facts(value.op).view and (target != CPU or is_effect(value))


def _may_write_tensor(node: Node) -> bool:
    if node.op.deals_in_tokens or node.op is CALL or not is_effect(node):
        return False
    return any(not isinstance(node.operand(i), State) for i in written_operands(node))
