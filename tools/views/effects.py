"""The effects of a graph and its functions, in their order: what each reads and writes, and the tokens between them."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.effects.state_access import Effect, Summary, summarize
from ...ir.analysis.effects.tokens import token_slots
from ...ir.analysis.functions.calls import bindings, targets
from ...ir.analysis.functions.closures import Closures
from ...ir.core.graph import Graph, Input, Node, Value
from ...ir.core.naming import spell
from ...ir.core.op import CALL
from ...ir.core.types import is_monad
from ...ir.core.walk import live_nodes, unpacked
from ...ir.rewrite.effects.editing import Effects
from .analysed import Analysed, listed


def effect_lines(view: Analysed) -> Iterator[str]:
    known = summarize(view.graph)
    closures = Closures(view.graph)
    bound = bindings(view.graph)
    for body in view.graph.all_graphs():
        said = list(_body(view, body, known, closures))
        if body is view.graph:
            yield from said
        elif said or view.chosen is None:
            yield f"func @{spell(body.name)}"
            yield from (f"  {line}" for line in [*_function(view, body, known[body.name], bound, closures), *said])


def _function(
    view: Analysed, body: Graph, summary: Summary, bound: dict[Input, list[Value]], closures: Closures
) -> Iterator[str]:
    for formal in body.inputs:
        if not is_monad(formal.type):
            given = view.names(bound.get(formal, ()), body)
            if not given and (sites := closures.bound.get(formal)):
                given = f"{view.names([node.operand(i) for node, i in sites], body)} by closures"
            yield f"{view.name(formal, body)} stands for {given or 'what cannot be told'}"
    reads, writes = (view.names([body.inputs[i] for i in sorted(at)], body) for at in (summary.reads, summary.writes))
    yield _access(reads, writes, summary.everything, summary.io) or "touches nothing"


def _body(view: Analysed, body: Graph, known: dict[str, Summary], closures: Closures) -> Iterator[str]:
    """The effects in their order, then the tokens."""
    live = live_nodes([body.result])
    for effect in Effects(body, known).list:
        if view.keeps((effect.node,)):
            yield _effect(view, body, effect, closures)
    for token in body:
        if token.op.name == "UpdateState" and token in live and view.keeps((token,)):
            yield f"token {view.name(token, body)} follows {view.names(unpacked(token.operands), body)}"
    if view.chosen is None and (ends := _ends(body)):
        yield f"the result waits for {view.names(ends, body)}"


def _effect(view: Analysed, body: Graph, effect: Effect, closures: Closures) -> str:
    reads, writes = (listed(sorted(view.name(v, body) for v in values)) for values in (effect.reads, effect.writes))
    said = [_access(reads, writes, effect.everything, effect.io) or "touches nothing"]
    if effect.node.op is CALL:
        said.insert(0, _reached(effect.node, closures))
    if effect.passive:
        said.append("passive")
    if tokens := [holder.operand(i) for holder, i in token_slots(effect.node)]:
        said.append(f"after {view.names(tokens, body)}")
    return f"{view.node(effect.node, body)}: {'; '.join(said)}"


def _access(reads: str, writes: str, everything: bool, io: bool) -> str:
    said = [f"reads {reads}"] if reads else []
    said += [f"writes {writes}"] if writes else []
    said += ["may touch any state"] if everything else []
    return "; ".join([*said, *(["input and output"] if io else [])])


def _reached(call: Node, closures: Closures) -> str:
    """The functions behind a call; those that only following closures through other calls finds are said so."""
    direct = targets(call)
    found = [t.function.name for t in direct or ()] or sorted(f.name for f in closures.targets[call])
    reaches = listed(f"@{spell(name)}" for name in found) or "nothing known"
    if direct is None:
        reaches += " by closures" if found else ""
        reaches += ", and others" if found and call in closures.open else ""
    return f"reaches {reaches}"


def _ends(body: Graph) -> list[Value]:
    """The values that the Depends around the result wait for."""
    found: list[Value] = []
    value = body.result
    while isinstance(value, Node) and value.op.name == "Depend":
        found.append(value.operand(1))
        value = value.operand(0)
    return found
