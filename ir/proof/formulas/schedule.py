"""A schedule: update number n, counted from 0, takes the learning rate r(n), and the last one where the list has ended.

The original is stated with its rates set. A state that holds a rate is r(n) before anything reads it. A rate that is a
constant, an element of a list, or computed gives way to r(n). n is the count of updates before this one. The numbers
r(0), r(1), … follow from the options alone, up to the rounding of float32. Rates of groups keep their ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...analysis.effects.state_access import states_behind
from ...analysis.functions.calls import bindings
from ...analysis.training.rates import Updates, list_of
from ...builders.nodes import Nodes
from ...core.attributes import TensorValue
from ...core.data import from_numpy, numbers
from ...core.graph import Constant, Graph, Node, State, Use, Value, tensor_type
from ...core.predicates import written_operands
from ...core.program import Program, StateVariable
from ...core.types import DType, TensorType, tensor
from ...core.walk import through
from ...core.wording import counted
from ...rewrite.effects.editing import Effects
from ...symbolic.execution import Unproved
from . import freeze
from .records import options_of, updates_by_condition
from .statement import Stated

if TYPE_CHECKING:
    import numpy as np

PASS = "schedule"
_PARTS = {"one-cycle": (1 / 25, 1 / 25 / 1e4)}
"""The first and the last rate, as parts of the largest, where the options leave them out; 0 else."""


@dataclass
class Rate:
    """``numbers``: what the original knows of it. ``state``: that which holds it; else ``sites`` take it."""

    numbers: tuple[float, ...] | None
    state: State | None
    sites: list[Use] = field(default_factory=list)
    weights: dict[str, None] = field(default_factory=dict)


def with_rates(original: Program, program: Program) -> Program:
    """The original with the rates of the schedule."""
    options = options_of(program, PASS)
    if options is None:
        return original
    base = original.copy()
    (graph,) = base.graphs.values()
    # A rate goes with the updates of weights that are frozen.
    rates = [r for r in rates_of(base, graph) if r.weights.keys() - freeze.for_good(program, r.weights)]
    own = {n: v for n, v in program.state.items() if n not in base.state}
    tables = [n for n, v in own.items() if v.role == "fixed"]
    held = iter([n for n, v in own.items() if v.role == "hyperparameter" and v.dtype.is_float and v.shape == ()])
    fx, w = Effects(graph), Nodes(graph, "")
    step = _count(base, own, fx, w)
    for rate, wanted in zip(rates, _wanted(rates, options), strict=True):
        name = _table(tables, program, wanted)
        tables.remove(name)
        right = _right(program.state[name], wanted)
        type_, data = (own[name].type, own[name].data) if right else from_numpy(wanted)
        base.add_state(name, type_, "fixed", data)
        last = w.number(type_.size - 1, tensor_type(step).dtype.value)
        at, table = w.op("Minimum", step, last), fx.load(graph.state(name, type_))
        number = graph.create("Gather", [table, at, graph.constant(0), graph.constant(0)], tensor("float32"))
        if rate.state is not None:
            kind = tensor_type(rate.state)
            fx.append("Assign", [rate.state, w.reshape(w.cast(number, kind.dtype), *kind.shape)])
            fx.list.insert(0, fx.list.pop())
            continue
        for user, i in rate.sites:
            kind = tensor_type(user.operand(i))
            user.set_operand(i, w.cast(w.reshape(number, *kind.shape), kind.dtype))
        shown = next(held, None)
        if shown is None:
            raise Unproved("the program has no state for a rate of its own")
        base.add_state(shown, tensor("float32"), "hyperparameter", from_numpy(numbers(type_, data)[:1].reshape(()))[1])
        fx.append("Assign", [graph.state(shown, tensor("float32")), number])
    fx.commit()
    used = {n for n in graph.states if graph.states[n].uses}
    for name in [n for n, v in base.state.items() if v.role == "hyperparameter" and n not in {*used, *program.state}]:
        del base.state[name]  # a list of rates that nothing takes any more
    return base


def uncounted(original: Program, program: Program) -> str:
    """Why nothing says which update takes which rate; "" where a formula does."""
    weights = [name for name, v in original.state.items() if v.role == "weight"]
    if options_of(program, PASS) is None or not any(updates_by_condition(g, weights) for g in original.graphs.values()):
        return ""
    return "the original updates under a condition of its own, and no formula counts such updates: law missing"


def rates_of(program: Program, graph: Graph) -> Iterator[Rate]:
    """The learning rates of a graph, in the order of the updates that take them first."""
    bound, found, asked = bindings(graph), dict[object, Rate](), Updates(program, graph)
    for node in graph.all_nodes():
        written = [s for i in written_operands(node) for s in states_behind(node.operand(i), bound)]
        weights = [s.name for s in written if program.state[s.name].role == "weight"]
        if not weights or program.state[weights[0]].trainable is False:
            continue
        for source, site in asked.rates(node):
            key = source.value if isinstance(source, Constant) else source
            rate = found.get(key)
            if rate is None:
                rate = found[key] = Rate(_numbers(program, source), source if isinstance(source, State) else None)
            rate.weights.update(dict.fromkeys(weights))
            if site not in rate.sites:
                rate.sites.append(site)
    yield from found.values()


def _numbers(program: Program, source: Value) -> tuple[float, ...] | None:
    """What the original knows of a rate: its value, or those of a list that the number of updates chooses from."""
    state = source if isinstance(source, State) else list_of(source)
    if state is not None:
        variable = program.state[state.name]
        return tuple(float(x) for x in numbers(variable.type, variable.data).reshape(-1))
    value = source.literal
    if isinstance(value, TensorValue):
        return tuple(float(x) for x in numbers(value.type, value.data).reshape(-1))
    return (float(value),) if isinstance(value, (int, float)) else None


def _count(base: Program, own: Mapping[str, StateVariable], fx: Effects, w: Nodes) -> Value:
    """The number of updates before this one: the original's count, or one that the program brings along."""
    (graph,) = base.graphs.values()
    name = next((n for n, v in own.items() if v.role == "hyperparameter" and v.type == tensor("int32")), None)
    if name is not None:
        base.add_state(name, tensor("int32"), "hyperparameter")
        step = fx.load(graph.state(name, tensor("int32")))
        fx.append("Assign", [graph.state(name), w.op("Add", step, w.number(1, "int32"))])
        return step
    bound = bindings(graph)
    counts = {
        s.name
        for node in graph.all_nodes()
        if node.op.name == "AssignAdd" and _is_one(node.operand(1))
        for s in states_behind(node.operand(0), bound)
        if base.state[s.name].role == "hyperparameter"
    }
    if not counts:
        raise Unproved("nothing counts the updates that a schedule chooses rates by")
    name = min(counts)
    return w.reshape(fx.load(graph.state(name, base.state[name].type)))


def _is_one(value: Value) -> bool:
    one = value.literal
    if not isinstance(one, TensorValue) or one.type.dtype.is_float or one.type.size != 1:
        return False
    return bool(numbers(one.type, one.data).reshape(-1)[0] == 1)


def _wanted(rates: Sequence[Rate], options: Mapping[str, Any]) -> Iterator[np.ndarray]:
    """The numbers of each rate."""
    largest = [max(rate.numbers) if rate.numbers else None for rate in rates]
    top = max(options["table"]) if options["kind"] == "table" else options["lr"]
    if None in largest and (len(rates) > 1 or top is None):
        raise Unproved("a learning rate that the graph computes has no largest value")
    known = [x for x in largest if x is not None]
    top = max(known) if top is None else top
    for own in largest:
        yield _rates(top if own is None or own == max(known) else top * own / max(known), options)


def _rates(peak: float, options: Mapping[str, Any]) -> np.ndarray:
    """r(0), r(1), … up to the last that differs, in double precision, as float32."""
    import numpy as np

    kind, total = options["kind"], options["total"]
    if kind == "table":
        table = np.array(options["table"], np.float64)
        return (table * (peak / (max(options["table"]) or 1))).astype(np.float32)
    first, last = _PARTS.get(kind, (0.0, 0.0))
    first = peak * (first if options["start"] is None else options["start"])
    last = peak * (last if options["end"] is None else options["end"])
    warmup = options["warmup"]
    warmup = (int(0.3 * total) if kind == "one-cycle" else 0) if warmup is None else warmup
    if kind != "constant" and total <= warmup:
        raise Unproved(f"the record of the schedule warms up over {counted(warmup, 'update')} of {total}")
    up = np.arange(warmup) / max(warmup, 1)
    down = np.arange(total - warmup + 1) / (total - warmup) if kind != "constant" else np.zeros(1)
    if kind == "one-cycle":
        up = (1 - np.cos(np.pi * up)) / 2
    if kind in ("cosine", "one-cycle"):
        down = (1 - np.cos(np.pi * down)) / 2
    rates: np.ndarray = np.concatenate([first + (peak - first) * up, peak + (last - peak) * down])
    return rates.astype(np.float32)


def _right(table: StateVariable, wanted: np.ndarray) -> bool:
    """Whether a state holds these numbers, up to the last digits of float32."""
    import numpy as np

    if table.type != TensorType(DType.FLOAT32, wanted.shape):
        return False
    return bool(np.allclose(numbers(table.type, table.data), wanted, rtol=3e-7, atol=1e-7 * float(wanted.max())))


def _table(tables: Sequence[str], program: Program, wanted: np.ndarray) -> str:
    """The state with these numbers; where there is none, the first that may have been meant."""
    if not tables:
        raise Unproved("the program has no list of learning rates")
    return next((n for n in tables if _right(program.state[n], wanted)), tables[0])


def state(original: Program, program: Program) -> list[Stated]:
    """``original``: with the rates."""
    options = options_of(program, PASS)
    if options is None:
        return []
    (graph,) = original.graphs.values()
    rates = list(rates_of(original, graph))
    weights = sorted({weight for rate in rates for weight in rate.weights})
    set_ = [n for n in graph if n.op.name == "Assign" and n.operand(0).name not in weights]
    sources = ((node.operand(0).name, through(node.operand(1), ("Cast", "Reshape", "Depend"))) for node in set_)
    held = tuple(name for name, v in sources if isinstance(v, Node) and v.op.name == "Gather")
    says = f"update n takes the learning rate r(n): {_says(options)}"
    return [Stated(PASS, options, says, tuple(weights), held)]


def _says(options: Mapping[str, Any]) -> str:
    kind, lr = options["kind"], options["lr"]
    if kind == "table":
        return f"element n of a list of {counted(len(options['table']), 'rate')}, or the last"
    end = f" to update {options['total']}" if options["total"] else ""
    warmup = f", behind {counted(options['warmup'], 'update')} of warm-up" if options["warmup"] else ""
    return f"{kind}{end}{warmup}, at most {'the largest of the file' if lr is None else f'{lr:g}'}"
