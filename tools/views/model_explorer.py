"""Graphs for Google's Model Explorer (https://github.com/google-ai-edge/model-explorer): its JSON of graph collections.

Nothing is left out: tokens, tuples and Loads are nodes too, as Model Explorer folds scopes by itself.
"""

from __future__ import annotations

from typing import Any

from ...ir.core.attributes import TensorValue
from ...ir.core.errors import Error
from ...ir.core.graph import Constant, Graph, GraphRef, Node, Value
from ...ir.core.types import TupleType
from ...ir.text.spelling import Spelling
from .palette import FILLS, STROKES, pass_colours
from .shown import Shown, makers

_LONG = 200
_SPELL = Spelling()
Document = dict[str, Any]


class NoModelExplorer(Error):
    """Model Explorer is not installed."""


def document_of(shown: Shown) -> Document:
    """A graph collection: each graph, and each of its functions, is one of its graphs. Fill by part, border by the pass
    that made a node."""
    colours = pass_colours(makers(shown))
    graphs = []
    for name, graph in shown.program.graphs.items():
        for body in graph.all_graphs():
            title = name if body is graph else f"{name}/{body.name}"
            graphs.append(_Writer(shown, body, colours).graph(title))
    return {"label": shown.program.name, "graphs": graphs}


def open_viewer(text: str, output: str | None) -> None:
    """Writes the document (to a temporary file, if no other is given) and starts Model Explorer on it; returns when it
    is stopped. NoModelExplorer if it is not installed."""
    import os
    import tempfile

    try:
        import model_explorer
    except ImportError:
        raise NoModelExplorer(
            "Model Explorer is not installed: pip install 'boost-compile[model-explorer]', or write the file with -o "
            "and open it elsewhere"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        path = output or os.path.join(folder, "program.json")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        model_explorer.visualize(model_paths=path)


class _Writer:
    def __init__(self, shown: Shown, graph: Graph, colours: dict[str, str]):
        self.shown = shown
        self.body = graph
        self.colours = colours
        self.ids: dict[Value, str] = {}
        self.nodes: list[Document] = []

    def graph(self, title: str) -> Document:
        for value in self.body.inputs:
            self._add(value, value.name, "inputs", "#ffffff", "#767676")
        for state in self.body.states.values():
            self._add(state, state.name, "state", "#fff7d6", "#a08000", role=self._role(state.name))
        for node in self.body:
            part = self.shown.part(node)
            passes = node.origin.passes if node.origin else ()
            stroke = self.colours[passes[-1]] if passes else STROKES[part]
            notes = {"name": node.name, "part": part, "made by": ", ".join(passes)}
            if node.origin:
                notes["made from"] = ", ".join(node.origin.sources)
            notes |= {f"operand {i}": _plain(v) for i, v in enumerate(node._operands)}
            notes |= {key: _short(_SPELL.value(value)) for key, value in node.attributes.items()}
            made = self._add(node, node.op.name, _namespace(node), FILLS[part], stroke, **notes)
            made["incomingEdges"] = [self._edge(v, i) for i, v in enumerate(node._operands) if not _plain(v)]
        if self.body.has_result:
            end = {"id": "return", "label": "return", "namespace": "", "attrs": []}
            self.nodes.append({**end, "incomingEdges": [self._edge(self.body.result, 0)]})
        return {"id": title, "nodes": self.nodes}

    def _role(self, name: str) -> str:
        variable = self.shown.program.state.get(name)
        return variable.role if variable else ""

    def _add(self, of: Value, label: str, namespace: str, fill: str, stroke: str, /, **notes: str) -> Document:
        self.ids[of] = str(len(self.ids))
        made: Document = {
            "id": self.ids[of],
            "label": label,
            "namespace": namespace,
            "attrs": [{"key": key, "value": text} for key, text in notes.items() if text],
            "incomingEdges": [],
            "outputsMetadata": [{"id": "0", "attrs": _shape(of)}],
            "style": {"backgroundColor": fill, "borderColor": stroke},
        }
        self.nodes.append(made)
        return made

    def _edge(self, operand: Value, i: int) -> Document:
        if operand not in self.ids:
            note = _short(_SPELL.value(operand.value)) if isinstance(operand, Constant) else ""
            self._add(operand, operand.name, "constants" if note else "outside", "#ffffff", "#b0b0b0", value=note)
        return {"sourceNodeId": self.ids[operand], "sourceNodeOutputId": "0", "targetNodeInputId": str(i)}


def _plain(operand: Value) -> str:
    """An operand that is written with its node: a function, a constant that is no tensor; empty for others."""
    if isinstance(operand, GraphRef):
        return f"function {operand.graph.name}"
    if isinstance(operand, Constant) and not isinstance(operand.value, TensorValue):
        return _short(_SPELL.value(operand.value))
    return ""


def _namespace(node: Node) -> str:
    path = [part for part in node.scope.split("/") if part][:-1]
    if not path and node.origin and node.origin.passes:
        path = [f"pass {node.origin.passes[-1]}"]
    return "/".join(path)


def _shape(value: Value) -> list[dict[str, str]]:
    text = str(value.type)
    return [{"key": "type" if isinstance(value.type, TupleType) else "tensor_shape", "value": _short(text)}]


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
