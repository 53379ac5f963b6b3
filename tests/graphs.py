"""Small graphs written down in tests: text IR in which `@f` and `@b` mark a node as forward and backward.

%y = Mul(%w0, %x) @f        primal {unique_id = "…"}, as MindSpore's autodiff marks it
%g = Mul(%x, %x) @b         primal {forward_unique_id = "…"}
%g = Mul(%x, %x) @b7        primal {forward_unique_id = "7"}, the gradient of what is marked @f7
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program

from tests.execution import ORDERS, Arrays, run_graph

MARKS = {"f": "unique_id", "b": "forward_unique_id"}


def program(text: str) -> Program:
    number = itertools.count(1)
    return parse_program(
        re.sub(r" @([fb])(\d*)$", lambda m: f' primal {{{MARKS[m[1]]} = "{m[2] or next(number)}"}}', text, flags=re.M)
    )


def graph(text: str) -> Graph:
    """The first graph of the text; a text without `graph` is the body of one that takes %x: float32[2]."""
    if not re.search(r"^graph ", text, re.M):
        states = "\n".join(line for line in text.split("\n") if line.startswith("state "))
        body = "\n".join(line for line in text.split("\n") if not line.startswith("state "))
        text = f"{states}\ngraph @step(%x: float32[2]) {{\n{body}\n}}"
    return next(iter(program(text).graphs.values()))


def node(of: Graph, name: str) -> Node:
    """The node of that name, in the graph or in one of its functions."""
    return next(n for body in of.all_graphs() for n in body if n.name == name)


def results(of: Graph, inputs: Sequence[np.ndarray], state: Arrays) -> list[tuple[object, Arrays]]:
    """What the graph returns and leaves in the state, for each order of `tests.execution.ORDERS`."""
    found = []
    for order in ORDERS:
        memory = {name: value.copy() for name, value in state.items()}
        found.append((run_graph(of, inputs, memory, order), memory))
    return found
