"""Another optimizer: the gradient that reached the old update reaches the new one, which does what its paper says.

The original is stated with the new updates. A gradient is taken where the original has clipped it, if it does, and
without the decay and the centralization of the optimizer that goes. Its slots and counts go too. States of the new
optimizer begin as the paper says; weights that do not match keep their update. Which stage of a gradient is which is
read off by the analysis of its path.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from ...analysis.training.anatomy import TrainingAnatomy
from ...analysis.training.gradient_path import gradient_paths
from ...analysis.training.own_writes import own_writes
from ...analysis.training.rates import Updates
from ...builders.nodes import Nodes
from ...core.data import Data, from_numpy, numbers
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.names import average_of
from ...core.primitives import CPU
from ...core.program import Program, StateVariable
from ...core.spec import Spec, parse_spec
from ...core.types import DType, TensorType, tensor
from ...core.walk import result_value
from ...rewrite.effects.editing import Effects
from ...rewrite.stages import summed
from ...symbolic.execution import Unproved
from . import freeze
from .optimizers import COUNT, RATE, Optimizer, Step, with_name
from .records import anatomy_of, updates_by_condition
from .schedule import rates_of
from .statement import Stated

PASS = "replace-optimizer"


@dataclass(frozen=True)
class New:
    """A state of the new optimizer; ``data``: what it begins with, None for 0. ``weight``: whose slot it is."""

    name: str
    type: TensorType
    role: str
    data: Data | None = None
    weight: str = ""


def with_optimizers(original: Program, program: Program) -> Program:
    """The original with the optimizers that the program's options name."""
    for k, report in enumerate(program.reports):
        if report.name == PASS:
            before = replace(program, reports=program.reports[:k])
            original = _exchanged(original, program, report.options, before)
    return original


def state(original: Program, program: Program) -> list[Stated]:
    """``original``: with the optimizers."""
    stated = []
    for options in _asked(program):
        _, optimizer = _optimizer(options, program.target)
        weights = [n for n, v in original.state.items() if v.role == "weight"]
        slots = {v.weight for v in original.state.values()}
        own = tuple(w for w in _matching(weights, options) if w in slots)
        stated.append(Stated(PASS, options, f"optimizer {options['to']}: {optimizer.says}", own))
    return stated


def _asked(program: Program) -> list[Mapping[str, Any]]:
    return [r.options for r in program.reports if r.name == PASS]


def _optimizer(options: Mapping[str, Any], target: str) -> tuple[Spec, Optimizer]:
    spec = parse_spec(options["to"], "optimizer")
    found = with_name(spec.name)
    if found is None or (spec.name.lower() == "lamb" and target != CPU):
        raise Unproved(f"no formula says what MindSpore's optimizer '{spec.name}' does: law missing")
    return spec, found


def _matching(weights: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    return [w for w in weights if any(fnmatchcase(w, glob) for glob in options["match"])]


def _exchanged(original: Program, program: Program, options: Mapping[str, Any], before: Program) -> Program:
    """``before``: the program with the records of earlier passes alone, which may have frozen weights."""
    spec, optimizer = _optimizer(options, program.target)
    base = original.copy()
    (graph,) = base.graphs.values()
    found = anatomy_of(graph)
    paths = {path.weight: path for path in gradient_paths(graph, found)}
    matching = _matching(list(paths), options)
    still = freeze.for_good(before, matching)
    weights = {n: base.state[n] for n in matching if n not in still}
    if not weights:
        raise Unproved("no weight is trained that another optimizer was asked for")
    given = {"lr" if key in (RATE, "learning-rate") else key.replace("-", "_"): v for key, v in spec.options.items()}
    rate = _old_rate(base, graph, weights, options)
    told = {**optimizer.defaults, **rate, **{key: float(value) for key, value in given.items()}}
    if told.keys() != optimizer.defaults.keys():
        raise Unproved(f"optimizer '{spec.name}' takes none of what is told besides {', '.join(optimizer.defaults)}")
    asked = Updates(base, graph)  # what the file decays goes on decaying; all do where it decays none
    decaying = {i.name for i in found.weights if i.name in weights and asked.decays(i.name, i.updates)} or {*weights}
    slots = [f"{optimizer.slots(v)[0]}.{n}" for n, v in weights.items()]
    added = [n for n in program.state if n not in base.state]
    prefix = next((n.removesuffix(slot) for slot in slots for n in added if n.endswith(slot)), "")
    own = _states(optimizer, weights, prefix, told)
    w = Nodes(graph, "")
    taken = [w.cast(summed(paths[n].at("clip", graph)), v.dtype) for n, v in weights.items()]
    gradients, behind = _without(base, program, found, weights, {new.name for new in own.values()}, taken)
    fx = Effects(graph)
    at = next((i for i, e in enumerate(fx.list) if e.node in behind), len(fx.list))
    rest = fx.list[at:]
    del fx.list[at:]  # what the cell does to the new weights by itself comes behind their update
    for new in own.values():
        base.state.pop(new.name, None)
        base.add_state(new.name, new.type, new.role, new.data, new.weight)
    states = {**{n: graph.state(n, v.type) for n, v in weights.items()},
              **{key: graph.state(new.name, new.type) for key, new in own.items()}}  # fmt: skip
    read: dict[str, Value] = {}

    def held(name: str) -> Value:
        if name not in read:
            read[name] = w.cast(fx.load(states[name]), DType.FLOAT32)
        return read[name]

    step = Step(w, told, weights, {n: w.cast(g, DType.FLOAT32) for n, g in gradients.items()}, held, decaying)
    for name in weights:
        optimizer.step(step, name)
    for name, value in step.leaves.items():
        fx.append("Assign", [states[name], w.cast(value, tensor_type(states[name]).dtype)])
    fx.append("AssignAdd", [states[COUNT], w.number(1, "int32")])
    fx.list += rest
    result = result_value(graph)
    assert isinstance(result, Node)
    fx.commit(result.operand(0))
    return base


def _old_rate(
    base: Program, graph: Graph, weights: Mapping[str, StateVariable], options: Mapping[str, Any]
) -> dict[str, float]:
    """The learning rate of the update that goes, where there is one."""
    rates = [r for r in rates_of(base, graph) if r.weights.keys() & weights.keys()]
    if options["keep_schedule"] and any(r.numbers is None or len({*r.numbers}) > 1 for r in rates):
        raise Unproved("a learning rate goes on changing with another optimizer: law missing")
    largest = {max(r.numbers) for r in rates if r.numbers}
    return {"lr": largest.pop()} if len(largest) == 1 else {}


def _states(
    optimizer: Optimizer, weights: Mapping[str, StateVariable], prefix: str, told: Mapping[str, float]
) -> dict[str, New]:
    """The states of the optimizer, by their names without the prefix that the program gives them."""
    import numpy as np

    def number(name: str, value: float | None = None) -> New:
        data = None if value is None else from_numpy(np.float32(value).reshape(()))[1]
        return New(prefix + name, tensor("float32"), "hyperparameter", data)

    slots = {name: optimizer.slots(v) for name, v in weights.items()}
    own = {COUNT: New(prefix + COUNT, tensor("int32"), "hyperparameter"), RATE: number(RATE, told["lr"])}
    if any(len(of) > 1 for of in slots.values()):
        own |= {power: number(power, 1.0) for power in optimizer.powers}
    own |= {total: number(total) for total in optimizer.sums}
    for name, of in slots.items():
        variable = weights[name]
        copy = from_numpy(numbers(variable.type, variable.data).astype("float32"))[1]
        for slot in of:
            key = average_of(name) if slot == "average" else f"{slot}.{name}"
            full = key if slot == "average" else prefix + key
            begins = copy if slot in optimizer.copies else None
            own[key] = New(full, TensorType(DType.FLOAT32, variable.shape), "slot", begins, name)
    return own


def _without(
    base: Program, program: Program, found: TrainingAnatomy, weights: Mapping[str, StateVariable],
    own: Collection[str], taken: Sequence[Value],
) -> tuple[dict[str, Value], set[Node]]:  # fmt: skip
    """Takes the updates of these weights out, with the states that only they have. The graph then returns its result
    and their gradients, which are given back, with the effects behind the updates."""
    graph, fx = found.graph, Effects(found.graph)
    kept = {n for n, v in program.state.items() if v.role == "slot"}  # an average of the cell's own, of that name
    slots = {s for info in found.weights if info.name in weights for s in info.slots if s in own or s not in kept}
    gone = {*weights, *slots, *(n for n, v in base.state.items() if v.role == "hyperparameter"
                                and (n in own or n not in program.state))}  # fmt: skip
    stays = own_writes(graph, found)
    updates = [e for e in fx.list if not e.passive and {s.name for s in e.writes} & gone and e.node not in stays]
    nodes = {e.node for e in updates}
    first = next((i for i, e in enumerate(fx.list) if e.node in nodes), 0)
    if any(stays.get(e.node) in weights for e in fx.list[:first]):
        raise Unproved("the cell writes weights by itself in front of their update: law missing")
    behind = {e.node for e in fx.list[first:] if e.node not in nodes and {s.name for s in e.touched} & gone}
    if updates_by_condition(graph, gone):
        raise Unproved(
            "the original updates under a condition of its own, where no formula puts an optimizer: law missing"
        )
    fx.drop(updates)
    fx.commit(graph.create("MakeTuple", [result_value(graph), *taken]))
    for name in [n for n, s in graph.states.items() if not s.uses]:
        del graph.states[name]
    for name in gone - graph.states.keys() - weights.keys():
        del base.state[name]
    result = result_value(graph)
    assert isinstance(result, Node)
    return dict(zip(weights, result.operands[1:], strict=True)), behind
