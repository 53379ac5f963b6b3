"""Function-valued operands: which functions a call may reach, and with which arguments.

MindIR binds arguments with Partial and chooses with Switch; a call of the chosen closure (or of a function directly)
adds the remaining arguments. Everything that looks across functions asks here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...core.graph import Graph, GraphRef, Input, Node, Value
from ...core.op import CALL
from ...core.types import is_monad
from ...core.walk import walk, without_order


@dataclass(frozen=True, slots=True)
class Target:
    """One function that a call may reach. ``arguments``: values of the caller, in the order of the function's inputs.
    ``binder``: the Partial or call whose operands end with the function's effect token, if it takes one."""

    function: Graph
    arguments: tuple[Value, ...]
    binder: Node


def targets(call: Node) -> list[Target] | None:
    """The functions that ``call`` may reach; None where the closure cannot be followed (passed in from outside)."""
    found: list[Target] = []
    extra = call.operands[1:]
    stack = [call.operand(0)]
    seen: set[Value] = set()
    while stack:
        value = stack.pop()
        if value in seen:
            continue  # branches that are chosen again
        seen.add(value)
        if isinstance(value, GraphRef):
            found.append(Target(value.graph, extra, call))
        elif isinstance(value, Node) and value.op.name == "Partial":
            function = value.operand(0)
            if not isinstance(function, GraphRef):
                return None
            arguments = value.operands[1:]
            found.append(Target(function.graph, arguments + extra, value if not extra else call))
        elif isinstance(value, Node) and value.op.name == "Switch":
            stack.extend(reversed(value.operands[1:]))
        elif isinstance(value, Node) and value.op.name == "Depend":
            stack.append(value.operand(0))
        else:
            return None
    return found


def switch_behind(closure: Value) -> Node | None:
    """The Switch that chooses a closure; None where none does."""
    chosen = without_order(closure)
    return chosen if isinstance(chosen, Node) and chosen.op.name == "Switch" else None


def bindings(main: Graph) -> dict[Input, list[Value]]:
    """For every function input, the caller's values that it may stand for (one per call site that is reached)."""
    bound: dict[Input, dict[Value, None]] = {}
    for node in main.all_nodes():
        if node.op is not CALL:
            continue
        for target in targets(node) or ():
            for formal, actual in zip(target.function.inputs, target.arguments, strict=False):
                bound.setdefault(formal, {})[actual] = None
    return {formal: list(values) for formal, values in bound.items()}


def called_functions(node: Node) -> list[Graph]:
    """Functions that a call reaches directly (empty where that cannot be told)."""
    return [t.function for t in targets(node) or ()]


def reachable_functions(main: Graph) -> set[str]:
    """Names of the functions that the main graph needs, through references of any kind."""
    return {function.name for function in walk(_referred(main, main), lambda f: _referred(main, f))}


def recursive_functions(main: Graph) -> set[str]:
    """Names of the functions that may call themselves, through others too: the bodies of loops."""
    refers = {function: list(dict.fromkeys(_referred(main, function))) for function in main.functions.values()}
    return {function.name for function, others in refers.items() if function in walk(others, refers.__getitem__)}


def forget_unreached(main: Graph) -> list[str]:
    """Drops the functions that the main graph does not need; their names."""
    reached = reachable_functions(main) if main.functions else ()
    unreached = [name for name in main.functions if name not in reached]
    for name in unreached:
        del main.functions[name]
    return unreached


def callees_first(main: Graph) -> list[Graph]:
    """The functions of ``main``, each after those that it refers to, but for recursion."""
    order: list[Graph] = []
    met: set[Graph] = set()
    for root in main.functions.values():
        stack = [] if root in met else [(root, _referred(main, root))]
        met.add(root)
        while stack:
            function, rest = stack[-1]
            following = next((f for f in rest if f not in met), None)
            if following is None:
                order.append(function)
                stack.pop()
            else:
                met.add(following)
                stack.append((following, _referred(main, following)))
    return order


def _referred(main: Graph, graph: Graph) -> Iterator[Graph]:
    """The functions that a graph refers to."""
    for node in (*graph, graph._return):
        for value in node._operands:
            if isinstance(value, GraphRef) and value.graph.name in main.functions:
                yield main.functions[value.graph.name]


def picked(value: Value, bound: Mapping[Input, Sequence[Value]]) -> list[Value] | None:
    """The values that a TupleGetItem may stand for, through Depends, calls and function inputs (``bound``: see
    :func:`bindings`); None where ``value`` is none, or the tuple cannot be followed."""
    if not (isinstance(value, Node) and value.op.name == "TupleGetItem"):
        return None
    i = value.operand(1).literal
    found: dict[Value, None] = {}
    for source in walk([value.operand(0)], lambda here: _passed(here, bound)):
        if isinstance(source, Node) and source.op.name == "MakeTuple":
            if not isinstance(i, int) or not -source.num_operands <= i < source.num_operands:
                return None
            found[source.operand(i)] = None
        elif not _passed(source, bound):
            return None
    return list(found)


def _passed(value: Value, bound: Mapping[Input, Sequence[Value]]) -> Sequence[Value]:
    """What a tuple that is made elsewhere may be."""
    if isinstance(value, Input):
        return bound.get(value, ())
    if not isinstance(value, Node):
        return ()
    if value.op is CALL:
        return [t.function.result for t in targets(value) or ()]
    return value._operands[:1] if value.op.name == "Depend" else picked(value, bound) or ()


def without_tokens(values: Sequence[Value]) -> list[Value]:
    return [v for v in values if not is_monad(v.type)]
