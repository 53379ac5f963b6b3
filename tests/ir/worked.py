"""The worked graphs in the docstrings of analyses: text IR, with what is found as a comment behind each node."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.text import parse_program


def worked(module: ModuleType) -> tuple[Graph, dict[str, Node], dict[str, str]]:
    """The graph of a module's docstring, its nodes by name, and the comments by the name of node or state."""
    text = inspect.cleandoc(module.__doc__ or "").partition("::\n\n")[2]
    text = re.match(r"(?:(?: {4}.*)?\n?)*", text)[0]  # type: ignore[index]
    (graph,) = parse_program(text).graphs.values()
    nodes = {node.name: node for body in graph.all_graphs() for node in body}
    comments = dict(re.findall(r"^ *(?:state )?%([\w.]+)(?::| =).*// (.*)$", text, re.M))
    assert comments
    assert comments.keys() <= {*nodes, *graph.states}
    return graph, nodes, comments
