"""A quasi-Newton line search in a subspace of all weights, as nodes of graphs: the formulas, and the state they keep.

Source: ``mindspore/boost/dim_reduce.py`` 2.10 (class DimReduce) and its documentation. With the orthonormal rows P of
the basis, a matrix P_w for each weight w; the gradient g, which is P_w's own part g_w for each weight; k the number of
rows. All in float32:

direction, once a cycle
    g_k = Σ_w P_w·g_w,   y = g_k − g_last
    if y'·s > 1e-20:   p = 1/(y'·s),   T = I − p·y·s',   B_next = T'·B·T + p·s·s'   (BFGS, of the inverse Hessian)
    else:              B_next = B
    d = −B_next·g_k,   slope = g_k'·d
    r ← γ·r + g − P'·g_k
trial m = 0, 1, …, at most max_trials
    accepted if   loss(w + ρ^m·P'·d) < loss(w) + σ·ρ^m·slope
end
    accepted:   w ← w − (α·r − ρ^m·P'·d),   s ← ρ^m·d,   B ← B_next,   g_last ← g_k
    none:       w ← w − α·r,   and s, B, g_last stay

The documentation has no BFGS update, and does not say what happens when no m is found; there the source decides. Where
the source contradicts the documentation's formulas, they decide: it tries m = 0 and m = 1 only, with a loss scale it
projects another gradient than it adds to the residual, and over ranks it rounds mean losses down to whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import all_finite
from ...ir.core.attributes import TensorValue
from ...ir.core.data import from_numpy
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.names import ACCEPTED, OVERFLOW, ROWS, SKIPPED_CYCLES, TRIALS_MADE
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType, tensor
from ...ir.rewrite.effects.editing import Effects
from ..step.tally import declare_tally

SCOPE = "dim-reduce"
PREFIX = "dim_reduce."
BASIS, RESIDUAL, DIRECTION, SHADOW = (PREFIX + part for part in ("basis.", "residual.", "direction.", "trial."))
"""State of each weight: P_w [k, elements]; r; P'·d; where the trial is."""
HESSIAN, GRADIENT, STEP = (PREFIX + part for part in ("inverse_hessian", "last_gradient", "last_step"))
"""B [k, k], g_last and s [k, 1]."""
NEXT_HESSIAN, NEXT_GRADIENT, SUBSPACE_DIRECTION = (
    PREFIX + part for part in ("next_inverse_hessian", "gradient", "subspace_direction")
)
"""The quantities of this cycle's search: B_next, g_k and d."""
LOSS, TRIAL_LOSS = PREFIX + "loss", PREFIX + "trial_loss"
"""Sums over the cycle's micro-batches."""
BASE, SLOPE, LENGTH, SHARE = (PREFIX + part for part in ("base_loss", "slope", "step_length", "micro_batches"))
"""loss(w), g_k'·d, ρ^m, and what sums of losses are divided by."""
TRIALS, PENDING, REJECTED, SKIPPED = (
    PREFIX + part for part in ("trials", "pending", "rejected_cycles", "skipped_cycles")
)
CURVATURE = 1e-20
"""Below this y'·s does not say how the loss is curved, as upstream."""


@dataclass(frozen=True, slots=True)
class Subspace:
    """The constants of the search, and the types of the weights by name."""

    components: int
    weights: Mapping[str, TensorType]
    rho: float
    gamma: float
    alpha: float
    sigma: float
    max_trials: int


def declare(program: Program, space: Subspace, basis: Mapping[str, object]) -> None:
    """Adds all state but that of trials."""
    import numpy as np

    k = space.components
    for name, type_ in space.weights.items():
        basis_type, data = from_numpy(basis[name])  # type: ignore[arg-type]
        plain = TensorType(DType.FLOAT32, type_.shape)
        program.add_state(BASIS + name, basis_type, "fixed", data, weight=name).info[ROWS] = True
        program.add_state(RESIDUAL + name, plain, "slot", weight=name)
        program.add_state(DIRECTION + name, plain, "carried", weight=name)
    program.add_state(HESSIAN, tensor("float32", k, k), "slot", from_numpy(np.eye(k, dtype=np.float32))[1])
    program.add_state(NEXT_HESSIAN, tensor("float32", k, k), "carried")
    for name, role in ((GRADIENT, "slot"), (STEP, "slot"), (NEXT_GRADIENT, "carried"), (SUBSPACE_DIRECTION, "carried")):
        program.add_state(name, tensor("float32", k, 1), role)
    for name in (BASE, SLOPE, LENGTH):
        program.add_state(name, tensor("float32"), "carried")
    program.add_state(TRIAL_LOSS, tensor("float32"), "carried")
    program.add_state(SHARE, tensor("float32"), "carried")
    for name in (TRIALS, PENDING):
        program.add_state(name, tensor("int32"), "carried")
    for name in (REJECTED, SKIPPED):
        program.add_state(name, tensor("int32"), "counter")


def begin_search(
    fx: Effects, space: Subspace, gradients: Mapping[str, Value], loss: Value, share: Value
) -> list[tuple[str, Value]]:
    """The direction, the residual and the first trial's weights, in place of an optimizer; returns named results.

    ``loss`` is that of the cycle at its weights, ``share`` what sums of losses are divided by. A cycle with a gradient
    or a loss that is not finite changes nothing and has no trial.
    """
    a = _Algebra(fx)
    k = space.components
    rows = {name: a.load(BASIS + name, k, type_.size) for name, type_ in space.weights.items()}
    residuals = {name: a.load(RESIDUAL + name, *type_.shape) for name, type_ in space.weights.items()}
    flat = {
        name: a.cast(gradients[name], DType.FLOAT32)
        if name in gradients
        else a.op("ZerosLike", residuals[name])  # the loss does not depend on it
        for name in space.weights
    }
    parts = [a.matmul(rows[w], a.reshape(flat[w], type_.size, 1)) for w, type_ in space.weights.items()]
    gradient = a.sum(parts)
    # Every element of every gradient is in each of these sums: one that is not finite shows.
    finite = all_finite(a.graph, [gradient, loss], scope=SCOPE)

    hessian, last, step = a.load(HESSIAN, k, k), a.load(GRADIENT, k, 1), a.load(STEP, k, 1)
    change = a.op("Sub", gradient, last)
    curvature = a.reshape(a.matmul(change, step, transpose_a=True))
    curved = a.op("Greater", curvature, a.number(CURVATURE))
    one = a.number(1.0)
    p = a.op("RealDiv", one, a.op("Select", curved, curvature, one))
    eye = a.graph.constant(_eye(k))
    turn = a.op("Sub", eye, a.matmul(a.op("Mul", p, change), step, transpose_b=True))
    turned = a.matmul(a.matmul(turn, hessian, transpose_a=True), turn)
    updated = a.op("Add", turned, a.matmul(a.op("Mul", p, step), step, transpose_b=True))
    updated = a.op("Select", curved, updated, hessian)
    direction = a.op("Neg", a.matmul(updated, gradient))
    slope = a.reshape(a.matmul(gradient, direction, transpose_a=True))

    for name, type_ in space.weights.items():
        whole = a.reshape(a.matmul(rows[name], direction, transpose_a=True), *type_.shape)
        inside = a.reshape(a.matmul(rows[name], gradient, transpose_a=True), *type_.shape)
        residual = a.op("Mul", a.number(space.gamma), residuals[name])
        new = a.op("Sub", a.op("Add", residual, flat[name]), inside)
        a.assign(RESIDUAL + name, a.op("Select", finite, new, residuals[name]))
        a.assign(DIRECTION + name, whole)
        weight = fx.load(a.graph.state(name, type_), scope=SCOPE)
        moved = a.op("Add", a.cast(weight, DType.FLOAT32), whole)
        a.assign(SHADOW + name, a.cast(moved, type_.dtype))
    for name, value in (
        (NEXT_HESSIAN, updated), (NEXT_GRADIENT, gradient), (SUBSPACE_DIRECTION, direction), (BASE, loss),
        (SLOPE, slope), (LENGTH, one), (SHARE, share), (TRIAL_LOSS, a.number(0.0)),
    ):  # fmt: skip
        a.assign(name, value)
    zero = a.number(0, "int32")
    a.assign(TRIALS, zero)
    a.assign(PENDING, a.cast(finite, DType.INT32))
    skipped = a.op("Select", finite, zero, a.op("Add", a.load(SKIPPED, dtype="int32"), a.number(1, "int32")))
    a.assign(SKIPPED, skipped)
    return [(OVERFLOW, a.op("LogicalNot", finite)), (SKIPPED_CYCLES, skipped)]


def judge(space: Subspace) -> Graph:
    """The graph that accepts a trial or moves to the next one, and updates the weights when the search is over."""
    graph = Graph("judge")
    graph.editor = SCOPE
    graph.result = graph.constant(None)  # replaced at commit
    fx = Effects(graph)
    a = _Algebra(fx)
    k = space.components
    length, base, slope = (a.load(name) for name in (LENGTH, BASE, SLOPE))
    loss = a.op("RealDiv", declare_tally(a.load(TRIAL_LOSS), "losses"), a.load(SHARE))
    bound = a.op("Add", base, a.op("Mul", a.op("Mul", a.number(space.sigma), length), slope))
    # What is not finite is not less than anything, or is minus infinity.
    finite = a.op("IsFinite", loss)
    accepted = a.op("LogicalAnd", a.op("Less", loss, bound), finite)
    trials = a.op("Add", a.load(TRIALS, dtype="int32"), a.number(1, "int32"))
    over = a.op("LogicalOr", accepted, a.op("GreaterEqual", trials, a.number(space.max_trials, "int32")))
    shorter = a.op("Mul", length, a.number(space.rho))
    for name, type_ in space.weights.items():
        stored = fx.load(graph.state(name, type_), scope=SCOPE)
        weight = a.cast(stored, DType.FLOAT32)
        direction = a.load(DIRECTION + name, *type_.shape)
        residual = a.op("Mul", a.number(space.alpha), a.load(RESIDUAL + name, *type_.shape))
        both = a.op("Sub", residual, a.op("Mul", length, direction))
        moved = a.op("Sub", weight, a.op("Select", accepted, both, residual))
        # Before the weight is written: the next trial starts from the same one.
        a.assign(SHADOW + name, a.cast(a.op("Add", weight, a.op("Mul", shorter, direction)), type_.dtype))
        a.assign(name, a.op("Select", over, a.cast(moved, type_.dtype), stored))
    for name, new in ((HESSIAN, NEXT_HESSIAN), (GRADIENT, NEXT_GRADIENT)):
        columns = k if name == HESSIAN else 1
        a.assign(name, a.op("Select", accepted, a.load(new, k, columns), a.load(name, k, columns)))
    step = a.op("Mul", length, a.load(SUBSPACE_DIRECTION, k, 1))
    a.assign(STEP, a.op("Select", accepted, step, a.load(STEP, k, 1)))
    a.assign(LENGTH, shorter)
    a.assign(TRIAL_LOSS, a.number(0.0))
    a.assign(TRIALS, trials)
    a.assign(PENDING, a.cast(a.op("LogicalNot", over), DType.INT32))
    failed = a.op("LogicalAnd", over, a.op("LogicalNot", accepted))
    rejected = a.op("Add", a.load(REJECTED, dtype="int32"), a.cast(failed, DType.INT32))
    a.assign(REJECTED, rejected)
    results = {
        TRIALS_MADE: trials,
        ACCEPTED: accepted,
        "step_length": a.op("Select", accepted, length, a.number(0.0)),
        "trial_loss": loss,
        "rejected_cycles": rejected,
    }
    graph.outputs = tuple(results)
    fx.commit(graph.create("MakeTuple", list(results.values())))
    return graph


def _eye(k: int) -> TensorValue:
    import numpy as np

    return TensorValue(*from_numpy(np.eye(k, dtype=np.float32)))


class _Algebra(Nodes):
    """The state of a search beside its arithmetic."""

    def __init__(self, fx: Effects):
        super().__init__(fx.graph, SCOPE)
        self.fx = fx

    def load(self, name: str, *shape: int, dtype: str = "float32") -> Node:
        return self.fx.load(self.graph.state(name, tensor(dtype, *shape)), scope=SCOPE)

    def assign(self, name: str, value: Value) -> None:
        t = tensor_type(value)
        self.fx.append("Assign", [self.graph.state(name, TensorType(t.dtype, t.shape)), value], scope=SCOPE)

    def sum(self, values: Sequence[Value]) -> Value:
        return values[0] if len(values) == 1 else self.op("AddN", self.op("MakeTuple", *values))
