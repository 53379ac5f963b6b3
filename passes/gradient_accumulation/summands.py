"""A gradient whose summands the update side adds up is made one value, which one accumulator takes.

A weight that is used in several places has a summand for each. MindSpore's autodiff adds them up. Where an optimizer
adds a weight decay, MindSpore makes one AddN of both sums, on the update side::

    %all = MakeTuple(%g1, %g2, %decay)        %both = MakeTuple(%g1, %g2)
    %d = AddN(%all)                           %g = AddN(%both)              // backward again
                                              %all = MakeTuple(%g, %decay)
                                              %d = AddN(%all)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.builders.nodes import Nodes
from ...ir.core.graph import Graph, Node
from ...ir.core.inference import infer
from ...ir.core.names import BACKWARD_ID
from ..step.crossings import update_uses
from .graphs import SCOPE


def join_summands(found: TrainingAnatomy) -> bool:
    """Says whether it changed the graph of ``found``."""
    several = dict.fromkeys(frozenset(info.gradient) for info in found.weights if len(info.gradient) > 1)
    position = {node: i for i, node in enumerate(found.graph)} if several else {}
    joined = False
    for summands in several:
        places = sorted(_places(found, summands), key=position.__getitem__)
        if places:
            _join(found.graph, places, summands)
            joined = True
    return joined


def _places(found: TrainingAnatomy, summands: Collection[Node]) -> set[Node]:
    """The tuples of AddNs in which all summands meet, each of them once; none where anybody else takes one. Weights
    with the same gradient (the two biases of a recurrent cell) have a place each."""
    uses = [update_uses(summand, found.parts) for summand in summands]
    places = {user for of in uses for user, _ in of}
    if any(Counter(user for user, _ in of) != Counter(places) for of in uses):
        return set()
    return places if all(map(_is_added, places)) else set()


def _is_added(place: Node) -> bool:
    return place.op.name == "MakeTuple" and all(user.op.name in ("AddN", "UpdateState") for user in place.uses)


def _join(graph: Graph, places: Sequence[Node], summands: Collection[Node]) -> None:
    first = places[0]
    ordered = [value for value in first.operands if value in summands]
    n = Nodes(graph, SCOPE, {BACKWARD_ID: f"{SCOPE}.{first.name}"})
    with graph.inserting_before(first):
        both = n.op("MakeTuple", *ordered)
        total = n.linked(graph.create("AddN", [both], scope=SCOPE, sources=ordered))
    for place in places:
        rest = [value for value in place.operands if value not in summands]
        at = next(i for i, value in enumerate(place.operands) if value in summands)
        place.set_operands([*rest[:at], total, *rest[at:]])
        place.type = infer(place.op, place.operands)
        if not rest:
            for user in list(place.uses):
                if user.op.name == "AddN":
                    user.replace_uses(total)
