"""Runs programs with numpy, so that a fast test can judge a rewrite by what the program computes.

Only what the graph itself orders is ordered: nodes run in any order that operands and tokens allow, and several orders
are tried (`ORDERS`). Memory is shared as a device may share it: a Load, and a view of it, is the state itself and not a
copy. And as in MindSpore, a token waits for no node without effects that it names alone, outside of a tuple. So where a
rewrite loses an order that matters, some run computes something else.

Ranks are threads that meet at each collective (`train_ranks`): they must all come to the same ones in the same order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from boost_compile.ir.core.attributes import MonadValue, TensorValue
from boost_compile.ir.core.data import to_numpy
from boost_compile.ir.core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from boost_compile.ir.core.op import CALL
from boost_compile.ir.core.predicates import is_pure
from boost_compile.ir.core.primitives import ASCEND
from boost_compile.ir.core.program import Program, variant_name
from boost_compile.ir.core.types import TensorType

from tests.waiting import PATIENCE

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Closure:
    graph: Graph
    bound: tuple[Any, ...] = ()


def _in_text_order(nodes: Sequence[Node]) -> dict[Node, float]:
    return {node: i for i, node in enumerate(nodes)}


def _last_first(nodes: Sequence[Node]) -> dict[Node, float]:
    return {node: -i for i, node in enumerate(nodes)}


def _writes_first(nodes: Sequence[Node]) -> dict[Node, float]:
    """Whatever may change memory runs as soon as it may; what reads, as late."""
    return {node: i + len(nodes) * (node.op.name not in WRITES and node.op is not CALL) for i, node in enumerate(nodes)}


def _shuffled(seed: int) -> Callable[[Sequence[Node]], dict[Node, float]]:
    return lambda nodes: dict(zip(nodes, random.Random(seed).sample(range(len(nodes)), len(nodes)), strict=True))


ORDERS = (_in_text_order, _last_first, _writes_first, _shuffled(1), _shuffled(2))


def train(
    program: Program,
    state: Mapping[str, np.ndarray],
    batches: Sequence[Sequence[np.ndarray]],
    order: Any = _in_text_order,
) -> tuple[list[list[Any]], Arrays]:
    """Runs the schedule of `program` on `batches` (inputs of one micro-batch each), from `state`; names that it lacks
    have the program's own values. Returns what each graph but trials returned, in turn, and the state afterwards."""
    memory = {name: initial(program, name, state) for name in program.state}
    _here.saturating, _here.overflow = program.target == ASCEND, 0
    results = []
    given = iter(batches)
    turns = [entry.graph for entry in program.schedule.cycle for _ in range(entry.repeat)]
    choice, search = program.schedule.choice, program.schedule.search
    pending = next(given, None)
    while pending is not None:
        variant = 0 if choice is None else choice.of_cycle(int(memory[choice.state]))
        kept: list[Sequence[np.ndarray]] = []
        for name in turns:
            graph = program.graphs[variant_name(name, variant)]
            inputs: Sequence[np.ndarray] = ()
            if graph.inputs:
                if pending is None:
                    raise ValueError("the batches end within a cycle")
                inputs, pending = pending, next(given, None)
            result = run_graph(graph, inputs, memory, order)
            results.append([graph.name, result])
            if search is not None and graph.inputs:
                named = dict(zip(graph.outputs, result if isinstance(result, tuple) else (result,), strict=True))
                kept.append([*inputs, *(named[n] for n in search.kept)])
        for _ in range(search.at_most if search is not None else 0):
            if memory[search.pending]:
                for inputs in kept:
                    run_graph(program.graphs[search.trial], inputs, memory, order)
                results.append([search.judge, run_graph(program.graphs[search.judge], (), memory, order)])
    return results, memory


@dataclass
class Job:
    """Ranks that run the same program; in a thread of a job `_here.rank` is its number."""

    ranks: int
    given: dict[int, tuple[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.ranks, timeout=PATIENCE)

    def gathered(self, what: str, value: Any) -> list[Any]:
        """What every rank gives to the collective that this thread has come to, by rank."""
        self.given[_here.rank] = what, np.array(value)
        self.barrier.wait()
        found = [self.given[rank] for rank in range(self.ranks)]
        self.barrier.wait()
        assert len({name for name, _ in found}) == 1, "ranks came to different collectives"
        return [value for _, value in found]


class _Here(threading.local):
    """Where a thread is: its rank, and the overflow flag of a device that has one (an Ascend in saturation mode)."""

    job: Job | None = None
    rank = 0
    saturating = False
    overflow = 0


_here = _Here()


def train_ranks(
    program: Program | Sequence[Program],
    state: Arrays | Sequence[Arrays],
    batches: Sequence[Sequence[Sequence[np.ndarray]]],
    order: Any = _in_text_order,
) -> list[tuple[list[list[Any]], Arrays]]:
    """What `train` returns on each rank of a job; `batches[r]` are the micro-batches of rank r. `program` is what all
    ranks run, and `state` what they start from, or one for each."""
    job = Job(len(batches))
    programs = [program] * len(batches) if isinstance(program, Program) else program
    states = [state] * len(batches) if isinstance(state, dict) else state

    def run(rank: int) -> tuple[list[list[Any]], Arrays]:
        _here.job, _here.rank = job, rank
        try:
            return train(programs[rank], states[rank], batches[rank], order)
        except BaseException:
            job.barrier.abort()
            raise

    with ThreadPoolExecutor(job.ranks) as pool:
        return list(pool.map(run, range(job.ranks)))


def _all_reduce(node: Node, x: Any) -> Any:
    job = _here.job
    if job is None:
        return x
    group = str(node.attributes["group"])
    values = job.gathered(f"AllReduce in {group} of {x.shape}", x)
    if group.startswith("neighbours_of_"):
        size = int(group.removeprefix("neighbours_of_"))
        first = _here.rank // size * size
        values = values[first : first + size]
    return sum(values[1:], values[0])


def _all_gather(node: Node, x: Any) -> Any:
    assert _here.job is not None
    return np.concatenate(_here.job.gathered(f"AllGather of {x.shape}", x))


def _reduce_scatter(node: Node, x: Any) -> Any:
    assert _here.job is not None
    values = _here.job.gathered(f"ReduceScatter of {x.shape}", x)
    return np.split(sum(values[1:], values[0]), _here.job.ranks)[_here.rank]


def _broadcast(node: Node, items: Any) -> Any:
    (x,) = items
    root = int(node.attributes["root_rank"])
    return (x if _here.job is None else _here.job.gathered(f"Broadcast from {root} of {x.shape}", x)[root],)


def _clear(x: Any) -> Any:
    _here.overflow = 0
    return np.zeros_like(x)


def _adasum(node: Node, old: Any, new: Any) -> Any:
    """By the formula of the paper, on the step of each group."""
    if _here.job is None:
        return new
    steps = _here.job.gathered(f"AdaSum of {old.shape}", old - new)[:: int(node.attributes["devices_per_group"])]
    while len(steps) > 1:
        steps = [_pair(a, b) for a, b in zip(steps[::2], steps[1::2], strict=True)]
    return old - steps[0]


def _pair(a: Any, b: Any) -> Any:
    dot, aa, bb = ((x * y).sum() for x, y in ((a, b), (a, a), (b, b)))
    return (1 - (dot / (2 * aa) if aa else 0)) * a + (1 - (dot / (2 * bb) if bb else 0)) * b


def initial(program: Program, name: str, state: Mapping[str, np.ndarray]) -> np.ndarray:
    variable = program.state[name]
    dtype = variable.type.dtype
    if name in state:
        return np.array(state[name], dtype).reshape(variable.shape)
    return np.array(to_numpy(variable.type, variable.data), dtype)


def close(found: Arrays, wanted: Arrays, names: Iterable[str]) -> None:
    """Up to the rounding of a few float32 additions."""
    for name in names:
        limit = 1e-3 if wanted[name].dtype == np.float16 else 2e-6
        np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=limit, err_msg=name)


def run_graph(graph: Graph, inputs: Sequence[Any], memory: Arrays, order: Any = _in_text_order) -> Any:
    """The result of one call, copied; `memory` holds the state, which is written in place."""
    return _copied(_run(graph, inputs, memory, order))


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_copied(v) for v in value)
    return np.array(value) if isinstance(value, np.ndarray) else value


def _run(graph: Graph, inputs: Sequence[Any], memory: Arrays, order: Any) -> Any:
    env: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))

    def value_of(value: Value) -> Any:
        if isinstance(value, State):
            return memory[value.name]
        if isinstance(value, Constant):
            return _constant(value)
        if isinstance(value, GraphRef):
            return Closure(value.graph)
        assert isinstance(value, (Node, Input))
        return env[value]

    nodes = list(graph)
    rank = order(nodes)
    missing = {node: len(_awaited(node)) for node in nodes}
    ready = [(rank[node], i, node) for i, node in enumerate(nodes) if not missing[node]]
    heapify(ready)
    done = 0
    while ready:
        _, _, node = heappop(ready)
        operands = [] if node.op.name == "UpdateState" else [value_of(operand) for operand in node.operands]
        env[node] = _apply(node, operands, memory, order)
        done += 1
        for user in node.users:
            if user in missing and node in _awaited(user):
                missing[user] -= 1
                if not missing[user]:
                    heappush(ready, (rank[user], nodes.index(user), user))
    assert done == len(nodes), "a circle of nodes"
    return value_of(graph.result)


def _awaited(node: Node) -> set[Node]:
    """The nodes that one waits for."""
    operands = node.operands
    if node.op.name == "UpdateState" and len(operands) == 2:
        named = operands[1]
        if isinstance(named, Node) and is_pure(named) and named.op.name != "MakeTuple":
            operands = operands[:1]
    return {operand for operand in operands if isinstance(operand, Node)}


def _constant(value: Constant) -> Any:
    def plain(held: Any) -> Any:
        if isinstance(held, TensorValue):
            return to_numpy(held.type, held.data)
        if isinstance(held, MonadValue):
            return None
        if isinstance(held, tuple):
            return tuple(map(plain, held))
        return getattr(held, "value", held)

    return plain(value.value)


def _apply(node: Node, operands: list[Any], memory: Arrays, order: Any) -> Any:
    name = node.op.name
    if node.op is CALL:
        closure = operands[0]
        return _run(closure.graph, [*closure.bound, *operands[1:]], memory, order)
    if name == "Partial":
        return Closure(operands[0].graph, (*operands[0].bound, *operands[1:]))
    if name in WRITES:
        return WRITES[name](node, *operands)
    if name in VIEWS:
        return VIEWS[name](*operands)
    computed = PURE_OF_NODE[name](node, *operands) if name in PURE_OF_NODE else PURE[name](*operands)
    if isinstance(node.type, TensorType) and computed is not None:
        computed = np.array(computed, node.type.dtype)
        if _here.saturating and node.type.dtype.is_float and not np.isfinite(computed).all():
            _here.overflow, computed = 1, np.nan_to_num(computed)
    return computed


def _write(change: Callable[..., Any]) -> Callable[..., Any]:
    def run(node: Node, target: np.ndarray, *rest: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            target[...] = change(target, *rest)
        return target

    return run


def _momentum(node: Node, w: Any, m: Any, rate: Any, gradient: Any, momentum: Any, *_: Any) -> Any:
    with np.errstate(all="ignore"):
        m[...] = m * momentum + gradient
        w[...] = w - rate * (gradient + momentum * m if node.attributes.get("use_nesterov") else m)
    return w


def _adam_weight_decay(
    node: Node, w: Any, m: Any, v: Any, rate: Any, b1: Any, b2: Any, e: Any, decay: Any, g: Any, *_: Any
) -> Any:
    m[...] = m * b1 + g * (1 - b1)
    v[...] = v * b2 + g * g * (1 - b2)
    w[...] = w - rate * (m / (np.sqrt(v) + e) + decay * w)
    return w


def _adam(
    node: Node, w: Any, m: Any, v: Any, b1p: Any, b2p: Any, rate: Any, b1: Any, b2: Any, e: Any, g: Any, *_: Any
) -> Any:
    m[...] = m * b1 + g * (1 - b1)
    v[...] = v * b2 + g * g * (1 - b2)
    w[...] = w - rate * np.sqrt(1 - b2p) / (1 - b1p) * m / (np.sqrt(v) + e)
    return w


def _batch_norm(node: Node, x: Any, gamma: Any, beta: Any, mean: Any, variance: Any, training: bool, *more: Any) -> Any:
    """In training also writes the moving statistics. What it saves for the gradient is of no use here."""
    epsilon, momentum = more[:2]
    if training:
        axes = _all_but_channels(x)
        of_batch = x.mean(axes, dtype=np.float32), x.var(axes, dtype=np.float32)
        for moving, new in zip((mean, variance), of_batch, strict=True):
            moving[...] = (1 - momentum) * moving + momentum * new
        mean, variance = of_batch
    y = _by_channel(gamma, x) * _normalised(x, mean, variance, epsilon) + _by_channel(beta, x)
    return y.astype(x.dtype), mean, variance, mean, variance


def _batch_norm_grad(node: Node, dy: Any, x: Any, gamma: Any, mean: Any, variance: Any, _: Any, *more: Any) -> Any:
    training, epsilon = more[:2]
    axes = _all_but_channels(x)
    if training:
        mean, variance = x.mean(axes, dtype=np.float32), x.var(axes, dtype=np.float32)
    unit = _normalised(x, mean, variance, epsilon)
    dgamma, dbeta = (dy * unit).sum(axes, dtype=np.float32), dy.sum(axes, dtype=np.float32)
    n = x.size // len(gamma)
    moved = (_by_channel(dbeta, x) + unit * _by_channel(dgamma, x)) / n if training else 0
    dx = _by_channel(gamma / np.sqrt(variance + epsilon), x) * (dy - moved)
    return dx.astype(x.dtype), dgamma, dbeta


def _all_but_channels(x: Any) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _by_channel(values: Any, x: Any) -> Any:
    return values.reshape(-1, *[1] * (x.ndim - 2))


def _normalised(x: Any, mean: Any, variance: Any, epsilon: Any) -> Any:
    return (x - _by_channel(mean, x)) / np.sqrt(_by_channel(variance, x) + np.float32(epsilon))


def _windows(x: Any, size: Sequence[int], stride: Sequence[int]) -> Any:
    """[N, C, H, W] -> a view [N, C, h, w, kh, kw]."""
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=(2, 3))[:, :, :: stride[0], :: stride[1]]


def _convolved(node: Node) -> tuple[Sequence[int], Sequence[int], tuple[tuple[int, int], ...]]:
    """The size and stride of the windows, and the padding of all four axes. No groups, no dilation."""
    a = node.attributes
    assert a["group"] == 1
    assert set(np.ravel(a["dilation"])) == {1}
    top, bottom, left, right = a.get("pad_list", (0, 0, 0, 0))
    return a["kernel_size"], a["stride"][-2:], ((0, 0), (0, 0), (top, bottom), (left, right))


def _conv(node: Node, x: Any, w: Any, *_: Any) -> Any:
    size, stride, padding = _convolved(node)
    return np.einsum("nchwij,ocij->nohw", _windows(np.pad(x, padding), size, stride), w, optimize=True)


def _conv_to_filter(node: Node, dy: Any, x: Any, *_: Any) -> Any:
    size, stride, padding = _convolved(node)
    return np.einsum("nchwij,nohw->ocij", _windows(np.pad(x, padding), size, stride), dy, optimize=True)


def _conv_to_input(node: Node, dy: Any, w: Any, *_: Any) -> Any:
    size, stride, padding = _convolved(node)
    (top, bottom), (left, right) = padding[2:]
    assert isinstance(node.type, TensorType)
    _, c, height, width = node.type.shape
    dx = np.zeros((len(dy), c, height + top + bottom, width + left + right), dy.dtype)
    spread = np.einsum("nohw,ocij->nchwij", dy, w, optimize=True)
    for i, j in np.ndindex(*size):
        h, v = dy.shape[2:]
        dx[:, :, i : i + h * stride[0] : stride[0], j : j + v * stride[1] : stride[1]] += spread[..., i, j]
    return dx[:, :, top : top + height, left : left + width]


def _max_pool(node: Node, x: Any) -> Any:
    return _windows(x, node.attributes["kernel_size"][-2:], node.attributes["strides"][-2:]).max((-1, -2))


def _max_pool_grad(node: Node, x: Any, y: Any, dy: Any) -> Any:
    """Windows that do not overlap."""
    (kh, kw), dx = node.attributes["kernel_size"][-2:], np.zeros_like(x)
    assert (kh, kw) == node.attributes["strides"][-2:]
    for i, j in np.ndindex(kh, kw):
        part = (..., slice(i, i + kh * y.shape[2], kh), slice(j, j + kw * y.shape[3], kw))
        dx[part] = dy * (x[part] == y)
    return dx


DRAWN = random.Random(0)
"""What Dropout and the like draw from: something else each time."""


def _dropout(node: Node, x: Any, keep: Any = None, *_: Any) -> Any:
    keep = node.attributes.get("keep_prob", keep)
    mask = np.array([DRAWN.random() < keep for _ in range(x.size)], np.uint8).reshape(x.shape)
    return x * mask / x.dtype.type(keep), mask


def _dropout_grad(node: Node, dy: Any, mask: Any) -> Any:
    return dy * mask / dy.dtype.type(node.attributes["keep_prob"])


def _unit(node: Node, x: Any) -> Any:
    a = node.attributes
    square = np.square(x).sum(tuple(a["axis"]), keepdims=True)
    return x / np.sqrt(np.maximum(square, a["epsilon"]))


def _unit_grad(node: Node, x: Any, y: Any, dy: Any) -> Any:
    a = node.attributes
    axis = tuple(a["axis"])
    length = np.sqrt(np.maximum(np.square(x).sum(axis, keepdims=True), a["epsilon"]))
    return (dy - y * (dy * y).sum(axis, keepdims=True)) / length


def _scattered(target: Any, rows: Any, moves: Any) -> Any:
    total = np.zeros_like(target)
    np.add.at(total, rows, moves)
    return total


def _sgd(node: Node, w: Any, g: Any, rate: Any, m: Any, momentum: Any, first: Any, *_: Any) -> Any:
    g = g + node.attributes["weight_decay"] * w
    m[...] = np.where(first > 0, g, m * momentum + (1 - node.attributes["dampening"]) * g)
    first[...] = 0
    w[...] = w - rate * m
    return w


def _ftrl(node: Node, w: Any, a: Any, z: Any, g: Any, rate: Any, l1: Any, l2: Any, power: Any, *_: Any) -> Any:
    with np.errstate(all="ignore"):
        after = a + g * g
        z[...] = z + g - (after**-power - a**-power) / rate * w
        a[...] = after
        w[...] = np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / (after**-power / rate + 2 * l2), 0)
    return w


WRITES: dict[str, Callable[..., Any]] = {
    "BatchNorm": _batch_norm,
    "Assign": _write(lambda target, new, *_: new),
    "AssignAdd": _write(lambda target, new, *_: target + new),
    "AssignSub": _write(lambda target, new, *_: target - new),
    "InplaceAddExt": _write(lambda target, new, *_: target + new),
    "ApplyGradientDescent": _write(lambda target, rate, gradient, *_: target - rate * gradient),
    "ApplyMomentum": _momentum,
    "Adam": _adam,
    "AdamWeightDecay": _adam_weight_decay,
    "SGD": _sgd,
    "ScatterSub": _write(lambda target, rows, moves, *_: target - _scattered(target, rows, moves)),
    "ApplyFtrl": _ftrl,
}
VIEWS: dict[str, Callable[..., Any]] = {
    "Load": lambda state, _: state,
    "Depend": lambda value, _: value,
    "UpdateState": lambda *_: None,
    "Reshape": lambda x, shape: x.reshape([int(n) for n in np.atleast_1d(np.array(shape))] if shape != () else ()),
    "ExpandDims": lambda x, axis: np.expand_dims(x, int(axis)),
    "Flatten": lambda x: x.reshape(len(x), -1),
    "Squeeze": lambda x, *axis: x.reshape([n for n in x.shape if n != 1]),
    "StopGradient": lambda x: x,
    "Identity": lambda x: x,
    "MakeTuple": lambda *parts: tuple(parts),
    "TupleGetItem": lambda parts, i: parts[int(i)],
    "Switch": lambda which, yes, no: yes if bool(np.all(which)) else no,
}


def _axes(axes: Any, x: Any) -> Any:
    if axes is None or (isinstance(axes, tuple) and not axes):
        return None
    return tuple(int(a) for a in np.atleast_1d(np.array(axes)))


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes=(), keep=False, *_: function(x, axis=_axes(axes, x), keepdims=bool(keep))


def _matmul(a: Any, b: Any, ta: bool = False, tb: bool = False) -> Any:
    return (a.swapaxes(-1, -2) if ta else a) @ (b.swapaxes(-1, -2) if tb else b)


def _cross_entropy(node: Node, logits: Any, labels: Any) -> Any:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    rows = np.arange(len(labels))
    if node.attributes.get("is_grad"):
        p[rows, labels] -= 1
        return p / np.float32(len(labels))
    return -np.log(p[rows, labels]).mean(dtype=np.float32)


PURE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("Mul", "Muls"), lambda a, b: a * b),
    **dict.fromkeys(("Add", "AddExt", "AddScalar", "Adds"), lambda a, b, *_: a + b),
    **dict.fromkeys(("Sub", "SubExt"), lambda a, b, *_: a - b),
    **dict.fromkeys(("RealDiv", "Div", "Divs"), lambda a, b, *_: a / b),
    "Neg": lambda a: -a, "Exp": np.exp, "Log": np.log, "Sqrt": np.sqrt, "Rsqrt": lambda a: 1 / np.sqrt(a),
    "Square": np.square, "Reciprocal": lambda a: 1 / a, "Tanh": np.tanh, "Abs": np.abs, "Sign": np.sign,
    "TanhGrad": lambda y, dy: dy * (1 - y * y), "Floor": np.floor, "Pow": np.power,
    "ReLU": lambda a: np.maximum(a, 0), "ReluGrad": lambda dy, y: dy * (y > 0),
    "BiasAdd": lambda x, b, *_: x + _by_channel(b, x), "BiasAddGrad": lambda dy, *_: dy.sum(_all_but_channels(dy)),
    "AddN": lambda parts, *_: sum(parts[1:], parts[0]),
    "MatMul": _matmul, "BatchMatMul": _matmul, "MatMulExt": _matmul,
    "Dense": lambda x, w, b: x @ w.T + (0 if b is None else b),
    "ReduceSum": _reduce(np.sum), "ReduceMean": _reduce(np.mean), "ReduceMax": _reduce(np.max),
    "ReduceAll": _reduce(np.all), "ReduceAny": _reduce(np.any),
    "SumExt": lambda x, axes, keep, *_: np.sum(x, axis=_axes(axes, x), keepdims=bool(keep)),
    "IsFinite": np.isfinite, "IsInf": np.isinf, "IsNan": np.isnan,
    "LogicalNot": np.logical_not, "LogicalAnd": np.logical_and, "LogicalOr": np.logical_or,
    "Equal": np.equal, "NotEqual": np.not_equal, "Greater": np.greater, "GreaterEqual": np.greater_equal,
    "Less": np.less, "LessEqual": np.less_equal, "LessScalar": np.less,
    "Maximum": np.maximum, "Minimum": np.minimum, "Select": lambda which, a, b: np.where(which, a, b),
    "ClipByValue": lambda x, low, high: np.clip(x, low, high),
    "FillV2": np.full, "ZerosLike": np.zeros_like, "OnesLike": np.ones_like, "TensorMove": np.array,
    "Cast": lambda x, _: x,
    "Transpose": lambda x, order: np.transpose(x, [int(i) for i in order]),
    "Tile": lambda x, times: np.tile(x, [int(n) for n in times]),
    "Gather": lambda x, at, axis, _: np.take(x, at, int(axis)),
    "Slice": lambda x, begin, size: x[tuple(slice(b, b + n) for b, n in zip(begin, size, strict=True))],
    "Concat": lambda parts, axis: np.concatenate(parts, int(axis)), "Stack": lambda parts: np.stack(parts),
    "NPUGetFloatStatusV2": lambda x: x + _here.overflow, "NPUClearFloatStatusV2": _clear,
    "Mod": np.mod, "FloorMod": np.mod, "Fill": lambda _, shape, x: np.full(shape, x),
}  # fmt: skip
PURE_OF_NODE: dict[str, Callable[..., Any]] = {
    "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy, "BatchNormGrad": _batch_norm_grad,
    "Conv2D": _conv, "Conv2DBackpropFilter": _conv_to_filter, "Conv2DBackpropInput": _conv_to_input,
    "MaxPool": _max_pool, "MaxPoolGrad": _max_pool_grad, "L2Normalize": _unit, "L2NormalizeGrad": _unit_grad,
    "AllReduce": _all_reduce, "Broadcast": _broadcast, "AdaSum": _adasum,
    "AllGather": _all_gather, "ReduceScatter": _reduce_scatter,
    "Dropout": _dropout, "DropoutGrad": _dropout_grad,
    "StandardNormal": lambda node, shape, *_: np.reshape([DRAWN.gauss(0, 1) for _ in range(node.type.size)], shape),
}  # fmt: skip
