"""The self-contained form: a whole program as one graph, for plain ``mindspore.load`` + ``nn.GraphCell``.

The schedule moves into the graph. The state that counts micro-batches says where in the cycle the step stands, and a
Switch picks what to run:

* ``accumulate x N, apply``: the main graph is ``accumulate``; when the count reaches N it calls ``apply``, else
  nothing;
* ``accumulate x (N-1), step``: the main graph calls ``step`` when the count stands at N-1, else ``accumulate``;
* a choice of variants: each variant, lowered in one of these ways, is a function; a table says which one a cycle runs.

A function may not use values of its caller, so the state that it touches is passed in, and its effect token last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...builders.branch import choose, zeros
from ...core.attributes import MonadValue, TensorValue, scalar_tensor
from ...core.data import from_numpy
from ...core.errors import Error
from ...core.graph import Constant, Graph, GraphRef, Node, State, Value
from ...core.inference import infer
from ...core.program import Program, Schedule, StateVariable
from ...core.types import UMONAD, TupleType, Type, tensor
from ...core.variants import Choice
from ...core.walk import result_value, through
from ...rewrite.effects.editing import Effects
from ...rewrite.ranks.adasum import needs_job

SCOPE = "schedule"


def lower_to_single_graph(program: Program) -> tuple[Graph, dict[str, StateVariable]]:
    """One graph that runs the program's cycle, one micro-batch a call, and the state it needs.

    Its results are those of the graph that takes the micro-batch, then those of the update graph: in calls that do not
    update, what a state holds where the result is a state (a loss scale), and else zero, or False. A result that both
    have is the update's in calls that update. Error for schedules that
    have no such form: use a program directory for them.
    """
    if program.schedule.search is not None:
        raise Error(
            "the program runs trials on the micro-batches of each cycle until one is accepted, which has no "
            "self-contained form; save a program directory"
        )
    if any(needs_job(graph) for graph in program.graphs.values()):
        raise Error(
            "the program combines the steps of groups of ranks (adasum), and what a rank does for that depends on the "
            "rank and on their number, so it has no self-contained form; save a program directory"
        )
    if program.schedule.choice is None:
        graph = _one_variant(program, program.schedule)
    else:
        graph = _chosen_variant(program, program.schedule.choice)
    return graph, {name: variable for name, variable in program.state.items() if name in graph.states}


def _one_variant(program: Program, schedule: Schedule) -> Graph:
    cycle = schedule.cycle
    if len(cycle) == 1 and cycle[0].repeat == 1:
        return program.graphs[cycle[0].graph].clone(program.name)[0]
    consuming = [e for e in cycle if program.graphs[e.graph].inputs]
    after = [e for e in cycle if not program.graphs[e.graph].inputs]
    if schedule.count is None:
        raise Error(f"schedule '{schedule}' counts nothing, so it has no self-contained form; save a program directory")
    if len(consuming) == 1 and len(after) == 1 and cycle[-1] is after[0] and after[0].repeat == 1:
        return _update_after(program, consuming[0].graph, consuming[0].repeat, after[0].graph)
    elif len(consuming) == 2 and not after and consuming[1].repeat == 1:
        return _update_instead(program, consuming[0].graph, consuming[0].repeat, consuming[1].graph)
    raise Error(f"schedule '{schedule}' has no self-contained form; save a program directory instead")


def _chosen_variant(program: Program, choice: Choice) -> Graph:
    variants = [_one_variant(program, program.schedule.variant(k)) for k in range(choice.variants)]
    graph, inputs = _like(program, variants[0])
    functions = [_as_function(graph, variant, f"variant_{k}") for k, variant in enumerate(variants)]
    skip = _skip(graph, functions[0], inputs)
    fx = Effects(graph)
    cycle = fx.load(graph.state(choice.state, program.state[choice.state].type), scope=SCOPE)
    due = _variant_due(graph, cycle, choice)
    results: list[Value] = []
    for k, function in enumerate(functions):
        here = graph.create("Equal", [due, graph.constant(scalar_tensor("int32", k))], scope=SCOPE)
        call = choose(graph, here, function, skip, inputs, scope=SCOPE)
        fx.adopt(call)
        mine = _items(graph, call, graph.outputs)
        if results:
            mine = [graph.create("Select", [here, a, b], scope=SCOPE) for a, b in zip(mine, results, strict=True)]
        results = mine
    fx.commit(results[0] if len(results) == 1 else graph.create("MakeTuple", results, scope=SCOPE))
    return graph


def _variant_due(graph: Graph, cycle: Value, choice: Choice) -> Value:
    """Looks the running cycle up in the table of the whole sequence, behind whose end stands variant 0."""
    sequence = [*choice.whole(), *(() if choice.repeat else (0,))]
    table = graph.constant(TensorValue(*from_numpy(np.array(sequence, np.int32))))
    last = graph.constant(scalar_tensor("int32", len(sequence) if choice.repeat else len(sequence) - 1))
    place = graph.create("FloorMod" if choice.repeat else "Minimum", [cycle, last], tensor("int32"), scope=SCOPE)
    zero = graph.constant(0)
    return graph.create("Gather", [table, place, zero, zero], tensor("int32"), scope=SCOPE)


def _update_after(program: Program, accumulate: str, steps: int, apply: str) -> Graph:
    graph, _ = program.graphs[accumulate].clone(program.name)
    count = graph.state(_count(program))
    fx = Effects(graph)
    loss = result_value(graph)
    update = _as_function(graph, program.graphs[apply], "update")
    skip = _skip(graph, update, ())
    done = graph.create(
        "GreaterEqual",
        [fx.load(count, scope=SCOPE, initial=False), graph.constant(scalar_tensor("float32", float(steps)))],
        scope=SCOPE,
    )
    call = choose(graph, done, update, skip, scope=SCOPE)
    fx.adopt(call)
    outputs = program.graphs[apply].outputs
    if outputs:
        mine = _elements(loss) if len(graph.outputs) > 1 else [loss] * len(graph.outputs)
        results = dict(zip(graph.outputs, mine, strict=True))
        held = _held_results(program.graphs[apply])
        for name, value in zip(outputs, _items(graph, call, outputs), strict=True):
            # What both say (has it overflowed?) the update knows better, when there is one.
            known = results.get(name)
            if known is None and name in held:
                known = fx.load(graph.state(held[name].name, held[name].type), scope=SCOPE, initial=False)
            results[name] = value if known is None else graph.create("Select", [done, value, known], scope=SCOPE)
        graph.outputs = tuple(results)
        loss = graph.create("MakeTuple", list(results.values()), scope=SCOPE)
    fx.commit(loss)
    return graph


def _held_results(graph: Graph) -> dict[str, State]:
    """The results of a graph that are what a state holds, by name."""
    value = result_value(graph)
    values = value.operands if isinstance(value, Node) and value.op.name == "MakeTuple" else (value,)
    found = {name: through(v, ("Depend", "Load")) for name, v in zip(graph.outputs, values, strict=False)}
    return {name: v for name, v in found.items() if isinstance(v, State)}


def _update_instead(program: Program, accumulate: str, repeat: int, step: str) -> Graph:
    source = program.graphs[step]
    graph, inputs = _like(program, source)
    count = graph.state(_count(program), program.state[_count(program)].type)
    full = _as_function(graph, source, "step")
    partial = _as_function(graph, program.graphs[accumulate], "accumulate")
    _pad_result(partial, source.outputs, program.graphs[accumulate].outputs, full.result.type)
    fx = Effects(graph)
    threshold = graph.constant(scalar_tensor("float32", float(repeat)))
    last = graph.create("GreaterEqual", [fx.load(count, scope=SCOPE), threshold], scope=SCOPE)
    call = choose(graph, last, full, partial, inputs, scope=SCOPE)
    fx.adopt(call)
    held = {n: s for n, s in _held_results(source).items() if n not in program.graphs[accumulate].outputs}
    if not held:
        fx.commit(call)
        return graph
    results = dict(zip(graph.outputs, _items(graph, call, graph.outputs), strict=True))
    for name, state in held.items():
        now = fx.load(graph.state(state.name, state.type), scope=SCOPE, initial=False)
        results[name] = graph.create("Select", [last, results[name], now], scope=SCOPE)
    fx.commit(graph.create("MakeTuple", list(results.values()), scope=SCOPE))
    return graph


def _like(program: Program, source: Graph) -> tuple[Graph, list[Value]]:
    """A graph that takes and returns what another does, still without nodes, and its inputs."""
    graph = Graph(program.name)
    graph.attributes, graph.info, graph.outputs = dict(source.attributes), dict(source.info), source.outputs
    inputs: list[Value] = [graph.add_input(v.name, v.type) for v in source.inputs]
    graph.result = graph.constant(None)  # replaced at commit
    return graph, inputs


def _count(program: Program) -> str:
    assert program.schedule.count is not None
    return program.schedule.count


def _elements(value: Value) -> list[Value]:
    if isinstance(value, Node) and value.op.name == "MakeTuple":
        return list(value.operands)
    graph = value.graph if isinstance(value, Node) else None
    if graph is None or not isinstance(value.type, TupleType):
        raise Error(f"{value!r} is no tuple of results")
    return _items(graph, value, ["" for _ in value.type.elements])


def _items(graph: Graph, value: Value, names: Sequence[str]) -> list[Value]:
    """The elements of a result with that many names (a single name: the value itself, if it is no tuple)."""
    if len(names) == 1 and not isinstance(value.type, TupleType):
        return [value]
    return [graph.create("TupleGetItem", [value, graph.constant(i)], scope=SCOPE) for i in range(len(names))]


def _as_function(main: Graph, source: Graph, name: str) -> Graph:
    """A copy of ``source`` as a function of ``main``: inputs, then its state, then the effect token."""
    copy, _ = source.clone()
    renamed = {name: main.add_function(name) for name in copy.functions}
    function = main.add_function(name)
    mapping: dict[Value, Value] = {}
    for value in copy.inputs:
        mapping[value] = function.add_input(value.name, value.type)
    for state in copy.states.values():
        mapping[state] = function.add_input(state.name, state.type)
    token = function.add_input("u", UMONAD)
    for old in copy.functions.values():
        for value in old.inputs:
            mapping[value] = renamed[old.name].add_input(value.name, value.type)
    for old in copy.functions.values():
        _move_body(old, renamed[old.name], mapping, renamed, None)
    _move_body(copy, function, mapping, renamed, token)
    function.outputs = source.outputs
    return function


def _move_body(
    source: Graph, target: Graph, mapping: dict[Value, Value], renamed: dict[str, Graph], token: Value | None
) -> None:
    """Moves nodes into another graph, operands mapped. ``token`` replaces the constant that starts the effect chain."""
    target.attributes = dict(source.attributes)
    target.editor = source.editor
    nodes = list(source)
    result = source.result
    operands = {node: node.operands for node in nodes}
    for node in nodes:
        node.set_operands(())
    source.result = Constant("moved", None)
    source.erase_all(nodes)

    def of(value: Value) -> Value:
        if isinstance(value, Node):
            return value
        if isinstance(value, GraphRef):
            return target.reference(renamed[value.graph.name])
        if isinstance(value, Constant):
            if token is not None and isinstance(value.value, MonadValue) and value.value.kind == "umonad":
                return token
            if value not in mapping:
                mapping[value] = Constant(value.name, value.value, value.type)
            return mapping[value]
        return mapping[value]

    for node in nodes:
        target.insert(node)
        node.set_operands([of(v) for v in operands[node]])
        if node.op.name in ("Partial", "Switch"):  # their types name functions, which may have got other names
            node.type = infer(node.op, node.operands)
    target.result = of(result)


def _skip(main: Graph, like: Graph, inputs: Sequence[Value]) -> Graph:
    """A function of ``inputs`` that does nothing and returns zeros of the type that ``like`` returns."""
    function = main.add_function("skip")
    for value in inputs:
        function.add_input(value.name, value.type)
    function.result = zeros(function, like.result.type, SCOPE)
    function.outputs = like.outputs
    return function


def _pad_result(function: Graph, wanted: tuple[str, ...], has: tuple[str, ...], type_: Type) -> None:
    """Makes ``function`` return what the step returns: results it lacks are zeros."""
    if tuple(wanted) == tuple(has):
        return
    types = type_.elements if isinstance(type_, TupleType) else (type_,)
    values = dict(zip(has, _items(function, function.result, has), strict=True)) if has else {}
    padded = [values.get(name) or zeros(function, t, SCOPE) for name, t in zip(wanted, types, strict=True)]
    Effects(function).commit(function.create("MakeTuple", padded, scope=SCOPE))
    function.outputs = tuple(wanted)
