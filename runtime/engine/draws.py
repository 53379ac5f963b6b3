"""Random numbers that a session draws itself, so that a saved state can say where they stand.

MindSpore's random kernels keep a generator that nothing reads or sets (MindSpore 2.10, by experiment: one stream for
each node, whose seeds count only when the graph is compiled). With a seed, the numbers of the primitives below are
drawn here instead, and enter their graph as inputs: those of run n of a graph follow from seed, graph, node, rank and n
alone, through a counter-based generator (Philox). Masks drop each element as often as MindSpore's, but not the same
ones.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ...ir.builders.cast import cast
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Constant, Graph, Node
from ...ir.core.predicates import is_random
from ...ir.core.types import DType, TensorType, TupleType, is_monad

NOTE = "boost_compile.draws"
"""The name of what :meth:`Draws.to_text` says among the notes of a state file."""
MASKS = {"Dropout": 0, "Dropout2D": 2, "Dropout3D": 2}
"""Primitives that return (x with elements dropped, mask), with how many dimensions one number of the mask stands for
(0: one for each element; 2: one for each of the first two dimensions)."""
NUMBERS = ("StandardNormal", "UniformReal")
_TYPES = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)


@dataclass(frozen=True, slots=True)
class Draw:
    """What one node of a graph draws in each run: ``keep`` is the share of ones in a mask."""

    op: str
    type: TensorType
    serial: int
    keep: float = 0.0

    def array(self, seed: int, graph: str, rank: int, run: int) -> Any:
        import numpy as np

        digest = hashlib.sha256(repr((seed, graph, self.serial, rank)).encode()).digest()
        key = np.frombuffer(digest[:16], np.uint64)
        random = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, run]))
        shape = self.type.shape
        if self.op == "StandardNormal":
            return random.standard_normal(shape, np.float32)
        if self.op == "UniformReal":
            return random.random(shape, np.float32)
        leading = MASKS[self.op] or len(shape)
        kept = random.random(shape[:leading], np.float32) < np.float32(self.keep)
        kept = kept.reshape(shape[:leading] + (1,) * (len(shape) - leading))
        return np.broadcast_to(kept, shape).astype(self.type.dtype.value)


class Draws:
    """The draws of all graphs of a session. ``runs`` counts how often each graph that draws has run."""

    def __init__(self, seed: int, rank: int):
        self.seed = seed
        self.rank = rank
        self.runs: dict[str, int] = {}
        self._draws: dict[str, list[Draw]] = {}

    def take(self, graph: Graph) -> None:
        """Makes inputs of what the graph's random nodes draw, as far as they are known and of fixed shape. Changes the
        graph."""
        draws: list[Draw] = []
        for serial, node in enumerate([node for node in graph if is_random(node)]):
            draw = _draw_of(node, serial)
            if draw is not None:
                draws.append(draw)
                _replace(graph, node, draw)
        if draws:
            self._draws[graph.name] = draws
            self.runs[graph.name] = 0

    def next(self, graph: str) -> tuple[Any, ...]:
        """The Tensors of the next run of a graph."""
        draws = self._draws.get(graph)
        if draws is None:
            return ()
        import mindspore

        run = self.runs[graph]
        self.runs[graph] += 1
        return tuple(mindspore.Tensor.from_numpy(draw.array(self.seed, graph, self.rank, run)) for draw in draws)

    def to_text(self) -> str:
        return json.dumps({"seed": self.seed, "runs": dict(self.runs)}, sort_keys=True)

    def check_text(self, text: str, where: str) -> tuple[int, dict[str, int]]:
        """The seed and the runs that a note says. RuntimeFailure, which names ``where``, if it says nothing."""
        try:
            fields = json.loads(text)
            seed, runs = fields["seed"], dict(fields["runs"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RuntimeFailure(f"{where}: its note of the random numbers cannot be read.") from None
        if any(type(n) is not int or not 0 <= n < 1 << 63 for n in runs.values()) or type(seed) is not int:
            raise RuntimeFailure(f"{where}: its note of the random numbers holds no whole numbers.")
        return seed, {graph: runs.get(graph, 0) for graph in self.runs}


def _draw_of(node: Node, serial: int) -> Draw | None:
    type_ = node.type
    if any(is_monad(operand.type) for operand in node.operands):
        return None
    if node.op.name in NUMBERS:
        fixed = isinstance(type_, TensorType) and min(type_.shape, default=0) >= 0 and type_.dtype is DType.FLOAT32
        return Draw(node.op.name, type_, serial) if fixed and isinstance(type_, TensorType) else None
    if node.op.name not in MASKS or not isinstance(type_, TupleType) or len(type_.elements) != 2:
        return None
    out, mask = type_.elements
    if not isinstance(out, TensorType) or not isinstance(mask, TensorType) or out.dtype not in _TYPES:
        return None
    if mask.shape != out.shape or min(mask.shape, default=0) < 0 or len(mask.shape) < MASKS[node.op.name]:
        return None
    keep = node.op.attributes.get("keep_prob")
    if keep is None and node.num_operands > 1 and isinstance(node.operand(1), Constant):
        keep = getattr(node.operand(1), "value", None)
    return Draw(node.op.name, mask, serial, keep) if isinstance(keep, float) and 0 < keep <= 1 else None


def _replace(graph: Graph, node: Node, draw: Draw) -> None:
    """x · mask / keep, as MindSpore's kernels compute it: in float32 at least."""
    import numpy as np

    drawn = graph.add_input(graph.fresh_name(f"drawn_{draw.serial}"), draw.type)
    if draw.op in NUMBERS:
        node.replace_uses(drawn)
        graph.erase(node)
        return
    assert isinstance(node.type, TupleType)
    out = node.type.elements[0]
    assert isinstance(out, TensorType)
    wide = DType.FLOAT64 if out.dtype is DType.FLOAT64 else DType.FLOAT32
    with graph.inserting_before(node):
        x, mask = (cast(graph, value, wide, scope=node.scope) for value in (node.operand(0), drawn))
        scale = graph.constant(scalar_tensor(wide.value, float(np.float32(1 / draw.keep))))
        kept = graph.create("Mul", [x, mask], scope=node.scope, sources=[node])
        scaled = graph.create("Mul", [kept, scale], scope=node.scope, sources=[node])
        both = graph.create("MakeTuple", [cast(graph, scaled, out.dtype, scope=node.scope), drawn], scope=node.scope)
    node.replace_uses(both)
    graph.erase(node)
