"""A graph written into another: its effects happen there, and its inputs are values of that graph.

For example, a graph ``(%g) { Assign(%slow, %g, u) }`` grafted with ``%g`` standing for ``%dw`` adds
``Assign(%slow, %dw, …)`` to the effects of a graph that computes ``%dw``. A branch of a Switch is such a graph too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..analysis.effects.effect_list import EffectList, list_effects
from ..core.graph import Constant, Graph, GraphRef, Node, Value
from ..core.types import FunctionType, is_monad
from .effects.editing import Effects


def graft(fx: Effects, source: Graph, inputs: Mapping[Value, Value], at: int) -> int:
    """Puts the effects of ``source`` into ``fx`` before position ``at`` of its list, in their order, and what they
    need into its graph. ``inputs``: what the inputs of ``source`` stand for. States are those of the same name. Returns
    how many effects there are. Linear in nodes."""
    graph = fx.graph
    copy, twin = source.clone()
    listed = list_effects(source).of_clone(copy, twin)
    given = {twin[formal]: value for formal, value in inputs.items()}
    for state in list(copy.states.values()):
        given[state] = graph.state(state.name, state.type)
    _move_functions(graph, copy)
    return _write(fx, copy, listed, given, at)


def inline(fx: Effects, call: Node, branch: Value) -> None:
    """What a branch of the Switch of ``call`` does is done in the place of the call, whichever way the Switch goes.
    Nothing may take the value of the call, and no other call the branch."""
    function, *bound = branch.operands if isinstance(branch, Node) else (branch,)
    assert isinstance(function, GraphRef)
    arguments = [*bound, *call.operands[1:]]  # without a token, as a rule
    given: dict[Value, Value] = dict(zip(function.graph.inputs, arguments, strict=False))
    at = next(i for i, e in enumerate(fx.list) if e.node is call)
    _write(fx, function.graph, list_effects(function.graph), given, at)
    fx.drop([e for e in fx.list if e.node is call])


def _write(fx: Effects, copy: Graph, listed: EffectList, given: dict[Value, Value], at: int) -> int:
    """Moves the nodes of ``copy`` into the graph of ``fx``."""
    graph = fx.graph
    nodes = list(copy)
    operands = {node: node.operands for node in nodes}
    copy.result = copy.constant(True)
    for node in nodes:
        node.set_operands(())
    copy.erase_all(nodes)

    def of(value: Value) -> Value:
        if is_monad(value.type):
            return fx.first_token(io=str(value.type) == "iomonad")
        if value not in given and isinstance(value, Constant):
            given[value] = Constant(value.name, value.value, value.type)
        if isinstance(value, GraphRef):
            return graph.reference(value.graph)
        return given.get(value, value)

    effects = [e for e in listed.effects if e.node.op.name != "UpdateState"]
    for node in nodes:
        if node.op.name == "UpdateState":
            continue
        node.name = graph.fresh_name(node.name)
        graph.insert(node)
        node.set_operands([of(value) for value in operands[node]])
    before = len(fx.list)
    for effect in effects:
        fx.adopt(effect.node)
    added = fx.list[before:]
    fx.list[before:] = []
    fx.list[at:at] = added
    return len(added)


def _move_functions(graph: Graph, source: Graph) -> None:
    """The functions of ``source`` become functions of ``graph``, under names that are free there."""
    names: dict[str, str] = {}
    for name, function in source.functions.items():
        names[name] = function.name = graph.add_function(name).name
        function.owner, function.editor = graph, graph.editor
        graph.functions[function.name] = function
    for node in source.all_nodes():
        for value in (node, *(o for o in node.operands if isinstance(o, GraphRef))):
            if isinstance(value.type, FunctionType):
                value.type = replace(value.type, functions=tuple(names.get(f, f) for f in value.type.functions))
