"""Whether two graphs, or two programs, are the same: by structure and bits, whatever their nodes are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boost_compile.ir.analysis.compare.equal import same, same_data
from boost_compile.ir.core.graph import Constant, Graph, GraphRef, Node, Value
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.types import Type


def structurally_equal(a: Graph, b: Graph) -> str | None:
    """None when the graphs are equal, else the first difference in one line.

    Compared, in this order: names of functions, outputs, attributes, info, inputs, states, nodes (op by bits, operands
    by position, type, scope, marks, primal, origin), result, and so each function. Not compared: names of nodes and
    constants, the graph's own name, the order of attributes.
    """
    main = a.owner is None
    if main and list(a.functions) != list(b.functions):
        return _differ("functions", list(a.functions), list(b.functions))
    difference = _bodies(a, b, "")
    if difference or not main:
        return difference
    for name, function in a.functions.items():
        difference = _bodies(function, b.functions[name], f"function '{name}': ")
        if difference:
            return difference
    return None


def programs_equal(a: Program, b: Program) -> str | None:
    """As :func:`structurally_equal`, for all graphs; also target, pipeline, schedule, notes, state with bytes."""
    for what in ("name", "target", "pipeline", "schedule"):
        left, right = getattr(a, what), getattr(b, what)
        if left != right:
            return _differ(what, left, right)
    for what in ("metadata", "source"):
        if not same(getattr(a, what), getattr(b, what)):
            return _differ(what, getattr(a, what), getattr(b, what))
    if list(a.state) != list(b.state):
        return _differ("state", list(a.state), list(b.state))
    for name, variable in a.state.items():
        other = b.state[name]
        for what in ("name", "type", "role", "trainable", "weight"):
            left, right = getattr(variable, what), getattr(other, what)
            if left != right:
                return _differ(f"state '{name}': {what}", left, right)
        if not same(variable.info, other.info):
            return _differ(f"state '{name}': info", variable.info, other.info)
        if not same_data(variable.data, other.data):
            return f"state '{name}': the initial values differ"
    if list(a.graphs) != list(b.graphs):
        return _differ("graphs", list(a.graphs), list(b.graphs))
    for name, graph in a.graphs.items():
        difference = structurally_equal(graph, b.graphs[name])
        if difference:
            return f"graph '{name}': {difference}"
    return None


class _Twins:
    """Which value of the second graph stands for which of the first."""

    def __init__(self, a: Graph, b: Graph):
        self._of: dict[Value, Value] = {}
        self._of.update(zip(a.inputs, b.inputs, strict=True))
        self._of.update((v, b.states[name]) for name, v in a.states.items())
        self._of.update(zip(a, b, strict=True))

    def are(self, x: Value, y: Value) -> bool:
        if self._of.get(x) is y:
            return True
        if isinstance(x, Constant):
            # One constant may be two in the other graph: what counts is its bits.
            alike = isinstance(y, Constant) and x.type == y.type and same(x.value, y.value)
        elif isinstance(x, GraphRef):
            alike = isinstance(y, GraphRef) and x.graph.name == y.graph.name and x.type == y.type
        else:
            return False
        if alike:
            self._of[x] = y
        return alike


def _bodies(a: Graph, b: Graph, where: str) -> str | None:
    if a.outputs != b.outputs:
        return _differ(where + "outputs", a.outputs, b.outputs)
    for what in ("attributes", "info"):
        if not same(getattr(a, what), getattr(b, what)):
            return _differ(where + what, getattr(a, what), getattr(b, what))
    for what, left, right in (
        ("inputs", a.inputs, b.inputs),
        ("states", list(a.states.values()), list(b.states.values())),
    ):
        if len(left) != len(right):
            return _differ(where + what, [v.name for v in left], [v.name for v in right])
        for x, y in zip(left, right, strict=True):
            if x.name != y.name or x.type != y.type:
                return f"{where}{what}: %{x.name}: {x.type} ≠ %{y.name}: {y.type}"
    if len(a) != len(b):
        return _differ(where + "number of nodes", len(a), len(b))
    twins = _Twins(a, b)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        difference = _nodes(x, y, twins)
        if difference:
            return f"{where}node {i}, {_shown(x)}: {difference}"
    if a.has_result != b.has_result:
        return _differ(where + "has a result", a.has_result, b.has_result)
    if a.has_result and not twins.are(a.result, b.result):
        return f"{where}result: {_shown(a.result)} ≠ {_shown(b.result)}"
    return None


def _nodes(x: Node, y: Node, twins: _Twins) -> str | None:
    p, q = x.op, y.op
    if p is not q and (p.key, p.instance, p.kind) != (q.key, q.instance, q.kind):
        if p.name != q.name:
            return _differ("primitive", p.name, q.name)
        if p.key != q.key:
            return _differ("attributes", dict(p.attributes), dict(q.attributes))
        what = "instance" if p.instance != q.instance else "kind"
        return _differ(what, getattr(p, what), getattr(q, what))
    if x.num_operands != y.num_operands:
        return _differ("number of operands", x.num_operands, y.num_operands)
    for i, (left, right) in enumerate(zip(x._operands, y._operands, strict=True)):
        if not twins.are(left, right):
            return f"operand {i}: {_shown(left)} ≠ {_shown(right)}"
    if x.type != y.type:
        return _differ("type", x.type, y.type)
    for what in ("scope", "origin"):
        if getattr(x, what) != getattr(y, what):
            return _differ(what, getattr(x, what), getattr(y, what))
    for what in ("marks", "primal"):
        if not same(getattr(x, what), getattr(y, what)):
            return _differ(what, dict(getattr(x, what)), dict(getattr(y, what)))
    return None


def _shown(value: Value) -> str:
    if isinstance(value, Constant):
        return f"constant {_short(value.value)}"
    return f"@{value.name}" if isinstance(value, GraphRef) else f"%{value.name}"


def _differ(what: str, left: Any, right: Any) -> str:
    """``what: left ≠ right``; of long lists and mappings only what differs."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = [k for k in {**left, **right} if k not in left or k not in right or not same(left[k], right[k])]
        left = {k: left[k] for k in keys if k in left}
        right = {k: right[k] for k in keys if k in right}
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)) and len(left) == len(right):
        for i, (x, y) in enumerate(zip(left, right, strict=True)):
            if x != y:
                return f"{what} [{i}]: {_short(x)} ≠ {_short(y)}"
    return f"{what}: {_short(left)} ≠ {_short(right)}"


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, (Type, int, float)) else repr(value)
    text = text.replace("\n", " ")
    return text if len(text) <= 120 else text[:119] + "…"
