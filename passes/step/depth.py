"""The trained weights by depth: layers, in the order in which data reaches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from ...ir.analysis.training.network import FORWARD, network_parts
from ...ir.core.errors import NotApplicable, PassError
from ...ir.core.graph import Graph, Node, State, Value
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.types import is_monad
from ...ir.core.wording import counted


def layers_by_depth(program: Program) -> list[list[str]]:
    """Trained weights in layers, those first that fewest operations separate from the inputs. A matrix or filter makes
    a layer, and the vectors that are used on what comes of it belong to it, so that a convolution and its BatchNorm
    stay together. The order in which nodes stand does not matter. Linear in nodes."""
    weights = {path.weight for graph in updating_graphs(program) for path in gradient_paths(graph)}
    feeding = next((g for name, g in program.graphs.items() if program.consumes(name)), None)
    if feeding is None:
        raise PassError("no graph of the program consumes micro-batches, so none has a forward part")
    network = _Network(feeding, network_parts(feeding))
    place = {name: i for i, name in enumerate(program.state)}
    used = {
        name: network.first_use(feeding.states[name])
        for name in program.state
        if name in weights & feeding.states.keys()
    }
    first = {name: node for name, node in used.items() if node is not None}
    matrices = {node: name for name, node in first.items() if len(program.state[name].shape) > 1}
    layer_of = network.latest(matrices)
    layers: dict[str, list[str]] = {}
    for name in sorted(first, key=lambda name: (network.depth[first[name]], place[name])):
        is_matrix = len(program.state[name].shape) > 1
        layer = name if is_matrix else layer_of.get(first[name], name)
        layers.setdefault(layer, []).append(name)
    return list(layers.values())


def divided(layers: Sequence[Sequence[str]], groups: int, result: PassResult, refusal: str) -> list[list[str]]:
    """The weights of the layers in ``groups`` groups of about as many layers, or as many groups as there are layers,
    which is a miss. NotApplicable, which ends with ``refusal``, where there is no more than one."""
    n = min(groups, len(layers))
    if n < 2:
        raise NotApplicable(f"the network has {len(layers)} layer with trained weights: {refusal}")
    if n < groups:
        result.miss("groups", f"the network has {counted(n, 'layer')} with trained weights, so {counted(n, 'group')}")
    ends = [k * len(layers) // n for k in range(n + 1)]
    return [[w for layer in layers[a:b] for w in layer] for a, b in pairwise(ends)]


def matches(weight: str, globs: str) -> bool:
    """Whether one of several globs, between bars, matches."""
    return any(fnmatchcase(weight, glob.strip()) for glob in globs.split("|"))


class _Network:
    """The forward part. ``depth`` of a node: operations on the longest way from an input to it, itself included; what
    no input reaches (a weight that is loaded, cast, normalised) has none."""

    def __init__(self, graph: Graph, parts: Mapping[Node, str]):
        # Tokens order effects, no data comes through them.
        self.nodes = [node for node in graph if parts.get(node) == FORWARD and not is_monad(node.type)]
        self.depth: dict[Value, int] = dict.fromkeys(graph.inputs, 0)
        for node in self.nodes:
            deepest = max((self._depth(v) for v in node.operands), default=-1)
            if deepest >= 0:
                self.depth[node] = deepest + 1
        self._use: dict[Node, Node] = {}
        for node in reversed(self.nodes):
            use = self.first_use(node) if node not in self.depth else None
            if use is not None:
                self._use[node] = use

    def _depth(self, value: Value) -> int:
        return self.depth.get(value, -1)

    def first_use(self, value: Node | State) -> Node | None:
        """The node least deep at which a value that no input reaches meets what one does."""
        takers = dict.fromkeys(user for user, i in value.use_sites() if not orders_only(user, i))
        uses = [taker if taker in self.depth else self._use.get(taker) for taker in takers]
        found = [use for use in uses if use is not None]
        return min(found, key=lambda use: self.depth[use], default=None)

    def latest(self, matrices: Mapping[Node, str]) -> dict[Node, str]:
        """The matrix that each node takes, or else the last one on the longest way to it."""
        found: dict[Node, str] = {}
        for node in self.nodes:
            if node in matrices:
                found[node] = matrices[node]
            elif node in self.depth:
                source = max(node.operands, key=self._depth)
                if isinstance(source, Node) and source in found:
                    found[node] = found[source]
        return found
