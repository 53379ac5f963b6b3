"""Functions of a model, and operators that ONNX itself defines by others: written out where they are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....core.errors import FormatError
from ....core.wording import counted
from .table import FOLDED_ONLY, RULES

LIMIT = 1_000_000
"""Nodes up to which functions are written out: a few lines of a hostile file stand for more than memory holds."""


def inlined(model: Any) -> Any:
    """The model without calls of functions. Operators that have a rule are left alone."""
    from onnx import inliner

    _check_growth(model)
    try:
        if model.functions:
            model = inliner.inline_local_functions(model)
        named = sorted({n.op_type for n in _all_nodes(model.graph)} - set(RULES) - FOLDED_ONLY)
        defined = [("", name) for name in named if _is_defined(name)]
        if defined:
            model = inliner.inline_selected_functions(_typed(model), defined, inline_schema_functions=True)
    except Exception as error:  # a C++ exception of several kinds
        raise FormatError(f"its functions cannot be written out: {error}") from None
    return model


def _typed(model: Any) -> Any:
    """With an input for each initializer: where the inliner looks for types."""
    from onnx import helper

    have = {info.name for info in model.graph.input}
    for proto in model.graph.initializer:
        if proto.name not in have:
            model.graph.input.append(helper.make_tensor_value_info(proto.name, proto.data_type, proto.dims))
    return model


def _is_defined(name: str) -> bool:
    from onnx import defs

    if not defs.has(name):
        return False
    schema = defs.get_schema(name)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _all_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of the graphs inside it."""
    pending = [graph]
    while pending:
        for node in pending.pop().node:
            yield node
            for attribute in node.attribute:
                if attribute.type == attribute.GRAPH:
                    pending.append(attribute.g)
                elif attribute.type == attribute.GRAPHS:
                    pending.extend(attribute.graphs)


def _check_growth(model: Any) -> None:
    """Counts what inlining would make, before it does; calls in a circle are an error."""
    functions = {(f.domain, f.name): f for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    for start in functions:
        stack = [start]
        on_stack = {start}
        while stack:
            key = stack[-1]
            called = [(n.domain, n.op_type) for n in _all_nodes(functions[key])]
            open_ = next((k for k in called if k in functions and k not in sizes), None)
            if open_ is None:
                sizes[key] = sum(sizes.get(k, 1) for k in called)
                on_stack.discard(stack.pop())
            elif open_ in on_stack:
                raise FormatError(f"its functions call each other in a circle: '{open_[1]}'")
            else:
                stack.append(open_)
                on_stack.add(open_)
    total = sum(sizes.get((n.domain, n.op_type), 1) for n in _all_nodes(model.graph))
    if total > LIMIT:
        raise FormatError(f"its functions, written out, would be {counted(total, 'node')}; {LIMIT:,} are taken")
