"""Functions of a model, and operators that ONNX itself defines by others: written out where they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ....core.errors import FormatError
from ....core.wording import counted
from ..table import FOLDED_ONLY, READ

LIMIT = 1_000_000
"""Nodes up to which functions are written out: a few lines of a hostile file stand for more than memory holds."""


def without_functions(model: Any) -> Any:
    """The model without calls of its own functions."""
    from onnx import inliner

    _check_growth(model)
    return _written_out(inliner.inline_local_functions, model) if model.functions else model


def inlined(model: Any, opset: int) -> Any:
    """The model without operators that ONNX defines by others. Those that have a rule are left alone."""
    from onnx import inliner

    left: set[tuple[str, str]] = set()
    while calls := {(n.op_type, n.output[0]): n for n in _all_nodes(model.graph) if _is_defined(n, opset)}:
        if left >= set(calls):
            break  # the inliner does not take them
        left = set(calls)
        for node in calls.values():  # the inliner does not know what an attribute is that is left out
            have = {attribute.name for attribute in node.attribute}
            node.attribute.extend(a for name, a in defaults(node.op_type, opset).items() if name not in have)
        named = [("", name) for name in sorted({name for name, _ in left})]
        model = _written_out(inliner.inline_selected_functions, model, named, inline_schema_functions=True)
    return model


@cache
def defaults(op_type: str, opset: int) -> dict[str, Any]:
    """What ONNX takes the attributes of an operator for that a node leaves out."""
    from onnx import defs

    attributes = defs.get_schema(op_type, opset).attributes
    return {name: a.default_value for name, a in attributes.items() if a.default_value.name}


def _written_out(how: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return how(*arguments, **options)
    except Exception as error:  # a C++ exception of several kinds
        raise FormatError(f"its functions cannot be written out: {error}") from None


def _is_defined(node: Any, opset: int) -> bool:
    from onnx import defs

    name = node.op_type
    if node.domain not in ("", "ai.onnx") or name in READ or name in FOLDED_ONLY or not defs.has(name, opset):
        return False
    schema = defs.get_schema(name, opset)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _all_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.type == attribute.GRAPH else [])):
                yield from _all_nodes(inner)


def _check_growth(model: Any) -> None:
    """Counts what inlining would make, before it does; calls in a circle are an error."""
    functions = {(f.domain, f.name): f for f in model.functions}

    @cache
    def size(key: tuple[str, str]) -> int:
        return sum(size((n.domain, n.op_type)) for n in _all_nodes(functions[key])) if key in functions else 1

    try:
        total = sum(size((n.domain, n.op_type)) for n in _all_nodes(model.graph))
    except RecursionError:
        raise FormatError("its functions call each other in a circle, or a thousand deep") from None
    if total > LIMIT:
        raise FormatError(f"its functions, written out, would be {counted(total, 'node')}; {LIMIT:,} are taken")
