"""The overflow status of Ascend's vector unit: cleared, then read after the gradients, non-zero if anything overflowed
in between. Elsewhere an overflow shows in the values, so the status becomes a test of the gradients.

Two generations. ``NPUGetFloatStatusV2(x)`` returns int32[8]. ``NPUGetFloatStatus(x)`` writes its operand, which
``NPUAllocFloatStatus`` made: what follows in order, ``Depend(x, get)``, is the status (float32[8]). Clearing has
nothing left to do. As used by mindspore/nn/wrap/loss_scale.py and documented in mindspore.ops.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.finiteness import gradients_behind
from ...ir.builders.cast import cast
from ...ir.builders.reduce import all_finite
from ...ir.core.attributes import TensorValue
from ...ir.core.data import ZeroData
from ...ir.core.errors import AnatomyError, PassError
from ...ir.core.graph import Constant, Graph, Node, Value, tensor_type
from ...ir.core.predicates import is_float_tensor
from ...ir.core.sites import site
from ...ir.core.types import TensorType
from ...ir.core.walk import unpacked, walk, without_order
from .replacements import SCOPE

GET, GET_IN_PLACE = "NPUGetFloatStatusV2", "NPUGetFloatStatus"


def lower_npu_float_status(main: Graph, nodes: list[Node]) -> None:
    """The status becomes one of the gradients: of those that it waits for, and of those that no status waits for.

    So each weight's gradient is tested, at the last place where the source waits for it: after unscaling and reduction
    over ranks, if these come before. :class:`PassError` where the status is asked for outside a training graph, or in
    a function that is not given the gradients.
    """
    gets = [node for node in nodes if node.op.name in (GET, GET_IN_PLACE)]
    if gets:
        for get, values in _values_to_test(main, gets).items():
            _replace(get, values)
    asking = set(gets)
    for node in nodes:
        if node not in asking:
            for user, i in node.use_sites():
                if not (user.op.name == "Depend" and i == 1):
                    user.set_operand(i, _zeros(user.graph or main, tensor_type(node)))


# -- what the status stands for --------------------------------------------------------------------------------


def _values_to_test(main: Graph, gets: list[Node]) -> dict[Node, list[Value]]:
    try:
        found = anatomy(main)
    except AnatomyError as error:
        raise PassError(
            f"graph '{main.name}': {site(gets[0])} asks for an overflow status, which must become a test of the "
            "gradients, "
            f"but they cannot be told: {error}\nLegalize the exported training graph, before any pass that splits it."
        ) from None
    gradients = {g: info.name for info in found.weights for g in info.gradient}
    tested: dict[Node, list[Value]] = {}
    awaited = {get: _awaited(get.operand(0)) for get in gets}
    reached: set[Node] = set()
    for get in gets:
        tested[get] = []
        for value in awaited[get]:
            behind = gradients_behind(value, gradients, found.bound)
            if behind:
                tested[get].append(value)
                reached |= behind
    missed = [g for g in gradients if g not in reached]
    for get, values in tested.items():
        values.extend(missed)
        if not values:  # other statuses look after the gradients; this one is asked about something else
            values.extend(awaited[get] or gradients)
        for value in values:
            if isinstance(value, Node) and value.graph is not get.graph:
                raise PassError(
                    f"{site(get)} in function '{get.home.name}' asks for the overflow status, but "
                    f"the function is not given the gradient {site(value)} of weight '{gradients[value]}': ask for it "
                    "outside the function, or make the status depend on all gradients"
                )
    return tested


def _awaited(status: Value) -> list[Value]:
    """The tensors that must be there before the status is read: second operands of the Depends that it comes
    through."""
    found: dict[Value, None] = {}
    while isinstance(status, Node) and status.op.name == "Depend":
        found.update(dict.fromkeys(filter(is_float_tensor, unpacked([status.operand(1)]))))
        status = status.operand(0)
    return list(found)


# -- rewriting -------------------------------------------------------------------------------------------------


def _replace(get: Node, values: Sequence[Value]) -> None:
    graph = get.home
    with graph.inserting_before(get):
        finite = all_finite(graph, values, scope=SCOPE, sources=[get])
    status: Value | None = None
    for user, i in _uses(get):
        if user.op.name == "Depend":
            user.set_operand(i, finite)
        elif user.op.name == "Equal" and user.operand(1 - i).is_zero and _only_reduced(user):
            # all(status == 0) is the question that was just answered
            for reduction in user.users:
                reduction.replace_uses(finite)
        else:
            if status is None:
                with graph.inserting_before(get):
                    status = _status(graph, finite, get)
            user.set_operand(i, status)


def _uses(get: Node) -> list[tuple[Node, int]]:
    """Who takes the status, through Depends: as a value, or (a Depend) to wait for it."""
    found: list[tuple[Node, int]] = []
    status: list[Node] = [get]
    if get.op.name == GET_IN_PLACE:
        buffer = without_order(get.operand(0))
        waiting = (u for u, i in get.use_sites() if u.op.name == "Depend" and i == 1)
        status = [user for user in waiting if without_order(user.operand(0)) is buffer]
    for value in walk(status, lambda v: [u for u, i in v.use_sites() if u.op.name == "Depend" and i == 0]):
        for user, i in value.use_sites():
            if not (user.op.name == "Depend" and i == 0) and not user.op.name.startswith("NPU"):
                found.append((user, i))
    return found


def _only_reduced(flags: Node) -> bool:
    """Whether all that is asked of ``status == 0`` is whether it holds everywhere."""
    return all(
        user.op.name == "ReduceAll" and i == 0 and tensor_type(user).shape == () for user, i in flags.use_sites()
    )


def _status(graph: Graph, finite: Value, get: Node) -> Value:
    """The result of ``get``: 0 everywhere if finite, else (here) 1."""
    type_ = tensor_type(get)
    overflow = graph.create("LogicalNot", [finite], scope=SCOPE, sources=[get])
    number = cast(graph, overflow, type_.dtype, scope=SCOPE)
    return graph.create("Add", [_zeros(graph, type_), number], scope=SCOPE, sources=[get])


def _zeros(graph: Graph, type_: TensorType) -> Constant:
    return graph.constant(TensorValue(TensorType(type_.dtype, type_.shape), ZeroData(type_.nbytes)))
