"""Seeds for the random primitives of a graph (Dropout and its kin), which otherwise differ from run to run."""

from __future__ import annotations

import hashlib

from ..ir.graph import Graph
from ..ir.ops import is_random
from ..ir.values import Node

SEED_OPERANDS = {"Dropout": (2, 3)}
"""Operand positions of the two seeds, for primitives that take them as operands (MindSpore 2.10)."""
SEED_ATTRIBUTES = (("seed", "seed2"), ("Seed0", "Seed1"), ("seed0", "seed1"))


def seed_graph(graph: Graph, seed: int, rank: int = 0) -> list[Node]:
    """Gives every random node of ``graph`` and its functions its own seeds, derived from ``seed`` and where it stands.
    The ranks of a job draw differently, the first as a process that is alone.

    Changes the graph. Returns the random nodes whose seeds are neither known operands nor attributes.
    """
    missed: list[Node] = []
    serial = 0
    for part in graph.all_graphs():
        for node in part:
            if not is_random(node):
                continue
            serial += 1
            number = _derive(seed, graph.name, serial, *([rank] if rank else []))
            positions = SEED_OPERANDS.get(node.op.name)
            names = next((pair for pair in SEED_ATTRIBUTES if all(n in node.attributes for n in pair)), None)
            if positions is not None:
                for at in positions:
                    node.set_operand(at, part.constant(number))
            elif names is not None:
                for name in names:
                    node.set_attribute(name, number)
            else:
                missed.append(node)
    return missed


def _derive(*parts: object) -> int:
    """A positive 31-bit number (a seed of zero means a random one to MindSpore)."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:4], "little") % (2**31 - 1) + 1
