"""Questions about nodes that the table of primitives, or the file, answers."""

from __future__ import annotations

from .graph import Input, Node, State, Value
from .op import CALL
from .primitives import Family, facts
from .types import SimpleType, TensorType, is_monad


def is_float_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


def has_token(node: Node) -> bool:
    """Whether an effect token orders this node (its last operand is one)."""
    operands = node._operands
    return bool(operands) and is_monad(operands[-1].type)


def is_ordering(node: Node) -> bool:
    """UpdateState and Depend: nodes that order others and compute nothing."""
    return node.op.name == "UpdateState" or node.op.name == "Depend"


def is_random(node: Node) -> bool:
    """Whether two equal nodes may differ in result: never merge, duplicate or hoist them."""
    return facts(node.op).random or bool(node.op.attributes.get("side_effect_hidden"))


def draws(node: Node) -> bool:
    """Whether the node takes random numbers: not so the flag of a device, which merely says another thing each time."""
    return is_random(node) and facts(node.op).family not in (Family.DEVICE_STATUS, Family.DEVICE_FLAG)


def is_effect(node: Node) -> bool:
    """Whether the node acts on state or the world (calls included), as opposed to computing a value."""
    op, operands = node.op, node._operands  # asked of every node many times, so has_token stands here once more
    if operands and is_monad(operands[-1].type):
        return not op.deals_in_tokens
    return (op.acts or op is CALL) and not op.deals_in_tokens


def may_act(node: Node) -> bool:
    """Whether the node can be an effect, or takes or makes a token: of nearly all nodes this says no at once."""
    op, operands = node.op, node._operands
    if operands and operands[-1].type.__class__ is SimpleType:
        return True
    return op.acts or op.deals_in_tokens or op is CALL


def written_operands(node: Node) -> tuple[int, ...]:
    """Positions of the operands that the node writes in place. For an effect of which the table says no writes: its
    states, and what its result or a function's input is said to alias; a view is memory, and writes none."""
    if writes := (known := facts(node.op)).writes:
        count = len(node._operands)
        return writes if max(writes) < count else tuple(i for i in writes if i < count)
    if node.op is CALL or known.view or not is_effect(node):
        return ()
    own = getattr(node.type, "ref", "")
    found = []
    for i, v in enumerate(node._operands):
        ref = getattr(v.type, "ref", "")
        if isinstance(v, State) or (ref and (isinstance(v, Input) or ref == own)):
            found.append(i)
    return tuple(found) or ((0,) if own else ())


def rests(node: Node) -> bool:
    """Whether it is a BatchNorm in inference mode (exported without ``set_train``), which learns no statistics."""
    at = facts(node.op).training
    if at is None:
        return False
    if at >= node.num_operands:
        return node.op.attributes.get("is_training") is False
    return node.operand(at).literal is False


def is_optimizer(node: Node) -> bool:
    """Whether this is an optimizer's primitive: it updates a weight, its first operand, from a gradient."""
    return facts(node.op).gradient is not None


def is_pure(node: Node) -> bool:
    """A function of its operands alone: may be merged, removed when unused, recomputed."""
    if node.op.name in ("Load", "UpdateState"):
        return False
    return not is_effect(node) and not is_random(node)
