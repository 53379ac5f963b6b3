"""The structural difference of two programs: what was added, removed and changed, by which pass and in which scope.

Nodes are paired by what they compute (:mod:`.matching`), so names of nodes, constants, functions, inputs and graphs do
not count, nor does the order of nodes that do not depend on each other. What counts: primitives, attributes, types,
operands, scopes, marks and links of nodes; results and interfaces of graphs; state, by name, with its bytes; schedule
and target. What only records where a program came from (source file, header fields, pipeline, origins) does not.

With ``computation`` only what is computed counts: primitives, attributes, types and operands of nodes, results, state
and schedule; not scopes, names of primitives, marks, notes of graphs, addresses in types, nor the order of effects.

A graph may have become several (accumulation makes two of one): each of them is compared with the graph it came from,
and a node is removed only if none of them has it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ...core.graph import Constant, Graph, GraphRef, Node, Value, source_names
from ...core.naming import spell
from ...core.program import Program, Schedule, StateVariable
from ...core.types import is_monad
from ...text.spelling import Spelling
from ..effects.tokens import orders_only
from .difference import UNRECORDED, Detail, GraphDiff, Kind, NodeDiff, ProgramDiff, StateDiff
from .equal import same, same_data
from .matching import Matching, match
from .value_numbers import ValueNumbers

__all__ = ["Detail", "GraphDiff", "NodeDiff", "ProgramDiff", "StateDiff", "diff"]
_LONG = 120
_ADDRESS = re.compile(r"@0x[0-9a-f]+")
"""Part of the type of a value in place, as a process that exports happened to have it."""


def diff(a: Program, b: Program, *, computation: bool = False) -> ProgramDiff:
    """The changes that make ``b`` of ``a``. Programs need not be valid. Linear in nodes and operands."""
    pairs = _pair_graphs(a, b)
    matchings = [match(a.graphs[x], b.graphs[y]) for x, y in pairs]
    kept_a = {n for m in matchings for n in m.nodes}
    kept_b = {n for m in matchings for n in m.back}
    blame = _Blame(a, b, matchings)
    graphs: list[GraphDiff] = []
    moved = _moved(a, b, matchings, kept_a, kept_b)
    told = set(moved.values())
    for (x, y), matching in zip(pairs, matchings, strict=True):
        found = GraphDiff(x, y, sum(not x.graph.is_return(x) for x in matching.nodes if x.graph))
        _compare_graphs(matching, found, computation)
        # Nodes that have no counterpart in any of the graphs that this one became, or was made of: told once.
        for nodes, gone in ((matching.a, True), (matching.b, False)):
            for node in nodes.all_nodes():
                if node in kept_a or node in kept_b or node in told:
                    continue
                told.add(node)
                if node in moved:
                    places = Detail("place", f"@{moved[node].home.name}", f"@{node.home.name}")
                    found.nodes.append(NodeDiff("moved", moved[node], node, (places,), order=_only_orders(node)))
                else:
                    kind: Kind = "removed" if gone else "added"
                    before, after = (node, None) if gone else (None, node)
                    found.nodes.append(NodeDiff(kind, before, after, order=_only_orders(node)))
        found.nodes = [replace(n, by=blame.of(n)) for n in found.nodes if not (computation and n.order)]
        graphs.append(found)
    seen_a, seen_b = {x for x, _ in pairs}, {y for _, y in pairs}
    graphs += [_whole(a.graphs[name], name, None) for name in a.graphs if name not in seen_a]
    graphs += [_whole(b.graphs[name], None, name) for name in b.graphs if name not in seen_b]
    program = [Detail("target", a.target, b.target)] if a.target != b.target else []
    return ProgramDiff(graphs, _state(a, b), _schedule(a, b, pairs), program, _split(pairs), compared=(a, b))


def _moved(a: Program, b: Program, matchings: list[Matching], kept_a: set[Node], kept_b: set[Node]) -> dict[Node, Node]:
    """What a pass put into another function: by the node there, the node that its origin names."""
    sources: dict[Any, Node | None] = {}
    for x in (x for graph in a.graphs.values() for x in graph.all_nodes() if x not in kept_a):
        key = (x.op, source_names([x]))
        sources[key] = None if key in sources else x
    bodies = {pair for m in matchings for pair in m.bodies()}
    found = {}
    for y in (y for graph in b.graphs.values() for y in graph.all_nodes() if y not in kept_b and y.origin):
        source = sources.get((y.op, source_names([y])))
        if source is not None and (source.graph, y.graph) not in bodies:
            found[y] = source
    return found


# -- graphs ----------------------------------------------------------------------------------------------------


def _pair_graphs(a: Program, b: Program) -> list[tuple[str, str]]:
    """Graphs that are equal; then those of one name; then each that is left with the graph it has most in common with,
    if possible one that is left too."""
    free_a, free_b = list(a.graphs), list(b.graphs)
    pairs: list[tuple[str, str]] = []

    def pair(x: str | None, y: str | None) -> None:
        if x is not None and y is not None:
            pairs.append((x, y))
            free_a[:] = [name for name in free_a if name != x]
            free_b[:] = [name for name in free_b if name != y]

    hashes_a, hashes_b = ({n: ValueNumbers(g).whole(g) for n, g in p.graphs.items()} for p in (a, b))
    for y in list(free_b):
        pair(y if y in free_a and hashes_a[y] == hashes_b[y] else None, y)
    for y in list(free_b):
        pair(next((x for x in free_a if hashes_a[x] == hashes_b[y]), None), y)
    for y in list(free_b):
        pair(y if y in free_a else None, y)
    kinds_a = {name: _kinds(graph) for name, graph in a.graphs.items()}
    kinds_b = {name: _kinds(graph) for name, graph in b.graphs.items()}

    def likeness(x: str, y: str) -> float:
        common = sum((kinds_a[x] & kinds_b[y]).values())
        return 2 * common / max(kinds_a[x].total() + kinds_b[y].total(), 1)

    for y in list(free_b):
        nearest = max(free_a or a.graphs, key=lambda x: likeness(x, y), default=None)
        pair(None if nearest is None or not likeness(nearest, y) else nearest, y)
    for x in list(free_a):
        nearest = max(free_b or b.graphs, key=lambda y: likeness(x, y), default=None)
        pair(x, None if nearest is None or not likeness(x, nearest) else nearest)
    return sorted(pairs, key=lambda p: (list(a.graphs).index(p[0]), list(b.graphs).index(p[1])))


def _kinds(graph: Graph) -> Counter[tuple[str, str]]:
    return Counter((node.op.name, node.scope) for node in graph.all_nodes())


def _split(pairs: list[tuple[str, str]]) -> list[Detail]:
    became: dict[str, list[str]] = {}
    came_from: dict[str, list[str]] = {}
    for x, y in pairs:
        became.setdefault(x, []).append(f"'{y}'")
        came_from.setdefault(y, []).append(f"'{x}'")
    found = [Detail("graph", f"'{x}'", ", ".join(several)) for x, several in became.items() if len(several) > 1]
    return found + [Detail("graph", ", ".join(many), f"'{y}'") for y, many in came_from.items() if len(many) > 1]


def _compare_graphs(m: Matching, found: GraphDiff, computation: bool) -> None:
    for f, g in m.bodies():
        if f is None or g is None:
            found.interface.append(Detail("function", f"@{f.name}" if f else "", f"@{g.name}" if g else ""))
            continue
        where = "" if f.owner is None else f"function @{g.name}: "

        def differ(what: str, before: str, after: str, where: str = where) -> None:
            found.interface.append(Detail(where + what, before, after))

        if f.outputs != g.outputs:
            differ("outputs", ", ".join(f.outputs), ", ".join(g.outputs))
        if [m.key(v, 0) for v in f.inputs] != [m.key(w, 1) for w in g.inputs]:
            differ("inputs", _typed(f.inputs), _typed(g.inputs))
        for name, state in f.states.items():
            if name in g.states and g.states[name].type != state.type:
                differ(f"state %{name}", str(state.type), str(g.states[name].type))
        for what in () if computation else ("attributes", "info"):
            found.interface.extend(_mapping(f"{where}{what}: ", getattr(f, what), getattr(g, what)))
        if f.has_result != g.has_result or (f.has_result and not m.same(f.result, g.result)):
            differ("result", *(_shown(x.result) if x.has_result else "none" for x in (f, g)))
        for node in f:
            twin = m.nodes.get(node)
            if twin is not None:
                details = _details(m, node, twin)
                if computation:
                    details = [(d, is_token) for d, is_token in details if not is_token and _computes(d)]
                if details:
                    order = all(is_token for _, is_token in details)
                    found.nodes.append(NodeDiff("changed", node, twin, tuple(d for d, _ in details), order=order))


def _typed(values: Sequence[Value]) -> str:
    return ", ".join(f"%{v.name}: {v.type}" for v in values)


def _details(m: Matching, x: Node, y: Node) -> list[tuple[Detail, bool]]:
    """The differences of two matched nodes, and of each whether it is only the order of effects."""
    found: list[Detail] = []
    p, q = x.op, y.op
    if p is not q:
        if p.name != q.name:
            found.append(Detail("op", p.name, q.name))
        if p.key != q.key:
            found += _mapping("attribute ", p.attributes, q.attributes)
        if p.instance != q.instance:
            found.append(Detail("instance", p.instance or "none", q.instance or "none"))
        if p.kind != q.kind:
            found.append(Detail("kind", str(p.kind), str(q.kind)))
    if x.type is not y.type and m.type(x.type, 0) != m.type(y.type, 1):
        found.append(Detail("type", str(x.type), str(y.type)))
    if x.scope != y.scope:
        found.append(Detail("scope", x.scope or "none", y.scope or "none"))
    for what in ("marks", "primal"):
        left, right = getattr(x, what), getattr(y, what)
        if left is not right:
            found += _mapping(f"{what} ", left, right)
    waits = _only_orders(x) and _only_orders(y)
    return [(d, waits) for d in found] + [(d, waits or token) for d, token in _operands(m, x, y)]


def _computes(detail: Detail) -> bool:
    """Whether it is about what a node computes, and not about what it is called or where it comes from."""
    if detail.what == "type":
        return _ADDRESS.sub("", detail.before) != _ADDRESS.sub("", detail.after)
    return detail.what not in ("scope", "instance") and not detail.what.startswith(("marks ", "primal "))


def _only_orders(node: Node) -> bool:
    """Whether a node merely says what waits for what."""
    if node.op.name in ("Depend", "MakeTuple"):
        return bool(node.uses) and all(orders_only(user, i) for user, i in node.use_sites())
    return node.op.name == "UpdateState"


def _operands(m: Matching, x: Node, y: Node) -> list[tuple[Detail, bool]]:
    """Differences in operands. Where their number differs: those that came and went."""
    left, right = x._operands, y._operands
    if len(left) == len(right):
        return [
            (Detail(f"operand {i}", _shown(v), _shown(w)), is_monad(v.type) and is_monad(w.type))
            for i, (v, w) in enumerate(zip(left, right, strict=True))
            if not m.same(v, w)
        ]
    came = Counter(_identity(m, w, 1) for w in right)
    gone = Counter(_identity(m, v, 0) for v in left)
    both = came & gone
    found = []
    for side, spare in ((0, Counter(both)), (1, Counter(both))):
        for i, v in enumerate((left, right)[side]):
            key = _identity(m, v, side)
            if spare[key]:
                spare[key] -= 1
            else:
                before, after = (_shown(v), "") if side == 0 else ("", _shown(v))
                found.append((Detail(f"operand {i}", before, after), is_monad(v.type)))
    return found


def _identity(m: Matching, value: Value, side: int) -> Any:
    if isinstance(value, Node):
        return m.nodes.get(value, value) if side == 0 else value
    return m.key(value, side)


def _mapping(prefix: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Detail]:
    found = []
    for key in {**left, **right}:
        if key not in left or key not in right or not same(left[key], right[key]):
            sides = [_spelled(side[key]) if key in side else "" for side in (left, right)]
            found.append(Detail(prefix + key, *sides))
    return found


def _whole(graph: Graph, before: str | None, after: str | None) -> GraphDiff:
    """A graph that has nothing in common with any of the other program."""
    nodes = graph.all_nodes()
    found = [NodeDiff("removed", n, None) if after is None else NodeDiff("added", None, n) for n in nodes]
    return GraphDiff(before, after, nodes=found)


# -- who did it ------------------------------------------------------------------------------------------------


class _Blame:
    """The pass that made a difference, as far as origins and reports tell."""

    def __init__(self, a: Program, b: Program, matchings: list[Matching]):
        self._kept = {n for m in matchings for n in m.back}
        self._of_source: dict[str, str] = {}
        self._of_function: dict[Graph, str] = {}
        for graph in b.graphs.values():
            for node in graph.all_nodes():
                if node.origin and node.origin.passes and node not in self._kept:
                    for source in node.origin.sources:
                        self._of_source.setdefault(source, node.origin.passes[-1])
                    for called in (v.graph for v in node._operands if isinstance(v, GraphRef)):
                        self._of_function.setdefault(called, node.origin.passes[-1])
        before, after = ([r.name for r in p.reports] for p in (a, b))
        since = after[len(before) :] if after[: len(before)] == before else after
        self._only = since[0] if len(set(since)) == 1 else UNRECORDED

    def of(self, found: NodeDiff) -> str:
        """A node's own origin; else that of a new operand; for what is gone, what was made from it; for what moved,
        who calls its function; else the one pass there was."""
        before, after = found.before, found.after
        if after is not None and after.origin is not None:
            known = before.origin.passes if before is not None and before.origin is not None else ()
            new = [name for name in after.origin.passes if name not in known]
            if new:
                return new[-1]
        if found.kind == "moved" and after is not None:
            return self._of_function.get(after.home, self._only)
        if before is None:
            return self._only
        if after is None:
            return self._of_source.get(before.name, self._only)
        for operand in after._operands:
            if isinstance(operand, Node) and operand not in self._kept and operand.origin and operand.origin.passes:
                return operand.origin.passes[-1]
        return self._only


# -- the rest --------------------------------------------------------------------------------------------------


def _state(a: Program, b: Program) -> list[StateDiff]:
    found = [StateDiff("removed", name, _facts(a.state[name], None)) for name in a.state if name not in b.state]
    found += [StateDiff("added", name, _facts(None, b.state[name])) for name in b.state if name not in a.state]
    for name, x in a.state.items():
        y = b.state.get(name)
        if y is not None:
            details = _facts(x, y)
            if details:
                found.append(StateDiff("changed", name, details))
    return found


def _facts(x: StateVariable | None, y: StateVariable | None) -> tuple[Detail, ...]:
    found: list[Detail] = []
    for what in ("type", "role", "trainable", "weight"):
        left, right = (None if v is None else getattr(v, what) for v in (x, y))
        texts = ["" if value is None else str(value) for value in (left, right)]
        if texts[0] != texts[1]:
            found.append(Detail(what, *texts))
    found += _mapping("info ", x.info if x else {}, y.info if y else {})
    if x is not None and y is not None and not same_data(x.data, y.data):
        found.append(Detail("initial values", f"{x.nbytes} bytes", "other bytes"))
    return tuple(found)


def _schedule(a: Program, b: Program, pairs: list[tuple[str, str]]) -> list[Detail]:
    """Compared after graphs that only have another name are given that name."""
    left, right = Counter(x for x, _ in pairs), Counter(y for _, y in pairs)
    names = {x: y for x, y in pairs if left[x] == right[y] == 1}
    before, after = _renamed(a.schedule, names), b.schedule
    found = []
    for part in fields(Schedule):
        x, y = getattr(before, part.name), getattr(after, part.name)
        if x != y:
            found.append(Detail(part.name, _text(x), _text(y)))
    return found


def _renamed(schedule: Schedule, names: Mapping[str, str]) -> Schedule:
    def of(name: str) -> str:
        return names.get(name, name)

    search = schedule.search
    if search is not None:
        search = replace(search, trial=of(search.trial), judge=of(search.judge))
    flush = None if schedule.flush is None else of(schedule.flush)
    cycle = tuple(replace(entry, graph=of(entry.graph)) for entry in schedule.cycle)
    return replace(schedule, cycle=cycle, flush=flush, search=search)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(e.graph if e.repeat == 1 else f"{e.graph} x {e.repeat}" for e in value)
    return "none" if value is None else str(value)


def _shown(value: Value) -> str:
    if isinstance(value, Constant):
        return _spelled(value.value)
    return ("@" if isinstance(value, GraphRef) else "%") + spell(value.name)


def _spelled(value: Any) -> str:
    """As in the text form, cut short where it is long."""
    text = Spelling().value(value).replace("\n", " ")
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
