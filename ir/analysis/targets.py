"""Kernels that a target lacks, by primitive and element types, and the message about them.

The lists of kernels (``ir/core/kernels/``) are MindSpore's own. How it chooses one of them differs: on a CPU a kernel
of float32 also serves float16 and float64, between casts that MindSpore inserts, and one of int32 serves int16 and
int64; on a GPU one of int32 serves int64. Where a GPU or Ascend has no kernel, MindSpore takes that of the CPU if it
fits without casts, and moves the data there and back.

Numbers, strings and tuples of unknown length are taken to fit. So is a node of which the list says another number of
operands, if its tensors fit as far as both go: MindSpore turns operands into attributes and back. What no list knows is
left alone: MindSpore replaces such primitives before it looks for kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from ..core.graph import Graph, Node, State
from ..core.kernels import Kernel, kernels
from ..core.op import CALL, Op
from ..core.predicates import written_operands
from ..core.primitives import CPU, EVERYWHERE, GPU, Family, facts
from ..core.types import DType, SimpleType, TensorType, TupleType, Type, is_monad
from ..core.walk import through

ADVICE = {
    "Lamb": "What it computes is defined by its kernels only; nn.AdamWeightDecay trains on every target, and the pass "
    "replace-optimizer{to=lamb} puts a Lamb of primitives in its place.",
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
_PACKED = {"LSTMGrad": "LSTM"}
"""Gradients of layers whose weights a CPU's kernels pack in their own way, with the layer: both must run there."""
_LSTM_WEIGHTS = 3
"""The operand of LSTM that holds all of its weights."""
_LSTM_BIASES = {CPU: 1, GPU: 2}
"""How many biases a gate has in there: nn.LSTM adds those of input and state up for a CPU, and packs both for a GPU."""
_NO_KERNEL = frozenset({Family.ORDER, Family.TUPLE, Family.CLOSURE})

Item = DType | tuple | None
"""The element types of a value: of a tensor, of the elements of a tuple, None where it is something else or unknown."""
Types = tuple[Item, ...]


def lacking(main: Graph, target: str) -> list[Node]:
    """Nodes of a main graph and its functions that need a kernel which the target is known to lack."""
    # Nodes that share a primitive mostly share its element types, too. None: it needs no kernel.
    served: dict[Op, tuple[()] | tuple[Types, Item] | None] = {}
    found = []
    for graph in main.all_graphs():
        for node in graph:
            op = node.op
            if op not in served:
                served[op] = None if op is CALL or facts(op).family in _NO_KERNEL else ()
            last = served[op]
            if last is None:
                continue
            types = operand_types(node), item(node.type)
            if types == last:
                continue
            if not has_kernel(node, target):
                found.append(node)
            elif op.name not in _PACKED.values():  # those are told by more than their types
                served[op] = types
    return found


def on_cpu(main: Graph, target: str) -> list[Node]:
    """Nodes that MindSpore runs on the CPU in a program for ``target``, which has no kernel for them."""
    if target == CPU:
        return []
    return [node for graph in main.all_graphs() for node in graph if runs_on(node, target) == CPU]


def torn(main: Graph, target: str) -> list[tuple[Node, str]]:
    """Nodes that run on the CPU of a machine with a GPU and write a state in place that others of the same graph use on
    the GPU, with that state. MindSpore 2.10 keeps a state in one place for each graph, and fails when it runs this."""
    found = []
    for node in on_cpu(main, target) if target == GPU else ():
        for i in written_operands(node):
            state = through(node.operand(i), ("Load", "Depend"))
            others = (user for user, _ in state.use_sites() if user.op.name not in ("Load", "Depend", "UpdateState"))
            read = (u for load, _ in state.use_sites() if load.op.name == "Load" for u, _ in load.use_sites())
            if isinstance(state, State) and any(runs_on(user, target) == target for user in (*others, *read)):
                found.append((node, state.name))
                break
    return found


def torn_apart(node: Node, state: str, graph: str) -> str:
    """The message about such a node."""
    return (
        f"{node.op.name} (node %{node.name}, graph '{graph}') would run on the CPU, for want of a GPU kernel, and "
        f"writes state '{state}', which the rest of the graph uses on the GPU. MindSpore 2.10 cannot do both in one "
        "graph: gradient-accumulation with split=apply puts the update into a graph of its own. Or train on another "
        "device."
    )


def has_kernel(node: Node, target: str) -> bool:
    """Whether MindSpore finds a kernel for the node, as far as is known."""
    return runs_on(node, target) is not None


def runs_on(node: Node, target: str) -> str | None:
    """Where MindSpore runs the node in a program for ``target``: there, on the CPU, or nowhere (None)."""
    op = node.op
    family = facts(op).family
    if op is CALL or family in _NO_KERNEL:
        return target
    if family is Family.COLLECTIVE:  # data-parallel casts what ranks sum, and a process by itself sums nothing
        return place_of(op.name, (), None, target)
    if op.attributes.get("primitive_target") == "CPU":  # so the file says, as that of nn.AdamOffload does
        return place_of(op.name, operand_types(node), item(node.type), CPU)
    place = place_of(op.name, operand_types(node), item(node.type), target)
    return place if place is None or _reads_weights(node, place) else None


def operand_types(node: Node) -> Types:
    """Of all operands but tokens."""
    return tuple(  # every compilation asks this of every node
        [
            t.dtype if t.__class__ is TensorType else item(t)
            for value in node._operands
            if (t := value.type).__class__ is not SimpleType or not is_monad(t)
        ]
    )


@lru_cache(maxsize=4096)
def place_of(name: str, operands: Types, result: Item, target: str) -> str | None:
    """Where a primitive runs that takes and returns these element types, as :func:`runs_on`."""
    known = kernels(target)
    if not any(name in kernels(other) for other in EVERYWHERE) or known.ways(name) - {CPU}:
        return target
    served = {} if name == "Cast" else _SERVED.get(target, {})
    if any(_fits(kernel, operands, result, served, returns=target != CPU) for kernel in known.of(name)):
        return target
    if target == CPU or _is_split(name, target):
        return None
    # Instead of a kernel of its own it takes one of the CPU, but casts nothing for it, and unfolds no tuple.
    there = kernels(CPU)
    usable = (kernel for kernel in there.of(name) if not kernel.repeated)
    fits = there.ways(name) or any(_fits(kernel, operands, result, {}, returns=True) for kernel in usable)
    return CPU if fits else None


def targets_of(name: str) -> list[str]:
    """The targets that run the primitive, whatever the types."""
    own = {target for target in EVERYWHERE if name in kernels(target)}
    return sorted(own | {t for t in EVERYWHERE if CPU in own and not _is_split(name, t)})


def _is_split(name: str, target: str) -> bool:
    """Whether the CPU would take a gradient whose layer the target takes."""
    return name in _PACKED and target != CPU and bool(kernels(target).of(_PACKED[name]))


def _reads_weights(node: Node, place: str) -> bool:
    """Whether kernels there read the weights of the node as they are packed: False for an LSTM of another device."""
    given = node.op.attributes
    if node.op.name != "LSTM" or "hidden_size" not in given or node.num_operands <= _LSTM_WEIGHTS:
        return True
    weights = node.operand(_LSTM_WEIGHTS).type
    if not isinstance(weights, TensorType) or weights.size is None:
        return True
    hidden, projection, ways = given["hidden_size"], given.get("proj_size", 0), 1 + given["bidirectional"]
    width = projection or hidden
    products = 0
    for layer in range(given["num_layers"]):
        inputs = width * ways if layer else given["input_size"]
        products += ways * (4 * hidden * (inputs + width) + projection * hidden)
    bias = 4 * hidden * ways * given["num_layers"] if given["has_bias"] else 0
    sizes = {device: products + count * bias for device, count in _LSTM_BIASES.items()}
    return weights.size not in sizes.values() or weights.size == sizes.get(place)


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
    place = place_of(name, operand_types(node), item(node.type), target)
    if place is not None and not _reads_weights(node, place):
        return f"{name} with weights that are packed for another device"
    if not kernels(target).of(name):
        return name
    taken = ", ".join(str(t) for t in _flat(operand_types(node)) if t is not None)
    offered = sorted({str(k.inputs[0]) for k in kernels(target).of(name) if k.inputs})
    return f"{name} of ({taken}); those that it has take {', '.join(offered)}"


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


def _fits(kernel: Kernel, operands: Types, result: Item, served: Mapping[DType, set[DType]], *, returns: bool) -> bool:
    """``served``: by the type of a kernel, others that are cast for it. ``returns``: what it returns must fit too."""

    def fit(wanted: DType | None, given: DType | None) -> bool:
        return wanted is None or given is None or given is wanted or given in served.get(wanted, ())

    flat = list(_flat(operands))
    tensors = [given for given in flat if given is not None]
    wanted = [operand.dtype for operand in kernel.inputs if operand.tensor]
    if kernel.repeated:
        return all(any(fit(w, given) for w in wanted) for given in tensors)
    if len(kernel.inputs) in (len(operands), len(flat)):
        aligned = operands if len(kernel.inputs) == len(operands) else flat
        pairs = zip(kernel.inputs, aligned, strict=True)
        if not all(fit(operand.dtype, given) for operand, part in pairs for given in _flat([part])):
            return False
    elif bool(wanted) != bool(tensors) or not all(fit(w, given) for w, given in zip(wanted, tensors, strict=False)):
        return False
    returned = list(_flat([result]))
    if not returns or len(kernel.outputs) != len(returned):
        return True
    return all(fit(operand.dtype, given) for operand, given in zip(kernel.outputs, returned, strict=True))
