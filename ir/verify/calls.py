"""Rules that span graphs: arguments against the inputs of functions, writes through them, recursion, lost calls."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from ..analysis.functions.calls import switch_behind, targets
from ..core.graph import Graph, GraphRef, Input, Node, State, Value
from ..core.op import CALL
from ..core.predicates import is_effect
from ..core.types import ANY, TensorType, is_monad
from .graph import Sweep, agree, unreached
from .problems import Problems, Rank, short, shown


def check_calls(sweeps: list[Sweep], problems: Problems) -> None:
    bound: dict[Input, list[tuple[Value, Node, Graph]]] = {}
    direct: dict[Graph, list[tuple[Graph, Node]]] = {}
    for sweep in sweeps:
        graph = sweep.graph
        for node in sweep.partials:
            _check_partial(graph, node, problems)
        for node in sweep.calls:
            _check_call(graph, node, bound, direct, problems)
        for node in sweep.dead_calls:
            if call_acts(node):
                unreached(problems, graph, node)
    _check_writes(sweeps, bound, problems)
    _check_recursion(direct, problems)


def _check_partial(graph: Graph, node: Node, problems: Problems) -> None:
    function = node.operand(0) if node.num_operands else None
    if not isinstance(function, GraphRef):
        problems.add(
            Rank.CALL, graph, node, "the first operand of Partial is no function", "give it graph.reference(function)"
        )
        return
    _check_arguments(graph, node, function.graph, 0, node.operands[1:], problems)


def _check_arguments(
    graph: Graph, node: Node, function: Graph, first: int, arguments: Sequence[Value], problems: Problems
) -> None:
    """``arguments`` against the function's inputs from ``first`` on."""
    inputs = function.inputs
    if first + len(arguments) > len(inputs):
        problems.add(
            Rank.CALL, graph, node,
            f"function '{function.name}' takes {len(inputs)} arguments, {first + len(arguments)} are given",
            "pass as many as it has inputs",
        )  # fmt: skip
        return
    for i, value in enumerate(arguments, first):
        if not agree(inputs[i].type, value.type):
            problems.add(
                Rank.CALL, graph, node,
                f"argument {i} of function '{function.name}', {shown(inputs[i])}, is given {shown(value)}",
                "pass a value of the input's type",
            )  # fmt: skip


def _check_call(
    graph: Graph,
    node: Node,
    bound: dict[Input, list[tuple[Value, Node, Graph]]],
    direct: dict[Graph, list[tuple[Graph, Node]]],
    problems: Problems,
) -> None:
    if not node.num_operands:
        problems.add(Rank.CALL, graph, node, "a call of nothing", "the first operand is the function")
        return
    reached = targets(node)
    if reached is None:
        return
    extra = node.operands[1:]
    switched = switch_behind(node.operand(0)) is not None
    for target in reached:
        function, arguments = target.function, target.arguments
        if len(arguments) < len(function.inputs):
            problems.add(
                Rank.CALL, graph, node,
                f"function '{function.name}' takes {len(function.inputs)} arguments, "
                f"the call reaches it with {len(arguments)}",
                "bind the missing ones with Partial, or pass them in the call",
            )  # fmt: skip
        _check_arguments(graph, node, function, len(arguments) - len(extra), extra, problems)
        if function.has_result and node.type != ANY and not agree(function.result.type, node.type):
            problems.add(
                Rank.CALL, graph, node,
                f"its type is {short(node.type)}, but function '{function.name}' returns {short(function.result.type)}",
                "give it the type of the function's result",
            )  # fmt: skip
        for formal, actual in zip(function.inputs, arguments, strict=False):
            bound.setdefault(formal, []).append((actual, node, graph))
        if not switched:
            direct.setdefault(graph, []).append((function, node))


def _check_writes(sweeps: list[Sweep], bound: dict[Input, list[tuple[Value, Node, Graph]]], problems: Problems) -> None:
    """An input that a function writes in place must be state at every call, through any number of calls."""
    written: dict[Input, Node] = {}
    for sweep in sweeps:
        written.update(sweep.written)
    work = list(written)
    reported: set[tuple[Node, Input]] = set()
    while work:
        formal = work.pop()
        for actual, call, graph in bound.get(formal, ()):
            if isinstance(actual, Input) and graph.owner is not None:
                if actual not in written:
                    written[actual] = written[formal]
                    work.append(actual)
            elif (
                not isinstance(actual, State)
                and not (isinstance(actual.type, TensorType) and actual.type.ref)
                and (call, formal) not in reported
            ):
                reported.add((call, formal))
                problems.add(
                    Rank.EFFECT, graph, call,
                    f"input %{formal.name} of the function is written in place (by %{written[formal].name}), "
                    f"but is given {shown(actual)}, which is not state",
                    "pass the state itself",
                )  # fmt: skip


def _check_recursion(direct: dict[Graph, list[tuple[Graph, Node]]], problems: Problems) -> None:
    """A function that calls itself other than through Switch never ends."""
    try:
        TopologicalSorter({graph: [function for function, _ in calls] for graph, calls in direct.items()}).prepare()
    except CycleError as error:
        function, graph = error.args[1][:2]  # who is called stands before who calls it
        node = next(node for called, node in direct[graph] if called is function)
        problems.add(
            Rank.CALL, graph, node, f"function '{function.name}' calls itself without a Switch, so it never ends",
            "let a Switch decide about the call",
        )  # fmt: skip


def call_acts(call: Node) -> bool:
    """Whether a call may reach a function that has effects."""
    return any(_has_effects(t.function, set()) for t in targets(call) or ())


def _has_effects(function: Graph, seen: set[Graph]) -> bool:
    if function in seen:
        return False
    seen.add(function)
    for node in function:
        if node.op is CALL:
            if any(_has_effects(t.function, seen) for t in targets(node) or ()):
                return True
        elif is_effect(node) and not is_monad(node.type):
            return True
    return False
