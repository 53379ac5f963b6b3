"""Kernels that a target lacks, by primitive and element types, and the message about them.

The lists of kernels (``ir/core/kernels/``) are MindSpore's own. How it chooses one of them differs: on a CPU a kernel
of float32 also serves float16 and float64, between casts that MindSpore inserts, and one of int32 serves int16 and
int64; on a GPU one of int32 serves int64. Numbers, strings and tuples of unknown length are taken to fit. So is a node
of which the list says another number of operands, if its tensors fit as far as both go: MindSpore turns operands into
attributes and back. What no list knows is left alone: MindSpore replaces such primitives before it looks for kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ..core.graph import Graph, Node
from ..core.kernels import Kernel, kernels
from ..core.op import CALL
from ..core.primitives import CPU, EVERYWHERE, GPU, Family, facts
from ..core.types import DType, TensorType, TupleType, Type, is_monad

ADVICE = {
    "Lamb": "What it computes is defined by its kernels only; nn.AdamWeightDecay trains on every target.",
    "LARSUpdate": "What it computes is defined by its kernel only; export without nn.LARS.",
    "InstanceNorm": "nn.GroupNorm with as many groups as channels runs on every target.",
    **dict.fromkeys(
        ("LSTM", "LSTMGrad", "LSTMGradData", "LSTMGradWeight", "DynamicRNN", "DynamicRNNGrad"),
        "MindSpore exports an LSTM for one device, whose kernels pack its weights in their own way: export the "
        "training cell there.",
    ),
}

_SERVED = {
    CPU: {DType.FLOAT32: {DType.FLOAT16, DType.FLOAT64}, DType.INT32: {DType.INT16, DType.INT64}},
    GPU: {DType.INT32: {DType.INT64}},
}
"""By target and the type of a kernel: the other types that MindSpore casts to it and back."""
_NO_KERNEL = frozenset({Family.ORDER, Family.TUPLE, Family.CLOSURE})

Item = DType | tuple | None
"""The element types of a value: of a tensor, of the elements of a tuple, None where it is something else or unknown."""
Types = tuple[Item, ...]


def lacking(main: Graph, target: str) -> list[Node]:
    """Nodes of a main graph and its functions that need a kernel which the target is known to lack."""
    return [node for graph in main.all_graphs() for node in graph if not has_kernel(node, target)]


def on_cpu(main: Graph, target: str) -> list[Node]:
    """Nodes that MindSpore runs on the CPU in a program for ``target``, which has no kernel for them."""
    found = []
    if target != CPU:
        for graph in main.all_graphs():
            found += [node for node in graph if "cpu" in kernels(target).ways(node.op.name) or _asks_for_cpu(node)]
    return found


def has_kernel(node: Node, target: str) -> bool:
    """Whether MindSpore finds a kernel for the node, as far as is known."""
    family = facts(node.op).family
    if node.op is CALL or family in _NO_KERNEL:
        return True
    if family is Family.COLLECTIVE:  # data-parallel casts what ranks sum, and a process by itself sums nothing
        return runs(node.op.name, (), None, target)
    return runs(node.op.name, operand_types(node), item(node.type), CPU if _asks_for_cpu(node) else target)


def operand_types(node: Node) -> Types:
    """Of all operands but tokens."""
    return tuple(item(v.type) for v in node.operands if not is_monad(v.type))


@lru_cache(maxsize=4096)
def runs(name: str, operands: Types, result: Item, target: str) -> bool:
    """Whether the target has a kernel for a primitive that takes and returns these element types."""
    known = kernels(target)
    if name not in known:
        return not any(name in kernels(other) for other in EVERYWHERE)
    ways = known.ways(name)
    if "cpu" in ways:
        return runs(name, operands, result, CPU)
    if ways:
        return True
    return any(_fits(kernel, operands, result, target, name) for kernel in known.of(name))


def targets_of(name: str) -> list[str]:
    """The targets that have a kernel for the primitive, whatever the types."""
    return sorted(target for target in EVERYWHERE if name in kernels(target))


def refusal(node: Node, graph: str, target: str) -> str:
    """The message about a node that the target has no kernel for and that nothing replaces."""
    where = f"graph '{graph}'" if node.graph is None or node.graph.owner is None else f"function '{node.graph.name}'"
    scope = f", scope {node.scope}" if node.scope else ""
    others = [other for other in targets_of(node.op.name) if other != target and has_kernel(node, other)]
    have = "has" if len(others) == 1 else "have"
    elsewhere = f" Or compile for {' and '.join(others)}, which {have} it." if others else ""
    return (
        f"MindSpore has no {target} kernel for {described(node, target)} (node %{node.name}{scope}, {where}), and no "
        f"rule replaces it. {advice(node)}{elsewhere}"
    )


def advice(node: Node) -> str:
    """What to do about a primitive that nothing replaces."""
    return ADVICE.get(node.op.name, "Export the training cell without it.")


def described(node: Node, target: str) -> str:
    """The primitive, with its element types where the target has kernels for others."""
    name = node.op.name
    if name not in kernels(target):
        return name
    taken = ", ".join(str(t) for t in _flat(operand_types(node)) if t is not None)
    offered = sorted({str(k.inputs[0]) for k in kernels(target).of(name) if k.inputs})
    return f"{name} of ({taken}); those that it has take {', '.join(offered)}"


def _asks_for_cpu(node: Node) -> bool:
    """Whether the file itself puts the node on the CPU, as nn.AdamOffload does."""
    return node.op.attributes.get("primitive_target") == "CPU"


def item(type_: Type) -> Item:
    """The element types of a value of this type."""
    if isinstance(type_, TensorType):
        return type_.dtype
    if isinstance(type_, TupleType) and not type_.dynamic:
        return tuple(item(element) for element in type_.elements)
    return None


def _flat(items: Sequence[Item]) -> Iterator[DType | None]:
    """The elements of tuples in their place."""
    for part in items:
        if isinstance(part, tuple):
            yield from _flat(part)
        else:
            yield part


def _fits(kernel: Kernel, operands: Types, result: Item, target: str, name: str) -> bool:
    served = {} if name == "Cast" else _SERVED.get(target, {})

    def fit(wanted: DType | None, given: DType | None) -> bool:
        return wanted is None or given is None or given is wanted or given in served.get(wanted, ())

    flat = list(_flat(operands))
    if kernel.repeated:
        tensors = [given for given in flat if given is not None]
        wanted = [operand.dtype for operand in kernel.inputs if operand.tensor]
        if not all(any(fit(w, given) for w in wanted) for given in tensors):
            return False
    elif len(kernel.inputs) in (len(operands), len(flat)):
        aligned = operands if len(kernel.inputs) == len(operands) else flat
        pairs = zip(kernel.inputs, aligned, strict=True)
        if not all(fit(operand.dtype, given) for operand, part in pairs for given in _flat([part])):
            return False
    else:
        wanted = [operand.dtype for operand in kernel.inputs if operand.tensor]
        tensors = [given for given in flat if given is not None]
        if bool(wanted) != bool(tensors) or not all(fit(w, given) for w, given in zip(wanted, tensors, strict=False)):
            return False
    if target == CPU:  # casts what the kernel returns
        return True
    returned = list(_flat([result]))
    if kernel.repeated or len(kernel.outputs) != len(returned):
        return True
    return all(fit(operand.dtype, given) for operand, given in zip(kernel.outputs, returned, strict=True))
