"""Pieces of a program: one graph, the nodes of some scopes, what stands around a node. A piece is a program again, so
every format shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import forget_unreached
from ...ir.core.errors import OptionError, nearest
from ...ir.core.graph import Constant, Graph, GraphRef, Node, State, Value
from ...ir.core.predicates import is_ordering
from ...ir.core.program import Entry, Program, Schedule
from ...ir.core.types import is_monad
from ...ir.core.wording import counted
from .shown import Shown


def only_graph(program: Program, name: str, file: str) -> Program:
    """The program cut down to one graph and the state that it uses (for looking at: its schedule means nothing)."""
    if name not in program.graphs:
        raise OptionError(f"{file} has no graph '{name}'{nearest(name, list(program.graphs))}")
    return _piece(program, {name: program.graphs[name]})


def narrowed(shown: Shown, scope: str | None, around: str | None, radius: int) -> Shown:
    """The nodes that :func:`chosen` tells, cut out as graphs of their own."""
    nodes, words = chosen(shown, scope, around, radius)
    return shown if nodes is None else _cut(shown, nodes, words)


def chosen(shown: Shown, scope: str | None, around: str | None, radius: int) -> tuple[dict[Node, None] | None, str]:
    """The nodes that lie in ``scope`` and around the node ``around``: at most ``radius`` edges from it, in either
    direction; None where neither is given. With it, what was chosen in words. OptionError if that is nothing."""
    if scope is None and around is None:
        return None, ""
    nodes = dict.fromkeys(shown.program.all_nodes())
    words = []
    if scope is not None:
        nodes = {n: None for n in nodes if in_scope(n, scope)}
        words.append(f"scope {scope}")
        if not nodes:
            raise OptionError(f"no node of {shown.file} stands in scope '{scope}'{_scopes(shown)}")
    if around is not None:
        near = neighbourhood(_named(shown, around), radius)
        # What is read says more by the state's name than as an input without one.
        near |= {v for n in near for v in n._operands if isinstance(v, Node) and v.op.name == "Load"}
        nodes = {n: None for n in nodes if n in near}
        words.append(f"{counted(radius, 'edge')} around %{around.removeprefix('%')}")
        if not nodes:
            raise OptionError(f"no node of scope '{scope}' is {words[-1]}: a larger --radius may reach one")
    return nodes, ", ".join(words)


def in_scope(node: Node, pattern: str) -> bool:
    """Whether a node's scope, or one around it, matches a glob: from its beginning if the glob starts with a slash,
    else from any level on."""
    if pattern.startswith("/"):
        return any(fnmatchcase(f"/{node.scope}", p) for p in (pattern, f"{pattern}/*"))
    return any(fnmatchcase(node.scope, p) for p in (pattern, f"{pattern}/*", f"*/{pattern}", f"*/{pattern}/*"))


def neighbourhood(centres: Iterable[Node], radius: int) -> set[Node]:
    """The nodes at most so many edges from the centres. What merely waits for a node, and all effect tokens, are not
    followed: they lead from each effect to all others."""
    near = set(centres)
    edge = list(near)
    for _ in range(radius):
        reached = []
        for node in edge:
            operands = [v for i, v in enumerate(node._operands) if not orders_only(node, i)]
            users = [user for user, i in node.use_sites() if not orders_only(user, i)]
            for value in (*operands, *users):
                follow = isinstance(value, Node) and not is_monad(value.type) and value not in near
                if follow and isinstance(value, Node) and not (value.graph and value.graph.is_return(value)):
                    near.add(value)
                    reached.append(value)
        edge = reached
    return near


def _named(shown: Shown, name: str) -> list[Node]:
    bare = name.removeprefix("%")
    bodies = [body for g in shown.program.graphs.values() for body in g.all_graphs()]
    found = [n for body in bodies for n in body if n.name == bare]
    if found:
        return found
    values = [v for body in bodies for v in (*body.inputs, *body.states.values()) if v.name == bare]
    found = [n for v in values for n in v.uses if not (n.graph and n.graph.is_return(n))]
    if found:
        return list(dict.fromkeys(found))
    known = [v.name for body in bodies for v in (*body, *body.inputs, *body.states.values())]
    raise OptionError(f"{shown.file} has no node '%{bare}'{nearest(bare, known)}")


def _scopes(shown: Shown) -> str:
    scopes = {n.scope.rsplit("/", 1)[0] for g in shown.program.graphs.values() for n in g if n.scope}
    some = sorted(scopes, key=lambda scope: (scope.count("/"), scope))[:3]
    return f". There is, for example: {', '.join(some)}" if some else ""


def _piece(program: Program, graphs: dict[str, Graph]) -> Program:
    used = {name for graph in graphs.values() for body in graph.all_graphs() for name in body.states}
    state = {name: v for name, v in program.state.items() if name in used}
    return replace(program, graphs=graphs, state=state, schedule=Schedule(tuple(map(Entry, graphs))), live=None)


def _cut(shown: Shown, nodes: dict[Node, None], words: str) -> Shown:
    """The chosen nodes as graphs of their own: what they take from outside are inputs, what others take is the
    result. A function is kept whole where a chosen node refers to it, else its chosen nodes are a graph too."""
    by_body: dict[Graph, dict[Node, None]] = {}
    for node in nodes:
        by_body.setdefault(node.home, {})[node] = None
    graphs: dict[str, Graph] = {}
    parts: dict[Node, str] = {}
    for name, main in shown.program.graphs.items():
        chosen = {body: by_body[body] for body in main.all_graphs() if body in by_body}
        kept = {v.graph for members in chosen.values() for n in members for v in n._operands if isinstance(v, GraphRef)}
        for body, members in chosen.items():
            if body not in kept:
                title = name if body is main else f"{name}.{body.name}"
                graphs[title] = _graph_of(body, members, title, shown, parts)
    return Shown(_piece(shown.program, graphs), shown.file, parts, dict.fromkeys(graphs), {}, words)


def _graph_of(body: Graph, members: dict[Node, None], name: str, shown: Shown, parts: dict[Node, str]) -> Graph:
    cut = Graph(name)
    mapping: dict[Value, Value] = {}
    main = body.owner or body
    if any(isinstance(v, GraphRef) for n in members for v in n._operands):
        whole, copies = main.clone()
        for function in whole.functions.values():
            function.owner = cut
            function.functions = cut.functions
            cut.functions[function.name] = function
        for old, new in copies.items():
            if isinstance(old, Node) and isinstance(new, Node):
                parts[new] = shown.part(old)

    def of(value: Value) -> Value:
        found = mapping.get(value)
        if found is None:
            if isinstance(value, State):
                found = cut.state(value.name, value.type)
            elif isinstance(value, Constant):
                found = Constant(value.name, value.value, value.type)
            elif isinstance(value, GraphRef):
                found = cut.reference(cut.functions[value.graph.name])
            else:
                found = cut.add_input(value.name, value.type)
            mapping[value] = found
        return found

    for node in body:
        if node not in members:
            continue
        copy = cut.insert(node.twin())
        copy.set_operands([of(v) for v in node._operands])
        mapping[node] = copy
        parts[copy] = shown.part(node)
    values = [n for n in members if not is_monad(n.type)]
    leaving = [n for n in values if not is_ordering(n) and any(u not in members for u in n.uses)] or values
    ends = [mapping[n] for n in leaving]
    cut.result = ends[0] if len(ends) == 1 else cut.create("MakeTuple", ends, name="cut")
    forget_unreached(cut)
    return cut
