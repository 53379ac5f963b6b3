"""Seeds of random primitives: where they stand, and that no two graphs of a program draw the same numbers.

MindSpore keeps a generator for each random node and starts it from the node's seeds when a graph is compiled (2.10, by
experiment). Two graphs made from one hold nodes of the same seeds, so each would start the same sequence anew. Seeds of
zero start from chance and are left alone.
"""

from __future__ import annotations

import hashlib

from ..core.attributes import Attribute
from ..core.graph import Constant, Graph, Node
from ..core.op import Op
from ..core.predicates import is_random
from ..core.primitives import facts
from ..core.program import Program

SEED_ATTRIBUTES = (("seed", "seed2"), ("Seed0", "Seed1"), ("seed0", "seed1"))


def derive(*parts: object) -> int:
    """A positive 31-bit number (a seed of zero means a random one to MindSpore)."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:4], "little") % (2**31 - 1) + 1


def _names(node: Node) -> tuple[str, str] | None:
    return next((pair for pair in SEED_ATTRIBUTES if all(name in node.attributes for name in pair)), None)


def seeds_of(node: Node) -> tuple[Attribute, ...] | None:
    """The two seeds of a random node; None where they are no constants at a place that is known."""
    positions = facts(node.op).seeds
    if positions:
        if positions[-1] >= node.num_operands:
            return None
        values = [v.value for at in positions if isinstance(v := node.operand(at), Constant)]
        return tuple(values) if len(values) == len(positions) else None
    names = _names(node)
    return None if names is None else tuple(node.attributes[name] for name in names)


def set_seeds(node: Node, number: int) -> bool:
    """Gives a random node other seeds; False where nobody knows the place of its own."""
    positions = facts(node.op).seeds
    names = _names(node)
    if positions and node.graph is not None:
        for at in positions:
            node.set_operand(at, node.graph.constant(number))
    elif names is not None:
        for name in names:
            node.set_attribute(name, number)
    else:
        return False
    return True


def separate_draws(program: Program) -> int:
    """Gives random nodes seeds of their own where an earlier graph of the program has the same; returns how many.

    The first graph keeps its seeds, and so draws what the original does. Nodes that had the same seeds within a graph
    have the same afterwards.
    """
    taken: set[tuple[str, tuple[Attribute, ...]]] = set()
    changed = 0
    for name, graph in program.graphs.items():
        own = _drawing(graph)
        new: dict[tuple[str, tuple[Attribute, ...]], int] = {}
        for node, seeds in own:
            key = (node.op.name, seeds)
            if key not in taken or not any(seeds):
                continue
            if key not in new:
                number, salt = derive(seeds, name), 0
                while (node.op.name, (number, number)) in taken:
                    salt += 1
                    number = derive(seeds, name, salt)
                new[key] = number
            set_seeds(node, new[key])
            changed += 1
        taken.update((node.op.name, seeds) for node, seeds in (_drawing(graph) if new else own))
    return changed


def _drawing(graph: Graph) -> list[tuple[Node, tuple[Attribute, ...]]]:
    """The random nodes of a graph and its functions whose seeds are known."""
    ops: dict[Op, bool] = {}  # nodes share few primitives
    nodes = []
    for node in graph.all_nodes():
        op = node.op
        random = ops.get(op)
        if random is None:
            random = ops[op] = is_random(node)
        if random:
            nodes.append(node)
    return [(node, seeds) for node in nodes if (seeds := seeds_of(node)) is not None]
