"""How messages name a place of a graph: in the words of who wrote the network, and by the name that ``boost-inspect``
takes."""

from __future__ import annotations

from .graph import Constant, Input, Node, State, Value
from .op import CALL


def site(value: Value) -> str:
    """A node by its primitive, its scope and its name: ``MatMul in Default/head-Dense (%CNode_3)``. Without a scope, as
    in a graph that was written by hand, the name that somebody chose stands first: ``%logits (MatMul)``. What is no
    node is named as what it is."""
    if isinstance(value, Node):
        if value.scope and value.op is not CALL:  # the exporter gives calls none that means anything
            return f"{value.op.name} in {value.scope} (%{value.name})"
        return f"%{value.name} ({value.op.name})"
    if isinstance(value, State):
        return f"state '{value.name}'"
    if isinstance(value, Input):
        return f"input '{value.name}'"
    return f"a constant of type {value.type}" if isinstance(value, Constant) else f"function '{value.name}'"
