"""The divisor of all gradients of a graph: one scalar node, which passes mark (passes/step/normalisation.py)."""

from __future__ import annotations

from ...core.graph import Graph, Node
from ...core.names import STAGE

NORMALISATION = "normalisation"
"""Its stage."""


def find_divisor(graph: Graph) -> Node | None:
    """The scalar that gradients are divided by, None where nothing divides them yet."""
    return next((n for n in graph if n.marks.get(STAGE) == NORMALISATION), None)


def divides(user: Node, i: int) -> bool:
    """Whether ``user`` divides by its operand ``i``, or casts it for such; a loss scale multiplies seeds too."""
    if user.op.name == "Cast":
        return all(divides(u, at) for u, at in user.use_sites())
    return user.op.name == "RealDiv" and i == 1


def quotients(divisor: Node) -> dict[Node, list[Node]]:
    """The divisions by ``divisor``, by what they take for it: itself, or a cast."""
    found: dict[Node, list[Node]] = {}
    for user, i in divisor.use_sites():
        if user.op.name == "Cast" and divides(user, i):
            found |= quotients(user)
        elif divides(user, i):
            found.setdefault(divisor, []).append(user)
    return found
